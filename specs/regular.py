"""Collectives whose counts are the same on all ranks: a model each."""

from __future__ import annotations

from typing import ClassVar, Literal

from collplan.specs.collective_base import (
    CollectiveModel,
    InPlace,
    Moving,
    Reducing,
    Rooted,
    register_collective,
)


@register_collective
class Bcast(Rooted, Moving):
    """The root's `count` elements reach every rank; every rank's buffer is `recv`."""

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
    """The root deals `count` elements to every rank, in rank order."""

    sender: ClassVar = "root"
    sends_blocks: ClassVar = True
    kind: Literal["scatter"] = "scatter"


@register_collective
class Reduce(InPlace, Rooted, Reducing):
    """The root gets the combination of all ranks' `count` elements."""

    receiver: ClassVar = "root"
    kind: Literal["reduce"] = "reduce"


@register_collective
class Allgather(InPlace, Moving):
    """Every rank collects `count` elements from every rank."""

    receives_blocks: ClassVar = True
    with_one_block: ClassVar = "bcast"
    kind: Literal["allgather"] = "allgather"


@register_collective
class Allreduce(InPlace, Reducing):
    """Every rank gets the combination of all ranks' `count` elements."""

    kind: Literal["allreduce"] = "allreduce"


@register_collective
class ReduceScatterBlock(InPlace, Reducing):
    """Every rank gets its own `count` elements of the combination of all."""

    sends_blocks: ClassVar = True
    staged: ClassVar = "output"
    with_one_block: ClassVar = "reduce"
    kind: Literal["reduce_scatter_block"] = "reduce_scatter_block"


@register_collective
class Scan(InPlace, Reducing):
    """Every rank gets the combination of `count` elements of ranks up to its own."""

    is_prefix: ClassVar = True
    kind: Literal["scan"] = "scan"


@register_collective
class Exscan(InPlace, Reducing):
    """Every rank but 0 gets the combination of `count` elements of the ranks before it."""

    is_prefix: ClassVar = True
    staged: ClassVar = "input"
    kind: Literal["exscan"] = "exscan"

    def result_count(self, rank: int, n_ranks: int) -> int | None:
        """Return `count`, but None for rank 0, which is promised nothing."""
        return self.count if rank > 0 else None


@register_collective
class Alltoall(InPlace, Moving):
    """Every rank sends `count` elements of its own to every rank."""

    sends_blocks: ClassVar = True
    receives_blocks: ClassVar = True
    staged: ClassVar = "input"
    with_one_block: ClassVar = "gather"
    kind: Literal["alltoall"] = "alltoall"


@register_collective
class Barrier(CollectiveModel):
    """No rank leaves before every rank has come; moves no elements."""

    has_data: ClassVar = False
    kind: Literal["barrier"] = "barrier"
