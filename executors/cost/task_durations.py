"""How long tasks hold what they need, by the formulas of the cost model, each alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.cost.layout import staged_elements
from collplan.executors.cost.parameters import LINK_CLASSES, packet_cost
from collplan.executors.cost.working_sets import is_uncached
from collplan.planner.arrays.csr import row_sums
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.cost.places import Places
    from collplan.executors.cost.timeline import Timeline
    from collplan.planner.plan.plan import Extents, Plan
    from collplan.specs import Network

Floats = npt.NDArray[np.float64]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_NETWORK: Final = LINK_CLASSES.index("network")


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

    strided = np.zeros(len(op))
    if network.strided_ns_per_byte > 0:
        strided = np.where(_in_pieces(plan)[chosen], network.strided_ns_per_byte, 0.0)
    uncached = np.zeros(len(op))
    if network.cache_bytes is not None and network.uncached_ns_per_byte > 0:
        is_large = is_uncached(plan, network.cache_bytes)[chosen]
        uncached = np.where(is_large, network.uncached_ns_per_byte, 0.0)
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


def _in_pieces(plan: Plan) -> Flags:
    """Tell which tasks read or write more than one piece of memory an operand."""
    op = plan.op
    repeats = plan.patterns[:, 1] * plan.patterns[:, 3] > 1

    def pieces(extents: Extents, allowed: npt.ArrayLike) -> Flags:
        has_stride = row_sums(extents.indptr, repeats[extents.pattern]) > 0
        return np.asarray((np.diff(extents.indptr) > allowed) | has_stride)

    reads = pieces(plan.reads, np.where(op == Op.REDUCE, 2, 1)) & (op != Op.RECV)
    return np.asarray(reads | (pieces(plan.writes, 1) & (op != Op.SEND)))
