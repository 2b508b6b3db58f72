"""Lower bounds of the rounds, bytes and transfer time of any plan.

Plans may only assume that an operation is associative. Therefore, a place that needs k independent
vectors must receive k vectors. A place is a rank or a node; the argument is the same for both. For
a collective of C elements, S of which belong to a place, on m places:

- bcast: C elements leave the root's place, and C elements enter every other place.
- scatter: C - S elements leave the root's place, to which S belong, and the elements of every
  other place enter it.
- allgather: C - S elements enter every place, and S elements leave it.
- alltoall: The elements that the ranks of a place have for ranks of other places leave the place,
  and the elements that other places have for its ranks enter it.
- neighborhoods: Each different block that a place has for other places leaves it, and each
  different block that other places have for its ranks enters it.
- scan, exscan: Ranks of other places may lie between two ranks of a place, or before the first of
  them. The place must receive one vector for each such gap. In the same way, it must send one
  vector for each run of its ranks that other ranks follow. If the ranks of every place are
  consecutive, C elements enter each place but the first, and C leave each place but the last.
- reduce, gather and reduce_scatter_block: The bounds are those of bcast, scatter and allgather
  with the directions exchanged.
- allreduce: C elements enter and leave every place. Every element is received m - 1 times until
  the first place knows its result, because every other place must have sent by then, and m - 1
  times afterwards, which is 2(m - 1)·C in total.

The busiest lane of a node carries at least an equal share of the bytes that the node must send or
receive, and the busiest lane of all at least the average over all lanes. For the transfer time,
lanes of different rates share these bytes in proportion to their rates. A message uses the lane of
its destination at both ends. A node therefore receives on the lanes of its own ranks, which are
min(lanes, ranks) lanes, and sends on the lanes of the ranks of other nodes. If the ranks of a node
share memory, no messages are needed inside the node, and its ranks share the bytes of the node
equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.logarithms import ceil_log2
from collplan.planner.collective.edges import blocks_between
from collplan.specs import Collective, Machine, PlanSpec

NOTHING = "nothing has to move"
UNKNOWN = "no bound is known of this kind"
ARGUMENTS = {
    "barrier": "the ranks that know of a rank double per round at best: ceil(log2 p)",
    "bcast": "the vector leaves the root's rank and node, and enters every other",
    "scatter": "the others' blocks leave the root's rank and node, and enter theirs",
    "gather": "every block leaves its rank and node, and enters the root's",
    "reduce": "a partial result leaves every rank and node, and enters the root's",
    "scan": "a node must receive one vector, which combines those of the ranks before it",
    "exscan": "a node must receive one vector, which combines those of the ranks before it",
    "allgather": "others send what a rank or node receives; the busiest sends the average or more",
    "allreduce": "2(m-1)/m of the vector at m ranks or nodes, Patarasuk and Yuan 2009, theorem 1",
    "reduce_scatter_block": "a rank or node must send a partial result for each block of others",
    "alltoall": "blocks for other ranks must be sent, and blocks from other ranks received",
    "neighbor_alltoall": "blocks for other ranks must be sent, and each received at least once",
}
"""Reasons why no plan moves less, by kind of collective."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds of the maxima that `Metrics` reports, for one collective.

    Parameters
    ----------
    n_rounds : int
        Number of rounds, in each of which a rank sends and receives at most one message.
    bytes_sent_per_rank, bytes_received_per_rank : int
        Bytes of the busiest rank.
    bytes_sent_per_node, bytes_received_per_node : int
        Bytes of the busiest node, to and from other nodes.
    bytes_sent_per_lane, bytes_received_per_lane : int
        Bytes through the busiest lane of a node.
    lane_bytes : int
        The greater of the two preceding numbers.
    time_s : float
        Transfer time in seconds: `lane_bytes`, less a burst, times the network's G. If lanes have
        different rates, it is the time of the fastest lane when all lanes share the bytes in
        proportion to their rates. Latencies and overheads are not included.
    argument : str
        Reason why no plan moves less.
    """

    n_rounds: int
    bytes_sent_per_rank: int
    bytes_received_per_rank: int
    bytes_sent_per_node: int
    bytes_received_per_node: int
    bytes_sent_per_lane: int
    bytes_received_per_lane: int
    lane_bytes: int
    time_s: float
    argument: str

    def to_json(self) -> dict[str, int | float | str]:
        """Return the bounds as a mapping from names to values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Crossing:
    """Minimum numbers of elements that cross the borders of places in any plan.

    Parameters
    ----------
    into, out : sequence of int
        Elements that enter and leave each place.
    total : int
        Elements that enter all places together, or 0 if the sum of `into` or `out` is the bound.
    """

    into: Sequence[int]
    out: Sequence[int]
    total: int = 0

    def most(
        self, loads: Sequence[int], itemsize: int, n_lanes: Sequence[int] | None = None
    ) -> int:
        """Return the minimum number of bytes of the busiest lane of all places.

        Parameters
        ----------
        loads : sequence of int
            Elements per place: `into` or `out`.
        itemsize : int
            Bytes per element.
        n_lanes : sequence of int, optional
            Number of lanes per place, by default one.
        """
        lanes = n_lanes or [1] * len(loads)
        total = max(self.total, sum(self.into), sum(self.out))
        shares = [*zip(loads, lanes, strict=True), (total, sum(lanes))]
        return max(-(-load * itemsize // n) for load, n in shares)


def lower_bounds(spec: PlanSpec) -> Bounds:
    """Return the lower bounds of a spec's collective on its machine.

    Parameters
    ----------
    spec : PlanSpec

    Returns
    -------
    Bounds

    Examples
    --------
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
    ...     "collective": {"kind": "allreduce", "count": 12, "datatype": "int32"},
    ... })
    >>> bounds = lower_bounds(spec)
    >>> bounds.n_rounds, bounds.bytes_sent_per_rank, bounds.bytes_sent_per_node
    (3, 80, 48)
    >>> bounds.lane_bytes, round(bounds.time_s * 1e9, 2)
    (24, 1.92)
    """
    machine, collective = spec.machine, spec.collective
    itemsize, p, network = collective.itemsize, machine.n_ranks, machine.network
    reach = most_partners(collective, np.arange(p))
    by_rank = crossing(collective, np.arange(p))
    by_node = crossing(collective, np.array(machine.rank_to_node))
    lanes_in, lanes_out = (lanes.sum(axis=1).tolist() for lanes in usable_lanes(machine))
    lane_in = by_node.most(by_node.into, itemsize, lanes_in)
    lane_out = by_node.most(by_node.out, itemsize, lanes_out)
    lane_bytes = max(lane_in, lane_out)
    n_rounds, rank_lanes = ceil_log2(reach + 1), None
    if spec.transport.shared_roles != ():
        # Nodes need no messages inside, and any rank may send for its node.
        by_rank, rank_lanes = by_node, list(machine.node_to_n_ranks)
        crosses = any(by_node.into) or (not collective.has_data and machine.nodes > 1)
        n_rounds = int(crosses)
    argument = ARGUMENTS.get(collective.planned_kind)
    return Bounds(
        n_rounds=n_rounds,
        bytes_sent_per_rank=by_rank.most(by_rank.out, itemsize, rank_lanes),
        bytes_received_per_rank=by_rank.most(by_rank.into, itemsize, rank_lanes),
        bytes_sent_per_node=by_node.most(by_node.out, itemsize),
        bytes_received_per_node=by_node.most(by_node.into, itemsize),
        bytes_sent_per_lane=lane_out,
        bytes_received_per_lane=lane_in,
        lane_bytes=lane_bytes,
        time_s=fastest_lane_bytes(spec, network.burst_bytes) * network.network.G_ns_per_byte * 1e-9,
        argument=UNKNOWN if argument is None else argument if reach else NOTHING,
    )


def crossing(collective: Collective, rank_to_place: Ints) -> Crossing:
    """Return the elements that must cross the borders of places.

    Parameters
    ----------
    collective : Collective
        Spec of the collective. Its counts may differ between ranks.
    rank_to_place : ndarray of int64, shape (n_ranks,)
        Place of every rank, numbered from 0. Every place has at least one rank.

    Returns
    -------
    Crossing

    Examples
    --------
    >>> from collplan.specs import Scan
    >>> crossing(Scan(count=5), np.array([0, 1, 0, 1]))
    Crossing(into=[5, 10], out=[10, 5], total=0)
    """
    kind, n_ranks = collective.planned_kind, len(rank_to_place)
    m = int(rank_to_place.max()) + 1
    none = [0] * m
    if m == 1 or not collective.has_data or kind not in ARGUMENTS:
        return Crossing(none, none)
    edges = collective.edge_layout(n_ranks)
    if edges is not None:
        blocks = blocks_between(edges, rank_to_place)
        return Crossing(_sums(*blocks.entering, m), _sums(*blocks.leaving, m))
    if collective.is_pairwise:
        return _crossing_pairs(collective, rank_to_place, m)
    c = int(collective.count)
    if kind == "allreduce":
        return Crossing([c] * m, [c] * m, 2 * (m - 1) * c)
    if collective.is_prefix:
        is_start = np.diff(rank_to_place, prepend=-1) != 0
        runs = np.bincount(rank_to_place[is_start], minlength=m).tolist()
        first, last = rank_to_place[[0, -1]].tolist()
        into = [c * (n - (place == first)) for place, n in enumerate(runs)]
        return Crossing(into, [c * (n - (place == last)) for place, n in enumerate(runs)])
    root = None if collective.root is None else int(rank_to_place[collective.root])
    if not collective.has_blocks:
        assert root is not None, kind
        into, out = [c] * m, none
        into[root], out[root] = 0, c
    else:
        own = none.copy()
        counts = collective.block_layout(n_ranks)[0].tolist()
        for place, n in zip(rank_to_place, counts, strict=True):
            own[place] += n
        others = [sum(own) - n for n in own]
        into, out = (others, own) if root is None else (own, none)
        if root is not None:
            into[root], out[root] = 0, others[root]
    # Collectives to a root, or to the owners of blocks, move the same data in reverse.
    is_backwards = collective.receiver == "root" or (root is None and collective.sends_blocks)
    return Crossing(out, into) if is_backwards else Crossing(into, out)


def _sums(place: Ints, counts: Ints, n_places: int) -> list[int]:
    sums = np.zeros(n_places, dtype=np.int64)
    np.add.at(sums, place, counts)
    return list(map(int, sums))


def _crossing_pairs(collective: Collective, rank_to_place: Ints, m: int) -> Crossing:
    n_ranks = len(rank_to_place)
    layout = collective.pair_layout(n_ranks)
    if layout is None:
        n_in_place = np.bincount(rank_to_place, minlength=m).tolist()
        loads = [n * (n_ranks - n) * int(collective.count) for n in n_in_place]
        return Crossing(loads, loads)
    table = layout[0].copy()
    table[rank_to_place[:, None] == rank_to_place] = 0
    into, out = np.zeros((2, m), dtype=np.int64)
    np.add.at(into, rank_to_place, table.sum(axis=0))
    np.add.at(out, rank_to_place, table.sum(axis=1))
    return Crossing(into.tolist(), out.tolist())


def fastest_lane_bytes(spec: PlanSpec, burst_bytes: int) -> float:
    """Return the minimum load of the fastest lane if lanes share bytes in proportion to rates.

    Parameters
    ----------
    spec : PlanSpec
    burst_bytes : int
        Bytes that every lane transfers in no time. They are subtracted.

    Returns
    -------
    float
        Bytes that the fastest lane carries.
    """
    machine, itemsize = spec.machine, spec.collective.itemsize
    by_node = crossing(spec.collective, np.array(machine.rank_to_node))
    rates = np.array([Fraction(rate, max(machine.lane_rates)) for rate in machine.lane_rates])
    least = Fraction(0)
    for loads, is_usable in zip((by_node.into, by_node.out), usable_lanes(machine), strict=True):
        total = max(by_node.total, sum(by_node.into), sum(by_node.out))
        speeds, n_lanes = is_usable @ rates, is_usable.sum(axis=1)
        shares = [*zip(loads, speeds, n_lanes, strict=True), (total, sum(speeds), n_lanes.sum())]
        for load, speed, n in shares:
            least = max(least, -(-load * itemsize // speed) - burst_bytes * int(n) / speed)
    return float(least)


def usable_lanes(machine: Machine) -> tuple[Bools, Bools]:
    """Return masks of the lanes on which each node can receive, and of those on which it can send.

    Parameters
    ----------
    machine : Machine

    Returns
    -------
    tuple of ndarray of bool, each of shape (n_nodes, n_lanes)
    """
    if machine.nodes == 1:
        return np.eye(1, machine.n_lanes, dtype=bool), np.eye(1, machine.n_lanes, dtype=bool)
    has_lane = np.zeros((machine.nodes, machine.n_lanes), dtype=bool)
    has_lane[machine.rank_to_node, machine.rank_to_lane] = True
    others = has_lane.sum(axis=0) - has_lane > 0
    return has_lane, others


def most_partners(collective: Collective, rank_to_place: Ints) -> int:
    """Return the maximum over ranks of the number of other places that a rank must reach or hear.

    Other ranks may forward the data.

    Parameters
    ----------
    collective : Collective
    rank_to_place : ndarray of int64, shape (n_ranks,)
        Place of every rank, numbered from 0. Every place has at least one rank.

    Returns
    -------
    int
        Number of places.
    """
    n_ranks, n_others = len(rank_to_place), int(rank_to_place.max())
    if collective.planned_kind not in ARGUMENTS:
        return 0
    if not collective.has_data:
        return n_others
    ends = _filled_pairs(collective, n_ranks)
    if ends is not None:
        outer = rank_to_place[ends[0]] != rank_to_place[ends[1]]
        sender, receiver = ends[0][outer], ends[1][outer]
        n_places = n_others + 1
        reached = np.unique(sender * n_places + rank_to_place[receiver]) // n_places
        heard = np.unique(receiver * n_places + rank_to_place[sender]) // n_places
        return int(max(np.bincount(each).max(initial=0) for each in (reached, heard)))
    blocks = collective.block_layout(n_ranks)[0]
    if collective.has_blocks and collective.root is not None:
        filled = np.unique(rank_to_place[blocks > 0])
        return int(np.count_nonzero(filled != rank_to_place[collective.root]))
    return n_others if blocks.any() else 0


def _filled_pairs(collective: Collective, n_ranks: int) -> tuple[Ints, Ints] | None:
    """Return senders and receivers of blocks with elements; None if all or no pairs have any."""
    edges, layout = collective.edge_layout(n_ranks), collective.pair_layout(n_ranks)
    if edges is not None:
        is_filled = edges.counts > 0
        return edges.source[is_filled], edges.dest[is_filled]
    if layout is None:
        return None
    sender, receiver = np.nonzero(layout[0])
    return sender, receiver
