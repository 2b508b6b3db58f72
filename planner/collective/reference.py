"""The oracle: every collective in a few lines of numpy, and inputs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan import specs
from collplan.planner.collective.operations import get_operation
from collplan.planner.collective.semantics import contribution_counts
from collplan.specs.by_kind import ByKind
from collplan.specs.collective_base import Combining

Array = npt.NDArray[Any]


def make_input(collective: specs.Collective, size: int, rank: int, seed: int = 0) -> Array:
    """Return one rank's contribution: random, the same for the same seed and rank.

    Numbers are small integers, so that sums of floats are exact in any order.
    """
    count = int(contribution_counts(collective, size)[rank])
    generator = np.random.default_rng((seed, rank))
    dtype = specs.numpy_dtype(collective.datatype)
    if dtype.names:
        pairs = np.zeros(count, dtype)
        # Few values, so that ranks tie, and indices in no order of the ranks.
        pairs["value"] = generator.integers(1, 5, count)
        pairs["index"] = generator.integers(0, 100, count)
        return pairs
    if dtype.kind == "b":
        return generator.integers(0, 2, count).astype(bool)
    if dtype == np.uint64:
        # Any pattern of bits: operations may pack several numbers into one.
        return generator.integers(0, 2**64, count, dtype=np.uint64, endpoint=False)
    values = generator.integers(1, 5, count).astype(dtype)
    if dtype.kind == "c":
        values = values + 1j * generator.integers(1, 5, count)
    return np.asarray(values, dtype=dtype)


def make_inputs(collective: specs.Collective, size: int, seed: int = 0) -> list[Array]:
    """Return every rank's contribution; see `make_input`."""
    return [make_input(collective, size, rank, seed) for rank in range(size)]


def expected(collective: specs.Collective, inputs: list[Array]) -> list[Array | None]:
    """Return what every rank must receive; None where nothing is promised.

    Blocks that lie apart in the receive buffer are returned in the order in which they lie
    there, without the gaps between them.

    Parameters
    ----------
    collective : Collective
        The spec.
    inputs : list of ndarray
        Every rank's contribution; for rooted collectives that send from the
        root, the others' are empty.

    Raises
    ------
    SpecError
        If nothing is registered for the kind.
    """
    return list(reference[collective.kind](collective, inputs))


reference: Final = ByKind[Callable[[Any, list[Array]], Sequence[Array | None]]](
    "nothing computes {} in numpy; register it with collplan.planner.collective.reference.reference"
)
"""Computations by kind, called as `expected` is."""


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
    """Return all blocks in the order in which they lie in the receive buffer."""
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
