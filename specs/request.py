"""Plan specs, from which plans are compiled, and methods, which are a part of plan specs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, Final, Self

from pydantic import model_serializer

from collplan.specs.collectives.collective import Collective
from collplan.specs.collectives.collective_base import Reproducible
from collplan.specs.machines.levels import NETWORK_LEVELS
from collplan.specs.machines.machine import Machine
from collplan.specs.methods.decomposition import Decomposition
from collplan.specs.methods.named_option import (
    AlgorithmChoice,
    Algorithms,
    AlgorithmsByRole,
    NamedOption,
    PassChoice,
    Transport,
)
from collplan.specs.syntax.base import SpecModel, raise_together
from collplan.specs.syntax.documents import write_json, write_yaml

AUTO: Final = AlgorithmChoice(name="auto")
FLAT: Final = Decomposition(name="flat")
MESSAGES: Final = Transport(name="messages")


class Method(SpecModel):
    """A way to compute a collective, independent of the machine and the collective.

    It is written as a mapping of the fields that differ from their defaults.

    Parameters
    ----------
    decomposition, algorithms, transport, passes
        As in `PlanSpec`.

    Examples
    --------
    >>> Method(decomposition="full_lane", algorithms={"node": "linear"}).label
    'full_lane node: linear'
    >>> Method(passes=["prioritize"]).model_dump()
    {'passes': ['prioritize']}
    """

    decomposition: Decomposition = FLAT
    algorithms: Algorithms = AUTO
    transport: Transport = MESSAGES
    passes: tuple[PassChoice, ...] = ()

    @cached_property
    def label(self) -> str:
        """Short name in tables, which is the same for equal methods."""
        is_flat = self.decomposition == FLAT
        words = [] if is_flat and self.algorithms != AUTO else [str(self.decomposition)]
        words += [] if self.algorithms == AUTO else [str(self.algorithms)]
        words += [] if self.transport == MESSAGES else [f"transport={self.transport}"]
        return " ".join([*words, *map(str, self.passes)])

    def named_algorithms(self, kind: str) -> list[tuple[str | None, str]]:
        """Return pairs of a collective's kind, None for any kind, and an algorithm's name."""
        if isinstance(self.algorithms, AlgorithmsByRole):
            roles = self.algorithms.roles.items()
            return [(role.partition("/")[2] or None, one.name) for role, one in roles]
        is_flat = self.decomposition.name == "flat"
        return [(kind if is_flat else None, self.algorithms.name)]

    @model_serializer
    def _write_given(self) -> dict[str, Any]:
        fields = type(self).model_fields.items()
        given = {key: getattr(self, key) for key, field in fields}
        return {key: _short(given[key]) for key, field in fields if given[key] != field.default}


def _short(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_short(entry) for entry in value]
    if isinstance(value, NamedOption) and not value.options:
        return value.name
    return value.model_dump(mode="json") if isinstance(value, SpecModel) else value


class PlanSpec(SpecModel):
    """A machine, a collective on it, and how to plan it.

    Parameters
    ----------
    machine : Machine
        The machine on which ranks run; by default one node with one rank.
    collective : Collective
        The collective to compute.
    decomposition : Decomposition
        Division of the collective over nodes and lanes, a mesh, or other collectives.
    algorithms : AlgorithmChoice or AlgorithmsByRole
        The algorithm, with options; ``auto`` leaves the choice to the planner. The
        components of a decomposition have one per role, as ``{node: ring, lane: chain}``.
    transport : Transport
        Transport between ranks of one node: ``messages``, or ``shared`` memory, for all
        phases or by role, as ``{node: shared}``.
    passes : tuple of PassChoice
        Rewrites of the plan, in order.

    Examples
    --------
    >>> spec = PlanSpec.model_validate(
    ...     {"machine": {"ranks_per_node": 4}, "collective": {"kind": "bcast", "count": 8}}
    ... )
    >>> spec.machine.n_ranks, spec.collective.kind, spec.algorithms.name
    (4, 'bcast', 'auto')
    >>> PlanSpec.model_validate_json(spec.to_json()) == spec
    True
    """

    functions: ClassVar = ("compile", "compare", "verify", "draw", "simulate", "bind", "tune")

    machine: Machine = Machine()
    collective: Collective
    decomposition: Decomposition = FLAT
    algorithms: Algorithms = AUTO
    transport: Transport = MESSAGES
    passes: tuple[PassChoice, ...] = ()

    @property
    def method(self) -> Method:
        """Return the method."""
        return Method(**{name: getattr(self, name) for name in Method.model_fields})

    def with_method(self, method: Method) -> Self:
        """Return the spec with another method.

        Raises
        ------
        FieldError
            If the method does not fit the machine.
        """
        return self.replace(**{name: getattr(method, name) for name in Method.model_fields})

    def with_count(self, count: int) -> Self:
        """Return the spec with another count, unchanged if its collective moves no elements."""
        return self.replace(collective=self.collective.with_count(count))

    def with_level(self, level: Reproducible) -> Self:
        """Return the spec at another level of `reproducible`, unchanged if nothing is combined."""
        if not self.collective.has_op:
            return self
        return self.replace(collective=self.collective.replace(reproducible=level))

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        """Yield a message for each contradiction between fields."""
        yield from self.collective.misfits(self.machine.n_ranks)
        machine, chosen = self.machine, self.decomposition
        if chosen.name == "mesh" and chosen.shape is not None:
            size = math.prod(chosen.shape)
            if size != machine.n_ranks:
                shape = " x ".join(map(str, chosen.shape))
                yield (
                    f"decomposition.shape: {shape} is {size} ranks, the machine has "
                    f"{machine.n_ranks}; use extents whose product is {machine.n_ranks}"
                )
        fullest = max(machine.node_to_n_ranks)
        is_inside = chosen.by not in NETWORK_LEVELS
        if chosen.leaders is not None and chosen.leaders > fullest and is_inside:
            yield (
                f"decomposition.leaders: {chosen.leaders} leaders, no node has more than "
                f"{fullest} ranks; use 1 to {fullest}"
            )
        levels = [level for level in NETWORK_LEVELS if level in chosen.levels]
        if levels and machine.network.topology is None:
            yield (
                f"decomposition.by: {levels[0]}, but machine.network has no topology; give one, "
                f"or use node or numa"
            )

    def to_json(self) -> str:
        """Return the spec as one line of JSON with sorted keys and all defaults.

        Equal specs give equal text on any machine.
        """
        return write_json(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """Return the spec as YAML with all defaults."""
        return write_yaml(self.model_dump(mode="json"))
