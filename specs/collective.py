"""The collectives: one model each, a union on `kind`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from collplan.specs.base import SpecModel, raise_together
from collplan.specs.counts import Counts, Table, scaled
from collplan.specs.elements import Datatype, Operation
from collplan.specs.errors import SpecError
from collplan.specs.numbers import MAX_CELLS, MAX_COUNT, MAX_TOTAL, WHOLE, Flag, Rank, is_size
from collplan.specs.predefined import NO_DATATYPE, check_operation, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]

SUM: Final = Operation(name="sum")


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


class CollectiveModel(SpecModel):
    """The base of all collectives.

    Class variables are the traits of a kind. Only its semantics, reference, algorithms
    and native call know more of it. A field that a kind does not have reads as None,
    False, or 0 elements of uint8.
    """

    kind: str
    sender: ClassVar[Literal["all", "root"]] = "all"
    """The ranks that contribute elements."""
    receiver: ClassVar[Literal["all", "root"]] = "all"
    """The ranks that get a result."""
    sends_blocks: ClassVar[bool] = False
    """True if a contribution has a block for every rank."""
    receives_blocks: ClassVar[bool] = False
    """True if a result has a block for every rank."""
    has_data: ClassVar[bool] = True
    """True if elements move; otherwise ranks only wait for each other."""
    has_one_buffer: ClassVar[bool] = False
    """True if ranks contribute from the buffer that receives the result."""
    is_prefix: ClassVar[bool] = False
    """True if a rank receives the combination of all ranks up to its own."""
    staged: ClassVar[Literal["input", "output"] | None] = None
    """The end of a call in place that is kept in scratch: algorithms read and write by turns."""
    with_one_block: ClassVar[str | None] = None
    """The kind that does the same where one block only, or one receiver, has elements."""
    regular: ClassVar[str | None] = None
    """Of a vector kind, the kind that does the same with equal counts."""

    is_rooted: ClassVar[bool] = False
    """True if one rank is the root; set by `register_collective`."""
    has_op: ClassVar[bool] = False
    """True if an operation combines elements; set by `register_collective`."""
    has_blocks: ClassVar[bool] = False
    """True if `count` is the size of a block, not of the vector; set by `register_collective`."""
    is_pairwise: ClassVar[bool] = False
    """True if every pair of ranks has a block of its own; set by `register_collective`."""

    if TYPE_CHECKING:  # at run time fields, or what `register_collective` sets in their place

        @property
        def count(self) -> int: ...
        @property
        def datatype(self) -> str: ...
        @property
        def op(self) -> Operation | None: ...
        @property
        def root(self) -> int | None: ...
        @property
        def in_place(self) -> bool: ...

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element, the padding of a pair included."""
        return numpy_dtype(self.datatype).itemsize

    @property
    def is_commutative(self) -> bool:
        """Return whether operands may be exchanged; True where nothing is combined."""
        return self.op is None or self.op.commutative

    @property
    def planned_kind(self) -> str:
        """Return the kind whose algorithms and decompositions serve this one."""
        return self.regular or self.kind

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield what does not fit a number of ranks, each in a line with its field."""
        root = self.root or 0
        if root >= n_ranks:
            yield (
                f"collective.root: {root} is not a rank of this machine; "
                f"its {n_ranks} ranks are 0 to {n_ranks - 1}"
            )

    def block_layout(self, n_ranks: int) -> tuple[Ints, Ints]:
        """Return count and displacement of every rank's block in a buffer of all blocks.

        All planning goes by these; MPI's recvcounts and displs. Where nothing else is said,
        blocks lie one after another.
        """
        import numpy as np

        counts = np.full(n_ranks, self.count, dtype=np.int64)
        return counts, np.arange(n_ranks) * self.count

    def pair_layout(self, n_ranks: int) -> tuple[Ints, Ints, Ints] | None:
        """Return what every rank (row) has for every rank (column); None where all are `count`.

        Returns
        -------
        counts, given, received : ndarray of int64, shape (n_ranks, n_ranks)
            Elements, their displacement in the sender's buffer, and in the receiver's.
        """
        return None

    def result_count(self, rank: int, n_ranks: int) -> int | None:
        """Return the number of elements that a rank gets; None where nothing is promised."""
        is_root = rank == self.root
        keeps_own = is_root and self.in_place and self.sender == "root"
        if not self.has_data or keeps_own or (self.receiver == "root" and not is_root):
            return None
        return self._n_received(rank, n_ranks)

    def _n_received(self, rank: int, n_ranks: int) -> int:
        return self.count * n_ranks if self.receives_blocks else self.count

    def with_count(self, count: int) -> Self:
        """Return the collective with another count, unchanged if it moves no elements."""
        return self.replace(count=count) if self.has_data else self


Model = TypeVar("Model", bound=CollectiveModel)
Function = TypeVar("Function", bound=Callable[..., Any])

COLLECTIVES: Final[dict[str, type[CollectiveModel]]] = {}
"""The models by kind."""
_ABSENT: Final = {"count": 0, "datatype": NO_DATATYPE, "op": None, "root": None, "in_place": False}
"""Values that stand for the fields a kind does not have."""


def register_collective(model: type[Model]) -> type[Model]:
    """Register the decorated model under the default of its `kind`, and return it.

    What else a kind needs is registered by ``promise`` of
    ``collplan.planner.collective.semantics``, ``reference`` of
    ``collplan.planner.collective.reference``, and ``algorithm`` of
    ``collplan.planner.algorithms.registry``.

    Raises
    ------
    SpecError
        If there is such a kind.
    """
    fields, kind = model.model_fields, model.model_fields["kind"].default
    if kind in COLLECTIVES:
        raise SpecError(f"collective.kind: there is a {kind!r} already; give yours another name")
    for name in _ABSENT.keys() - fields.keys():
        if not hasattr(model, name):
            setattr(model, name, _ABSENT[name])
    model.is_rooted, model.has_op = "root" in fields, "op" in fields
    model.has_blocks = model.sends_blocks or model.receives_blocks
    model.is_pairwise = model.sends_blocks and model.receives_blocks
    COLLECTIVES[kind] = model
    _adapter.cache_clear()
    return model


class ByKind(dict[str, Function]):
    """Functions by kind of collective; called with a kind, the decorator that registers one.

    Parameters
    ----------
    missing : str
        What an error says where a kind, ``{}``, has none.
    """

    def __init__(self, missing: str) -> None:
        super().__init__()
        self._missing = missing

    def __call__(self, kind: str) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            self[kind] = function
            return function

        return register

    def __missing__(self, kind: str) -> Function:
        raise SpecError(f"collective.kind: {self._missing.format(kind)}")


def traits_of(kind: str) -> type[CollectiveModel]:
    """Return the model of a kind; the base of all where `kind` is of local work, as a copy."""
    return COLLECTIVES.get(kind, CollectiveModel)


def _union() -> Any:
    return Annotated[reduce(or_, COLLECTIVES.values()), Field(discriminator="kind")]


@cache
def _adapter() -> TypeAdapter[CollectiveModel]:
    return TypeAdapter(_union())


def validate_collective(fields: Any) -> CollectiveModel:
    """Return the collective of a mapping of fields, `kind` among them.

    Raises
    ------
    pydantic.ValidationError
        If there is no such kind, or its fields are not valid.
    """
    return _adapter().validate_python(fields)


class _Registered:
    """Validation by all models registered until then; a JSON Schema of those of this module."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_plain_validator_function(
            validate_collective, json_schema_input_schema=handler.generate_schema(_union())
        )


Collective = Annotated[CollectiveModel, _Registered]
"""Any collective; `kind` says which."""


class Moving(CollectiveModel):
    """The base of collectives that move elements."""

    count: Count
    datatype: Datatype = "float64"


class Combining(CollectiveModel):
    """The base of collectives that combine elements."""

    op: Operation = SUM

    def _check(self) -> None:
        super()._check()
        check_operation(self.op.name, self.datatype)


class Reducing(Combining, Moving):
    """The base of collectives that combine elements of equal counts."""


class Rooted(CollectiveModel):
    """The base of collectives that start from one rank or end at it."""

    root: Annotated[Rank, Field(description="Rank the collective starts from or ends at.")] = 0


class InPlace(CollectiveModel):
    """The base of collectives that can take their input from the receive buffer."""

    in_place: Annotated[
        Flag, Field(description="MPI_IN_PLACE: the input lies in the receive buffer already.")
    ] = False


class Vector(CollectiveModel):
    """The base of collectives whose counts differ per rank.

    `count` is the total of all blocks.
    """

    counts: Annotated[Counts, Field(description="Elements per rank, or how they are drawn.")]
    datatype: Datatype = "float64"

    @property
    def count(self) -> int:
        """Return the elements of all blocks together."""
        return self.counts.total

    @property
    def displacements(self) -> dict[str, Table | None]:
        """Return the fields that say where blocks lie in a buffer."""
        names = [name for name in type(self).model_fields if name.endswith("displs")]
        return {name: getattr(self, name) for name in names}

    def table(self, n_ranks: int) -> Ints:
        """Return the counts: per rank, or of every sender (row) for every receiver (column)."""
        if isinstance(self.counts, Table):
            return self.counts.array
        return self.counts.table((n_ranks,) * (2 if self.is_pairwise else 1))

    def with_count(self, count: int) -> Self:
        """Return the collective with another total, in proportion, its blocks without gaps."""
        packed = dict.fromkeys(self.displacements)
        return self.replace(counts=scaled(self.counts, count), **packed)

    def _check(self) -> None:
        super()._check()
        raise_together(
            problem
            for name, table in {"counts": self.counts, **self.displacements}.items()
            if isinstance(table, Table)
            for problem in self._problems_of(name, table)
        )

    def _problems_of(self, name: str, table: Table) -> Iterator[str]:
        if table.is_matrix != self.is_pairwise:
            wanted, given = ("a matrix", "a list") if self.is_pairwise else ("a list", "a matrix")
            entry = "row" if self.is_pairwise else "number"
            yield f"{name} is {given}; {self.kind} needs {wanted}, with a {entry} for every rank"
        if name == "counts" and table.total > MAX_TOTAL:
            yield f"counts are {table.total} elements in all; give at most {MAX_TOTAL}"

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield what does not fit a number of ranks: a table's length, blocks that overlap."""
        yield from super().misfits(n_ranks)
        if self.is_pairwise and n_ranks**2 > MAX_CELLS:
            yield (
                f"collective.counts: {n_ranks} ranks have {n_ranks**2:,} pairs; counts of at most "
                f"{MAX_CELLS:,} are planned, use fewer ranks or alltoall"
            )
            return
        tables = {"counts": self.counts, **self.displacements}
        wrong = [
            (name, table)
            for name, table in tables.items()
            if isinstance(table, Table) and table.n_rows != n_ranks
        ]
        for name, table in wrong:
            yield (
                f"collective.{name}: has entries for {table.n_rows} ranks, the machine has "
                f"{n_ranks}; give one for every rank"
            )
        if not wrong:
            yield from self._misplaced(n_ranks)

    def _misplaced(self, n_ranks: int) -> Iterator[str]:
        """Yield which received blocks overlap."""
        return iter(())


class VectorOfBlocks(Vector):
    """The base of those with a block per rank, which may lie apart in the buffer of all blocks."""

    displs: Annotated[
        Table | None,
        Field(description="Where each block begins; one after another if not given."),
    ] = None

    def block_layout(self, n_ranks: int) -> tuple[Ints, Ints]:
        """Return count and displacement of every rank's block."""
        counts = self.table(n_ranks)
        return counts, _places(counts, self.displs)

    def _n_received(self, rank: int, n_ranks: int) -> int:
        from collplan.specs.tables import ends_of

        counts, displs = self.block_layout(n_ranks)
        return int(ends_of(displs, counts)) if self.receives_blocks else int(counts[rank])

    def _misplaced(self, n_ranks: int) -> Iterator[str]:
        if self.displs is not None and self.receives_blocks:
            counts, displs = self.block_layout(n_ranks)
            yield from _overlaps("displs", displs[None], counts[None])


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


@register_collective
class Gatherv(InPlace, Rooted, VectorOfBlocks):
    """The root collects the block of every rank, of a count of its own, in rank order."""

    receiver: ClassVar = "root"
    receives_blocks: ClassVar = True
    regular: ClassVar = "gather"
    kind: Literal["gatherv"] = "gatherv"


@register_collective
class Scatterv(InPlace, Rooted, VectorOfBlocks):
    """The root deals every rank its block, of a count of its own, in rank order."""

    sender: ClassVar = "root"
    sends_blocks: ClassVar = True
    regular: ClassVar = "scatter"
    kind: Literal["scatterv"] = "scatterv"


@register_collective
class Allgatherv(InPlace, VectorOfBlocks):
    """Every rank collects the block of every rank, of a count of its own."""

    receives_blocks: ClassVar = True
    with_one_block: ClassVar = "bcast"
    regular: ClassVar = "allgather"
    kind: Literal["allgatherv"] = "allgatherv"


@register_collective
class ReduceScatter(InPlace, Combining, Vector):
    """Every rank gets a block, of a count of its own, of the combination of all."""

    sends_blocks: ClassVar = True
    staged: ClassVar = "output"
    with_one_block: ClassVar = "reduce"
    regular: ClassVar = "reduce_scatter_block"
    kind: Literal["reduce_scatter"] = "reduce_scatter"

    def block_layout(self, n_ranks: int) -> tuple[Ints, Ints]:
        """Return count and displacement of every rank's block."""
        counts = self.table(n_ranks)
        return counts, _places(counts)

    def _n_received(self, rank: int, n_ranks: int) -> int:
        return int(self.table(n_ranks)[rank])


@register_collective
class Alltoallv(InPlace, Vector):
    """Every rank sends a block of its own, of any count, to every rank.

    In ``counts`` and ``send_displs``, a row is what a sender has for every receiver; in
    ``recv_displs``, where a receiver keeps what comes from every sender. In place, blocks are
    exchanged where ``recv_displs`` says, so the counts of a pair are the same both ways.
    """

    sends_blocks: ClassVar = True
    receives_blocks: ClassVar = True
    staged: ClassVar = "input"
    with_one_block: ClassVar = "gather"
    regular: ClassVar = "alltoall"
    send_displs: Annotated[
        Table | None, Field(description="Where a sender's (row's) blocks begin in its buffer.")
    ] = None
    recv_displs: Annotated[
        Table | None, Field(description="Where a receiver's (row's) blocks begin in its buffer.")
    ] = None
    kind: Literal["alltoallv"] = "alltoallv"

    def pair_layout(self, n_ranks: int) -> tuple[Ints, Ints, Ints]:
        """Return counts, places in the sender's buffer, and places in the receiver's."""
        counts = self.table(n_ranks)
        received = _places(counts.T, self.recv_displs).T
        if self.in_place:
            return counts, received.T, received
        return counts, _places(counts, self.send_displs), received

    def _n_received(self, rank: int, n_ranks: int) -> int:
        from collplan.specs.tables import ends_of

        counts, _, received = self.pair_layout(n_ranks)
        return int(ends_of(received[:, rank], counts[:, rank]))

    def _misplaced(self, n_ranks: int) -> Iterator[str]:
        counts = self.table(n_ranks)
        if self.recv_displs is not None:
            yield from _overlaps("recv_displs", self.recv_displs.array, counts.T)
        if self.in_place and (counts != counts.T).any():
            one, other = (counts != counts.T).nonzero()
            yield (
                f"collective.counts: rank {one[0]} has {counts[one[0], other[0]]} elements for "
                f"rank {other[0]}, which has {counts[other[0], one[0]]} for it; in place both "
                f"counts must be equal"
            )
        if self.in_place and self.send_displs is not None:
            yield (
                "collective.send_displs: in place, blocks are sent from where recv_displs puts "
                "them; leave send_displs out"
            )


def _places(counts: Ints, displs: Table | None = None) -> Ints:
    """Return where blocks begin: where a table says, or one after another."""
    from collplan.specs.tables import places_of

    return places_of(counts, None if displs is None else displs.array)


def _overlaps(field: str, displs: Ints, counts: Ints) -> Iterator[str]:
    """Yield which two blocks of a buffer (row) overlap, if any do."""
    from collplan.specs.tables import first_overlap

    for i, (places, sizes) in enumerate(zip(displs, counts, strict=True)):
        found = first_overlap(places, sizes)
        if found is None:
            continue
        one, other = (f"rank {r}'s {sizes[r]} elements from {places[r]}" for r in found)
        of = f" in rank {i}'s buffer" if len(displs) > 1 else ""
        yield f"collective.{field}: {one} and {other} overlap{of}; received blocks lie apart"
        return
