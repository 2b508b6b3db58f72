"""Costs of alltoalls whose tables would be too large, or too coarse, to estimate them by.

A flat alltoall has p² messages: its cost follows from counts alone. In an exchange through
shared memory ranks copy blocks while others are on their way, and what counts is when each
block comes, not how much there is of all: `Costs` knows no such order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.lowering.build import Placement
from collplan.select.wire import Wire
from collplan.specs import Machine

MATCHING = 0.6
"""Slow-down of n unordered messages on a lane, over √n: the lanes at both ends must
be free, and of few messages few find both."""


def flat_ns(machine: Machine, n_bytes: float, *, is_in_place: bool = False) -> float:
    """Return about how long all blocks take straight away, in any order.

    Parameters
    ----------
    machine : Machine
    n_bytes : float
        Of a block.
    is_in_place : bool
        Whether what is sent must be kept from what comes.
    """
    network, n_ranks = machine.network, machine.n_ranks
    placement = Placement.of(machine)
    node, lane = placement.node.astype(np.int64), placement.lane.astype(np.int64)
    place = node * machine.numa_domains + placement.numa
    near, inside = np.bincount(place)[place] - 1, np.bincount(node)[node] - 1
    across = n_ranks - 1 - inside
    rail = node * machine.n_lanes + lane
    n_rails = machine.nodes * machine.n_lanes
    into = np.bincount(rail, across, n_rails)
    by_lane = np.bincount(lane, minlength=machine.n_lanes)
    there = np.bincount(rail, minlength=n_rails).reshape(-1, machine.n_lanes)
    out = np.bincount(node, minlength=machine.nodes)[:, None] * (by_lane - there)
    wire, size = Wire(network, int(out.max(initial=0))), np.array([float(n_bytes)])
    slowness = np.array(machine.lane_slowness)
    cores = across * (wire.core_ns(size) + wire.arrival_ns(size, slowness[lane]))
    works = across * 2 * wire.core_ns(size)
    ports = np.zeros(n_ranks)
    for link, n in ((network.numa, near), (network.node, inside - near)):
        more = max(n_bytes - 1, 0.0)
        per_message = 2 * link.o_ns + more * (
            link.O_ns_per_byte + max(link.O_ns_per_byte, link.G_ns_per_byte)
        )
        cores, works = cores + n * per_message, works + n * per_message
        ports += n * (link.g_ns + more * link.G_ns_per_byte)
    copied = n_bytes * (1 + is_in_place * n_ranks) * network.copy_ns_per_byte
    passes = wire.lane_ns(size, slowness)
    ways = into.reshape(out.shape) * passes, out * (passes + wire.reading_ns)
    lanes = float(np.max(ways))
    turns = into.max() * max(1.0, n_bytes / (network.turn_bytes or n_bytes or 1.0))
    lanes *= 1 + MATCHING / max(1.0, turns) ** 0.5
    if lanes:
        lanes += wire.latency_ns + network.network.o_ns + wire.asking_ns(size)[0] - wire.burst_ns
    n_processors = min(network.processors or n_ranks, n_ranks)
    held = (cores + copied).max(), (works + copied).sum() / n_processors, ports.max()
    return float(max(lanes, *held))


def exchange_ns(
    exchange: Exchange,
    machine: Machine,
    itemsize: int,
    *,
    is_coalesced: bool,
    slots: int | None = None,
) -> float:
    """Return about how long an exchange takes, by the cost model's charges.

    One resource after another: ranks stage, leaders send, lanes pass, leaders
    receive, ranks copy; each serves in the order in which work comes. What only
    some machines have too few of, memories and processors, adds what it lacks in all.

    Parameters
    ----------
    exchange : Exchange
    machine : Machine
    itemsize : int
        Bytes of an element.
    is_coalesced : bool
        Whether a block of two nodes is one message per part, not one per rank of the source.
    slots : int, optional
        Blocks a leader receives into in turn; otherwise each has its own.
    """
    if exchange.count == 0:
        return 0.0
    course = _PipelineEstimate(
        exchange, machine, float(exchange.count * itemsize), is_coalesced, slots
    )
    staged = course.stage()
    arrivals, sent = course.send(staged)
    return course.copy(staged, sent, *course.receive(arrivals))


@dataclass(eq=False)
class _PipelineEstimate:
    """An exchange as it goes on; ranks are in the order of `exchange.ranks`.

    If all nodes have equally many ranks, only node 0 is followed: it sends and receives in every
    step what all others do.
    """

    exchange: Exchange
    machine: Machine
    block: float
    is_coalesced: bool
    slots: int | None
    oversubscription_ns: float = 0.0

    def __post_init__(self) -> None:
        exchange = self.exchange
        self.n_ranks, self.row, self.n_copies = len(exchange.row), exchange.row, 1
        if exchange.is_even:
            self.row, self.n_copies = exchange.row[: exchange.sizes[0]], exchange.n_rows
            blocks = exchange.blocks_of(np.zeros(1, dtype=np.int64))
            # What comes from another node is sent when node 0 sends in the same step.
            sender = blocks.sender - exchange.first[blocks.source]
            self.blocks = blocks._replace(source=blocks.dest, sender=sender)
        else:
            self.blocks = exchange.blocks_of(np.arange(exchange.n_rows))
        lane = Placement.of(self.machine).lane[exchange.ranks].astype(np.int64)
        self.lane = lane[self.blocks.receiver]
        self.slowness = np.array(self.machine.lane_slowness)[self.lane]
        sizes = exchange.sizes[self.blocks.source]
        self.n_messages = np.ones_like(sizes) if self.is_coalesced else sizes
        self.n_bytes = sizes * self.blocks.team * self.block / self.n_messages
        n_pairs = max(0, exchange.n_rows - 1) * exchange.n_parts
        self.wire = Wire(self.machine.network, -(-n_pairs // self.machine.n_lanes))

    def stage(self) -> Floats:
        """Copy what every rank sends into its node's memory; return when each node's is there."""
        exchange, whole = self.exchange, self.n_ranks * self.block
        # Put in order for coalesced messages, or as it is.
        is_strided = self.is_coalesced & (exchange.sizes > 1) & (exchange.n_rows > 1)
        works = np.where(exchange.stages, whole * self._copy_ns(is_strided, 2 * whole), 0.0)
        self._share(works[self.row])
        moves = np.where(exchange.stages, exchange.sizes * whole, 0.0)
        return np.maximum(works, moves * self.machine.network.memory_ns_per_byte)

    def send(self, staged: Floats) -> tuple[Floats, Floats]:
        """Send all blocks; return when they arrive, and when every rank has sent."""
        blocks, wire = self.blocks, self.wire
        ready = self._seen(staged, self.exchange.stages & (self.exchange.sizes > 1))
        ready = ready[blocks.source] + wire.asking_ns(self.n_bytes)
        works = self.n_messages * wire.core_ns(self.n_bytes)
        begin = first_come(blocks.sender, ready, works)
        passes = self.n_messages * (wire.lane_ns(self.n_bytes, self.slowness) + wire.reading_ns)
        lane = blocks.source * self.machine.n_lanes + self.lane
        busy = float(np.bincount(lane, passes).max(initial=0.0)) - wire.burst_ns
        self._share(np.bincount(blocks.sender, works, len(self.row)), busy)
        leaves = np.maximum(begin, first_come(lane, begin - wire.burst_ns, passes))
        sent = staged[self.row]
        np.maximum.at(sent, blocks.sender, begin + works)
        return leaves + wire.latency_ns, sent

    def receive(self, arrivals: Floats) -> tuple[Floats, Floats]:
        """Take all blocks in from lanes; return when cores could begin, and when lanes are done."""
        blocks, wire, link = self.blocks, self.wire, self.machine.network.network
        lane = blocks.dest * self.machine.n_lanes + self.lane
        passes = self.n_messages * wire.lane_ns(self.n_bytes, self.slowness)
        self.busy = np.bincount(lane, passes, 1) - wire.burst_ns
        takes = first_come(lane, arrivals - wire.burst_ns, passes)
        taken = takes + passes - link.g_ns + link.o_ns
        return np.maximum(arrivals, takes), taken if link.offload else np.zeros_like(taken)

    def copy(self, staged: Floats, sent: Floats, comes: Floats, taken: Floats) -> float:
        """Receive, and copy blocks where they belong; return when all is done."""
        blocks, n = self.blocks, len(self.blocks.dest)
        receiving = self.n_messages * self.wire.arrival_ns(self.n_bytes, self.slowness)
        done = first_come(blocks.receiver, comes, receiving) + receiving
        last = staged.copy()
        for _ in range(2):
            # What leaders copy delays what they receive, which others wait for.
            done = np.maximum(done, taken)
            done = self._in_turn(done) if self.slots else done
            rank, ready, works = self._copies(staged, done)
            rank = np.concatenate((blocks.receiver, rank))
            ready = np.maximum(np.concatenate((comes, ready)), sent[rank])
            works = np.concatenate((receiving, works))
            ends = first_come(rank, ready, works) + works
            done = ends[:n]
        np.maximum.at(last, blocks.dest, done)
        own = self.n_messages * self.wire.core_ns(self.n_bytes)
        self._share(np.bincount(blocks.receiver, own, len(self.row)), float(self.busy.max()))
        self._share(np.bincount(rank[n:], works[n:], len(self.row)))
        moved = self.exchange.sizes * self.n_ranks * self.block
        moved = moved * self.machine.network.memory_ns_per_byte
        return float(max(ends.max(), last.max(), (staged + moved).max())) + self.oversubscription_ns

    def _copies(self, staged: Floats, done: Floats) -> tuple[Ints, Floats, Floats]:
        """Return who copies, from when on, and for how long: what is its own, then blocks."""
        exchange, blocks, everyone = self.exchange, self.blocks, np.arange(len(self.row))
        sizes, are_several = exchange.sizes, exchange.sizes > 1
        own = self.block * self._copy_ns(are_several, self._touched)
        if not exchange.is_overlapped:
            last = staged.copy()
            np.maximum.at(last, blocks.dest, done)
            return (
                everyone,
                self._seen(last, are_several)[self.row],
                (own * self.n_ranks)[self.row],
            )
        kept = np.flatnonzero(~exchange.is_direct[blocks.dest])
        block, _, member = exchange.served(blocks, kept)
        copies = sizes[blocks.source] * self.block
        copies *= self._copy_ns((sizes[blocks.source] > 1) & (blocks.team > 1), self._touched)
        rank = np.concatenate((everyone, member))
        ready = self._seen(staged, are_several)[self.row], self._seen(done, blocks.team > 1)[block]
        return rank, np.concatenate(ready), np.concatenate(((own * sizes)[self.row], copies[block]))

    def _in_turn(self, done: Floats) -> Floats:
        """Return when blocks are there that wait for all to have copied from the slot before."""
        exchange, blocks, found = self.exchange, self.blocks, done.copy()
        works = exchange.sizes[blocks.source] * self.block
        works = works * self._copy_ns(blocks.team > 1, self._touched)
        copied = np.zeros(len(self.row))
        history: dict[int, list[float]] = {}
        for i in range(len(done)):
            rank = int(blocks.receiver[i])
            before = history.setdefault(rank, [])
            assert self.slots is not None
            if len(before) >= self.slots:
                found[i] = max(found[i], before[-self.slots] + self._flag_ns)
            copied[rank] = max(copied[rank], found[i] + self._flag_ns) + works[i]
            before.append(float(copied[rank]))
        return found

    @cached_property
    def _touched(self) -> float:
        """Bytes that a rank's copies out of shared memory touch there and of its own."""
        n = self.exchange.n_rows
        shared = n if self.slots is None else min(n, 1 + self.slots)
        return (self.n_ranks + shared * float(self.exchange.sizes.max())) * self.block

    @cached_property
    def _flag_ns(self) -> float:
        """Delay until a rank sees that another rank of its node is done."""
        exchange, network = self.exchange, self.machine.network
        domain = Placement.of(self.machine).numa[exchange.ranks]
        are_apart = (domain != domain[exchange.first[exchange.row]]).any()
        return network.node.L_ns if are_apart else network.numa.L_ns

    def _seen(self, done: Floats, by_others: Bools) -> Floats:
        return done + np.where(by_others, self._flag_ns, 0.0)

    def _copy_ns(self, is_strided: Bools, touched: float) -> Floats:
        """Return the copy cost per byte for a working set of this size."""
        network = self.machine.network
        is_uncached = network.cache_bytes is not None and touched > network.cache_bytes
        per_byte = network.copy_ns_per_byte + network.uncached_ns_per_byte * is_uncached
        return np.asarray(per_byte + network.strided_ns_per_byte * is_strided)

    def _share(self, works: Floats | Ints, busy: float = 0.0) -> None:
        """Note how much longer work takes where ranks' cores are fewer processors.

        Longer than the busiest core's, and than what goes on meanwhile.
        """
        n_cores = self.n_copies * len(works)
        n_processors = min(self.machine.network.processors or n_cores, n_cores)
        behind = self.n_copies * float(works.sum()) / n_processors
        self.oversubscription_ns += max(0.0, behind - max(busy, float(works.max(initial=0.0))))


def first_come(server: Ints, ready: Floats, works: Floats) -> Floats:
    """Return the start times of jobs at servers that serve one at a time, in order of arrival.

    Parameters
    ----------
    server : ndarray of int64, shape (n_jobs,)
    ready, works : ndarray of float64, shape (n_jobs,)
        When each job comes, and how long it takes. Of those that come together
        the first in the array is served first.

    Examples
    --------
    >>> first_come(np.array([0, 1, 0, 0]), np.array([0., 0., 1., 9.]), np.array([5., 1., 2., 1.]))
    array([0., 0., 5., 9.])
    """
    order = np.lexsort((ready, server))
    place, comes, lasts = server[order], ready[order], works[order]
    before = np.cumsum(lasts) - lasts
    is_first = csr.run_starts(place)
    before -= before[is_first][np.cumsum(is_first) - 1]
    # Never idle while there is work: from some job on they follow each other.
    idle = comes - before
    apart = np.cumsum(is_first) * (np.ptp(idle) + 1.0 if len(idle) else 1.0)
    begin = np.empty_like(comes)
    begin[order] = before + np.maximum.accumulate(idle + apart) - apart
    return begin
