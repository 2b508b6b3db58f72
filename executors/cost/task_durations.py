"""Places of tasks, and the time that each alone holds its core and lane in the cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.layout import core_to_numa, staged_elements
from collplan.executors.cost.parameters import LINK_CLASSES, packet_cost
from collplan.executors.cost.working_sets import is_uncached
from collplan.planner.arrays.csr import row_sums
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.cost.simulator import Timeline
    from collplan.planner.plan.plan import Extents, Plan
    from collplan.specs import Network


Ints = npt.NDArray[np.integer[Any]]
Longs = npt.NDArray[np.int64]

_CORE, _NUMA, _NODE, _NETWORK = range(len(LINK_CLASSES))


@dataclass(frozen=True, slots=True)
class Resource:
    """A core, one direction of a lane of a node or of a rank's port, or a shared processor.

    Parameters
    ----------
    kind : "core", "lane", "port" or "processor"
        What it is.
    place : int
        The node of a core or lane, the rank of a port, 0 for a processor.
    index : int
        Which core or lane of the node.
    direction : "out", "in" or ""
        Of a lane or port.
    """

    kind: Literal["core", "lane", "port", "processor"]
    place: int
    index: int = 0
    direction: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return its kind, and node and core, node, lane and direction, or rank and direction."""
        if self.kind == "processor":
            return {"kind": "processor"}
        if self.kind == "core":
            return {"kind": "core", "node": self.place, "core": self.index}
        if self.kind == "lane":
            where = {"node": self.place, "lane": self.index}
        else:
            where = {"rank": self.place}
        return {"kind": self.kind, **where, "direction": self.direction}


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """Cores, lanes and links of some tasks of a plan.

    Parameters
    ----------
    n_cores, n_lanes : int
        Of each node.
    rank, node, core : ndarray of int64
        Where each task runs.
    lane : ndarray of int64
        The lane a message takes at this end; -1 for messages inside a node,
        which take their rank's port, and for what is no message.
    link : ndarray of int64
        A message's row in `LINK_CLASSES`.
    """

    n_cores: int
    n_lanes: int
    rank: Longs
    node: Longs
    core: Longs
    lane: Longs
    link: Longs


def places_of(plan: Plan, partner: Ints, rows: Longs | None = None) -> Places:
    """Return where tasks run, all or those of `rows`; `partner` is the other end of messages."""
    chosen = slice(None) if rows is None else rows
    rank, op = plan.rank[chosen].astype(np.int64), plan.op[chosen]
    is_message = op <= Op.RECV
    other = np.where(is_message, plan.peer[chosen], rank)
    node, other_node = plan.rank_node[rank].astype(np.int64), plan.rank_node[other]
    # A rank alone on its node has no port: it sends over its lane even to itself.
    alone = np.bincount(plan.rank_node, minlength=plan.n_nodes)[node] == 1
    lane = plan.lane[chosen].astype(np.int64)
    receiver = np.where(op == Op.SEND, other, rank)
    lane = np.maximum(np.where(lane < 0, plan.rank_lane[receiver], lane), 0)
    core = plan.core[chosen].astype(np.int64)
    other_core = np.where(is_message, plan.core[partner[chosen]], core)
    numa = core_to_numa(plan)
    same_core = (rank == other) | (core == other_core)
    near = np.where(same_core, _CORE, np.where(numa[core] == numa[other_core], _NUMA, _NODE))
    return Places(
        n_cores=1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0))),
        n_lanes=1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0))),
        rank=rank,
        node=node,
        core=core,
        lane=np.where(is_message & ((node != other_node) | alone), lane, -1),
        link=np.where(node == other_node, near, _NETWORK),
    )


Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Holds:
    """What tasks take, in ns; a receive's are its message's, from the arrival on.

    Parameters
    ----------
    core_ns, lane_ns : ndarray of float64
        How long the core, and the lane or port, are held. `lane_ns` is 0 for
        what is no message.
    pieces_ns : ndarray of float64
        The part of a message's `core_ns` that its being in several pieces takes.
    overhead_ns, latency_ns, wire_ns, touch_ns : ndarray of float64
        A message's o, L, (s - 1)·G and (s - 1)·O; its first packet's cost is in o, that of
        others in (s - 1)·O.
    is_asking : ndarray of bool
        Sends that ask their receiver first.
    is_cut : ndarray of bool
        Messages between nodes that go by turns.
    """

    core_ns: Floats
    lane_ns: Floats
    pieces_ns: Floats
    overhead_ns: Floats
    latency_ns: Floats
    wire_ns: Floats
    touch_ns: Floats
    is_asking: Flags
    is_cut: Flags


def holds_of(
    timeline: Timeline, network: Network, places: Places, rows: Longs | None = None
) -> Holds:
    """Return how long tasks hold what they need, for the rows that `places` was made of."""
    plan = timeline.plan
    chosen = slice(None) if rows is None else rows
    op = plan.op[chosen]
    elements = plan.elements
    if timeline.is_allocated:
        elements = elements - staged_elements(plan)
    n_bytes = elements[chosen] * float(plan.itemsize)
    is_message = op <= Op.RECV
    links = [getattr(network, name) for name in LINK_CLASSES]

    def of_link(field: str) -> Floats:
        table = np.array([float(getattr(link, field)) for link in links])
        return np.where(is_message, table[places.link], 0.0)

    strided, uncached = (extra[chosen] for extra in _extra_ns_per_byte(plan, network))
    overhead, more = of_link("o_ns"), np.maximum(n_bytes - 1, 0.0)
    touch, wire = more * of_link("O_ns_per_byte"), more * of_link("G_ns_per_byte")
    packet_ns = packet_cost(network)
    if packet_ns > 0 and network.nic is not None:
        packets = np.ceil(np.maximum(n_bytes, 1) / network.nic.packet_bytes)
        crosses = is_message & (places.link == _NETWORK)
        overhead += np.where(crosses, packet_ns, 0.0)
        touch += np.where(crosses, (packets - 1) * packet_ns, 0.0)
    pieces = np.where(is_message, n_bytes * strided, 0.0)
    sending = overhead + touch + pieces
    # An adapter that writes to memory itself leaves the receiver's core alone.
    copying = np.where(of_link("offload") > 0, 0.0, overhead + wire)
    core_ns = np.select(
        [op == kind for kind in (Op.SEND, Op.RECV, Op.COPY, Op.REDUCE)],
        [
            sending,
            np.maximum(sending, copying),
            np.rint(n_bytes * (network.copy_ns_per_byte + strided + uncached)),
            np.rint(n_bytes * (network.reduce_ns_per_byte + strided + uncached)),
        ],
        plan.duration_ns[chosen].astype(np.float64),
    )
    lane_ns = np.where(is_message, of_link("g_ns") + wire, 0.0)
    turn = np.inf if network.turn_bytes is None else network.turn_bytes
    asks = network.handshake & (op == Op.SEND) & (n_bytes > network.eager_limit_bytes)
    return Holds(
        core_ns=core_ns,
        lane_ns=lane_ns,
        pieces_ns=pieces,
        overhead_ns=overhead,
        latency_ns=of_link("L_ns"),
        wire_ns=np.where(is_message, wire, 0.0),
        touch_ns=np.where(is_message, touch, 0.0),
        is_asking=asks,
        is_cut=is_message & (places.link == _NETWORK) & (n_bytes > turn),
    )


def _extra_ns_per_byte(plan: Plan, network: Network) -> tuple[Floats, Floats]:
    """Return what a byte of each task costs more, in pieces and out of the cache."""
    strided, uncached = np.zeros((2, plan.n_tasks))
    if network.strided_ns_per_byte > 0:
        strided = np.where(_in_pieces(plan), network.strided_ns_per_byte, 0.0)
    if network.cache_bytes is not None and network.uncached_ns_per_byte > 0:
        is_large = is_uncached(plan, network.cache_bytes)
        uncached = np.where(is_large, network.uncached_ns_per_byte, 0.0)
    return strided, uncached


def _in_pieces(plan: Plan) -> Flags:
    """Tell which tasks read or write more than one piece of memory an operand."""
    op = plan.op
    repeats = plan.patterns[:, 1] * plan.patterns[:, 3] > 1

    def pieces(extents: Extents, allowed: npt.ArrayLike) -> Flags:
        has_stride = row_sums(extents.indptr, repeats[extents.pattern]) > 0
        return np.asarray((np.diff(extents.indptr) > allowed) | has_stride)

    reads = pieces(plan.reads, np.where(op == Op.REDUCE, 2, 1)) & (op != Op.RECV)
    return np.asarray(reads | (pieces(plan.writes, 1) & (op != Op.SEND)))
