"""Counts that differ between ranks: tables of numbers, and seeded random distributions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema, core_schema

from collplan.specs.errors import show_value
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.numbers import MAX_TOTAL, WHOLE

if TYPE_CHECKING:  # numpy is slow to import, and much of the command line does without
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]

TABLE_TAG: Final = "list"
DISTRIBUTION_TAG: Final = "distribution"


class Table:
    """An immutable list or matrix of whole numbers that are not negative.

    It is written as a list, or as a list of rows. Python code can also give a numpy array.

    Parameters
    ----------
    numbers : sequence or ndarray of int, shape (n_ranks,) or (n_ranks, n_ranks)
        One number per rank, or a row per rank with one number per rank.

    Raises
    ------
    ValueError
        If the numbers do not form such a table. The message names the first wrong number.

    Examples
    --------
    >>> Table([3, 0, 5]).total
    8
    >>> Table([[1, 2], [2, 0]]) == Table(((1, 2), (2, 0)))
    True
    """

    def __init__(self, numbers: Any) -> None:
        from collplan.specs.syntax.tables import read_table

        self.array: Ints = read_table(numbers)
        self.array.flags.writeable = False

    @property
    def n_rows(self) -> int:
        """Return the number of ranks for which the table has entries."""
        return len(self.array)

    @property
    def is_matrix(self) -> bool:
        """Return whether the table has a number for every pair of ranks."""
        return self.array.ndim == 2

    @cached_property
    def total(self) -> int:
        """Sum of all numbers."""
        return int(self.array.sum())

    def to_json(self) -> list[Any]:
        """Return the numbers as a list, or as a list of rows."""
        found: list[Any] = self.array.tolist()
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table) or self.array.shape != other.array.shape:
            return False
        return bool((self.array == other.array).all())

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))

    def __repr__(self) -> str:
        return f"Table({show_value(self.to_json(), plain=True)})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        whole = core_schema.int_schema(ge=0, le=MAX_TOTAL)
        rows = core_schema.list_schema(core_schema.list_schema(whole))
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls(value),
            json_schema_input_schema=core_schema.union_schema(
                [core_schema.list_schema(whole), rows]
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda table: table.to_json()
            ),
        )


class Distribution(SpecModel):
    """Counts drawn at random; the same seed gives the same counts on any machine.

    Parameters
    ----------
    distribution : str
        ``uniform``: sizes are uniformly distributed between 0 and twice the mean.
        ``linear``: sizes are proportional to 1, 2, 3, ..., in random order.
        ``zipf``: the k-th largest block has 1/k of the largest size, in random order.
        ``spike``: one rank has all elements. If pairs have blocks, it sends equal blocks to all
        ranks, and other ranks send nothing.
        ``sparse``: one block in ten, but at least one, has an equal share. Others are empty.
    total : int
        Number of elements of all blocks together.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> Distribution(distribution="linear", total=60, seed=1).table((4,)).tolist()
    [6, 12, 18, 24]
    """

    distribution: Literal["uniform", "linear", "zipf", "spike", "sparse"]
    total: Annotated[
        int,
        Field(ge=0, le=MAX_TOTAL, description="Number of elements of all blocks together."),
        WHOLE,
    ]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), WHOLE] = 0

    def table(self, shape: tuple[int, ...]) -> Ints:
        """Return the counts, as a read-only array: per rank, or per pair of ranks."""
        return _drawn(self, shape)


@lru_cache(maxsize=8)
def _drawn(counts: Distribution, shape: tuple[int, ...]) -> Ints:
    from collplan.specs.syntax.tables import apportion, draw_weights

    table = apportion(counts.total, draw_weights(counts.distribution, shape, counts.seed))
    table.flags.writeable = False
    return table


def _tag(value: Any) -> str:
    return DISTRIBUTION_TAG if isinstance(value, Mapping | Distribution) else TABLE_TAG


Counts = Annotated[
    Annotated[Table, Tag(TABLE_TAG)] | Annotated[Distribution, Tag(DISTRIBUTION_TAG)],
    Discriminator(_tag),
]
"""Table of counts, or distribution from which counts are drawn."""


def scaled(counts: Table | Distribution, total: int) -> Table | Distribution:
    """Return counts of another total in the same proportions, rounded to whole numbers."""
    if isinstance(counts, Distribution):
        return counts.replace(total=total)
    from collplan.specs.syntax.tables import apportion

    return Table(apportion(total, counts.array))
