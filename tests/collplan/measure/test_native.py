"""Native calls under MPI, and plans beside them: pairs of a value and an index, neighborhoods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case, run_plan
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import make_inputs
from collplan.specs import COLLECTIVES, PlanSpec, numpy_dtype
from collplan.specs.collectives.predefined import PAIRS
from mpi_plans import refuses
from neighborhoods import exchanged, grids

SIGNS = {"minloc": 1, "maxloc": -1}
"""Of each operation: what makes it a search for the least."""
REDUCING = ("allreduce", "reduce", "scan")
MOVING = ("bcast", "gather", "allgather", "alltoall", "scatter", "bcast")


def spec_of(n_ranks: int, algorithm: str = "auto", **collective: object) -> PlanSpec:
    machine = {"ranks_per_node": n_ranks}
    return PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "algorithms": algorithm}
    )


def truth_of(comm: MPI.Intracomm, spec: PlanSpec, sign: int, seed: int) -> np.ndarray | None:
    """Return the right result of this rank, without numpy and without the operation."""
    rank, p = comm.rank, comm.size
    inputs = [part.tolist() for part in make_inputs(spec.collective, p, seed)]
    kind = spec.collective.kind
    if kind == "reduce" and rank != p - 1:
        return None
    included = inputs[: rank + 1] if kind == "scan" else inputs
    columns = zip(*included, strict=True)
    best = [min(column, key=lambda pair: (sign * pair[0], pair[1])) for column in columns]
    return np.array(best, numpy_dtype(spec.collective.datatype))


@pytest.mark.ranks(1, 4)
def test_reductions(comm: MPI.Intracomm) -> None:
    rank, p = comm.rank, comm.size
    for seed, (kind, datatype, name) in enumerate(product(REDUCING, PAIRS, SIGNS)):
        root = {"root": p - 1} if kind == "reduce" else {}
        # In rank order MPI has no operation of its own: the native call takes ours.
        op = {"name": name, "commutative": (kind, datatype) != ("reduce", "long_int")}
        fixed = {"kind": kind, "count": 3 * p + 1, "datatype": datatype, "op": op, **root}
        fixed["in_place"] = (seed + seed // 2) % 2 == 1
        spec = spec_of(p, **fixed)
        truth = truth_of(comm, spec, SIGNS[name], seed)
        # Every algorithm on one datatype with padding, else the one collplan takes.
        able = [a.name for a in registry.of(kind) if a.refusal(p, True) is None]
        for algorithm in able if (datatype, name) == ("double_int", "minloc") else ["auto"]:
            spec = spec_of(p, algorithm, **fixed)
            plan = compile_plan(spec, rank=rank)
            case = Case(plan, spec.collective, comm, seed)
            with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
                bound()
            require(case, truth, f"{algorithm} {fixed}")
        case.fill()
        with NativeCollective(spec.collective, comm, case.sendbuf, case.recvbuf) as native:
            native()
        require(case, truth, f"native {fixed}")


def require(case: Case, truth: np.ndarray | None, name: str) -> None:
    wrong = case.own_wrong(truth)
    rank = case.comm.rank
    assert len(wrong) == 0, f"{name}: rank {rank} got {case.recvbuf}, expected {truth}"


@pytest.mark.ranks(1, 3)
def test_calls_in_compiled_code(comm: MPI.Intracomm) -> None:
    """All kinds of calls give the same results from C as from Python, in place and not."""
    p = comm.size
    counts = [[2, 0, 3][rank % 3] for rank in range(p)]
    pairs = [[i + j for j in range(p)] for i in range(p)]
    for kind, in_place in product(COLLECTIVES, (False, True)):
        model = COLLECTIVES[kind]
        if in_place and "in_place" not in model.model_fields:
            continue
        fields = {"count": 4} if model.has_data else {}
        if model.regular is not None:
            fields = {"counts": pairs if model.is_pairwise else counts}
        if model.has_edges:
            fields = {"graph": {"grid": [p], "periodic": False}}
            fields |= {"count": 4} if "count" in model.model_fields else {"counts": counts}
            if kind == "neighbor_alltoallv":
                fields["counts"] = [3]
        spec = spec_of(p, kind=kind, **fields, **({"in_place": True} if in_place else {}))
        case = Case(compile_plan(spec, rank=comm.rank), spec.collective, comm, 7)
        found = []
        with NativeCollective(spec.collective, comm, case.sendbuf, case.native_recvbuf) as native:
            for call in (native, lambda native=native: native.repeat(1)):
                case.fill()
                call()
                found.append(None if case.native_recvbuf is None else case.native_recvbuf.copy())
            native.repeat(0)
            native.repeat(3)
        assert np.array_equal(found[0], found[1]), (kind, in_place)


EDGES = [[0, 0], [0, 3], [3, 0], [0, 3], [2, 1], [3, 0], [3, 3], [1, 2], [0, 3]]
"""Edges of four ranks, with repeated ones, two of them to their source."""
METHODS: Final[list[dict[str, Any]]] = [
    {},
    {"decomposition": "hierarchical"},
    {"decomposition": {"name": "full_lane", "shares": "balanced"}, "transport": "shared"},
]


def neighborhoods_of(p: int) -> Iterator[dict[str, Any]]:
    """Yield the fields of all neighborhood collectives on some graphs of `p` ranks."""
    edges = [[one % p, other % p] for one, other in EDGES]
    for graph in (edges, [], *grids(p)):
        n = len(graph["grid"] if isinstance(graph, dict) else graph)
        yield {"kind": "neighbor_allgather", "graph": graph, "count": 3}
        yield {"kind": "neighbor_alltoall", "graph": graph, "count": 2}
        yield {"kind": "neighbor_allgatherv", "graph": graph, "counts": [2, 0, 5, 1][:p]}
        counts = [i % 4 for i in range(1, n + 1)]
        yield {"kind": "neighbor_alltoallv", "graph": graph} | ({"counts": counts} if n else {})
    apart = {"send_displs": [3] * len(edges), "recv_displs": [*range(4 * len(edges), 0, -4)]}
    counts = [i % 4 for i in range(len(edges))]
    yield {"kind": "neighbor_alltoallv", "graph": edges, "counts": counts, **apart}


@pytest.mark.each_mpi
@pytest.mark.ranks(1, 2, 4)
def test_neighborhoods(comm: MPI.Intracomm) -> None:
    """Plans and MPI's own calls on communicators of graphs have the results that MPI describes."""
    p, untouched = comm.size, int(np.full(8, 0xA5, np.uint8).view(np.int64)[0])
    machine = {"nodes": p // 2, "ranks_per_node": 2} if p > 2 else {"ranks_per_node": p}
    for number, collective in enumerate(neighborhoods_of(p)):
        method = METHODS[number % len(METHODS)]
        spec = PlanSpec.model_validate(
            {"machine": machine, "collective": {**collective, "datatype": "int64"}, **method}
        )
        plan = compile_plan(spec, rank=comm.rank)
        case = Case(plan, spec.collective, comm)
        right = exchanged(spec.collective, make_inputs(spec.collective, p), untouched)[comm.rank]
        with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
            for _ in range(2):
                case.fill()
                bound()
                require(case, right, f"{spec}")
        case.fill()
        with NativeCollective(spec.collective, comm, case.sendbuf, case.recvbuf) as native:
            native()
        require(case, right, f"native {spec}")
        report = run_plan(plan, comm, repetitions=1)
        assert report.correct is True, (spec, report.first_wrong)


@pytest.mark.ranks(1, 3)
def test_runs(comm: MPI.Intracomm) -> None:
    """`collplan run` checks and times pairs: moved and reduced."""
    p = comm.size
    for kind, datatype in zip(MOVING, PAIRS, strict=True):
        report = run_plan(
            compile_plan(spec_of(p, kind=kind, count=5, datatype=datatype)), comm, repetitions=1
        )
        assert report.correct is True, (kind, datatype, report.first_wrong)
    for kind, op in product(("exscan", "reduce_scatter_block", "allreduce"), ("minloc", "maxloc")):
        collective = {"kind": kind, "count": 5, "datatype": "short_int", "op": op}
        report = run_plan(compile_plan(spec_of(p, **collective)), comm, repetitions=1)
        assert report.correct is True, (kind, op, report.first_wrong)


@pytest.mark.ranks(3)
def test_wrong_result(comm: MPI.Intracomm) -> None:
    """A plan that broadcasts from rank 0 is found wrong, and the report shows both pairs."""
    p = comm.size
    broken = compile_plan(spec_of(p, kind="bcast", count=3, datatype="double_int"))
    asked = spec_of(p, kind="bcast", count=3, datatype="double_int", root=p - 1)
    found = run_plan(broken.replace(spec=asked), comm, repetitions=1).first_wrong
    assert found is not None
    assert found.expected == str(make_inputs(asked.collective, p)[p - 1][found.element])
    # Rank 0 had no input, but the sentinel that a run fills buffers with.
    untouched = int.from_bytes(b"\xa5" * 4, "big", signed=True)
    assert found.got.endswith(f", {untouched})"), found.got


@pytest.mark.ranks(1, 3)
def test_wrong_buffers(comm: MPI.Intracomm) -> None:
    """Buffers packed without padding, or of another type of the size, are refused."""
    p = comm.size
    plan = compile_plan(spec_of(p, kind="bcast", count=3, datatype="double_int"))
    packed = np.empty(3, [("value", "f8"), ("index", "i4")])
    refuses(BindError, "of 12 bytes per element", lambda: bind(plan, comm, None, packed))
    other = np.empty(3, "complex128")
    refuses(BindError, "compiled for double_int", lambda: bind(plan, comm, None, other))
