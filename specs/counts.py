"""Counts that differ per rank: tables of elements and displacements, and seeded distributions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema, core_schema

from collplan.specs.base import SpecModel
from collplan.specs.errors import show_value
from collplan.specs.numbers import MAX_TOTAL, WHOLE

if TYPE_CHECKING:  # numpy is slow to import, and much of the command line does without
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]

TABLE_TAG: Final = "list"
DISTRIBUTION_TAG: Final = "distribution"


class Table:
    """An immutable list, or a matrix, of whole numbers that are not negative.

    Written as a list, or as a list of rows. In Python, a numpy array serves, too.

    Parameters
    ----------
    numbers : sequence or ndarray of int, shape (n_ranks,) or (n_ranks, n_ranks)

    Raises
    ------
    ValueError
        If they are no table of such numbers; the message names the first wrong one.

    Examples
    --------
    >>> Table([3, 0, 5]).total
    8
    >>> Table([[1, 2], [2, 0]]) == Table(((1, 2), (2, 0)))
    True
    """

    def __init__(self, numbers: Any) -> None:
        from collplan.specs.tables import read_table

        self.array: Ints = read_table(numbers)
        self.array.flags.writeable = False

    @property
    def n_rows(self) -> int:
        """Return the number of ranks that the table has entries for."""
        return len(self.array)

    @property
    def is_matrix(self) -> bool:
        """Return whether there is a number for every pair of ranks."""
        return self.array.ndim == 2

    @cached_property
    def total(self) -> int:
        """The sum of all numbers."""
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
    """Counts drawn at random, the same for the same seed on any machine.

    Parameters
    ----------
    distribution : str
        ``uniform``: sizes between nothing and twice the mean, all as likely.
        ``linear``: sizes of 1, 2, 3, ... parts, dealt to the blocks at random.
        ``zipf``: the k-th largest block has 1/k of the largest, dealt at random.
        ``spike``: one rank has everything; to all ranks alike where pairs have blocks.
        ``sparse``: one block in ten, and at least one, has an equal part; the others are empty.
    total : int
        Elements of all blocks together.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> Distribution(distribution="linear", total=60, seed=1).table((4,)).tolist()
    [6, 12, 18, 24]
    """

    distribution: Literal["uniform", "linear", "zipf", "spike", "sparse"]
    total: Annotated[
        int, Field(ge=0, le=MAX_TOTAL, description="Elements of all blocks together."), WHOLE
    ]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), WHOLE] = 0

    def table(self, shape: tuple[int, ...]) -> Ints:
        """Return the counts for a number of ranks, or for all pairs of them; read-only."""
        return _drawn(self, shape)


@lru_cache(maxsize=8)
def _drawn(counts: Distribution, shape: tuple[int, ...]) -> Ints:
    from collplan.specs.tables import apportion, draw_weights

    table = apportion(counts.total, draw_weights(counts.distribution, shape, counts.seed))
    table.flags.writeable = False
    return table


def _tag(value: Any) -> str:
    return DISTRIBUTION_TAG if isinstance(value, Mapping | Distribution) else TABLE_TAG


Counts = Annotated[
    Annotated[Table, Tag(TABLE_TAG)] | Annotated[Distribution, Tag(DISTRIBUTION_TAG)],
    Discriminator(_tag),
]
"""A table of counts, or a distribution that they are drawn from."""


def scaled(counts: Table | Distribution, total: int) -> Table | Distribution:
    """Return counts of another total in the same proportions, as near as whole numbers are."""
    if isinstance(counts, Distribution):
        return counts.replace(total=total)
    from collplan.specs.tables import apportion

    return Table(apportion(total, counts.array))
