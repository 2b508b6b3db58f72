"""Estimates of a candidate before it is compiled: its time, a lower bound, its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.decompose import draft
from collplan.planner.lowering.lower import Stated
from collplan.planner.lowering.select import state
from collplan.planner.lowering.tables import coalesced, tables_of
from collplan.planner.plan.phases import is_inside
from collplan.select.auto import resolve
from collplan.select.phase_cost import Floats, Workload
from collplan.specs import Machine, PlanSpec, parse_bytes

SLACK: Final = 1 - 1e-9
"""Sums of the same floats in another order may differ in their last digits."""

NOT_HIDDEN: Final = 0.75
"""Share of a segmented phase's time that does not overlap with other phases."""
PART: Final = 0.2
"""Effort of a part of shared memory that a task reads, in tasks."""
FEW_RANKS: Final = 512
"""Number of ranks above which a few nodes stand for the whole machine."""
MOST_PAIRS: Final = 4_000_000
"""Algorithms of more than so many messages between pairs of ranks are appraised roughly."""


@dataclass(frozen=True, slots=True)
class Appraisal:
    """What is known of a plan before it is compiled.

    Parameters
    ----------
    segment : int or None
        Greatest segment in bytes; None for whole messages.
    price_s : float
        The closed form's estimate in seconds.
    bound_s : float
        What its simulation cannot be below, in seconds: the time its messages
        and steps keep the busiest lane, port, core, processor or memory.
    n_tasks : int
        About how many tasks it has.
    effort : int
        How many tasks a plan has that takes as long to compile: more than `n_tasks`
        where ranks share memory, and what they pass each other falls into small parts.
    identity : str
        Equal for plans that are equal, at one size.
    """

    segment: int | None
    price_s: float
    bound_s: float
    n_tasks: int
    effort: int
    identity: str


def appraise(
    spec: PlanSpec, segments: Sequence[int] = (), max_tasks: int | None = None
) -> tuple[Appraisal, ...]:
    """Appraise a spec's plan, whole and in segments.

    Parameters
    ----------
    spec : PlanSpec
        With passes it is appraised as they leave it, segments and all, only.
    segments : sequence of int
        Sizes of segments in bytes; those that cut nothing are left out.
    max_tasks : int, optional
        Give up on price and bound, which then are 0, where there are more tasks,
        or algorithms of p² messages alone make more.

    Returns
    -------
    tuple of Appraisal
        The first is of whole messages.

    Raises
    ------
    AlgorithmError
        If an algorithm cannot serve, or the decomposition is refused.
    """
    spec = resolve(spec)
    blueprint = draft(spec)
    parts = state(blueprint)
    identity = _identity(spec, parts)
    exchange = blueprint.exchange
    least = 2 * (exchange.n_messages if exchange else sum(map(_least_messages, parts)))
    if max_tasks is not None and least > max_tasks:
        return (Appraisal(None, 0.0, 0.0, least, least, identity),)
    ranks = _sample(spec)
    rough_ns = [0.0]
    if ranks is not None and any(_n_pairs(part) > MOST_PAIRS for part in parts):
        large = [part for part in parts if _n_pairs(part) > MOST_PAIRS]
        rough_ns = [_rough_ns(part, spec) for part in large]
        parts = [part for part in parts if part not in large]
        segments = ()
    messages, steps = tables_of(blueprint, parts, ranks)
    n_compiled = least
    if any(choice.name == "coalesce_requests" for choice in spec.passes):
        messages, least = coalesced(messages), 0
    itemsize = spec.collective.itemsize
    work = Workload.of(messages, steps, spec.machine, itemsize, _shared_phases(spec, parts))
    step_bytes = steps.write.elements * itemsize
    combined_bytes = np.asarray(messages.combine.elements * itemsize)
    load = _Load(work, messages.phase, combined_bytes, steps.phase, step_bytes, spec.machine, ranks)
    longest = int(work.n_bytes.max(initial=0))
    sizes = [_own_segment(spec)] if spec.passes else [None, *(n for n in segments if n < longest)]
    found = []
    for segment in sizes:
        size = None if segment is None else max(1, segment // itemsize) * itemsize
        n_segments, n_pieces = _pieces(work.n_bytes, size), _pieces(step_bytes, size)
        n_tasks = max(least, load.n_tasks(n_segments, n_pieces))
        price_ns, bound_ns = 0.0, 0.0
        if max_tasks is None or n_tasks <= max_tasks:
            price_ns = sum(rough_ns) + load.price_ns(n_segments, n_pieces, size)
            bound_ns = max(*rough_ns, load.bound_ns(n_segments, n_pieces))
        name = f"{identity} {segment or ''}"
        effort = max(n_tasks, n_compiled) + int(PART * load.n_parts())
        found.append(
            Appraisal(segment, price_ns * 1e-9, bound_ns * 1e-9 * SLACK, n_tasks, effort, name)
        )
    return tuple(found)


def _sample(spec: PlanSpec) -> tuple[int, ...] | None:
    """Return the ranks of some nodes that stand for all of a large machine, None for all."""
    machine = spec.machine
    if machine.n_ranks <= FEW_RANKS or machine.nodes == 1:
        return None
    place, sizes = machine.rank_to_node, machine.node_to_n_ranks
    first = place[spec.collective.root or 0]
    nodes = {first, (first + machine.nodes // 2) % machine.nodes, sizes.index(max(sizes))}
    ranks = [rank for rank, node in enumerate(place) if node in nodes]
    return tuple(sorted(ranks, key=lambda rank: place[rank] != first))


def _shared_phases(spec: PlanSpec, parts: Sequence[Stated]) -> Bools | None:
    """Mark the phases in which ranks of one node share memory."""
    roles = spec.transport.shared_roles
    if roles == () or not parts:
        return None
    names = [part.component.role for part in parts]
    return np.array([roles is None or any(is_inside(n, role) for role in roles) for n in names])


def _n_pairs(part: Stated) -> int:
    """Return how many messages an algorithm of p² of them goes through, 0 for others."""
    component, per_pair = part.component, part.algorithm.per_pair
    if component.is_local or not per_pair:
        return 0
    size = int(component.groups.sizes.max(initial=0))
    return int(size * (size - 1) * per_pair)


def _rough_ns(part: Stated, spec: PlanSpec) -> float:
    """Return what an algorithm of p² messages takes at least, from its numbers alone.

    Its ranks send and receive p - 1 messages each, or one message goes on over p - 1
    ranks; either way on the cheapest link there is.
    """
    if not _n_pairs(part):
        return 0.0
    component, machine, network = part.component, spec.machine, spec.machine.network
    times = part.algorithm.per_pair
    size = int(component.groups.sizes.max(initial=0))
    totals = component.given.totals
    if not totals.any():
        return 0.0
    links = [network.network] if machine.nodes > 1 else []
    shares = spec.transport.shared_roles != ()
    if max(machine.node_to_n_ranks) > 1:
        links += [network.numa, network.node]
    overhead = 0.0 if shares else min(link.o_ns for link in links)
    hop = min(link.L_ns + 2 * link.o_ns * (not shares) for link in links)
    per_byte = [max(k.O_ns_per_byte, 0.0 if k.offload else k.G_ns_per_byte) for k in links]
    block = float(totals.mean()) * spec.collective.itemsize
    n_chunks = size
    if not component.traits.has_blocks:
        # One vector is cut into a chunk a rank, at least an element each.
        n_chunks = min(size, int(totals.max()))
        block /= size
    n_messages, n_bytes = times * (size - 1), max(1.0, times) * (size - 1) * block
    moved = 0.0 if shares else max(0.0, n_bytes - n_messages) * min(per_byte)
    reduces = 0.0
    if component.traits.has_op:
        reduces = (size - 1) * block * network.reduce_ns_per_byte * 0.99
    if part.algorithm.forwards:
        # What goes on over all ranks is reduced by one after another, too.
        steps = n_messages * hop + reduces
        own = n_messages * 2 * overhead
    else:
        n_far = max(0, size - max(machine.node_to_n_ranks))
        own = 2 * times * (n_far * network.network.o_ns + (size - 1 - n_far) * overhead)
        steps = own / 2
    return max(steps, own * n_chunks / size + moved + reduces)


def _own_segment(spec: PlanSpec) -> int | None:
    """Return the bytes of the segments a spec's passes cut, None where they cut none."""
    given = [c.options.get("max_bytes") for c in spec.passes if c.name == "segment"]
    try:
        return min((parse_bytes(size) for size in given if size is not None), default=None) or None
    except ValueError:
        return None  # the pass itself says what is wrong


def _least_messages(part: Stated) -> int:
    """Return how many messages an algorithm of p² of them sends, 0 for others."""
    component, per_pair = part.component, part.algorithm.per_pair
    if component.is_local or not per_pair:
        return 0
    sizes = component.groups.sizes.astype(np.int64)
    blocks = sizes
    if not component.traits.has_blocks:
        # A vector shorter than the group has a chunk an element.
        blocks = np.minimum(sizes, int(component.given.totals.max(initial=0)))
    return int((blocks * (sizes - 1)).sum() * per_pair)


def _pieces(n_bytes: Ints, size: int | None) -> Ints:
    return np.ones_like(n_bytes) if size is None else np.maximum(1, -(-n_bytes // size))


def _identity(spec: PlanSpec, parts: Sequence[Stated]) -> str:
    options = (sorted(part.options.items()) for part in parts)
    chosen = [f"{part.phase()}{own or ''}" for part, own in zip(parts, options, strict=True)]
    words = [str(spec.decomposition), str(spec.transport), *chosen]
    if not parts:
        # What passes leave of an exchange differs, though its messages are the same at first.
        words += [str(choice) for choice in spec.passes]
    return " ".join(words)


@dataclass(frozen=True, eq=False)
class _Load:
    """What a plan's messages and steps ask of cores and memory at least.

    Parameters
    ----------
    work : Workload
    phase : ndarray, shape (n_messages,)
    combined_bytes : ndarray of int64, shape (n_messages,)
        What is reduced of every message when it has come.
    step_phase : ndarray, shape (n_steps,)
    step_bytes : ndarray of int64, shape (n_steps,)
    machine : Machine
    ranks : tuple of int or None
        All messages and steps of these ranks are there, and some of others; None for all.
    """

    work: Workload
    phase: Ints
    combined_bytes: Ints
    step_phase: Ints
    step_bytes: Ints
    machine: Machine
    ranks: tuple[int, ...] | None

    def n_tasks(self, n_segments: Ints, n_pieces: Ints) -> int:
        """Return about how many tasks the whole plan has."""
        work = self.work
        # A send, a receive, and a reduction where what comes is combined.
        of_sender = n_segments * ~work.is_copy
        of_receiver = n_segments * (~work.is_copy * 1 + (work.is_copy | (self.combined_bytes > 0)))
        if self.ranks is None:
            return int(of_sender.sum() + of_receiver.sum() + n_pieces.sum())
        there = np.zeros(work.n_ranks, dtype=np.bool_)
        there[list(self.ranks)] = True
        n = of_sender[there[work.source]].sum() + of_receiver[there[work.dest]].sum()
        n += n_pieces[there[work.step_rank]].sum()
        return int(n * work.n_ranks / len(self.ranks))

    def n_parts(self) -> int:
        """Return about how many parts messages through shared memory fall into.

        Memory is cut wherever some message begins or ends.
        """
        work = self.work
        if not work.is_copy.any():
            return 0
        least = np.percentile(work.n_bytes[work.n_bytes > 0], 5) if work.n_bytes.any() else 1.0
        there = work.is_copy
        if self.ranks is not None:
            there = there & np.isin(work.dest, self.ranks)
        n_parts = float(work.n_bytes[there].sum()) / least
        return int(n_parts * work.n_ranks / len(self.ranks or range(work.n_ranks)))

    def price_ns(self, n_segments: Ints, n_pieces: Ints, segment: int | None) -> float:
        """Return about how long the plan takes.

        Phases follow each other. A phase takes as long as its busiest lane, core or
        memory, and a latency a round; or as long as the longest messages of its rounds,
        one after another. In segments phases overlap a little, and one segment a round
        fills the pipeline.
        """
        work = self.work
        longest = work.n_bytes if segment is None else np.minimum(work.n_bytes, segment)
        waits, through = np.zeros((2, work.n_rounds))
        latency = work.latency + 2 * work.overhead
        np.maximum.at(waits, work.round, latency)
        per_byte = np.maximum(work.per_byte, work.core_per_byte)
        reduces = (self.combined_bytes > 0) * self.machine.network.reduce_ns_per_byte
        np.maximum.at(through, work.round, latency + longest * (per_byte + reduces))
        phase_of = np.zeros(work.n_rounds, dtype=np.int64)
        phase_of[work.round] = self.phase
        if self.ranks is not None:
            # Rounds in which these ranks do nothing are like the last before in which they do.
            seen = np.zeros(work.n_rounds, dtype=np.int64)
            seen[work.round] = work.round
            seen = np.maximum.accumulate(seen)
            waits, through, phase_of = waits[seen], through[seen], phase_of[seen]
        apart_ns = together_ns = 0.0
        for phase in np.union1d(self.phase, self.step_phase):
            own, busy = phase_of == phase, self.bound_ns(n_segments, n_pieces, int(phase))
            apart_ns += max(busy + float(waits[own].sum()), float(through[own].sum()))
            together_ns += NOT_HIDDEN * busy
        if segment is None:
            return apart_ns
        together_ns += (1 - NOT_HIDDEN) * self.bound_ns(n_segments, n_pieces)
        return together_ns + float(through.sum())

    def bound_ns(self, n_segments: Ints, n_pieces: Ints, phase: int | None = None) -> float:
        """Return how long the busiest lane, port, core or memory is held, whatever the order.

        Of a message of s bytes a lane takes g + (s - 1)·G at either end, inside a
        node a port of either rank as much; a core o + (s - 1)·O where it is sent
        and, for O the greater of O and G unless an adapter writes to memory itself,
        where it comes; besides what copies and reductions take, less than a
        nanosecond of each lost to rounding. Processors that cores share are held as
        long as cores are. Of the last message a lane's g may go on when all is done,
        beyond the receiver's o; the first bytes pass at once, as a burst. What is read
        in shared memory costs no more for sure than the reductions that read it.
        What only some plans pay is left out: strides, caches, adapters' connections.
        """
        work, network = self.work, self.machine.network
        is_there = np.ones(len(work.round)) if phase is None else 1.0 * (self.phase == phase)
        takes_part = np.ones(len(n_pieces)) if phase is None else 1.0 * (self.step_phase == phase)
        steps = np.maximum(0, work.n_bytes - n_segments)
        crosses = work.lane_out < work.n_lanes
        # Inside nodes a workload's costs of a byte to the core are O + G.
        own = np.where(crosses, work.core_per_byte, work.core_per_byte - work.per_byte)
        # For sure none of a copy: it may be needless.
        own = np.where(work.is_copy, 0.0, own)
        reduces = network.reduce_ns_per_byte * self.combined_bytes
        reduces = np.maximum(0.0, reduces - n_segments)
        # Of nothing, bincount makes integers.
        cores = np.zeros(work.n_ranks)
        sends = is_there * (n_segments * work.overhead + steps * own)
        cores += np.bincount(work.source, sends, work.n_ranks)
        own = np.where(work.keeps_receiver, np.maximum(own, work.per_byte), own)
        if phase is not None:
            own = np.where(work.is_copy, work.core_per_byte, own)
        comes = is_there * (n_segments * work.overhead + steps * own + reduces)
        cores += np.bincount(work.dest, comes, work.n_ranks)
        step_ns = takes_part * np.maximum(0.0, work.step_ns - n_pieces)
        cores += np.bincount(work.step_rank, step_ns, work.n_ranks)
        memories = self._memories_ns(is_there * ~(crosses | work.is_copy), is_there, takes_part)
        held = [cores, cores.sum(keepdims=True) / work.n_processors, memories]
        wire = is_there * (n_segments * work.gap + steps * work.per_byte)
        after_ns = float((work.gap - work.overhead).max(initial=0.0))
        burst_ns = network.burst_bytes * network.network.G_ns_per_byte
        for lane, rank in ((work.lane_out, work.source), (work.lane_in, work.dest)):
            held.append(np.bincount(lane[crosses], wire[crosses]) - after_ns - burst_ns)
            held.append(np.bincount(rank[~crosses], wire[~crosses]) - after_ns)
        return max(float(busy.max(initial=0.0)) for busy in held)

    def _memories_ns(self, arrives: Floats, is_there: Floats, takes_part: Floats) -> Floats:
        """Return how long bytes that are copied, reduced or come keep every node's memory."""
        work, node = self.work, np.array(self.machine.rank_to_node)
        arrived = arrives * work.n_bytes + is_there * self.combined_bytes
        moved = np.zeros(self.machine.nodes)
        moved += np.bincount(node[work.dest], arrived, self.machine.nodes)
        done = takes_part * self.step_bytes
        moved += np.bincount(node[work.step_rank], done, self.machine.nodes)
        return np.asarray(moved * self.machine.network.memory_ns_per_byte)
