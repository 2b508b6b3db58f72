"""The oracle: every collective in a few lines of numpy, and inputs for it."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.collective.operations import get_operation
from collplan.specs import Collective, numpy_dtype
from collplan.specs.collective import Allgather, Alltoall, Barrier, Bcast, Gather, Scatter

Array = npt.NDArray[Any]


def make_input(collective: Collective, size: int, rank: int, seed: int = 0) -> Array:
    """Return one rank's contribution: random, the same for the same seed and rank.

    Numbers are small integers, so that sums of floats are exact in any order.
    """
    from collplan.planner.collective.semantics import contribution_counts

    count = int(contribution_counts(collective, size)[rank])
    generator = np.random.default_rng((seed, rank))
    dtype = numpy_dtype(collective.datatype)
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


def make_inputs(collective: Collective, size: int, seed: int = 0) -> list[Array]:
    """Return every rank's contribution; see `make_input`."""
    return [make_input(collective, size, rank, seed) for rank in range(size)]


def expected(collective: Collective, inputs: list[Array]) -> list[Array | None]:
    """Return what every rank must receive; None where nothing is promised.

    Parameters
    ----------
    collective : Collective
        The spec.
    inputs : list of ndarray
        Every rank's contribution; for rooted collectives that send from the
        root, the others' are empty.
    """
    size = len(inputs)
    blocks = list(np.cumsum(collective.block_counts(size)))
    root = getattr(collective, "root", 0)
    nobody: list[Array | None] = [None] * size
    match collective.kind:
        case "bcast":
            return [inputs[root]] * size
        case "gather":
            return [*nobody[:root], np.concatenate(inputs), *nobody[root + 1 :]]
        case "scatter":
            dealt: list[Array | None] = [*np.split(inputs[root], blocks[:-1])]
            if collective.in_place:
                dealt[root] = None
            return dealt
        case "allgather":
            return [np.concatenate(inputs)] * size
        case "alltoall":
            pairs = collective.pair_counts(size) or [[collective.count] * size] * size
            cut = [np.split(x, np.cumsum(row)[:-1]) for x, row in zip(inputs, pairs, strict=True)]
            return [np.concatenate([row[r] for row in cut]) for r in range(size)]
        case "reduce":
            return [*nobody[:root], _combine(collective, inputs), *nobody[root + 1 :]]
        case "allreduce":
            return [_combine(collective, inputs)] * size
        case "reduce_scatter_block":
            return [*np.split(_combine(collective, inputs), blocks[:-1])]
        case "scan":
            return [_combine(collective, inputs[: r + 1]) for r in range(size)]
        case "exscan":
            return [None, *(_combine(collective, inputs[:r]) for r in range(1, size))]
    return nobody


def _combine(collective: Collective, operands: list[Array]) -> Array:
    assert not isinstance(collective, Bcast | Gather | Scatter | Allgather | Alltoall | Barrier)
    operation = get_operation(collective.op.name)

    def apply(left: Array, right: Array) -> Array:
        out = np.empty_like(left)
        operation.apply(left, right, out)
        return out

    return reduce(apply, operands)
