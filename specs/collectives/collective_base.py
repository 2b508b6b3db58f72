"""Base class of all collectives, with the traits of a kind, and the registry of kinds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field

from collplan.specs.collectives.elements import Datatype, Operation
from collplan.specs.collectives.predefined import NO_DATATYPE, check_operation, numpy_dtype
from collplan.specs.errors import SpecError, show_value
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.numbers import MAX_COUNT, WHOLE, Flag, Rank, is_size

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from collplan.specs.collectives.graphs import EdgeLayout

    Ints = npt.NDArray[np.integer[Any]]

SUM: Final = Operation(name="sum")

Reproducible = Literal["ranks", "runs", "placements"]
"""Levels of `reproducible`, each of which includes those before it."""
LEVELS_OF_BITS: Final[tuple[Reproducible, ...]] = get_args(Reproducible)


def _refuse_size(value: Any) -> Any:
    if isinstance(value, str) and is_size(value):
        raise ValueError(
            f"{show_value(value)} is a size in bytes, count is a number of elements; "
            f"divide by the bytes of an element"
        )
    return value


Count = Annotated[
    int,
    Field(ge=0, le=MAX_COUNT, description="Number of elements: MPI's count argument."),
    WHOLE,
    BeforeValidator(_refuse_size),
]


def _number_kinds(datatype: str) -> set[str]:
    """Return numpy's letters for the kinds of numbers that an element has."""
    dtype = numpy_dtype(datatype)
    fields = [dtype] if dtype.fields is None else [field[0] for field in dtype.fields.values()]
    return {field.kind for field in fields}


class CollectiveModel(SpecModel):
    """Base class of all collectives.

    Parameters
    ----------
    kind : str
        The collective's name.

    Notes
    -----
    The class variables are the traits of a kind. Everything else that is specific to a
    kind is in its semantics, reference, algorithms, and native call. A field that a kind
    does not have reads as None, False, or 0 elements of uint8.
    """

    kind: str
    sender: ClassVar[Literal["all", "root"]] = "all"
    """The ranks that contribute elements."""
    receiver: ClassVar[Literal["all", "root"]] = "all"
    """The ranks that receive a result."""
    sends_blocks: ClassVar[bool] = False
    """True if a contribution has a block for every rank."""
    receives_blocks: ClassVar[bool] = False
    """True if a result has a block for every rank."""
    has_data: ClassVar[bool] = True
    """True if the collective moves elements; False if ranks only wait for each other."""
    has_one_buffer: ClassVar[bool] = False
    """True if each rank has a single buffer, for its contribution and for the result."""
    is_prefix: ClassVar[bool] = False
    """True if a rank receives the combination of all ranks up to its own."""
    staged: ClassVar[Literal["input", "output"] | None] = None
    """Buffer that in-place calls keep in scratch, as algorithms alternate reads and writes."""
    with_one_block: ClassVar[str | None] = None
    """Kind that does the same if only one block, or only one receiver, has elements."""
    has_edges: ClassVar[bool] = False
    """True if ranks send along the edges of a graph, each of which has a block of its own."""
    regular: ClassVar[str | None] = None
    """Kind as which this one is planned if its blocks differ in size, or lie along the edges of a
    graph; None if all ranks have equal blocks."""

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
        def reproducible(self) -> Reproducible: ...

    @property
    def itemsize(self) -> int:
        """Return the size of an element in bytes, including the padding of a pair."""
        return numpy_dtype(self.datatype).itemsize

    @property
    def is_commutative(self) -> bool:
        """Return whether operands may be exchanged; True for kinds without an operation."""
        return self.op is None or self.op.commutative

    @property
    def rounds(self) -> bool:
        """Return whether the bits of results depend on the order in which operands are combined.

        Sums and products of floating-point numbers round, and own operations on such numbers may.
        """
        if self.op is None or (self.op.is_builtin and self.op.name not in ("sum", "prod")):
            return False
        return bool(_number_kinds(self.datatype) & {"f", "c"})

    @property
    def swaps_exactly(self) -> bool:
        """Return whether exchanged operands of a combination have a result of the same bits.

        Products of complex numbers may not, as processors multiply and add in one step.
        """
        if self.op is None or not self.op.is_builtin:
            return False
        return self.op.name != "prod" or "c" not in _number_kinds(self.datatype)

    @property
    def level(self) -> Reproducible | None:
        """Return what results must be reproducible between; None if association changes no bit."""
        return self.reproducible if self.rounds else None

    @property
    def may_reorder(self) -> bool:
        """Return whether a plan may combine operands in another order than that of ranks."""
        return self.is_commutative and self.level != "placements"

    @property
    def planned_kind(self) -> str:
        """Return the kind whose algorithms and decompositions are used for this kind."""
        return self.regular or self.kind

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield one line, beginning with the field, per field that does not fit `n_ranks`."""
        root = self.root or 0
        if root >= n_ranks:
            yield (
                f"collective.root: {root} is not a rank of this machine; "
                f"its {n_ranks} ranks are 0 to {n_ranks - 1}"
            )

    def block_layout(self, n_ranks: int) -> tuple[Ints, Ints]:
        """Return count and displacement of every rank's block in a buffer of all blocks.

        Planning takes the positions of blocks from here. These are MPI's recvcounts and
        displs. By default, blocks lie one after another.
        """
        import numpy as np

        counts = np.full(n_ranks, self.count, dtype=np.int64)
        return counts, np.arange(n_ranks) * self.count

    def pair_layout(self, n_ranks: int) -> tuple[Ints, Ints, Ints] | None:
        """Return counts and displacements per sender and receiver, if counts can differ.

        Returns
        -------
        counts, given, received : ndarray of int64, shape (n_ranks, n_ranks)
            Number of elements that the sender (row) has for the receiver (column), and
            their displacements in the sender's buffer and in the receiver's buffer. None
            instead of the three arrays if every pair exchanges `count` elements.
        """
        return None

    def edge_layout(self, n_ranks: int) -> EdgeLayout | None:
        """Return the blocks of the edges of a graph; None if the kind has no graph."""
        return None

    def result_count(self, rank: int, n_ranks: int) -> int | None:
        """Return the number of elements that a rank receives; None if it gets no result."""
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


COLLECTIVES: Final[dict[str, type[CollectiveModel]]] = {}
"""The models by kind."""


_ABSENT: Final = {
    "count": 0,
    "datatype": NO_DATATYPE,
    "op": None,
    "root": None,
    "in_place": False,
    "reproducible": "ranks",
}
"""Values that stand for the fields a kind does not have."""


def register_collective(model: type[Model]) -> type[Model]:
    """Register the decorated model under the default of its `kind`, and return it.

    The other parts that a kind needs are registered by ``promise`` in
    ``collplan.planner.collective.semantics``, ``reference`` in
    ``collplan.planner.collective.reference``, and ``algorithm`` in
    ``collplan.planner.algorithms.registry``.

    Raises
    ------
    SpecError
        If a kind of this name is registered already.
    """
    fields, kind = model.model_fields, model.model_fields["kind"].default
    if kind in COLLECTIVES:
        raise SpecError(
            f"collective.kind: there is a {show_value(kind)} already; give yours another name"
        )
    for name in _ABSENT.keys() - fields.keys():
        if not hasattr(model, name):
            setattr(model, name, _ABSENT[name])
    model.is_rooted, model.has_op = "root" in fields, "op" in fields
    model.has_blocks = model.sends_blocks or model.receives_blocks or model.has_edges
    model.is_pairwise = model.sends_blocks and model.receives_blocks
    COLLECTIVES[kind] = model
    return model


class Moving(CollectiveModel):
    """Base class of collectives that move elements.

    Parameters
    ----------
    count : int
        Number of elements: MPI's count argument of the collective.
    datatype : str
        Type of the elements, by numpy's name.
    """

    count: Count
    datatype: Datatype = "float64"


class Combining(CollectiveModel):
    """Base class of collectives that combine elements.

    Parameters
    ----------
    op : Operation
        Operation that combines elements.
    reproducible : str
        What results of an operation that rounds have the same bits between: all ``ranks``;
        also all ``runs`` and segment sizes; or also all ``placements`` of ranks on nodes, lanes,
        sizes and algorithms.
    """

    op: Operation = SUM
    reproducible: Reproducible = "ranks"

    def _check(self) -> None:
        super()._check()
        check_operation(self.op.name, self.datatype)


class Reducing(Combining, Moving):
    """Base class of collectives that combine elements, with the same count on all ranks."""


class Rooted(CollectiveModel):
    """Base class of collectives that start from one rank or end at it."""

    root: Annotated[
        Rank, Field(description="Rank from which the data start, or at which they end.")
    ] = 0


class InPlace(CollectiveModel):
    """Base class of collectives that can take their input from the receive buffer."""

    in_place: Annotated[
        Flag, Field(description="MPI_IN_PLACE: the input is already in the receive buffer.")
    ] = False
