"""Programs: the phases, messages and local steps of any blueprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.lowering.collect import BYTES_PER_ROW
from collplan.planner.lowering.exchange import PHASES, exchange_tables
from collplan.planner.lowering.lower import lower
from collplan.planner.lowering.reproducible import require_uncut
from collplan.planner.lowering.select import state
from collplan.planner.lowering.sliced import join_slices
from collplan.planner.lowering.stated import Stated
from collplan.planner.lowering.tables import Tables
from collplan.planner.lowering.uneven_exchange import uneven_tables
from collplan.planner.memory import require_memory


@dataclass(frozen=True, eq=False)
class ComponentProgram:
    """Components with their algorithms. Each component is one phase.

    Parameters
    ----------
    blueprint : Blueprint
    parts : tuple of Stated
        Its components with their algorithms.
    """

    blueprint: Blueprint
    parts: tuple[Stated, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of the phases, for which specs select transports."""
        return tuple(part.component.role for part in self.parts)

    @property
    def least_messages(self) -> int:
        """Return a lower bound of the number of messages, without tables."""
        return sum(part.least_messages for part in self.parts)

    def tables(self, only_ranks: Sequence[int] | None = None, *, is_packed: bool = True) -> Tables:
        """Return the messages and local steps of the algorithms, in program order.

        Parameters
        ----------
        only_ranks : sequence of int, optional
            Omit messages and steps without these ranks.
        is_packed : bool
            Whether scratch is packed. If not, which takes less time, the tables serve for costs
            only.
        """
        ends = self.parts, self.blueprint.spec, self.blueprint.n_scratch, only_ranks
        return lower(*ends, is_packed=is_packed)


@dataclass(frozen=True, eq=False)
class ExchangeProgram:
    """An alltoall through shared memory of nodes. Its fields are those of `ComponentProgram`."""

    blueprint: Blueprint
    exchange: Exchange
    parts: tuple[Stated, ...] = ()
    roles: tuple[str, ...] = tuple(phase.role for phase in PHASES)

    @property
    def least_messages(self) -> int:
        """Return a lower bound of the number of messages, without tables."""
        return self.exchange.n_messages if self.exchange.pairs is None else 0

    def tables(self, only_ranks: Sequence[int] | None = None, *, is_packed: bool = True) -> Tables:
        """Return the messages of leaders, and the copies of all ranks.

        Parameters
        ----------
        only_ranks : sequence of int, optional
            Omit messages and copies of nodes without these ranks.
        is_packed : bool
            Has no effect, as the scratch of an exchange has no gaps.
        """
        machine, exchange = self.blueprint.spec.machine, self.exchange
        n_nodes = exchange.n_rows
        n_kept = n_nodes
        if only_ranks is not None:
            n_kept = len({machine.rank_to_node[rank] for rank in only_ranks})
        n_ends = min(2 * n_kept, n_nodes)  # Kept nodes send and receive.
        n_rows = n_nodes * (n_ends if exchange.is_even else n_nodes)
        n_rows += (exchange.n_messages + n_nodes * machine.n_ranks) * n_ends // n_nodes
        require_memory(n_rows * BYTES_PER_ROW)
        tables = exchange_tables if exchange.pairs is None else uneven_tables
        return tables(exchange, np.array(machine.rank_to_node), machine.nodes, only_ranks)


@dataclass(frozen=True, eq=False)
class SlicedProgram:
    """A vector in slices, each of which has a program. Other fields are as in `ComponentProgram`.

    Parameters
    ----------
    slices : tuple of ComponentProgram
        Programs in the order of elements. Slices of the same length share a program.
    """

    blueprint: Blueprint
    parts: tuple[Stated, ...]
    slices: tuple[ComponentProgram, ...]

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of the phases of a slice, for which specs select transports."""
        return self.slices[0].roles

    @property
    def least_messages(self) -> int:
        """Return a lower bound of the number of messages, without tables."""
        return sum(one.least_messages for one in self.slices)

    def tables(self, only_ranks: Sequence[int] | None = None, *, is_packed: bool = True) -> Tables:
        """Return the messages and local steps of all slices, sorted by round and slice.

        Parameters are those of `ComponentProgram.tables`.
        """
        programs = dict.fromkeys(self.slices)
        made = {one: one.tables(only_ranks, is_packed=is_packed) for one in programs}
        lengths = [one.blueprint.spec.collective.count for one in self.slices]
        return join_slices([made[one] for one in self.slices], lengths)


Program = ComponentProgram | ExchangeProgram | SlicedProgram
"""A blueprint that is ready to be lowered to tables."""


def program_of(blueprint: Blueprint) -> Program:
    """Return the program of a blueprint.

    Raises
    ------
    AlgorithmError
        If the spec names an algorithm that is unknown, unsuitable, or that no component can
        use.
    """
    if blueprint.exchange is not None:
        return ExchangeProgram(blueprint, blueprint.exchange)
    if blueprint.slices:
        made = {one: _stated(one) for one in dict.fromkeys(blueprint.slices)}
        if blueprint.spec.collective.level == "runs":
            whole = _stated(replace(blueprint, slices=()))
            for one in made.values():
                require_uncut(blueprint.spec, whole.parts, one.parts)
        slices = tuple(made[one] for one in blueprint.slices)
        return SlicedProgram(blueprint, slices[0].parts, slices)
    return _stated(blueprint)


def _stated(blueprint: Blueprint) -> ComponentProgram:
    return ComponentProgram(blueprint, tuple(state(blueprint)))
