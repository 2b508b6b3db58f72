"""The collectives: one model each, a union on `kind`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from collplan.specs.base import SpecModel
from collplan.specs.elements import Datatype, Operation
from collplan.specs.errors import SpecError
from collplan.specs.numbers import WHOLE, Flag, Rank, is_size
from collplan.specs.predefined import NO_DATATYPE, check_operation, numpy_dtype

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

    def block_counts(self, n_ranks: int) -> tuple[int, ...]:
        """Return the elements of every rank's block; MPI's recvcounts.

        All planning goes by these. The regular collectives' blocks all have
        `count` elements.
        """
        return (self.count,) * n_ranks

    def pair_counts(self, n_ranks: int) -> tuple[tuple[int, ...], ...] | None:
        """Return the elements every rank (row) has for every rank; None where all are `count`."""
        return None

    def result_count(self, rank: int, n_ranks: int) -> int | None:
        """Return the number of elements that a rank gets; None where nothing is promised."""
        is_root = rank == self.root
        keeps_own = is_root and self.in_place and self.sender == "root"
        if not self.has_data or keeps_own or (self.receiver == "root" and not is_root):
            return None
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


class Reducing(Moving):
    """The base of collectives that combine elements."""

    op: Operation = SUM

    def _check(self) -> None:
        check_operation(self.op.name, self.datatype)


class Rooted(CollectiveModel):
    """The base of collectives that start from one rank or end at it."""

    root: Annotated[Rank, Field(description="Rank the collective starts from or ends at.")] = 0


class InPlace(CollectiveModel):
    """The base of collectives that can take their input from the receive buffer."""

    in_place: Annotated[
        Flag, Field(description="MPI_IN_PLACE: the input lies in the receive buffer already.")
    ] = False


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
