"""What designs of alltoall need of a node, in closed form: tables I and III of OHIO's authors.

N nodes of P ranks exchange blocks of M bytes. Where nodes differ, P is the
fullest one's, and the formulas are what is needed at most.

References
----------
Tran et al., "OHIO: Improving RDMA Network Scalability in MPI_Alltoall through
Optimized Hierarchical and Intra/Inter-Node Communication Overlap Design",
2024: tables I and III.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log2
from typing import Final


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """What a design needs of a node.

    Parameters
    ----------
    queue_pairs, posted_sends : float
        Connections to ranks of other nodes, and messages to them. Whole
        numbers but for an estimate.
    memory_bytes : int or None
        Memory beside the callers' buffers; None where the tables say nothing.
    is_estimate : bool
        Whether the counts are an upper estimate: of Bruck's algorithm only, which
        also sends within nodes.
    """

    queue_pairs: float
    posted_sends: float
    memory_bytes: int | None = None
    is_estimate: bool = False


def _bruck(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    count = ranks * log2(nodes * ranks) if nodes > 1 else 0.0
    return NodeCounts(count, count, is_estimate=True)


def _flat(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    count = (nodes - 1) * ranks**2
    return NodeCounts(count, count)


def _rank_by_rank(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    return NodeCounts((nodes - 1) * ranks, (nodes - 1) * ranks)


def _node_by_node(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    return NodeCounts(nodes - 1, nodes - 1)


def _v1(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    return NodeCounts(nodes - 1, (nodes - 1) * ranks, 2 * block_bytes * nodes * ranks**2)


def _v2(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    return NodeCounts(nodes - 1, nodes - 1, 2 * block_bytes * nodes * ranks**2)


def _v3(nodes: int, ranks: int, block_bytes: int) -> NodeCounts:
    # Printed is (M + 2)·N·P², which no choice of units makes the shared send
    # buffer and two blocks of P² that the text and its figure 6 describe.
    return NodeCounts(nodes - 1, nodes - 1, block_bytes * (nodes + 2) * ranks**2)


_FORMULAS: Final[dict[str, Callable[[int, int, int], NodeCounts]]] = {
    "bruck": _bruck,
    "scatter_destination": _flat,
    "pairwise": _flat,
    "traeff_rougier": _node_by_node,
    "chochia": _node_by_node,
    "khorassani": _rank_by_rank,
    "ohio_v1": _v1,
    "ohio_v2": _v2,
    "ohio_v3": _v3,
}


def node_counts(design: str, nodes: int, ranks: int, block_bytes: int) -> NodeCounts | None:
    """Return what a design needs of a node; None where the tables do not have it.

    Parameters
    ----------
    design : str
        As in `collplan.select.alltoall_designs`.
    nodes, ranks : int
        Nodes, and ranks a node.
    block_bytes : int
        What every rank has for every other.

    Examples
    --------
    >>> node_counts("ohio_v3", 128, 56, 8)
    NodeCounts(queue_pairs=127, posted_sends=127, memory_bytes=3261440, is_estimate=False)
    >>> node_counts("pairwise", 128, 56, 8).queue_pairs
    398272
    >>> node_counts("bruck", 16, 56, 8).queue_pairs
    549.2...
    """
    formula = _FORMULAS.get(design)
    return formula(nodes, ranks, block_bytes) if formula else None
