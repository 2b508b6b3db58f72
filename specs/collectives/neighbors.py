"""Models of the neighborhood collectives, whose ranks send along the edges of a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from collplan.specs.collectives.collective_base import CollectiveModel, Count, register_collective
from collplan.specs.collectives.counts import Counts, Distribution, Table, scaled
from collplan.specs.collectives.elements import Datatype
from collplan.specs.collectives.graphs import (
    CartesianGrid,
    EdgeLayout,
    EdgeList,
    Neighbors,
    RankGraph,
    Side,
)
from collplan.specs.syntax.base import raise_together
from collplan.specs.syntax.numbers import MAX_TOTAL

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]


class Neighborhood(CollectiveModel):
    """Base class of collectives whose ranks send along the edges of a graph.

    Parameters
    ----------
    graph : EdgeList or CartesianGrid
        Edges as ``[source, destination]``, or a grid as ``{grid: [4, 4], periodic: true}``. A
        rank sends to its destinations, and receives from its sources, in the order of the list.
        In a grid, it is the order of MPI's Cartesian communicators.
    datatype : str
        Type of the elements, by numpy's name.
    """

    has_edges: ClassVar = True
    regular: ClassVar = "neighbor_alltoall"
    graph: RankGraph
    datatype: Datatype = "float64"

    def edge_layout(self, n_ranks: int) -> EdgeLayout:
        """Return the blocks of all edges, and the sizes of buffers."""
        edges = self.graph.neighbors(n_ranks)
        sent, received = self.sides(edges)
        places = received.first[edges.dest] + edges.received
        counts, taken = received.counts[places], received.displs[places]
        if isinstance(sent, Side):
            given = sent.displs[sent.first[edges.source] + edges.sent]
            send_sizes = sent.sizes
        else:
            given, send_sizes = taken * 0, sent
        return EdgeLayout(
            edges.source, edges.dest, counts, given, taken, send_sizes, received.sizes
        )

    @abstractmethod
    def sides(self, edges: Neighbors) -> tuple[Side | Ints, Side]:
        """Return the blocks that ranks send, and those that they receive.

        If every rank sends the same block to all of its neighbors, the first is the number of
        elements of this block, by rank.
        """

    def result_count(self, rank: int, n_ranks: int) -> int:
        """Return the number of elements in a rank's receive buffer."""
        return int(self.edge_layout(n_ranks).recv_sizes[rank])

    @property
    @abstractmethod
    def _most(self) -> int:
        """Number of elements of all blocks together, those beyond borders included."""

    def _check(self) -> None:
        super()._check()
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        if isinstance(self.graph, EdgeList) and self.graph.counts is not None:
            yield f"graph has numbers of elements; {self.kind} takes edges as [source, destination]"
        if self._most > MAX_TOTAL:
            yield f"the blocks are {self._most} elements in all; give at most {MAX_TOTAL}"

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a message if the graph does not fit the ranks of the machine."""
        yield from super().misfits(n_ranks)
        name = "graph.grid" if isinstance(self.graph, CartesianGrid) else "graph"
        for line in self.graph.misfits(n_ranks):
            yield f"collective.{name}: {line}"

    @property
    def _n_blocks(self) -> int:
        """Number of all blocks, those beyond borders included."""
        if isinstance(self.graph, CartesianGrid):
            return 2 * len(self.graph.grid) * self.graph.n_ranks
        return self.graph.n_edges


class EqualBlocks(Neighborhood):
    """Base class of neighborhood collectives with blocks of equal size.

    Parameters
    ----------
    count : int
        Number of elements of each block: MPI's count argument.
    """

    count: Count

    @property
    def _most(self) -> int:
        return self.count * self._n_blocks

    def _side(self, n_each: Ints) -> Side:
        import numpy as np

        return _side(n_each, np.full(int(n_each.sum()), self.count, dtype=np.int64))


@register_collective
class NeighborAllgather(EqualBlocks):
    """Every rank sends the same `count` elements to each of its neighbors."""

    kind: Literal["neighbor_allgather"] = "neighbor_allgather"

    def sides(self, edges: Neighbors) -> tuple[Ints, Side]:
        """Return the size of every rank's block, and the blocks that ranks receive."""
        import numpy as np

        sizes = np.full(len(edges.n_sent), self.count, dtype=np.int64)
        return sizes, self._side(edges.n_received)


@register_collective
class NeighborAlltoall(EqualBlocks):
    """Every rank sends a different block of `count` elements to each of its neighbors."""

    kind: Literal["neighbor_alltoall"] = "neighbor_alltoall"

    def sides(self, edges: Neighbors) -> tuple[Side, Side]:
        """Return the blocks that ranks send, and those that they receive."""
        return self._side(edges.n_sent), self._side(edges.n_received)


@register_collective
class NeighborAllgatherv(Neighborhood):
    """Every rank sends the same block to each of its neighbors; counts can differ per rank."""

    counts: Annotated[
        Counts,
        Field(description="Number of elements per rank, or their distribution."),
    ]
    kind: Literal["neighbor_allgatherv"] = "neighbor_allgatherv"

    @property
    def count(self) -> int:
        """Return the number of elements of all ranks together."""
        return self.counts.total

    @property
    def _most(self) -> int:
        return self.count * self._n_blocks

    def with_count(self, count: int) -> Self:
        """Return the collective with counts of another total in proportion."""
        return self.replace(counts=scaled(self.counts, count))

    def _own_counts(self, n_ranks: int) -> Ints:
        if isinstance(self.counts, Table):
            return self.counts.array
        return self.counts.table((n_ranks,))

    def sides(self, edges: Neighbors) -> tuple[Ints, Side]:
        """Return the size of every rank's block, and the blocks that ranks receive."""
        sizes = self._own_counts(len(edges.n_sent))
        counts = sizes[edges.source]
        return sizes, _placed(edges.n_received, edges.dest, edges.received, counts)

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if isinstance(self.counts, Table) and self.counts.is_matrix:
            yield f"counts is a matrix; {self.kind} needs a list, with a number for every rank"

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a message if the graph or the counts do not fit the ranks of the machine."""
        yield from super().misfits(n_ranks)
        if isinstance(self.counts, Table) and self.counts.n_rows != n_ranks:
            yield (
                f"collective.counts: has entries for {self.counts.n_rows} ranks, the machine has "
                f"{n_ranks}; give one for every rank"
            )


@register_collective
class NeighborAlltoallv(Neighborhood):
    """Every rank sends a different block to each of its neighbors; counts can differ.

    The counts of an edge list may be its third numbers, as in ``[[0, 1, 500]]``.
    """

    counts: Annotated[
        Counts | None,
        Field(
            description="Number of elements per edge of a list, or their distribution, or number "
            "of elements per dimension of a grid. Leave it out if edges have numbers of elements."
        ),
    ] = None
    send_displs: Annotated[
        Table | None,
        Field(
            description="Displacement of the block of each edge of a list in the buffer of its "
            "source. By default, blocks lie one after another."
        ),
    ] = None
    recv_displs: Annotated[
        Table | None,
        Field(
            description="Displacement of the block of each edge of a list in the buffer of its "
            "destination. By default, blocks lie one after another."
        ),
    ] = None
    kind: Literal["neighbor_alltoallv"] = "neighbor_alltoallv"

    @property
    def count(self) -> int:
        """Return the number of elements of all blocks together."""
        ends = zip(self._given_counts.tolist(), self.graph.n_each, strict=True)
        return sum(count * n_edges for count, n_edges in ends)

    @property
    def _given_counts(self) -> Ints:
        """Counts per edge of a list, or per dimension of a grid."""
        import numpy as np

        own = self.graph.counts if isinstance(self.graph, EdgeList) else None
        if own is not None:
            return own
        if self.counts is None:
            return np.zeros(0, dtype=np.int64)
        if isinstance(self.counts, Table):
            return self.counts.array
        return self.counts.table((len(self.graph.n_each),))

    @property
    def _most(self) -> int:
        if isinstance(self.graph, CartesianGrid):
            return 2 * self.graph.n_ranks * self._given_total
        return self._given_total

    @property
    def _given_total(self) -> int:
        """Sum of the counts, which may need more than 64 bits."""
        return int(sum(self._given_counts.tolist()))

    def with_count(self, count: int) -> Self:
        """Return the collective with counts of another total in proportion, without gaps."""
        if not sum(self.graph.n_each):
            return self
        packed = dict.fromkeys(self._displacements)
        if isinstance(self.graph, CartesianGrid):
            total = self.count
            parts = self._given_counts.tolist() if total else [1] * len(self.graph.grid)
            whole = total or sum(self.graph.n_each)
            rounded = [(2 * part * count + whole) // (2 * whole) for part in parts]
            return self.replace(counts=Table(rounded))
        if isinstance(self.counts, Table) or self.counts is None:
            counts = scaled(Table(self._given_counts), count)
            return self.replace(graph=self.graph.without_counts, counts=counts, **packed)
        return self.replace(counts=scaled(self.counts, count), **packed)

    def sides(self, edges: Neighbors) -> tuple[Side, Side]:
        """Return the blocks that ranks send, and those that they receive."""
        import numpy as np

        counts = self._given_counts
        if isinstance(self.graph, CartesianGrid):
            side = _side(edges.n_sent, np.tile(np.repeat(counts, 2), len(edges.n_sent)))
            return side, side
        return (
            _placed(edges.n_sent, edges.source, edges.sent, counts, self.send_displs),
            _placed(edges.n_received, edges.dest, edges.received, counts, self.recv_displs),
        )

    @property
    def _displacements(self) -> dict[str, Table | None]:
        """Fields with displacements of the blocks of edges, by name."""
        return {"send_displs": self.send_displs, "recv_displs": self.recv_displs}

    def misfits(self, n_ranks: int) -> Iterator[str]:
        """Yield a message if the graph does not fit the machine, or received blocks overlap."""
        found = list(super().misfits(n_ranks))
        yield from found
        if self.recv_displs is None or found:
            return
        from collplan.specs.syntax.tables import first_overlap

        side = self.sides(self.graph.neighbors(n_ranks))[1]
        for rank in range(n_ranks):
            counts, displs = side.of_rank(rank)
            if (both := first_overlap(displs, counts)) is not None:
                one, other = (f"{counts[i]} elements from {displs[i]}" for i in both)
                yield (
                    f"collective.recv_displs: {one} and {other} overlap in rank {rank}'s buffer; "
                    "received blocks lie apart"
                )
                return

    def _problems(self) -> Iterator[str]:
        is_grid = isinstance(self.graph, CartesianGrid)
        own = None if isinstance(self.graph, CartesianGrid) else self.graph.counts
        n_needed = len(self.graph.n_each)
        if own is not None and self.counts is not None:
            yield "counts are given, and the edges of graph have numbers of elements; keep one"
        elif own is None and self.counts is None and n_needed:
            way_out = "one per dimension" if is_grid else "[source, destination, elements]"
            yield f"counts is missing, and graph has no numbers of elements; give {way_out}"
        elif isinstance(self.counts, Distribution) and (is_grid or not n_needed):
            there = "a grid takes a list, with a number per dimension"
            way_out = there if is_grid else "graph has no edges: leave it out"
            yield f"counts is a distribution, which is drawn for the edges of a list; {way_out}"
        elif isinstance(self.counts, Table) and self.counts.array.shape != (n_needed,):
            shape = " x ".join(map(str, self.counts.array.shape))
            things = f"{n_needed} dimensions" if is_grid else f"{n_needed} edges"
            yield f"counts has {shape} numbers for the {things} of graph; give one for each"
        elif n_needed and self._most > MAX_TOTAL:
            yield f"the blocks are {self._most} elements in all; give at most {MAX_TOTAL}"
        for name, table in self._displacements.items():
            if table is not None and is_grid:
                yield f"{name} is for lists of edges; leave it out, as a grid has no gaps"
            elif table is not None and table.array.shape != (n_needed,):
                shape = " x ".join(map(str, table.array.shape))
                needed = f"{n_needed} edges of graph"
                yield f"{name} has {shape} numbers for the {needed}; give one for each"


def _side(n_each: Ints, counts: Ints) -> Side:
    """Return blocks with these counts, one after another in the buffer of every rank."""
    import numpy as np

    first = np.concatenate(([0], np.cumsum(n_each))).astype(np.int64)
    begin = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return Side(first, counts, begin[:-1] - np.repeat(begin[first[:-1]], n_each))


def _placed(
    n_each: Ints, rank: Ints, place: Ints, counts: Ints, displs: Table | None = None
) -> Side:
    """Return blocks of edges at their places; blocks beyond borders have no elements."""
    import numpy as np

    first = np.cumsum(n_each) - n_each
    placed = np.zeros(int(n_each.sum()), dtype=np.int64)
    placed[first[rank] + place] = counts
    side = _side(n_each, placed)
    if displs is not None:
        side.displs[first[rank] + place] = displs.array
    return side
