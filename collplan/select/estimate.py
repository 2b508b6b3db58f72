"""Estimates of a candidate before it is compiled: time, lower bound, number of tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from collplan.planner.arrays import Floats, Ints, csr
from collplan.planner.arrays.recent import Recent
from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.blueprint.exchange import exchange_of
from collplan.planner.blueprint.groups import Groups
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.decompose import draft
from collplan.planner.lowering.program import ComponentProgram, Program, program_of
from collplan.planner.lowering.select import priced_spec
from collplan.planner.lowering.stated import Stated
from collplan.planner.passes import run_blueprint_passes
from collplan.planner.passes.shared_memory.layout import aligned_elements
from collplan.planner.plan.assembly import RankPlaces
from collplan.select.cuts import Cut, Slices, own_segment, whole_elements, without_slices
from collplan.select.structures import (
    PhaseBlock,
    Structures,
    n_copies_of,
    recent_structures,
    symmetries,
    work_of,
)
from collplan.select.work import Work, bound_ns, estimate_ns, n_tasks_of
from collplan.specs import Collective, Decomposition, Link, Machine, PassChoice, PlanSpec

SLACK: Final = 1 - 1e-9
"""Factor for lower bounds, as sums of floats in another order may differ in their last digits."""

MOST_ON_LINKS: Final = 1024
"""Number of ranks up to which an estimate counts the loads of a topology's links. For more ranks,
a few nodes represent the machine, and only the links of adapters are considered."""
FEW_RANKS: Final = 512
"""Number of ranks above which a few nodes represent the whole machine."""
EVEN: Final = 0.005
"""Largest relative change of a count to let the ranks of a large machine share a vector evenly."""
MOST_DRAFTS: Final = 32
"""Number of blueprints that are kept."""
MOST_PAIRS: Final = 2_000_000
"""Number of messages between pairs of ranks above which an estimate is rough."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of a plan before it is compiled.

    Parameters
    ----------
    cut : int, Slices or None
        Greatest segment in bytes, or slices of the vector; None for whole messages.
    price_s : float
        Approximate time in seconds.
    bound_s : float
        Lower bound of the makespan in seconds: the time for which messages and steps hold the
        busiest lane, port, core, processor or memory.
    n_tasks : int
        Approximate number of tasks.
    effort : int
        Time to compile the plan, as a number of tasks. It is more than `n_tasks` if messages
        consist of many pieces of memory, and less if the plan of a large machine can be folded.
    identity : str
        A name that is the same for equal plans at one size.
    """

    cut: Cut
    price_s: float
    bound_s: float
    n_tasks: int
    effort: int
    identity: str

    @property
    def segment(self) -> int | None:
        """Return the size of the greatest segment in bytes; None if messages are not cut."""
        return self.cut if isinstance(self.cut, int) else None


def estimate(
    spec: PlanSpec,
    segments: Sequence[int] = (),
    max_tasks: int | None = None,
    structures: Structures | None = None,
    *,
    are_sliced: bool = False,
    most_s: float = math.inf,
) -> tuple[Estimate, ...]:
    """Estimate a spec's plan, whole and in segments or slices.

    Parameters
    ----------
    spec : PlanSpec
        Spec with a named decomposition. With passes that act on plans, only their plan counts.
    segments : sequence of int
        Sizes in bytes of segments, or of the longest messages of slices, to estimate in addition.
    max_tasks : int, optional
        Number of tasks above which price and bound are 0, because they are not computed.
    structures : Structures, optional
        Structures that are reused, such as those of larger counts.
    are_sliced : bool
        Whether the vector is cut into slices instead of messages into segments.
    most_s : float
        Time in seconds above which a plan is of no interest. If a phase of many rounds surely takes
        longer, its time is the price of the only estimate.

    Returns
    -------
    tuple of Estimate
        Estimates, of which the first is for whole messages.

    Raises
    ------
    AlgorithmError
        If an algorithm cannot serve, or the decomposition is refused.
    """
    wanted, own_slices = without_slices(priced_spec(spec))
    structures, spec, ranks = structures or Structures(), with_even_count(wanted), _sample(wanted)
    program, remaining = _program_of(spec, ranks)
    identity, least = _identity(spec, program), 2 * program.least_messages
    least_s = _longest_s(program, spec) if most_s < math.inf else 0.0
    if least > (most := math.inf if max_tasks is None else max_tasks) or least_s > most_s:
        return (Estimate(None, least_s, 0.0, least, least, identity),)
    large = [part for part in program.parts if ranks and part.n_pairs > MOST_PAIRS]
    n_rough, rough_ns = _rough(large, spec, ranks or ())
    small, segments = (_without(program, large), ()) if large else (program, segments)
    blocks, found = structures.blocks(small, ranks, remaining), []
    cuts = _cuts(segments, blocks, spec, are_sliced=are_sliced)
    for cut in [own_slices or own_segment(spec)] if remaining or own_slices else cuts:
        size = whole_elements(cut, spec.collective.itemsize)
        works = [block.work(size) for block in blocks]
        n_tasks = n_rough + n_tasks_of(works)
        ns = _price_ns(works, size, rough_ns) if n_tasks <= most else (0.0, 0.0)
        seconds = ns[0] * 1e-9, ns[1] * 1e-9 * SLACK * _sure_part(wanted, spec)
        effort = max(n_tasks, least) + sum(block.effort_of_parts for block in blocks)
        effort = effort if cut else structures.folded_effort(effort, program, ranks)
        cost = n_tasks, effort + spec.machine.n_ranks
        found.append(Estimate(cut, *seconds, *cost, f"{identity} {cut or ''}"))
    return tuple(found)


def _cuts(
    segments: Sequence[int], blocks: Sequence[PhaseBlock], spec: PlanSpec, *, are_sliced: bool
) -> list[Cut]:
    """Return the cuts whose messages have at most the given sizes in bytes."""
    if not segments or not blocks:
        return [None]
    longest, crossing = np.max([block.longest for block in blocks], axis=0, initial=0.0).tolist()
    sizes = [size for size in segments if size < longest]
    if not are_sliced:
        return [None, *sizes]
    count = spec.collective.count
    numbers = dict.fromkeys(min(math.ceil(longest / size), count) for size in sizes)
    return [None, *(Slices(number, crossing / number) for number in numbers)]


def _sure_part(wanted: PlanSpec, spec: PlanSpec) -> float:
    """Return the factor by which the bound at an even count also bounds the wanted spec."""
    return min(1.0, wanted.collective.count / max(1, spec.collective.count))


def program_of_sample(spec: PlanSpec) -> Program:
    """Return the program of a spec without passes, for the ranks that represent its machine."""
    return program_of(_draft(spec, _sample(spec)))


def _program_of(
    spec: PlanSpec, ranks: tuple[int, ...] | None
) -> tuple[Program, Sequence[PassChoice]]:
    """Return the program of a spec for some ranks, and the passes that act on its plan."""
    blueprint, remaining = run_blueprint_passes(_draft(spec, ranks), spec.passes)
    return program_of(blueprint), remaining


def _price_ns(works: Sequence[Work], cut: Cut, rough_ns: Floats) -> tuple[float, float]:
    """Return the price of cut messages and of roughly estimated parts, and a lower bound, in ns."""
    least_ns = max(float(rough_ns[:, 0].max()), bound_ns(works))
    price_ns = float(rough_ns[:, 1].sum()) + estimate_ns(works, cut)
    return max(least_ns, price_ns), least_ns


def _draft(spec: PlanSpec, ranks: tuple[int, ...] | None) -> Blueprint:
    """Return a spec's blueprint, or the part of it that the programs of some ranks need.

    Candidates share components, which do not depend on algorithms, passes or transport.
    """
    if exchange_of(spec, spec.decomposition) is not None:
        return draft(spec)
    key = _key_of(spec, ranks)
    only = None if ranks is None else np.array(ranks)
    found = _drafts.find(key, lambda: draft(spec, only_ranks=only, is_rough=True))
    return replace(found, spec=spec)


_Key = tuple[Machine, Collective, Decomposition, tuple[int, ...] | None]
_drafts: Final = Recent[_Key, Blueprint](MOST_DRAFTS)
"""Recent blueprints, which candidates share."""


def draft_of_sample(spec: PlanSpec) -> Blueprint:
    """Return the blueprint of a spec's decomposition for the ranks that represent its machine.

    Raises
    ------
    AlgorithmError
        If the decomposition is refused.
    """
    spec = with_even_count(spec)
    return _draft(spec, _sample(spec))


def forget_drafts() -> None:
    """Clear the caches of blueprints, structures and symmetries; callers do this at the end."""
    _drafts.clear()
    recent_structures.clear()
    symmetries.forget()


def _key_of(spec: PlanSpec, ranks: tuple[int, ...] | None) -> _Key:
    """Return the key of a spec's blueprint for some ranks: all properties on which it depends."""
    return spec.machine, spec.collective, spec.decomposition, ranks


def with_even_count(spec: PlanSpec) -> PlanSpec:
    """Return a spec of a large machine with the nearest count that its ranks share evenly.

    Only with such a count can its plan be folded. Messages at two such counts differ only in
    their sizes. Shares of whole cache lines are taken if possible, as plans through shared memory
    are then the same as well. If the relative change would exceed `EVEN`, the spec is returned
    unchanged.
    """
    collective, machine = spec.collective, spec.machine
    is_alike = not machine.network.joins_nodes
    if machine.n_ranks <= FEW_RANKS or collective.has_blocks or not is_alike:
        return spec
    for share in (aligned_elements(collective.itemsize), 1):
        step = share * machine.n_ranks
        count = round(collective.count / step) * step
        if abs(count - collective.count) <= EVEN * collective.count:
            return spec.with_count(count)
    return spec


def _sample(spec: PlanSpec) -> tuple[int, ...] | None:
    """Return the ranks of a few nodes that represent a large machine; None for all ranks."""
    machine = spec.machine
    few = FEW_RANKS if machine.network.topology is None else MOST_ON_LINKS
    if machine.n_ranks <= few or machine.nodes == 1:
        return None
    return _sample_around(machine, spec.collective.root or 0)


@lru_cache(maxsize=4)
def _sample_around(machine: Machine, root: int) -> tuple[int, ...]:
    place, sizes = RankPlaces.of(machine).node, machine.node_to_n_ranks
    first = int(place[root])
    nodes = [first, (first + machine.nodes // 2) % machine.nodes, sizes.index(max(sizes))]
    ranks = np.flatnonzero(np.isin(place, nodes))
    return tuple(ranks[np.argsort(place[ranks] != first, kind="stable")].tolist())


def folds(spec: PlanSpec) -> bool:
    """Return whether the plan of a spec without passes folds on a large machine."""
    return n_copies_of(program_of_sample(spec), _sample(spec)) > 1


def _without(program: Program, parts: Sequence[Stated]) -> Program:
    kept = tuple(part for part in program.parts if part not in parts)
    return ComponentProgram(program.blueprint, kept)


def _rough(parts: Sequence[Stated], spec: PlanSpec, ranks: Sequence[int]) -> tuple[int, Floats]:
    """Return the number of tasks of large parts, and the least and the approximate time of each."""
    if not parts:
        return 0, np.zeros((1, 2))
    n_messages = sum(part.least_messages_of(ranks) for part in parts)
    n_tasks = int(2 * n_messages * spec.machine.n_ranks / len(ranks))
    return n_tasks, np.array([_rough_ns(part, spec) for part in parts])


def _longest_s(program: Program, spec: PlanSpec) -> float:
    """Return the least time in seconds of the longest phase with as many rounds as ranks."""
    slow = [one for one in program.parts if one.algorithm.has_many_rounds]
    return max((_rough_ns(part, spec)[0] for part in slow), default=0.0) * 1e-9


def _rough_ns(part: Stated, spec: PlanSpec) -> tuple[float, float]:
    """Return the least and the approximate time in ns of an algorithm of p² messages, or a chain.

    Each rank sends and receives p - 1 messages on the cheapest link, or each message is forwarded
    by p - 1 ranks from neighbor to neighbor. Copies to or from shared memory are counted in the
    approximate time only.
    """
    component, machine, network = part.component, spec.machine, spec.machine.network
    times = part.algorithm.per_pair or 1 / part.options.get("fanout", 1)
    size = int(component.groups.sizes.max(initial=0))
    totals = component.given.totals
    if isinstance(component.given, PairTable):
        totals = totals[:1]  # all blocks have the same size
    if not totals.any():
        return 0.0, 0.0
    far, shares = network.network, spec.transport.shared_roles != ()
    near = [network.numa, network.node] if max(machine.node_to_n_ranks) > 1 else []
    links = [*near, far] if machine.nodes > 1 else near
    overhead = 0.0 if shares else min(link.o_ns for link in links)
    hop = min(link.L_ns + 2 * link.o_ns * (not shares) for link in links)
    near_per_byte = 0.0 if shares else min(map(_ns_per_byte, near), default=0.0)
    per_byte = 0.0 if shares else min(map(_ns_per_byte, links))
    block = float(totals.mean()) * spec.collective.itemsize
    n_chunks = size
    if not component.traits.has_blocks:
        # The vector is cut into one chunk per rank, each of at least one element.
        n_chunks = min(size, int(totals.max()))
        block /= size
    n_messages, n_bytes = times * (size - 1), max(1.0, times) * (size - 1) * block
    # Empty blocks are not sent.
    filled = np.count_nonzero(totals) / totals.size if component.traits.has_blocks else 1.0
    reduces = 0.0
    if component.traits.has_op:
        reduces = (size - 1) * block * network.reduce_ns_per_byte * 0.99
    if part.algorithm.forwards:
        # One rank after another also reduces the forwarded data.
        nodes = _node_of(component.groups[int(component.groups.sizes.argmax())], machine)
        crosses = np.diff(nodes) != 0
        n_crossed = times * int(np.count_nonzero(crosses))
        steps = n_crossed * (far.L_ns + 2 * far.o_ns) + (n_messages - n_crossed) * hop + reduces
        edges = np.where(crosses, _ns_per_byte(far), near_per_byte)
        if times < 1 and part.algorithm.tree is None:
            edges = (edges[1:] + edges[:-1]) / 2  # half of the messages go in each direction
        if part.algorithm.tree is None:
            per_byte = max(per_byte, float(edges.max(initial=0.0)))
        own = filled * n_messages * 2 * overhead
    else:
        n_far = max(0, size - max(machine.node_to_n_ranks))
        own = 2 * filled * times * (n_far * far.o_ns + (size - 1 - n_far) * overhead)
        speed = sum(1 / slowness for slowness in machine.lane_slowness)
        n_sent = times * _most_crossing(component.groups, machine) / speed
        carried = n_sent * max(0.0, block - 1) - network.burst_bytes * (machine.n_lanes / speed)
        steps = max(own / 2, carried * far.G_ns_per_byte)
    moved = max(0.0, n_bytes - n_messages) * per_byte
    bound = max(steps, own * n_chunks / size + moved + reduces)
    return bound, bound + shares * n_bytes * network.copy_ns_per_byte


def _node_of(ranks: Ints, machine: Machine) -> Ints:
    return RankPlaces.of(machine).node[ranks]


def _most_crossing(groups: Groups, machine: Machine) -> int:
    """Return the largest number of ordered pairs of group members that lead out of a node."""
    group = np.repeat(np.arange(len(groups)), groups.sizes)
    key = csr.joint_key(group, _node_of(groups.ranks, machine), machine.nodes)
    pairs, n_members = np.unique(key, return_counts=True)
    group, node = np.divmod(pairs, machine.nodes)
    n_crossing = n_members * (groups.sizes[group] - n_members)
    return int(np.bincount(node, n_crossing).max(initial=0))


def _ns_per_byte(link: Link) -> float:
    """Return the least time for which a byte keeps its sender busy, in ns."""
    return max(link.O_ns_per_byte, 0.0 if link.offload else link.G_ns_per_byte)


def _identity(spec: PlanSpec, program: Program) -> str:
    return f"{spec.transport} {work_of(spec, program)}"
