"""Graphs of ranks along whose edges neighborhood collectives send: lists of edges, and grids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Discriminator, Field, GetCoreSchemaHandler, Tag
from pydantic_core import CoreSchema, core_schema

from collplan.specs.errors import show_value
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.numbers import MAX_RANKS, MAX_TOTAL, Flag, NumberOfRanks

if TYPE_CHECKING:  # numpy is slow to import, and much of the command line does without
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]

EDGES_TAG: Final = "edges"
GRID_TAG: Final = "cartesian"
MAX_DIMENSIONS: Final = 16
"""Most dimensions of a grid: 16 extents of 2 give 2**16 ranks, the most that a plan has."""


class Neighbors(NamedTuple):
    """Edges of a graph, in the order in which ranks list their neighbors.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n_edges,)
        Ranks from which and to which each edge leads.
    sent, received : ndarray of int64, shape (n_edges,)
        Places of the edge among the neighbors to which its source sends, and among those from
        which its destination receives.
    n_sent, n_received : ndarray of int64, shape (n_ranks,)
        Number of neighbors of every rank, including those beyond the borders of a grid.
    """

    source: Ints
    dest: Ints
    sent: Ints
    received: Ints
    n_sent: Ints
    n_received: Ints


class EdgeLayout(NamedTuple):
    """Blocks of a neighborhood collective, one per edge of its graph.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n_edges,)
        Ranks from which and to which each block is sent.
    counts : ndarray of int64, shape (n_edges,)
        Number of elements.
    given, received : ndarray of int64, shape (n_edges,)
        Displacements in the source's send buffer and in the destination's receive buffer, in
        elements.
    send_sizes, recv_sizes : ndarray of int64, shape (n_ranks,)
        Elements of the buffers of every rank.
    """

    source: Ints
    dest: Ints
    counts: Ints
    given: Ints
    received: Ints
    send_sizes: Ints
    recv_sizes: Ints


class Side(NamedTuple):
    """Blocks that all ranks send, or receive, rank by rank in the order of their neighbors.

    A rank has a block for each of its neighbors, also for those beyond the borders of a grid.

    Parameters
    ----------
    first : ndarray of int64, shape (n_ranks + 1,)
        Number of the first block of every rank, and the number of all blocks.
    counts, displs : ndarray of int64, shape (n_blocks,)
        Number of elements of every block, and its displacement in the buffer of its rank.
    """

    first: Ints
    counts: Ints
    displs: Ints

    @property
    def sizes(self) -> Ints:
        """Return the number of elements in the buffer of every rank."""
        import numpy as np

        sizes = np.zeros(len(self.first) - 1, dtype=np.int64)
        rank = np.repeat(np.arange(len(sizes)), np.diff(self.first))
        np.maximum.at(sizes, rank, np.where(self.counts > 0, self.displs + self.counts, 0))
        return sizes

    def of_rank(self, rank: int) -> tuple[Ints, Ints]:
        """Return the counts and displacements of a rank's blocks."""
        own = slice(self.first[rank], self.first[rank + 1])
        return self.counts[own], self.displs[own]


class EdgeList:
    """An immutable list of edges between ranks, which may be repeated or lead to their source.

    A rank sends to its destinations, and receives from its sources, in the order of the list.

    Parameters
    ----------
    edges : sequence or ndarray of int, shape (n_edges, 2) or (n_edges, 3)
        Source and destination of every edge, and the number of elements if each edge has one.

    Raises
    ------
    ValueError
        If these are no such edges. The message names the first wrong one.

    Examples
    --------
    >>> EdgeList([[0, 1], [1, 0]]).n_edges
    2
    >>> EdgeList([[0, 1, 500]]).counts.tolist()
    [500]
    """

    def __init__(self, edges: Any) -> None:
        from collplan.specs.syntax.tables import read_edges

        self.array: Ints = read_edges(edges)
        self.array.flags.writeable = False

    @property
    def n_edges(self) -> int:
        """Return the number of edges."""
        return len(self.array)

    @property
    def counts(self) -> Ints | None:
        """Return the number of elements of every edge; None if the list has none."""
        return self.array[:, 2] if self.array.shape[1] == 3 else None

    @property
    def without_counts(self) -> EdgeList:
        """Return the edges as pairs of ranks."""
        return EdgeList(self.array[:, :2])

    @property
    def n_each(self) -> tuple[int, ...]:
        """Return the number of edges for each count that a spec gives: one."""
        return (1,) * self.n_edges

    def neighbors(self, n_ranks: int) -> Neighbors:
        """Return the edges with their places among the neighbors of both ends."""
        from collplan.specs.syntax.tables import occurrences

        source, dest = self.array[:, 0], self.array[:, 1]
        sent, n_sent = occurrences(source, n_ranks)
        received, n_received = occurrences(dest, n_ranks)
        return Neighbors(source, dest, sent, received, n_sent, n_received)

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a message if an edge names a rank that the machine does not have."""
        leaves = self.array[:, :2].max(axis=1, initial=0) >= n_ranks
        if leaves.any():
            number = int(leaves.argmax())
            one, other = self.array[number, :2].tolist()
            yield (
                f"edge {number}, from rank {one} to rank {other}, leaves this machine; its "
                f"{n_ranks} ranks are 0 to {n_ranks - 1}"
            )

    def to_json(self) -> list[Any]:
        """Return the edges as a list of lists."""
        found: list[Any] = self.array.tolist()
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EdgeList) or self.array.shape != other.array.shape:
            return False
        return bool((self.array == other.array).all())

    def __hash__(self) -> int:
        return hash((self.array.shape, self.array.tobytes()))

    def __repr__(self) -> str:
        return f"EdgeList({show_value(self.to_json(), plain=True)})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        edge = core_schema.list_schema(
            core_schema.int_schema(ge=0, le=MAX_TOTAL), min_length=2, max_length=3
        )
        return core_schema.no_info_plain_validator_function(
            lambda value: value if isinstance(value, cls) else cls(value),
            json_schema_input_schema=core_schema.list_schema(edge),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda edges: edges.to_json()
            ),
        )


def _check_extents(value: Any) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(n, int) and n < 1 for n in value):
        raise ValueError(f"grid of extents {show_value(value)}; every extent is 1 or more")
    return value


class CartesianGrid(SpecModel):
    """A grid of ranks, in the order of MPI's Cartesian communicators.

    A rank's neighbors are, dimension by dimension, the one in negative direction and the one in
    positive direction. What a rank sends in negative direction, its neighbor receives from the
    positive one. At a border that is not periodic, a rank has no neighbor. Its buffers have room
    for the block of this neighbor, which is neither sent nor received.

    Parameters
    ----------
    grid : tuple of int
        Extents of the dimensions. Ranks along the last dimension are consecutive.
    periodic : bool or tuple of bool
        Whether the ends of each dimension, or those of all dimensions, are neighbors.

    Examples
    --------
    >>> ring = CartesianGrid(grid=[3], periodic=True).neighbors(3)
    >>> ring.dest[ring.source == 0].tolist()
    [2, 1]
    """

    grid: Annotated[
        tuple[NumberOfRanks, ...],
        Field(min_length=1, max_length=MAX_DIMENSIONS),
        BeforeValidator(_check_extents),
    ]
    periodic: Flag | tuple[Flag, ...] = False

    def _check(self) -> None:
        if isinstance(self.periodic, tuple) and len(self.periodic) != len(self.grid):
            raise ValueError(
                f"periodic has {len(self.periodic)} entries for {len(self.grid)} dimensions; give "
                "one for each, or a single one for all"
            )
        if self.n_ranks > MAX_RANKS:
            raise ValueError(f"the grid has {self.n_ranks:,} ranks; give at most {MAX_RANKS:,}")

    @property
    def periods(self) -> tuple[bool, ...]:
        """Return for every dimension whether its ends are neighbors."""
        if isinstance(self.periodic, tuple):
            return self.periodic
        return (self.periodic,) * len(self.grid)

    @property
    def n_ranks(self) -> int:
        """Return the number of ranks."""
        return prod(self.grid)

    @property
    def n_each(self) -> tuple[int, ...]:
        """Return the number of edges for each count that a spec gives: those of a dimension."""
        ends = zip(self.grid, self.periods, strict=True)
        return tuple(
            2 * (self.n_ranks if periodic else self.n_ranks // extent * (extent - 1))
            for extent, periodic in ends
        )

    def neighbors(self, n_ranks: int) -> Neighbors:
        """Return the edges, rank by rank, with their places among the neighbors of both ends."""
        import numpy as np

        n_places = 2 * len(self.grid)
        ranks = np.arange(n_ranks)
        places = np.array(np.unravel_index(ranks, self.grid))
        dest = np.empty((n_ranks, n_places), dtype=np.int64)
        exists = np.empty((n_ranks, n_places), dtype=np.bool_)
        for place in range(n_places):
            dimension, forward = divmod(place, 2)
            there = places.copy()
            there[dimension] += 1 if forward else -1
            extent = self.grid[dimension]
            inside = (there[dimension] >= 0) & (there[dimension] < extent)
            exists[:, place] = inside | self.periods[dimension]
            there[dimension] %= extent
            dest[:, place] = np.ravel_multi_index(tuple(there), self.grid)
        source, sent = np.nonzero(exists)
        degree = np.full(n_ranks, n_places)
        return Neighbors(source, dest[source, sent], sent, sent ^ 1, degree, degree)

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a message if the grid has another number of ranks than the machine."""
        if self.n_ranks != n_ranks:
            yield (
                f"the grid {' x '.join(map(str, self.grid))} has {self.n_ranks} ranks, the machine "
                f"has {n_ranks}; use extents whose product is {n_ranks}"
            )


def _tag(value: Any) -> str:
    return GRID_TAG if isinstance(value, Mapping | CartesianGrid) else EDGES_TAG


RankGraph = Annotated[
    Annotated[EdgeList, Tag(EDGES_TAG)] | Annotated[CartesianGrid, Tag(GRID_TAG)],
    Discriminator(_tag),
]
"""List of edges, or grid of ranks."""
