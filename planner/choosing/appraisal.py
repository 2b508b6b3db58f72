"""What a form would cost at a size, before anything is compiled: a price, a bound, its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.arrays import Bools, Ints
from planner.choice import state
from planner.choosing.auto import resolve
from planner.choosing.price import Floats, Workload
from planner.decompose import draft
from planner.lowering import Stated
from planner.tables import coalesced, tables_of
from specs import Machine, PlanSpec, parse_bytes

SLACK: Final = 1 - 1e-9
"""Sums of the same floats in another order may differ in their last digits."""

QUADRATIC: Final = {
    ("bcast", "scatter_allgather"): 1.0,
    ("allgather", "linear"): 1.0,
    ("allgather", "ring"): 1.0,
    ("allgather", "neighbor_exchange"): 0.5,
    ("allreduce", "linear"): 2.0,
    ("allreduce", "ring"): 2.0,
    ("reduce_scatter_block", "linear"): 1.0,
    ("reduce_scatter_block", "pairwise"): 1.0,
    ("reduce_scatter_block", "ring"): 1.0,
    ("gather", "chain"): 0.5,
    ("scatter", "chain"): 0.5,
    ("alltoall", "linear"): 1.0,
    ("alltoall", "pairwise"): 1.0,
}
"""Algorithms that send p(p - 1) messages on p ranks, and how often."""


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
    identity : str
        Equal for plans that are equal, at one size.
    """

    segment: int | None
    price_s: float
    bound_s: float
    n_tasks: int
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
        return (Appraisal(None, 0.0, 0.0, least, identity),)
    messages, steps = tables_of(blueprint)
    if any(choice.name == "coalesce_requests" for choice in spec.passes):
        messages = coalesced(messages)
    itemsize = spec.collective.itemsize
    work = Workload.of(messages, steps, spec.machine, itemsize)
    step_bytes = steps.write.elements * itemsize
    combined_bytes = np.asarray(messages.combine.elements * itemsize)
    load = _Load(work, combined_bytes, step_bytes, spec.machine)
    longest = int(work.n_bytes.max(initial=0))
    sizes = [_own_segment(spec)] if spec.passes else [None, *(n for n in segments if n < longest)]
    found = []
    for segment in sizes:
        size = None if segment is None else max(1, segment // itemsize) * itemsize
        n_segments, n_pieces = _pieces(work.n_bytes, size), _pieces(step_bytes, size)
        # A send, a receive, and a reduction where what comes is combined.
        n_tasks = int((n_segments * (2 + (combined_bytes > 0))).sum() + n_pieces.sum())
        price_ns, bound_ns = 0.0, 0.0
        if max_tasks is None or n_tasks <= max_tasks:
            price_ns, bound_ns = work.price_ns(segment), load.bound_ns(n_segments, n_pieces)
        name = f"{identity} {segment or ''}"
        found.append(Appraisal(segment, price_ns * 1e-9, bound_ns * 1e-9 * SLACK, n_tasks, name))
    return tuple(found)


def _own_segment(spec: PlanSpec) -> int | None:
    """Return the bytes of the segments a spec's passes cut, None where they cut none."""
    given = [c.options.get("max_bytes") for c in spec.passes if c.name == "segment"]
    try:
        return min((parse_bytes(size) for size in given if size is not None), default=None) or None
    except ValueError:
        return None  # the pass itself says what is wrong


def _least_messages(part: Stated) -> int:
    """Return how many messages an algorithm of p² of them sends, 0 for others."""
    component, key = part.component, (part.component.kind, part.algorithm.name)
    if component.is_local or key not in QUADRATIC:
        return 0
    sizes = component.groups.sizes.astype(np.int64)
    blocks = sizes
    if key[0] in ("bcast", "allreduce"):
        # A vector shorter than the group has a chunk an element.
        blocks = np.minimum(sizes, int(component.given.totals.max(initial=0)))
    return int((blocks * (sizes - 1)).sum() * QUADRATIC[key])


def _pieces(n_bytes: Ints, size: int | None) -> Ints:
    return np.ones_like(n_bytes) if size is None else np.maximum(1, -(-n_bytes // size))


def _identity(spec: PlanSpec, parts: Sequence[Stated]) -> str:
    options = (sorted(part.options.items()) for part in parts)
    chosen = [f"{part.label}{own or ''}" for part, own in zip(parts, options, strict=True)]
    words = [str(spec.decomposition), *chosen]
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
    combined_bytes : ndarray of int64, shape (n_messages,)
        What is reduced of every message when it has come.
    step_bytes : ndarray of int64, shape (n_steps,)
    machine : Machine
    """

    work: Workload
    combined_bytes: Ints
    step_bytes: Ints
    machine: Machine

    def bound_ns(self, n_segments: Ints, n_pieces: Ints) -> float:
        """Return how long the busiest lane, port, core or memory is held, whatever the order.

        Of a message of s bytes a lane takes g + (s - 1)·G at either end, inside a
        node a port of either rank as much; a core o + (s - 1)·O where it is sent
        and, for O the greater of O and G inside a node, where it comes; besides
        what copies and reductions take, less than a nanosecond of each lost to
        rounding. Processors that cores share are held as long as cores are. Of the
        last message a lane's g may go on when all is done, beyond the receiver's o;
        the first bytes pass at once, as a burst.
        What only some plans pay is left out: strides, caches, adapters' connections.
        """
        work, network = self.work, self.machine.network
        steps = np.maximum(0, work.n_bytes - n_segments)
        crosses = work.lane_out < work.n_lanes
        # Inside nodes a workload's costs of a byte to the core are O + G.
        own = np.where(crosses, work.core_per_byte, work.core_per_byte - work.per_byte)
        reduces = network.reduce_ns_per_byte * self.combined_bytes
        reduces = np.maximum(0.0, reduces - n_segments)
        # Of nothing, bincount makes integers.
        cores = np.zeros(work.n_ranks)
        cores += np.bincount(work.source, n_segments * work.overhead + steps * own, work.n_ranks)
        own = np.where(crosses, own, np.maximum(own, work.per_byte))
        comes = n_segments * work.overhead + steps * own + reduces
        cores += np.bincount(work.dest, comes, work.n_ranks)
        step_ns = np.maximum(0.0, work.step_ns - n_pieces)
        cores += np.bincount(work.step_rank, step_ns, work.n_ranks)
        held = [cores, cores.sum(keepdims=True) / work.n_processors, self._memories_ns(crosses)]
        wire = n_segments * work.gap + steps * work.per_byte
        after_ns = float((work.gap - work.overhead).max(initial=0.0))
        burst_ns = network.burst_bytes * network.network.G_ns_per_byte
        for lane, rank in ((work.lane_out, work.source), (work.lane_in, work.dest)):
            held.append(np.bincount(lane[crosses], wire[crosses]) - after_ns - burst_ns)
            held.append(np.bincount(rank[~crosses], wire[~crosses]) - after_ns)
        return max(float(busy.max(initial=0.0)) for busy in held)

    def _memories_ns(self, crosses: Bools) -> Floats:
        """Return how long bytes that are copied, reduced or come keep every node's memory."""
        work, node = self.work, np.array(self.machine.rank_to_node)
        arrived = np.where(crosses, 0, work.n_bytes) + self.combined_bytes
        moved = np.zeros(self.machine.nodes)
        moved += np.bincount(node[work.dest], arrived, self.machine.nodes)
        moved += np.bincount(node[work.step_rank], self.step_bytes, self.machine.nodes)
        return np.asarray(moved * self.machine.network.memory_ns_per_byte)
