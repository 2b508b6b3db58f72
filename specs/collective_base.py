"""The base of all collectives: traits of a kind, and the registry of the kinds that there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field

from collplan.specs.base import SpecModel
from collplan.specs.elements import Datatype, Operation
from collplan.specs.errors import SpecError
from collplan.specs.numbers import MAX_COUNT, WHOLE, Flag, Rank, is_size
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

    Parameters
    ----------
    kind : str
        The collective's name.

    Notes
    -----
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
    return model


class Moving(CollectiveModel):
    """The base of collectives that move elements.

    Parameters
    ----------
    count : int
        Elements: MPI's count of the collective.
    datatype : str
        Type of the elements, by numpy's name.
    """

    count: Count
    datatype: Datatype = "float64"


class Combining(CollectiveModel):
    """The base of collectives that combine elements.

    Parameters
    ----------
    op : Operation
        Operation that combines elements.
    """

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
