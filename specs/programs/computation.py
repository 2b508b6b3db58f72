"""Computations between the collectives of a program."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from collplan.specs.errors import show_value
from collplan.specs.machines.network import Network
from collplan.specs.syntax.base import ShortModel, raise_together
from collplan.specs.syntax.numbers import Bytes, Natural, Seconds

_FORMS = "give seconds, uniform, normal, or bytes and operations"
WORD_BYTES = 8
"""Bytes of an operand of the operations that a computation counts."""


def _read_seconds(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError(f"{show_value(value)} is not a number of seconds; give one, as 1.5e-3")
    return value


class StepComputation(ShortModel):
    """A computation of each rank of a step, on the rank's core.

    Its duration is given in one of four ways.

    Parameters
    ----------
    seconds : float or tuple of float
        Duration in seconds: one for all ranks, or one for each rank of the machine.
    uniform : tuple of float
        Least and greatest duration in seconds; each rank draws its own.
    normal : tuple of float
        Mean and standard deviation in seconds, of which each rank draws its own; less than 0
        counts as 0.
    seed : int
        Seed of the durations that are drawn. Each step draws different ones.
    bytes : int
        Number of bytes that a rank copies, at the machine's `copy_ns_per_byte`.
    operations : int
        Number of operations on numbers of 8 bytes, at the machine's `reduce_ns_per_byte`.
    """

    seconds: Annotated[Seconds | tuple[Seconds, ...], BeforeValidator(_read_seconds)] | None = None
    uniform: tuple[Seconds, Seconds] | None = None
    normal: tuple[Seconds, Seconds] | None = None
    seed: Natural = 0
    bytes: Bytes | None = None
    operations: Natural | None = None

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields; raise `ValueError` unless the duration is given in one way."""
        given = {name for name in cls.model_fields if fields.get(name) is not None} - {"seed"}
        is_counted = bool(given) and given <= {"bytes", "operations"}
        if len(given) != 1 and not is_counted and not set(fields) - set(cls.model_fields):
            names = " and ".join(sorted(given))
            raise ValueError(f"has {names or 'no duration'}; {_FORMS}")
        return fields

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            least, most = self.uniform
            yield f"uniform: {least:g} is more than {most:g}; give the least duration first"

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a line for each field that does not fit `n_ranks`."""
        if isinstance(self.seconds, tuple) and len(self.seconds) != n_ranks:
            yield (
                f"seconds: {len(self.seconds)} durations, machine has {n_ranks} ranks; "
                "give one for each rank, or one for all"
            )

    def durations_ns(self, n_ranks: int, network: Network, salt: str) -> list[int]:
        """Return the duration for every rank of the machine, in whole ns.

        Parameters
        ----------
        n_ranks : int
            Number of ranks of the machine.
        network : Network
            Costs of copies and operations.
        salt : str
            Text that makes the random durations of steps differ, as the step's name.
        """
        if self.seconds is not None:
            seconds = self.seconds if isinstance(self.seconds, tuple) else (self.seconds,) * n_ranks
            return [round(one * 1e9) for one in seconds]
        drawn = random.Random(f"{self.seed} {salt}")
        if self.uniform is not None:
            return [round(drawn.uniform(*self.uniform) * 1e9) for _ in range(n_ranks)]
        if self.normal is not None:
            return [max(0, round(drawn.gauss(*self.normal) * 1e9)) for _ in range(n_ranks)]
        copied = (self.bytes or 0) * network.copy_ns_per_byte
        combined = (self.operations or 0) * WORD_BYTES * network.reduce_ns_per_byte
        return [round(copied + combined)] * n_ranks
