"""Cost estimates for alltoalls, without their tables of messages.

A flat alltoall of p ranks has p² messages, so its table would be too large; its cost follows from
the numbers of messages. In an exchange through shared memory, ranks copy blocks while other
blocks are in transit. The cost then depends on the arrival time of each block, and not only on
totals, which are all that `Costs` represents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.plan.assembly import RankPlaces
from collplan.select.wire import Wire
from collplan.specs import Machine

MATCHING = 0.6
"""Relative slow-down of n unordered messages on a lane, times √n.

A message needs a free lane at both ends. The fewer messages there are, the rarer this is.
"""


def flat_ns(machine: Machine, n_bytes: float, *, is_in_place: bool = False) -> float:
    """Return the estimated time of a flat alltoall, which sends all blocks directly in any order.

    Parameters
    ----------
    machine : Machine
        Machine of the ranks.
    n_bytes : float
        Size of a block in bytes.
    is_in_place : bool
        Whether ranks must first copy all blocks, because received blocks overwrite them.

    Returns
    -------
    float
        Time in ns.
    """
    network, n_ranks = machine.network, machine.n_ranks
    placement = RankPlaces.of(machine)
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
    """Return the estimated time of an exchange, with the costs of the cost model.

    The estimate follows the blocks through a pipeline: ranks stage them, leaders send them, lanes
    transfer them, leaders receive them, and ranks copy them. Each core and each lane serves its
    jobs in order of arrival. The bandwidth of a node's memory bounds the time of staging and the
    time of copying. If there are fewer processors than ranks, the resulting delays are added.

    Parameters
    ----------
    exchange : Exchange
        Exchange of blocks of equal size.
    machine : Machine
        Machine of the ranks.
    itemsize : int
        Size of an element in bytes.
    is_coalesced : bool
        Whether the blocks from a node to a part of another node form one message, instead of one
        message per rank of the source.
    slots : int, optional
        Number of receive buffers that each leader uses in turn. By default, every block has its
        own.

    Returns
    -------
    float
        Time in ns.
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
    """Estimate of an exchange as a pipeline, with ranks in the order of `exchange.ranks`.

    If all nodes have the same number of ranks, only node 0 is simulated, because it sends and
    receives the same as every other node in each step.

    Parameters
    ----------
    exchange, machine, is_coalesced, slots : object
        Parameters of `exchange_ns`.
    block : float
        Size of a block in bytes.
    oversubscription_ns : float
        Total delay in ns because processors are fewer than ranks; see `_share`.
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
            # In each step, the other nodes send to node 0 at the same times as node 0 sends.
            sender = blocks.sender - exchange.first[blocks.source]
            self.blocks = blocks._replace(source=blocks.dest, sender=sender)
        else:
            self.blocks = exchange.blocks_of(np.arange(exchange.n_rows))
        lane = RankPlaces.of(self.machine).lane[exchange.ranks].astype(np.int64)
        self.lane = lane[self.blocks.receiver]
        self.slowness = np.array(self.machine.lane_slowness)[self.lane]
        sizes = exchange.sizes[self.blocks.source]
        self.n_messages = np.ones_like(sizes) if self.is_coalesced else sizes
        self.n_bytes = sizes * self.blocks.team * self.block / self.n_messages
        n_pairs = max(0, exchange.n_rows - 1) * exchange.n_parts
        self.wire = Wire(self.machine.network, -(-n_pairs // self.machine.n_lanes))

    def stage(self) -> Floats:
        """Copy the send data of ranks to shared memory; return the completion time per node."""
        exchange, whole = self.exchange, self.n_ranks * self.block
        # Coalesced messages need the blocks in another order, so these copies are strided.
        is_strided = self.is_coalesced & (exchange.sizes > 1) & (exchange.n_rows > 1)
        works = np.where(exchange.stages, whole * self._copy_ns(is_strided, 2 * whole), 0.0)
        self._share(works[self.row])
        moves = np.where(exchange.stages, exchange.sizes * whole, 0.0)
        return np.maximum(works, moves * self.machine.network.memory_ns_per_byte)

    def send(self, staged: Floats) -> tuple[Floats, Floats]:
        """Send all blocks; return the arrival time per block, and the completion time per rank."""
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
        """Transfer all blocks through the lanes of their receivers.

        Returns
        -------
        comes : ndarray of float64, shape (n_blocks,)
            Earliest time in ns at which the core can receive each block.
        taken : ndarray of float64, shape (n_blocks,)
            Time in ns at which the lane has received each block; 0 if cores move the bytes.
        """
        blocks, wire, link = self.blocks, self.wire, self.machine.network.network
        lane = blocks.dest * self.machine.n_lanes + self.lane
        passes = self.n_messages * wire.lane_ns(self.n_bytes, self.slowness)
        self.busy = np.bincount(lane, passes, 1) - wire.burst_ns
        takes = first_come(lane, arrivals - wire.burst_ns, passes)
        taken = takes + passes - link.g_ns + link.o_ns
        return np.maximum(arrivals, takes), taken if link.offload else np.zeros_like(taken)

    def copy(self, staged: Floats, sent: Floats, comes: Floats, taken: Floats) -> float:
        """Receive blocks and copy them to their ranks; return the end time of the exchange."""
        blocks, n = self.blocks, len(self.blocks.dest)
        receiving = self.n_messages * self.wire.arrival_ns(self.n_bytes, self.slowness)
        done = first_come(blocks.receiver, comes, receiving) + receiving
        last = staged.copy()
        for _ in range(2):
            # Copies by leaders delay their receives, and thus the copies by other ranks. The second
            # pass takes this into account.
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
        """Return the copies of ranks out of shared memory.

        The first copy of each rank is that of blocks from its own node; copies of blocks from
        other nodes follow. If copies do not overlap with communication, each rank has a single
        copy of all blocks.

        Returns
        -------
        rank : ndarray of int64, shape (n_copies,)
            Rank that copies.
        ready : ndarray of float64, shape (n_copies,)
            Earliest start in ns.
        works : ndarray of float64, shape (n_copies,)
            Duration in ns.
        """
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
        """Return the receive times of blocks that wait until their slot is free.

        A slot is free when its previous block has been copied.
        """
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
        """Working set in bytes of a rank's copies from shared memory to its own buffer."""
        n = self.exchange.n_rows
        shared = n if self.slots is None else min(n, 1 + self.slots)
        return (self.n_ranks + shared * float(self.exchange.sizes.max())) * self.block

    @cached_property
    def _flag_ns(self) -> float:
        """Delay in ns until a rank sees that another rank of its node has finished."""
        exchange, network = self.exchange, self.machine.network
        domain = RankPlaces.of(self.machine).numa[exchange.ranks]
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
        """Add to `oversubscription_ns` the delay of work if processors are fewer than ranks.

        The delay is the time in which the processors do all the work, minus the time that the
        stage takes anyway: the larger of the busiest rank's work and `busy`.

        Parameters
        ----------
        works : ndarray, shape (n_ranks,)
            Work of each rank in ns.
        busy : float
            Time in ns for which other resources, such as lanes, are busy meanwhile.
        """
        n_cores = self.n_copies * len(works)
        n_processors = min(self.machine.network.processors or n_cores, n_cores)
        behind = self.n_copies * float(works.sum()) / n_processors
        self.oversubscription_ns += max(0.0, behind - max(busy, float(works.max(initial=0.0))))


def first_come(server: Ints, ready: Floats, works: Floats) -> Floats:
    """Return the start times of jobs at servers that serve one job at a time, first come first.

    Parameters
    ----------
    server : ndarray of int64, shape (n_jobs,)
        Server of each job.
    ready, works : ndarray of float64, shape (n_jobs,)
        Arrival time and service time of each job, in the same unit. Among jobs that arrive at
        the same time, the first in the array is served first.

    Returns
    -------
    ndarray of float64, shape (n_jobs,)
        Start times.

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
    # A server is not idle while jobs wait. A job therefore starts at the maximum, over all jobs up
    # to it on the same server, of the arrival time plus the service times from that job on.
    # Adding `apart` keeps the maxima of the servers separate.
    idle = comes - before
    apart = np.cumsum(is_first) * (np.ptp(idle) + 1.0 if len(idle) else 1.0)
    begin = np.empty_like(comes)
    begin[order] = before + np.maximum.accumulate(idle + apart) - apart
    return begin
