"""Reference results of every collective, computed with numpy, and random inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan import specs
from collplan.planner.collective.operations import get_operation
from collplan.planner.collective.semantics import contribution_counts
from collplan.specs.collectives.by_kind import ByKind
from collplan.specs.collectives.collective_base import Combining

Array = npt.NDArray[Any]


def make_input(collective: specs.Collective, size: int, rank: int, seed: int = 0) -> Array:
    """Return a random contribution of one rank, which is the same for the same seed and rank.

    Its elements are those of `random_elements`.

    Parameters
    ----------
    collective : Collective
    size : int
        Number of ranks.
    rank : int
    seed : int

    Returns
    -------
    ndarray, shape (n_elements,)
    """
    count = int(contribution_counts(collective, size)[rank])
    generator = np.random.default_rng((seed, rank))
    return random_elements(specs.numpy_dtype(collective.datatype), count, generator)


def random_elements(dtype: np.dtype[Any], count: int, generator: np.random.Generator) -> Array:
    """Return random elements of a datatype.

    Most datatypes get small integers, so that sums of floats do not depend on their order.
    """
    if dtype.names:
        pairs = np.zeros(count, dtype)
        # With few values, ranks have equal ones. Indices do not follow the order of ranks.
        pairs["value"] = generator.integers(1, 5, count)
        pairs["index"] = generator.integers(0, 100, count)
        return pairs
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(bool)
    if dtype == np.uint64:
        # All bit patterns occur, because operations may pack several numbers into an element.
        return generator.integers(0, 2**64, count, dtype=np.uint64, endpoint=False)
    values = generator.integers(1, 5, count).astype(dtype)
    if dtype.kind == "c":
        values = values + 1j * generator.integers(1, 5, count)
    return np.asarray(values, dtype=dtype)


def make_inputs(collective: specs.Collective, size: int, seed: int = 0) -> list[Array]:
    """Return random contributions of all ranks, as `make_input` does for one rank."""
    return [make_input(collective, size, rank, seed) for rank in range(size)]


def expected(collective: specs.Collective, inputs: list[Array]) -> list[Array | None]:
    """Return the results that all ranks must receive.

    Parameters
    ----------
    collective : Collective
    inputs : list of ndarray
        Contributions of all ranks. If only the root sends, those of other ranks are empty.

    Returns
    -------
    list of ndarray or None
        Result of every rank, or None if the collective promises none. Separate blocks of a
        receive buffer are joined in the order of their displacements, without the gaps between
        them.

    Raises
    ------
    SpecError
        If no function is registered for the kind.
    """
    return list(reference[collective.kind](collective, inputs))


reference: Final = ByKind[Callable[[Any, list[Array]], Sequence[Array | None]]](
    "nothing computes {} in numpy; register it with collplan.planner.collective.reference.reference"
)
"""Functions by kind of collective, which are called like `expected`."""


@reference("bcast")
def _bcast(collective: specs.Bcast, inputs: list[Array]) -> list[Array]:
    return [inputs[collective.root]] * len(inputs)


@reference("gatherv")
@reference("gather")
def _gather(collective: specs.Gather | specs.Gatherv, inputs: list[Array]) -> list[Array | None]:
    return _at_root(_joined(collective, inputs), collective.root, len(inputs))


@reference("scatterv")
@reference("scatter")
def _scatter(collective: specs.Scatter | specs.Scatterv, inputs: list[Array]) -> list[Array | None]:
    dealt: list[Array | None] = [*_blocks(collective, inputs[collective.root], len(inputs))]
    if collective.in_place:
        dealt[collective.root] = None
    return dealt


@reference("allgatherv")
@reference("allgather")
def _allgather(collective: specs.Collective, inputs: list[Array]) -> list[Array]:
    return [_joined(collective, inputs)] * len(inputs)


@reference("alltoall")
def _alltoall(collective: specs.Alltoall, inputs: list[Array]) -> list[Array]:
    cut = [np.split(x, len(inputs)) for x in inputs]
    return [np.concatenate([row[r] for row in cut]) for r in range(len(inputs))]


@reference("alltoallv")
def _alltoallv(collective: specs.Alltoallv, inputs: list[Array]) -> list[Array]:
    counts, given, received = collective.pair_layout(len(inputs))
    results = []
    for r in range(len(inputs)):
        senders = np.argsort(received[:, r], kind="stable")
        blocks = [inputs[s][given[s, r] : given[s, r] + counts[s, r]] for s in senders]
        results.append(np.concatenate(blocks))
    return results


@reference("neighbor_allgather")
@reference("neighbor_allgatherv")
@reference("neighbor_alltoall")
@reference("neighbor_alltoallv")
def _neighbors(collective: specs.Collective, inputs: list[Array]) -> list[Array]:
    edges = collective.edge_layout(len(inputs))
    assert edges is not None
    blocks: list[list[Array]] = [[x[:0]] for x in inputs]
    for edge in np.argsort(edges.received, kind="stable"):
        begin = edges.given[edge]
        block = inputs[edges.source[edge]][begin : begin + edges.counts[edge]]
        blocks[edges.dest[edge]].append(block)
    return [np.concatenate(some) for some in blocks]


@reference("reduce")
def _reduce(collective: specs.Reduce, inputs: list[Array]) -> list[Array | None]:
    return _at_root(_combine(collective, inputs), collective.root, len(inputs))


@reference("allreduce")
def _allreduce(collective: specs.Allreduce, inputs: list[Array]) -> list[Array]:
    return [_combine(collective, inputs)] * len(inputs)


@reference("reduce_scatter")
@reference("reduce_scatter_block")
def _reduce_scatter(
    collective: specs.ReduceScatter | specs.ReduceScatterBlock, inputs: list[Array]
) -> list[Array]:
    return _blocks(collective, _combine(collective, inputs), len(inputs))


@reference("scan")
def _scan(collective: specs.Scan, inputs: list[Array]) -> list[Array]:
    return [_combine(collective, inputs[: r + 1]) for r in range(len(inputs))]


@reference("exscan")
def _exscan(collective: specs.Exscan, inputs: list[Array]) -> list[Array | None]:
    return [None, *(_combine(collective, inputs[:r]) for r in range(1, len(inputs)))]


@reference("barrier")
def _barrier(collective: specs.Barrier, inputs: list[Array]) -> list[None]:
    return [None] * len(inputs)


def _at_root(result: Array, root: int, size: int) -> list[Array | None]:
    return [result if rank == root else None for rank in range(size)]


def _joined(collective: specs.Collective, blocks: list[Array]) -> Array:
    """Return all blocks, joined in the order of their displacements in the receive buffer."""
    displs = collective.block_layout(len(blocks))[1]
    return np.concatenate([blocks[r] for r in np.argsort(displs, kind="stable")])


def _blocks(collective: specs.Collective, vector: Array, size: int) -> list[Array]:
    places = zip(*collective.block_layout(size), strict=True)
    return [vector[displ : displ + count] for count, displ in places]


def _combine(collective: Combining, operands: list[Array]) -> Array:
    operation = get_operation(collective.op.name)

    def apply(left: Array, right: Array) -> Array:
        out = np.empty_like(left)
        operation.apply(left, right, out)
        return out

    return reduce(apply, operands)
