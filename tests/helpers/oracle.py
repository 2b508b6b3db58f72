"""The one oracle of all tests: run a plan in numpy and compare with the reference."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.executors.local import run_local
from collplan.planner import Plan
from collplan.planner.collective.operations import register_operation
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.collective.semantics import precondition
from collplan.planner.plan.plan import Buffer
from collplan.specs import Collective, PlanSpec, numpy_dtype
from collplan.specs.collective import COLLECTIVES

LOW = np.uint64(2**32 - 1)
HALF = np.uint64(32)
AFFINE = {"name": "affine", "commutative": False}
"""A non-commutative operation, on uint64."""
PADDING = 3
"""Elements behind every receive buffer, which nobody may touch."""


def compose(left: npt.NDArray[Any], right: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
    """Compose x -> a x + b modulo 2**32, packed as (a, b): first left, then right."""
    a, b = left >> HALF, left & LOW
    c, d = right >> HALF, right & LOW
    out[...] = (((a * c) & LOW) << HALF) | ((b * c + d) & LOW)


register_operation("affine", compose, commutative=False)


def make_spec(
    kind: str, algorithm: object, n_ranks: int, machine: dict[str, Any] | None = None, **fields: Any
) -> PlanSpec:
    """Return a spec; fields the collective does not have are left out."""
    chosen = {name: fields.pop(name) for name in ("decomposition", "passes") if name in fields}
    known = COLLECTIVES[kind].model_fields
    collective = {"kind": kind} | {k: v for k, v in fields.items() if k in known}
    return PlanSpec.model_validate(
        {
            "machine": {"ranks_per_node": n_ranks} if machine is None else machine,
            "collective": collective,
            "algorithms": algorithm,
            **chosen,
        }
    )


@lru_cache(maxsize=4096)
def truth_of(
    collective: Collective, n_ranks: int, seed: int
) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any] | None]]:
    """Return what all ranks contribute and what they must receive, which many plans share."""
    inputs = make_inputs(collective, n_ranks, seed)
    truths = expected(collective, inputs)
    for array in (*inputs, *truths):
        if array is not None:
            array.flags.writeable = False
    return inputs, truths


def check_result(plan: Plan, spec: PlanSpec | None = None, order: random.Random | None = None,
                 seed: int = 0) -> None:  # fmt: skip
    """Run `plan` on `spec`'s datatype and operation; compare every rank's buffers."""
    spec = spec or plan.spec
    assert spec is not None
    collective, p = spec.collective, plan.n_ranks
    dtype = numpy_dtype(collective.datatype)
    padding = np.full(PADDING, 77, dtype)
    inputs, truths = truth_of(collective, p, seed)
    sendbufs = [np.zeros(n, dtype) for n in plan.buffer_sizes[:, Buffer.SEND]]
    recvbufs = [np.full(n + PADDING, 77, dtype) for n in plan.buffer_sizes[:, Buffer.RECV]]
    held = precondition(collective, p)
    for i in range(len(held)):
        rank, offset, count = held.rank[i], held.offset[i], held.count[i]
        buffers = sendbufs if held.buffer[i] == Buffer.SEND else recvbufs
        buffers[rank][offset : offset + count] = inputs[rank]
    sent = [buffer.copy() for buffer in sendbufs]
    run_local(plan.replace(spec=spec), sendbufs, recvbufs, order=order)
    for rank, truth in enumerate(truths):
        got = recvbufs[rank]
        if truth is not None:
            assert np.array_equal(got[: len(truth)], truth), f"rank {rank}: {got}, not {truth}"
        behind = got[len(got) - PADDING :]
        assert np.array_equal(behind, padding), f"rank {rank}: padding was touched"
        assert np.array_equal(sendbufs[rank], sent[rank]), f"rank {rank}: sendbuf was changed"


def with_counts(spec, counts=None, pairs=None):
    """Return `spec` with blocks of other sizes: the vector collective of its kind."""
    regular = type(spec.collective)

    class Vector(regular):  # type: ignore[valid-type, misc]
        def block_counts(self, n_ranks):
            return counts or super().block_counts(n_ranks)

        def pair_counts(self, n_ranks):
            return pairs

    collective = Vector.model_construct(**dict(spec.collective))
    return spec.model_copy(update={"collective": collective})
