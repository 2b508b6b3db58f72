"""Structures: messages and steps of programs that serve for several counts and transports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.recent import Recent
from collplan.planner.lowering.program import ComponentProgram, Program
from collplan.planner.lowering.stated import Stated
from collplan.planner.lowering.symmetry import Symmetries
from collplan.planner.lowering.tables import Tables
from collplan.planner.passes.coalescing.coalesce_requests import coalesce_table
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.phases import is_inside
from collplan.select.costs import Costs
from collplan.select.cuts import Cut
from collplan.select.message_costs import MessageCosts
from collplan.select.work import HeldResources, Work
from collplan.specs import Collective, Machine, PassChoice, PlanSpec

MOST_ROWS: Final = 200_000
"""Number of messages and steps of all structures that are kept."""
MOST_ALIKE: Final = 1000
"""Number of programs of which it is known whether their plans fold."""
LEAST_FOLDED: Final = 20_000
"""Effort from which an estimate considers that a plan may be folded."""
MOST_FOLDED: Final = 1_000_000_000
"""Number of messages between pairs of ranks above which an estimate takes no plan as folded."""

symmetries: Final = Symmetries()
"""Known symmetries of the components of recent programs."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Messages and steps of some phases, which differ only in their sizes at other counts.

    Parameters
    ----------
    name : str
        Description of the work of the phases, the same for all counts.
    tables : Tables
        Messages and local steps of the phases.
    spec : PlanSpec
        Spec with the count for which the tables were made.
    ranks : tuple of int or None
        Ranks that represent the machine; None for all.
    """

    name: str
    tables: Tables
    spec: PlanSpec
    ranks: tuple[int, ...] | None
    _costs: dict[bytes, Costs] = field(default_factory=dict)
    _works: dict[tuple[bytes, int, Cut], Work] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Return the collective's count for which the tables were made."""
        return int(self.spec.collective.count)

    @cached_property
    def least(self) -> int:
        """Number of elements of the smallest piece of memory that a message or step accesses."""
        messages, steps = self.tables.messages, self.tables.steps
        ends = (messages.read, messages.write, messages.combine, steps.read, steps.write)
        return min((int(end.count.min()) for end in ends if len(end.count)), default=0)

    @cached_property
    def n_rows(self) -> int:
        """Number of messages and steps."""
        return len(self.tables.messages.round) + len(self.tables.steps.round)

    def serves(self, count: int) -> bool:
        """Return whether the structure is valid at another count, where no piece may be empty."""
        return count == self.count or (self.count > count > 0 and self.least * count >= self.count)

    @cached_property
    def phases_inside(self) -> Ints:
        """Phases with messages inside a node, ascending."""
        messages, node = self.tables.messages, RankPlaces.of(self.spec.machine).node
        return np.unique(messages.phase[node[messages.source] == node[messages.dest]])

    def costs(self, shared_phases: Bools) -> Costs:
        """Return the costs if ranks of a node share memory in some phases."""
        key = shared_phases.tobytes()
        if key not in self._costs:
            machine, itemsize = self.spec.machine, self.spec.collective.itemsize
            rows = MessageCosts(self.tables, machine, itemsize, shared_phases, self.ranks)
            self._costs[key] = Costs(rows, _places_of(machine, self.ranks))
        return self._costs[key]

    def work(self, shared_phases: Bools, count: int, cut: Cut) -> Work:
        """Return the work at a count with cut messages.

        The sizes of pieces differ by at most one element. The lower bound rounds the mean size of
        the smallest piece down.
        """
        key = shared_phases.tobytes(), count, cut
        if key not in self._works:
            factor = least_factor = 1.0
            if count != self.count:
                factor = count / self.count
                mean = self.least * factor
                least_factor = factor * int(mean * (1 + 1e-9)) / mean
            self._works[key] = self.costs(shared_phases).work(cut, factor, least_factor)
        return self._works[key]


@dataclass(frozen=True, eq=False)
class PhaseBlock:
    """Some phases of a program at its count.

    Parameters
    ----------
    structure : Structure
        Messages and steps of the phases.
    shared_phases : ndarray of bool, shape (n_phases,)
        Phases in which ranks of a node share memory.
    count : int
        The collective's count.
    """

    structure: Structure
    shared_phases: Bools
    count: int

    @property
    def effort_of_parts(self) -> int:
        """Return the effort that pieces of memory add; see `MessageCosts`."""
        return self.structure.costs(self.shared_phases).effort_of_parts

    @property
    def longest(self) -> tuple[float, float]:
        """Return the sizes in bytes of the longest message, and of the longest between nodes."""
        costs = self.structure.costs(self.shared_phases)
        factor = self.count / max(1, self.structure.count)  # nothing is sent if both are 0
        return costs.longest * factor, costs.longest_crossing * factor

    def work(self, cut: Cut) -> Work:
        """Return the work with cut messages."""
        return self.structure.work(self.shared_phases, self.count, cut)


@lru_cache(maxsize=4)
def _places_of(machine: Machine, ranks: tuple[int, ...] | None) -> HeldResources:
    return HeldResources.of(machine, ranks)


_Key = tuple[Machine, Collective, str, int | None]
"""Key of a structure or program: machine, collective, description, and the count that it needs."""


class Structures:
    """Recent structures, shared by programs that do the same."""

    def __init__(self) -> None:
        self.kept = Recent[_Key, Structure](MOST_ROWS, lambda one: max(1, one.n_rows))
        self._n_copies = Recent[_Key, int](MOST_ALIKE)

    def clear(self) -> None:
        """Forget all structures."""
        self.kept.clear()
        self._n_copies.clear()

    def folded_effort(self, effort: int, program: Program, ranks: tuple[int, ...] | None) -> int:
        """Return the effort of a plan if it is folded, given that of the plan of all ranks.

        Whether it folds is remembered for other counts if both counts are even.
        """
        if effort <= LEAST_FOLDED:
            return effort
        spec = program.blueprint.spec
        key = _key_of(spec, work_of(spec, program), needs_count=not is_even(program))
        return effort // self._n_copies.find(key, lambda: n_copies_of(program, ranks))

    def blocks(
        self, program: Program, ranks: tuple[int, ...] | None, passes: Sequence[PassChoice]
    ) -> list[PhaseBlock]:
        """Return a program in blocks of phases, whose structures other programs may share.

        A block is a component, or several local ones that follow each other. Adapters that cache
        queue pairs, links of a topology and passes depend on the messages of all components, which
        are then one block.
        """
        spec, network = program.blueprint.spec, program.blueprint.spec.machine.network
        shared = _shared_phases(spec, program)
        is_whole = network.nic is not None or network.topology is not None or bool(passes)
        if is_whole or not isinstance(program, ComponentProgram):
            name, tables = work_of(spec, program), partial(_tables_after, program, ranks, passes)
            return [self._block(name, tables, shared, spec, ranks)]
        outline = " ".join(f"{part.component.role}/{part.component.kind}" for part in program.parts)
        found = []
        for begin, end in _runs(program.parts):
            alone = ComponentProgram(program.blueprint, program.parts[begin:end])
            name = f"{begin} of {outline}: {work_of(spec, alone)}"
            tables = partial(_tables_after, alone, ranks, passes)
            found.append(self._block(name, tables, shared[begin:end], spec, ranks))
        return found

    def _block(
        self,
        name: str,
        tables: Callable[[], Tables],
        shared_phases: Bools,
        spec: PlanSpec,
        ranks: tuple[int, ...] | None,
    ) -> PhaseBlock:
        """Return a block; its structure is created unless a known one is valid for its count."""
        count = spec.collective.count
        key = _key_of(spec, name, needs_count=spec.collective.regular is not None)
        structure = self.kept.get(key)
        if structure is None or not structure.serves(count):
            structure = Structure(name, tables(), spec, ranks)
            self.kept.keep(key, structure)
        # Only messages inside nodes depend on the phases in which ranks share memory.
        shares = np.zeros(len(shared_phases), dtype=np.bool_)
        shares[structure.phases_inside] = shared_phases[structure.phases_inside]
        return PhaseBlock(structure, shares, count)


recent_structures: Final = Structures()
"""Structures of recent candidates."""


def _key_of(spec: PlanSpec, name: str, *, needs_count: bool) -> _Key:
    """Return the key of what a name describes, at all counts or at that of a spec."""
    if needs_count:
        return spec.machine, spec.collective, name, spec.collective.count
    return spec.machine, spec.collective.with_count(0), name, None


def _runs(parts: Sequence[Stated]) -> Iterator[tuple[int, int]]:
    """Yield the first part of each block of a program, and the one past its last part."""
    is_local = np.array([part.component.is_local for part in parts], dtype=np.bool_)
    begins = np.flatnonzero(~(is_local & np.append(False, is_local[:-1]))).tolist()
    yield from pairwise((*begins, len(parts)))


def _tables_after(
    program: Program, ranks: tuple[int, ...] | None, passes: Sequence[PassChoice]
) -> Tables:
    """Return the tables of a program after passes."""
    tables = program.tables(ranks, is_packed=False)
    if any(choice.name == "coalesce_requests" for choice in passes):
        return tables._replace(messages=coalesce_table(tables.messages))
    return tables


def is_even(program: Program) -> bool:
    """Return whether all ranks have equal shares, and all chunks of a vector are of one size."""
    spec = program.blueprint.spec
    if spec.collective.count % spec.machine.n_ranks:
        return False
    for part in program.parts:
        size = int(part.component.groups.sizes.max(initial=1))
        is_cut = not part.component.traits.has_blocks
        if is_cut and (part.component.given.totals % part.n_parts(size)).any():
            return False
    return True


def n_copies_of(program: Program, ranks: tuple[int, ...] | None) -> int:
    """Return the number of nodes that one node represents, if the plan of a large machine folds.

    Plans in segments do not fold, because the order of segments differs between nodes.
    """
    machine = program.blueprint.spec.machine
    if ranks is None or machine.network.joins_nodes:
        return 1
    if any(part.n_pairs > MOST_FOLDED for part in program.parts):
        return 1  # one node's programs alone are large
    half = machine.nodes // 2
    folds = symmetries.may_fold(program, half) and not symmetries.divides_what_moves(program, half)
    return machine.nodes if folds else 1


def _shared_phases(spec: PlanSpec, program: Program) -> Bools:
    """Mark the phases in which ranks of one node share memory."""
    roles = spec.transport.shared_roles
    return np.array(
        [roles is None or any(is_inside(one, role) for role in roles) for one in program.roles],
        dtype=np.bool_,
    )


def work_of(spec: PlanSpec, program: Program) -> str:
    """Return a text that identifies a program's work, except for its transport."""
    chosen = [f"{part.phase()}{sorted(part.options.items()) or ''}" for part in program.parts]
    passes = [str(choice) for choice in spec.passes]
    return " ".join([str(spec.decomposition), *chosen, *passes])
