"""The collectives: one model each, a union on `kind`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from collplan.specs.base import SpecModel
from collplan.specs.datatype import Datatype, numpy_dtype
from collplan.specs.numbers import WHOLE, Flag, Rank
from collplan.specs.operation import Operation
from collplan.specs.sizes import is_size

SUM: Final = Operation(name="sum")


MAX_COUNT: Final = 2**40
"""Greatest count: offsets of 2**16 ranks times as many elements of 32 bytes fit 64 bits."""


def _refuse_size(value: Any) -> Any:
    if isinstance(value, str) and is_size(value):
        raise ValueError(
            f"{value!r} is a size in bytes, count is a number of elements; "
            f"divide by the bytes of an element"
        )
    return value


Count = Annotated[
    int,
    Field(ge=0, le=MAX_COUNT, description="Elements: MPI's count of the collective."),
    WHOLE,
    BeforeValidator(_refuse_size),
]
Root = Annotated[Rank, Field(description="Rank the collective starts from or ends at.")]
InPlace = Annotated[
    Flag, Field(description="MPI_IN_PLACE: the input lies in the receive buffer already.")
]


class CollectiveModel(SpecModel):
    """What all collectives share."""

    kind: str
    is_rooted: ClassVar[bool] = False
    """Whether one rank, the root, plays a part of its own."""
    has_op: ClassVar[bool] = False
    """Whether elements are combined by an operation."""

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element, the padding of a pair included."""
        return numpy_dtype(str(getattr(self, "datatype", "uint8"))).itemsize

    def block_counts(self, n_ranks: int) -> tuple[int, ...]:
        """Return the elements of every rank's block; MPI's recvcounts.

        All planning goes by these. The regular collectives' blocks all have
        `count` elements.
        """
        return (int(getattr(self, "count", 0)),) * n_ranks

    def pair_counts(self, n_ranks: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the elements every rank (row) has for every rank; None where all are `count`."""
        return None

    @property
    def is_in_place(self) -> bool:
        """Return whether the input lies in the receive buffer, as MPI_IN_PLACE says."""
        return bool(getattr(self, "in_place", False))


class _Moving(CollectiveModel):
    count: Count
    datatype: Datatype = "float64"


class _Reducing(_Moving):
    has_op: ClassVar[bool] = True
    op: Operation = SUM

    @model_validator(mode="after")
    def _check_op(self) -> Self:
        self.op.check_datatype(self.datatype)
        return self


class Bcast(_Moving):
    """The root's `count` elements reach every rank; every rank's buffer is `recv`."""

    is_rooted: ClassVar[bool] = True
    kind: Literal["bcast"] = "bcast"
    root: Root = 0


class Gather(_Moving):
    """The root collects `count` elements from every rank, in rank order."""

    is_rooted: ClassVar[bool] = True
    kind: Literal["gather"] = "gather"
    root: Root = 0
    in_place: InPlace = False


class Scatter(_Moving):
    """The root deals `count` elements to every rank, in rank order."""

    is_rooted: ClassVar[bool] = True
    kind: Literal["scatter"] = "scatter"
    root: Root = 0
    in_place: InPlace = False


class Reduce(_Reducing):
    """The root gets the combination of all ranks' `count` elements."""

    is_rooted: ClassVar[bool] = True
    kind: Literal["reduce"] = "reduce"
    root: Root = 0
    in_place: InPlace = False


class Allgather(_Moving):
    """Every rank collects `count` elements from every rank."""

    kind: Literal["allgather"] = "allgather"
    in_place: InPlace = False


class Allreduce(_Reducing):
    """Every rank gets the combination of all ranks' `count` elements."""

    kind: Literal["allreduce"] = "allreduce"
    in_place: InPlace = False


class ReduceScatterBlock(_Reducing):
    """Every rank gets its own `count` elements of the combination of all."""

    kind: Literal["reduce_scatter_block"] = "reduce_scatter_block"
    in_place: InPlace = False


class Scan(_Reducing):
    """Every rank gets the combination of `count` elements of ranks up to its own."""

    kind: Literal["scan"] = "scan"
    in_place: InPlace = False


class Exscan(_Reducing):
    """Every rank but 0 gets the combination of `count` elements of the ranks before it."""

    kind: Literal["exscan"] = "exscan"
    in_place: InPlace = False


class Alltoall(_Moving):
    """Every rank sends `count` elements of its own to every rank."""

    kind: Literal["alltoall"] = "alltoall"
    in_place: InPlace = False


class Barrier(CollectiveModel):
    """No rank leaves before every rank has come; moves no elements."""

    kind: Literal["barrier"] = "barrier"

    @property
    def count(self) -> int:
        """Return 0: a barrier has no elements."""
        return 0

    @property
    def datatype(self) -> str:
        """Return the type of the tokens that ranks exchange."""
        return "uint8"


Collective = Annotated[
    Bcast
    | Gather
    | Scatter
    | Reduce
    | Allgather
    | Allreduce
    | ReduceScatterBlock
    | Scan
    | Exscan
    | Alltoall
    | Barrier,
    Field(discriminator="kind"),
]
"""Any collective; `kind` says which."""

COLLECTIVES: Final[dict[str, type[CollectiveModel]]] = {
    model.model_fields["kind"].default: model
    for model in (
        Bcast,
        Gather,
        Scatter,
        Reduce,
        Allgather,
        Allreduce,
        ReduceScatterBlock,
        Scan,
        Exscan,
        Alltoall,
        Barrier,
    )
}
"""The models by kind."""
