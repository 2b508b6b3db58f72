"""The two benchmarks that show the number of lanes of a machine: lane pattern, multi-collective.

References
----------
.. [1] Träff, Hunold, Decomposing MPI Collectives for Exploiting Multi-lane Communication,
   2020, section II.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import LaunchError
from collplan.measure.native import NativeCollective
from collplan.measure.statistics import Summary, summarize
from collplan.measure.timing import Call, nothing, time_in_turns
from collplan.specs.collectives.collective import COLLECTIVES, Collective, validate_collective
from collplan.specs.errors import CollplanError
from collplan.specs.explaining import explaining

DATATYPE: Final = "int32"
"""Datatype of multi-collectives: MPI_INT, as in [1]_."""
_ITEMSIZE: Final = 4


@dataclass(frozen=True, slots=True)
class Lanes:
    """The nodes of a communicator, and this rank's virtual lane through them.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    ranks_per_node : int
        Smallest number of ranks on a node, which is the number of virtual lanes.
    n_idle : int
        Number of ranks without lane, because their nodes have more ranks than the smallest.
    local : int
        Number of this rank within its node.
    comm : MPI.Intracomm
        Communicator of the ranks with the same `local`, in the order of nodes; ``COMM_NULL``
        on a rank without lane.
    """

    n_nodes: int
    ranks_per_node: int
    n_idle: int
    local: int
    comm: MPI.Intracomm

    @property
    def steps(self) -> list[int]:
        """Return the numbers of lanes to try: powers of two, and the number of all lanes."""
        powers = (2**i for i in range(self.ranks_per_node.bit_length()))
        return sorted({k for k in powers if k <= self.ranks_per_node} | {self.ranks_per_node})

    def free(self) -> None:
        """Free the lane's communicator."""
        if self.comm != MPI.COMM_NULL:
            self.comm.Free()


@dataclass(frozen=True, slots=True)
class LaneTimes:
    """Times of one size and one number of lanes.

    Parameters
    ----------
    bytes : int
        Total bytes that a node sends (lane pattern), or bytes per lane (multi-collective).
    lanes : int
        Number of virtual lanes that were used at the same time.
    summary : Summary
        Summary of the times of the slowest rank of each repetition.
    """

    bytes: int
    lanes: int
    summary: Summary


def split_lanes(comm: MPI.Intracomm, rank_to_node: Sequence[int] | None = None) -> Lanes:
    """Divide a communicator into nodes and lanes; collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    rank_to_node : sequence of int, shape (size,), optional
        Node of every rank; by default, ranks that can share memory share a node.

    Raises
    ------
    LaunchError
        If there are fewer than two nodes, or `rank_to_node` is for another size.
    """
    colours = node_of_ranks(comm) if rank_to_node is None else list(rank_to_node)
    if len(colours) != comm.size:
        raise LaunchError(
            f"the machine has {len(colours)} ranks, the communicator {comm.size}; "
            f"start {len(colours)} ranks"
        )
    sizes = Counter(colours)
    if len(sizes) < 2:
        raise LaunchError(
            f"one node has all ranks ({comm.size}), lanes join two or more; start ranks on "
            f"more nodes, or say with a spec's machine which ranks stand for a node"
        )
    node = list(sizes).index(colours[comm.rank])  # in order of the nodes' first ranks
    local = colours[: comm.rank].count(colours[comm.rank])
    least = min(sizes.values())
    lane = cast("MPI.Intracomm", comm.Split(local if local < least else MPI.UNDEFINED, key=node))
    return Lanes(len(sizes), least, comm.size - least * len(sizes), local, lane)


def node_of_ranks(comm: MPI.Intracomm) -> list[int]:
    """Return the lowest rank of every rank's node, where MPI's shared memory defines nodes."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    lowest = node.bcast(comm.rank)
    node.Free()
    found: list[int] = comm.allgather(lowest)
    return found


def lane_pattern(
    comm: MPI.Intracomm,
    lanes: Lanes,
    sizes: Sequence[int],
    *,
    repetitions: int,
    inner: int,
    advance: Call = nothing,
) -> list[LaneTimes]:
    """Time exchanges between the nodes in a ring over 1, 2, 4 ... lanes.

    Every node sends the bytes of a size to the next node, and receives the same number from
    the node before it. The first k ranks of a node share the bytes. Collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator that `lanes` divides.
    lanes : Lanes
        Nodes and lanes of the communicator.
    sizes : sequence of int
        Bytes that leave a node in each exchange.
    repetitions : int
        Number of repetitions, at least 2.
    inner : int
        Number of exchanges in a repetition; there is no barrier between them.
    advance : callable
        Function called after each repetition.

    Returns
    -------
    list of LaneTimes
        Times for every size and number of lanes. The time of a repetition is that of all its
        exchanges.
    """
    found: list[LaneTimes] = []
    for n_bytes in sizes:
        calls = {k: _exchange(lanes, n_bytes, k, inner) for k in lanes.steps}
        found += _time_lanes(comm, n_bytes, calls, repetitions, advance)
    return found


def _time_lanes(
    comm: MPI.Intracomm, n_bytes: int, calls: dict[int, Call], repetitions: int, advance: Call
) -> list[LaneTimes]:
    """Time one size; `calls` has this rank's call for each number of lanes."""
    times = time_in_turns(comm, [*calls.values()], repetitions, advance=advance)
    return [LaneTimes(n_bytes, k, summarize(row)) for k, row in zip(calls, times, strict=True)]


def _exchange(lanes: Lanes, n_bytes: int, k: int, inner: int) -> Call:
    """Return the call of this rank for a repetition with `k` lanes."""
    if lanes.local >= k:
        return nothing
    share = n_bytes // k + (n_bytes % k if lanes.local == 0 else 0)
    # Zeros would all be the same page, which never leaves the cache.
    sent, received = np.ones(share, np.uint8), np.ones(share, np.uint8)
    comm = lanes.comm
    following, preceding = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def exchange() -> None:
        for _ in range(inner):
            comm.Sendrecv(
                [sent, MPI.BYTE], following, recvbuf=[received, MPI.BYTE], source=preceding
            )

    return exchange


def multi_collective(
    comm: MPI.Intracomm,
    lanes: Lanes,
    kind: str,
    sizes: Sequence[int],
    *,
    repetitions: int,
    advance: Call = nothing,
) -> list[LaneTimes]:
    """Time the native collective on 1, 2, 4 ... lanes at the same time.

    Each of the first k lane communicators calls the collective with the full size, so that
    k lanes move k times as many bytes as one. Collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator that `lanes` divides.
    lanes : Lanes
        Nodes and lanes of the communicator.
    kind : str
        Collective with data. Reductions compute sums, and the root is rank 0 of the lane.
    sizes : sequence of int
        Bytes per lane: of the vector, or of all blocks together, which are rounded down to
        whole elements.
    repetitions : int
        Number of repetitions, at least 2.
    advance : callable
        Function called after each repetition.

    Returns
    -------
    list of LaneTimes
        Times for every size and number of lanes.

    Raises
    ------
    CollplanError
        If a size is too large, or too small to have blocks.
    """
    collectives = [lane_collective(kind, n_bytes, lanes.n_nodes) for n_bytes in sizes]
    found: list[LaneTimes] = []
    for n_bytes, collective in zip(sizes, collectives, strict=True):
        with _native(lanes, collective, n_bytes) as native:
            calls = {k: native if lanes.local < k else nothing for k in lanes.steps}
            found += _time_lanes(comm, n_bytes, calls, repetitions, advance)
    return found


def lane_collective(kind: str, n_bytes: int, n_nodes: int) -> Collective:
    """Return the collective that moves whole elements of int32 on a lane through `n_nodes` nodes.

    Raises
    ------
    CollplanError
        If there are too many elements, or fewer than blocks but not 0.

    Examples
    --------
    >>> lane_collective("alltoall", 4096, 4).count, lane_collective("bcast", 4096, 4).count
    (256, 1024)
    """
    count = n_bytes // _ITEMSIZE
    blocks = n_nodes if COLLECTIVES[kind].has_blocks else 1
    if 0 < count < blocks:
        raise CollplanError(
            f"--sizes: {n_bytes} bytes are {count} elements, {kind} over {n_nodes} nodes divides "
            f"them into {blocks} blocks; give {blocks * _ITEMSIZE} bytes or more"
        )
    fields = {"kind": kind, "count": count // blocks, "datatype": DATATYPE}
    with explaining(before="--sizes: "):
        return validate_collective(fields)


def _native(lanes: Lanes, collective: Collective, n_bytes: int) -> AbstractContextManager[Call]:
    if lanes.comm == MPI.COMM_NULL:
        return nullcontext(nothing)
    # Zeros would all be the same page; sums of ones stay in range for any number of nodes.
    sent, received = (np.ones(n_bytes // _ITEMSIZE, DATATYPE) for _ in range(2))
    return NativeCollective(collective, lanes.comm, sent, received)
