"""Models of the collectives whose counts are the same on all ranks."""

from __future__ import annotations

from typing import ClassVar, Literal

from collplan.specs.collectives.collective_base import (
    CollectiveModel,
    InPlace,
    Moving,
    Reducing,
    Rooted,
    register_collective,
)


@register_collective
class Bcast(Rooted, Moving):
    """The root sends `count` elements to every rank; all ranks use only the buffer `recv`."""

    sender: ClassVar = "root"
    has_one_buffer: ClassVar = True
    kind: Literal["bcast"] = "bcast"


@register_collective
class Gather(InPlace, Rooted, Moving):
    """The root collects `count` elements from every rank, in rank order."""

    receiver: ClassVar = "root"
    receives_blocks: ClassVar = True
    kind: Literal["gather"] = "gather"


@register_collective
class Scatter(InPlace, Rooted, Moving):
    """The root sends a different block of `count` elements to every rank, in rank order."""

    sender: ClassVar = "root"
    sends_blocks: ClassVar = True
    kind: Literal["scatter"] = "scatter"


@register_collective
class Reduce(InPlace, Rooted, Reducing):
    """The root receives the combination of the `count` elements of all ranks."""

    receiver: ClassVar = "root"
    staged: ClassVar = "output"
    kind: Literal["reduce"] = "reduce"


@register_collective
class Allgather(InPlace, Moving):
    """Every rank collects `count` elements from every rank."""

    receives_blocks: ClassVar = True
    with_one_block: ClassVar = "bcast"
    kind: Literal["allgather"] = "allgather"


@register_collective
class Allreduce(InPlace, Reducing):
    """Every rank receives the combination of the `count` elements of all ranks."""

    kind: Literal["allreduce"] = "allreduce"


@register_collective
class ReduceScatterBlock(InPlace, Reducing):
    """Every rank receives its own block, of `count` elements, of the combination of all ranks."""

    sends_blocks: ClassVar = True
    staged: ClassVar = "output"
    with_one_block: ClassVar = "reduce"
    kind: Literal["reduce_scatter_block"] = "reduce_scatter_block"


@register_collective
class Scan(InPlace, Reducing):
    """Every rank receives the combination of the `count` elements of ranks 0 to its own."""

    is_prefix: ClassVar = True
    kind: Literal["scan"] = "scan"


@register_collective
class Exscan(InPlace, Reducing):
    """Every rank but 0 receives the combination of the `count` elements of all ranks before it."""

    is_prefix: ClassVar = True
    staged: ClassVar = "input"
    kind: Literal["exscan"] = "exscan"

    def result_count(self, rank: int, n_ranks: int) -> int | None:
        """Return `count`; None for rank 0, which receives no result."""
        return self.count if rank > 0 else None


@register_collective
class Alltoall(InPlace, Moving):
    """Every rank sends a different block of `count` elements to every rank."""

    sends_blocks: ClassVar = True
    receives_blocks: ClassVar = True
    staged: ClassVar = "input"
    with_one_block: ClassVar = "gather"
    kind: Literal["alltoall"] = "alltoall"


@register_collective
class Barrier(CollectiveModel):
    """No rank leaves before every rank has entered; no elements are moved."""

    has_data: ClassVar = False
    kind: Literal["barrier"] = "barrier"
