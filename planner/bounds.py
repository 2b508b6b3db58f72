"""What no plan can beat: lower bounds on rounds and bytes, with the argument for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from planner.rounds import ceil_log2
from specs import PlanSpec

DOUBLING = "whoever knows or is known doubles in a round at best: ceil(log2 p)"
LEAVES_ROOT = "what others need of the root must leave it"
LEAVES_EVERY_SENDER = "every contribution must leave its rank once"
ARRIVES = "what every rank must receive, somebody sends: the average is the bound"
HALVES = "2(p-1)/p of the vector, Patarasuk and Yuan 2009, theorem 1"
OTHERS_BLOCKS = "for each of the others' blocks a partial result must leave every rank"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lower bounds on the maxima that `Metrics` reports, for one collective.

    Parameters
    ----------
    n_rounds : int
        Rounds in which a rank sends one message and receives one.
    bytes_sent_per_rank, bytes_sent_per_node, bytes_sent_per_lane : int
        Bytes the busiest rank, node (to other nodes) and lane must send.
    argument : str
        Why no plan sends less.
    """

    n_rounds: int
    bytes_sent_per_rank: int
    bytes_sent_per_node: int
    bytes_sent_per_lane: int
    argument: str

    def to_json(self) -> dict[str, int | str]:
        """Return the bounds as a mapping."""
        return asdict(self)


def lower_bounds(spec: PlanSpec) -> Bounds:
    """Return the lower bounds of a spec's collective on its machine.

    Examples
    --------
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"ranks_per_node": 6},
    ...     "collective": {"kind": "allreduce", "count": 12, "datatype": "int32"},
    ... })
    >>> bounds = lower_bounds(spec)
    >>> bounds.n_rounds, bounds.bytes_sent_per_rank
    (3, 80)
    """
    machine, collective = spec.machine, spec.collective
    p, kind = machine.n_ranks, collective.kind
    per_node = np.bincount(machine.rank_to_node, minlength=machine.nodes)
    block = collective.count * collective.itemsize
    if p == 1 or (block == 0 and kind != "barrier"):
        return Bounds(0, 0, 0, 0, "nothing has to move")
    root_node = machine.rank_to_node[getattr(collective, "root", 0)]
    rank_bytes, argument = _sent_by_a_rank(kind, p, block)
    node_bytes = _sent_by_a_node(kind, per_node, int(root_node), block)
    lanes = min(machine.lanes, int(per_node.max()))
    return Bounds(ceil_log2(p), rank_bytes, node_bytes, -(-node_bytes // lanes), argument)


def _sent_by_a_rank(kind: str, p: int, block: int) -> tuple[int, str]:
    match kind:
        case "barrier":
            return 0, DOUBLING
        case "bcast":
            return block, LEAVES_ROOT
        case "scatter":
            return (p - 1) * block, LEAVES_ROOT
        case "gather" | "reduce" | "scan" | "exscan":
            return block, LEAVES_EVERY_SENDER
        case "allgather":
            return (p - 1) * block, ARRIVES
        case "allreduce":
            return -(-2 * (p - 1) * block // p), HALVES
    assert kind in ("reduce_scatter_block", "alltoall"), kind
    return (p - 1) * block, OTHERS_BLOCKS if kind == "reduce_scatter_block" else ARRIVES


def _sent_by_a_node(kind: str, per_node: np.ndarray, root_node: int, block: int) -> int:
    n_nodes, p = len(per_node), int(per_node.sum())
    if n_nodes == 1 or kind == "barrier":
        return 0
    outside = p - per_node
    match kind:
        case "bcast" | "reduce" | "scan" | "exscan":
            return block
        case "scatter":
            return int(outside[root_node]) * block
        case "gather":
            return int(np.delete(per_node, root_node).max()) * block
        case "allgather":
            # Node i receives all blocks but its own; the average is sent by somebody.
            return max(-(-int(outside.sum()) * block // n_nodes), int(per_node.max()) * block)
        case "allreduce":
            return -(-2 * (n_nodes - 1) * block // n_nodes)
        case "reduce_scatter_block":
            return int(outside.max()) * block
    return int((per_node * outside).max()) * block
