"""The one oracle of all tests: run a plan in numpy and compare with the reference."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.executors.local import run_local
from collplan.planner import Plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.operations import register_operation
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.collective.semantics import precondition, promised_places
from collplan.planner.plan.plan import Buffer
from collplan.specs import Collective, Machine, PlanSpec, numpy_dtype
from collplan.specs.collectives.collective import COLLECTIVES, validate_collective
from collplan.specs.collectives.counts import Distribution

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
    """Return a spec; fields the collective does not have are left out.

    Algorithms that are refused for operations that round get elements of int64 by default. Packed
    algorithms get a ring of nodes by default, and neighborhoods a ring of ranks.
    """
    name = algorithm["name"] if isinstance(algorithm, dict) and "name" in algorithm else algorithm
    if any(one.unlike_bits and one.name == name for one in registry.of(kind)):
        fields.setdefault("datatype", "int64")
    if machine is None:
        is_packed = any(one.is_packed and one.name == name for one in registry.of(kind))
        machine = ring_of(n_ranks) if is_packed else {"ranks_per_node": n_ranks}
    chosen = {name: fields.pop(name) for name in ("decomposition", "passes") if name in fields}
    known = COLLECTIVES[kind].model_fields
    size = n_ranks or Machine.model_validate(machine).n_ranks
    fields.setdefault("graph", {"grid": [size], "periodic": True})
    collective = {"kind": kind} | {k: v for k, v in fields.items() if k in known}
    return PlanSpec.model_validate(
        {
            "machine": machine,
            "collective": collective,
            "algorithms": algorithm,
            **chosen,
        }
    )


def ring_of(n_nodes: int) -> dict[str, Any]:
    """Return a machine of one rank per node, whose nodes are linked in a ring."""
    topology = {"kind": "torus", "dimensions": [n_nodes], "bandwidth": "1GB/s"}
    return {"nodes": n_nodes, "network": {"topology": topology}}


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
    padding = np.full(PADDING, 77, numpy_dtype(collective.datatype))
    _, truths = truth_of(collective, p, seed)
    sendbufs, recvbufs = filled_buffers(plan, spec, seed)
    sent, before = ([buffer.copy() for buffer in side] for side in (sendbufs, recvbufs))
    run_local(plan.replace(spec=spec), sendbufs, recvbufs, order=order)
    for rank, truth in enumerate(truths):
        got, promised = recvbufs[rank], places_of(collective, p, rank)
        if truth is not None:
            assert np.array_equal(got[promised], truth), f"rank {rank}: {got}, not {truth}"
            check_gaps(got, before[rank], promised, f"rank {rank}")
        behind = got[len(got) - PADDING :]
        assert np.array_equal(behind, padding), f"rank {rank}: padding was touched"
        assert np.array_equal(sendbufs[rank], sent[rank]), f"rank {rank}: sendbuf was changed"


def filled_buffers(plan: Plan, spec: PlanSpec, seed: int = 0) -> tuple[list[Any], list[Any]]:
    """Return all ranks' buffers with what they contribute, and padding behind what they receive."""
    collective, p = spec.collective, plan.n_ranks
    dtype = numpy_dtype(collective.datatype)
    inputs, _ = truth_of(collective, p, seed)
    sendbufs = [np.zeros(n, dtype) for n in plan.buffer_sizes[:, Buffer.SEND]]
    recvbufs = [np.full(n + PADDING, 77, dtype) for n in plan.buffer_sizes[:, Buffer.RECV]]
    held = precondition(collective, p)
    for i in range(len(held)):
        rank, offset, count = held.rank[i], held.offset[i], held.count[i]
        buffers = sendbufs if held.buffer[i] == Buffer.SEND else recvbufs
        buffers[rank][offset : offset + count] = inputs[rank]
    return sendbufs, recvbufs


@lru_cache(maxsize=4096)
def places_of(collective: Collective, n_ranks: int, rank: int) -> npt.NDArray[np.int64] | slice:
    """Return which elements of a rank's receive buffer are promised."""
    return promised_places(collective, n_ranks, rank)


def check_gaps(got, before, promised, who):
    """See that nobody touched what lies between the promised elements, where there are gaps."""
    if not isinstance(promised, slice):
        is_gap = np.ones(len(got), dtype=bool)
        is_gap[promised] = False
        assert np.array_equal(got[is_gap], before[is_gap]), f"{who}: a gap was touched"


REGULAR = [kind for kind, model in COLLECTIVES.items() if model.regular is None]
"""The kinds whose counts are the same on all ranks."""
VECTORS = {
    model.regular: kind
    for kind, model in COLLECTIVES.items()
    if model.regular and not model.has_edges
}
"""The vector kind of each regular kind that has one."""


def with_counts(spec, counts, **fields):
    """Return `spec` with blocks of these counts: of the vector collective that does the same."""
    given = {k: v for k, v in dict(spec.collective).items() if k not in ("kind", "count")}
    kind = VECTORS[spec.collective.planned_kind]
    document = {**given, "kind": kind, "counts": counts, **fields}
    return spec.replace(collective=validate_collective(document))


def random_counts(rng, kind, n_ranks, in_place=False):
    """Return counts per rank or, for alltoall, per pair, the same both ways if in place."""
    if kind != "alltoall":
        return tuple(rng.choice((0, 0, 1, 2, 7)) for _ in range(n_ranks))
    table = np.array(
        [[rng.choice((0, 0, 1, 2, 7)) for _ in range(n_ranks)] for _ in range(n_ranks)]
    )
    return np.triu(table) + np.triu(table, 1).T if in_place else table


def drawn_counts(distribution, kind, n_ranks, seed=0, in_place=False):
    """Return counts of a distribution, about 5 elements per block; as `random_counts`."""
    shape = (n_ranks, n_ranks) if kind == "alltoall" else (n_ranks,)
    total = 5 * int(np.prod(shape)) - 2
    table = Distribution(distribution=distribution, total=total, seed=seed).table(shape)
    is_mirrored = in_place and kind == "alltoall"
    return np.triu(table) + np.triu(table, 1).T if is_mirrored else table


def gaps(rng, kind, counts, in_place=False):
    """Return displacements of blocks in random order with gaps between them, by field."""
    counts = np.array(counts)
    if kind == "reduce_scatter_block":
        return {}
    if kind != "alltoall":
        return {"displs": _scattered(rng, counts)}
    received = np.array([_scattered(rng, column) for column in counts.T])
    sent = {} if in_place else {"send_displs": np.array([_scattered(rng, row) for row in counts])}
    return {"recv_displs": received, **sent}


def _scattered(rng, counts):
    order, at, displs = rng.sample(range(len(counts)), len(counts)), 0, np.zeros_like(counts)
    for block in order:
        at += rng.choice((0, 0, 1, 3))
        displs[block] = at
        at += counts[block]
    return displs
