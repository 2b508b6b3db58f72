"""Models of the collectives whose counts can differ between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from collplan.specs.collectives.collective_base import (
    CollectiveModel,
    Combining,
    InPlace,
    Rooted,
    register_collective,
)
from collplan.specs.collectives.counts import Counts, Table, scaled
from collplan.specs.collectives.elements import Datatype
from collplan.specs.syntax.base import raise_together
from collplan.specs.syntax.numbers import MAX_CELLS, MAX_TOTAL

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.integer[Any]]


class Vector(CollectiveModel):
    """Base class of collectives whose counts can differ between ranks.

    `count` is the number of elements of all blocks together.

    Parameters
    ----------
    counts : Counts
        Number of elements per rank (or per pair of ranks), or the distribution from which
        the numbers are drawn.
    datatype : str
        Type of the elements, by numpy's name.
    """

    counts: Counts
    datatype: Datatype = "float64"

    @property
    def count(self) -> int:
        """Return the number of elements of all blocks together."""
        return self.counts.total

    @property
    def displacements(self) -> dict[str, Table | None]:
        """Return the fields with displacements of blocks in a buffer, by name."""
        names = [name for name in type(self).model_fields if name.endswith("displs")]
        return {name: getattr(self, name) for name in names}

    def table(self, n_ranks: int) -> Ints:
        """Return the counts: per rank, or per sender (row) and receiver (column)."""
        if isinstance(self.counts, Table):
            return self.counts.array
        return self.counts.table((n_ranks,) * (2 if self.is_pairwise else 1))

    def with_count(self, count: int) -> Self:
        """Return the collective with counts of another total in proportion, without gaps."""
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
        """Yield a message per table of wrong length, and for received blocks that overlap."""
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
        """Yield a message if received blocks overlap."""
        return iter(())


class VectorOfBlocks(Vector):
    """Base class of collectives with a block per rank, and with gaps between blocks if given."""

    displs: Annotated[
        Table | None,
        Field(
            description="Displacement of each block in elements. By default, blocks lie one "
            "after another."
        ),
    ] = None

    def block_layout(self, n_ranks: int) -> tuple[Ints, Ints]:
        """Return count and displacement of every rank's block."""
        counts = self.table(n_ranks)
        return counts, _places(counts, self.displs)

    def _n_received(self, rank: int, n_ranks: int) -> int:
        from collplan.specs.syntax.tables import ends_of

        counts, displs = self.block_layout(n_ranks)
        return int(ends_of(displs, counts)) if self.receives_blocks else int(counts[rank])

    def _misplaced(self, n_ranks: int) -> Iterator[str]:
        if self.displs is not None and self.receives_blocks:
            counts, displs = self.block_layout(n_ranks)
            yield from _overlaps("displs", displs[None], counts[None])


@register_collective
class Gatherv(InPlace, Rooted, VectorOfBlocks):
    """The root collects a block from every rank, in rank order; counts can differ."""

    receiver: ClassVar = "root"
    receives_blocks: ClassVar = True
    regular: ClassVar = "gather"
    kind: Literal["gatherv"] = "gatherv"


@register_collective
class Scatterv(InPlace, Rooted, VectorOfBlocks):
    """The root sends a block to every rank, in rank order; counts can differ."""

    sender: ClassVar = "root"
    sends_blocks: ClassVar = True
    regular: ClassVar = "scatter"
    kind: Literal["scatterv"] = "scatterv"


@register_collective
class Allgatherv(InPlace, VectorOfBlocks):
    """Every rank collects a block from every rank; counts can differ."""

    receives_blocks: ClassVar = True
    with_one_block: ClassVar = "bcast"
    regular: ClassVar = "allgather"
    kind: Literal["allgatherv"] = "allgatherv"


@register_collective
class ReduceScatter(InPlace, Combining, Vector):
    """Every rank receives its own block of the combination of all ranks; counts can differ."""

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
    """Every rank sends a different block to every rank; counts can differ.

    In ``counts`` and ``send_displs``, a row has the blocks of a sender for every receiver. In
    ``recv_displs``, a row has the blocks that a receiver gets from every sender. In place, the
    blocks at ``recv_displs`` are exchanged. Therefore the two counts of a pair must be equal.
    """

    sends_blocks: ClassVar = True
    receives_blocks: ClassVar = True
    staged: ClassVar = "input"
    with_one_block: ClassVar = "gather"
    regular: ClassVar = "alltoall"
    send_displs: Annotated[
        Table | None,
        Field(description="Displacements of the blocks of a sender (row) in its buffer."),
    ] = None
    recv_displs: Annotated[
        Table | None,
        Field(description="Displacements of the blocks of a receiver (row) in its buffer."),
    ] = None
    kind: Literal["alltoallv"] = "alltoallv"

    def pair_layout(self, n_ranks: int) -> tuple[Ints, Ints, Ints]:
        """Return counts, displacements in the sender's buffer, and those in the receiver's."""
        counts = self.table(n_ranks)
        received = _places(counts.T, self.recv_displs).T
        if self.in_place:
            return counts, received.T, received
        return counts, _places(counts, self.send_displs), received

    def _n_received(self, rank: int, n_ranks: int) -> int:
        from collplan.specs.syntax.tables import ends_of

        counts, _, received = self.pair_layout(n_ranks)
        return int(ends_of(received[:, rank], counts[:, rank]))

    def _misplaced(self, n_ranks: int) -> Iterator[str]:
        if self.recv_displs is None and not self.in_place:
            return  # Counts are drawn only when they are needed, as they take much memory.
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
    """Return the displacements of blocks: those of a table, or one block after another."""
    from collplan.specs.syntax.tables import places_of

    return places_of(counts, None if displs is None else displs.array)


def _overlaps(field: str, displs: Ints, counts: Ints) -> Iterator[str]:
    """Yield a message that names two overlapping blocks of a buffer (row), if there are any."""
    from collplan.specs.syntax.tables import first_overlap

    for i, (places, sizes) in enumerate(zip(displs, counts, strict=True)):
        found = first_overlap(places, sizes)
        if found is None:
            continue
        one, other = (f"rank {r}'s {sizes[r]} elements from {places[r]}" for r in found)
        of = f" in rank {i}'s buffer" if len(displs) > 1 else ""
        yield f"collective.{field}: {one} and {other} overlap{of}; received blocks lie apart"
        return
