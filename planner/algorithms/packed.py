"""Algorithms whose messages are packed into the links of a topology, for most collectives."""

from __future__ import annotations

from collplan.planner.algorithms.building_blocks.packed_messages import packed_rounds
from collplan.planner.algorithms.registry import BLOCKS, algorithm
from collplan.planner.algorithms.rounds import Group, Rounds

_AUTO = {BLOCKS: "auto"}


@algorithm("allgather", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm(
    "reduce_scatter_block",
    "packed",
    parts="blocks",
    commutative_only=True,
    is_packed=True,
    options=_AUTO,
)
@algorithm(
    "allreduce", "packed", parts="size", commutative_only=True, is_packed=True, options=_AUTO
)
@algorithm("bcast", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("reduce", "packed", parts="blocks", commutative_only=True, is_packed=True, options=_AUTO)
@algorithm("gather", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("scatter", "packed", parts="blocks", is_packed=True, options=_AUTO)
@algorithm("alltoall", "packed", by_counts=True, is_packed=True)
def packed(group: Group) -> Rounds:
    """Send chunks over every link of the topology for as much of the time as possible.

    A search simulates time: each link that becomes free takes a chunk that the receiver lacks, the
    one that the fewest of its neighbors can give it. Chunks of scatter, gather and alltoall take
    ways that load all links evenly. Gather, reduce and reduce_scatter_block are scatter, bcast and
    allgather turned around, and allreduce is two of them.

    Notes
    -----
    The groups of a component are packed together, as they share links. The number of rounds
    depends on the topology; `collplan cost` prints the lower bound that its cuts give.

    References
    ----------
    Won et al., "TACOS: topology-aware collective algorithm synthesizer for distributed machine
    learning", MICRO 2024: time-expanded search. Zhao et al., "ForestColl: throughput-optimal
    collective communications on heterogeneous network fabrics", 2024: the bound of allgather.
    """
    assert group.schedule is not None, "a packed algorithm has a schedule"
    yield from packed_rounds(group, group.schedule)
