"""Runs of every algorithm under MPI, against numpy and the native collective.

Of a kind's algorithms, numbers of ranks, MPIs, datatypes, roots, counts and so on every pair of
values occurs that can. The tests' process chooses the cases, and ranks of a pool run them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.host.processes import affinity
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.plan.plan import Plan, Stage
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from covering import pairs
from mpi_launching import MPIS
from mpi_plans import reduction
from oracle import AFFINE
from structures import rounds

Chosen = dict[str, Any]
"""A case: the chosen value of each dimension."""
SIZES = (1, 2, 3, 4, 6)
GATHERED_SIZES = (1, 2, 3, 4, 5)
COUNTS: dict[str, Callable[[int], int]] = {
    "0": lambda p: 0,
    "1": lambda p: 1,
    "p - 1": lambda p: p - 1,
    "p": lambda p: p,
    "3p + 1": lambda p: 3 * p + 1,
}
ROOTS: dict[str, Callable[[int], int]] = {
    "first": lambda p: 0,
    "middle": lambda p: p // 2,
    "last": lambda p: p - 1,
}
TREES = {"allreduce": ("reduce_bcast",)} | dict.fromkeys(
    ("bcast", "reduce", "gather", "scatter"), ("binomial", "chain", "linear")
)
DECOMPOSITIONS = ("hierarchical", "full_lane")
PROGRESS: dict[str, tuple[int, dict[str, object]]] = {
    "odd_even": (1, {"name": "place_progress", "policy": "odd_even"}),
    "numa": (2, {"name": "place_progress", "policy": "numa"}),
    "no level": (1, {"name": "split_tree", "levels": 0}),
    "a level": (2, {"name": "split_tree", "levels": 1}),
}
"""Numbers of communication cores, and the passes that move tasks to them."""


def flavours(kind: str) -> list[Chosen]:
    """Return datatypes and operations."""
    if kind == "barrier":
        return []
    if not COLLECTIVES[kind].has_op:
        return [{"datatype": "int32"}, {"datatype": "float64"}]
    return [
        {"datatype": "int32", "op": "sum"},
        {"datatype": "float64", "op": "max"},
        {"datatype": "uint64", "op": AFFINE},
        {"datatype": "float64", "op": "sum"},
        {"datatype": "int32", "op": "max"},
    ]


def fields_of(kind: str) -> dict[str, list[Any]]:
    """Return the dimensions of what a collective's spec says, beside its kind."""
    model = COLLECTIVES[kind]
    return {
        "flavour": flavours(kind),
        "root": list(ROOTS) if model.is_rooted else [],
        "count": list(COUNTS) if "count" in model.model_fields else [],
        "in_place": [False, True] if "in_place" in model.model_fields else [],
    }


def collective_of(chosen: Chosen) -> Chosen:
    """Return the collective of a case as it stands in a spec."""
    model, p = COLLECTIVES[chosen["kind"]], chosen["ranks"]
    given = {"kind": chosen["kind"], **chosen.get("flavour", {})}
    given |= {name: chosen[name] for name in ("in_place",) if name in chosen}
    given |= {"root": ROOTS[chosen["root"]](p)} if "root" in chosen else {}
    given |= {"count": COUNTS[chosen["count"]](p)} if "count" in chosen else {}
    return {name: value for name, value in given.items() if name in {"kind", *model.model_fields}}


def commutes(chosen: Chosen) -> bool:
    """Return whether the operation commutes, or may, as it is not chosen yet."""
    return chosen.get("flavour", {}).get("op") != AFFINE


def is_possible(kind: str, chosen: Chosen) -> bool:
    """Return whether an algorithm works for a number of ranks and takes the passes."""
    method, p, nodes = (chosen.get(name) for name in ("method", "ranks", "nodes"))
    progress = chosen.get("progress")
    if method in DECOMPOSITIONS and (nodes == 1 or progress or p in (1, 3, 7)):
        return False
    if nodes == 2 and (p == 1 or progress):
        return False
    if progress and (kind == "barrier" or chosen.get("segments")):
        return False
    if progress in ("no level", "a level") and method not in (None, *TREES.get(kind, ())):
        return False
    if method is None or method in DECOMPOSITIONS or p is None:
        return True
    level = "ranks" if rounds(chosen.get("flavour", {})) else None
    return registry.find(kind, method).refusal(p, commutes(chosen), level=level) is None


@lru_cache
def cases(kind: str) -> list[Chosen]:
    """Return the cases of a regular collective on all MPIs and numbers of ranks."""
    model = COLLECTIVES[kind]
    levels = ["no level", "a level"] if kind in TREES else []
    chosen = pairs(
        {
            "method": [
                *(one.name for one in registry.of(kind)),
                *DECOMPOSITIONS,
            ],
            "ranks": SIZES,
            "mpi": MPIS,
            **fields_of(kind),
            "nodes": [1, 2],
            "transport": ["messages", "shared"],
            "segments": [False, True],
            "way": ["compiled", "python"] if model.has_op else [],
            "is_own": [False, True],
            "progress": [None, "odd_even", "numa", *levels] if kind != "barrier" else [None],
        },
        partial(is_possible, kind),
    )
    return [{"kind": kind, "seed": seed} | one for seed, one in enumerate(chosen)]


def spec_of(chosen: Chosen) -> PlanSpec:
    """Return the spec of a case of a regular collective."""
    p, method, progress = (chosen[name] for name in ("ranks", "method", "progress"))
    n_free, its_pass = PROGRESS.get(progress, (0, None))
    sizes = [p // 2, p - p // 2] if p % 2 else p // 2
    two = {"nodes": 2, "ranks_per_node": sizes, "lanes": 2}
    segment = {"name": "segment", "max_bytes": 16}
    how = "decomposition" if method in DECOMPOSITIONS else "algorithms"
    return PlanSpec.model_validate(
        {
            "machine": two if chosen["nodes"] == 2 else {"ranks_per_node": p, "cores": p + n_free},
            "collective": collective_of(chosen),
            "transport": chosen["transport"],
            "passes": [*[segment] * chosen["segments"], *([its_pass] if its_pass else [])],
            how: method,
        }
    )


def check(case: Case, truth: np.ndarray | None, name: object) -> None:
    """Stop everything at the first wrong element of this rank."""
    wrong = case.own_wrong(truth)
    assert len(wrong) == 0, f"{name}: got {case.recvbuf}, expected {truth}"


def compiled(spec: PlanSpec, comm: MPI.Intracomm, turn: int, *, is_own: bool) -> Plan:
    """Compile the program of this rank, or a whole plan on one rank, in turns, for all."""
    if is_own:
        return compile_plan(spec, rank=comm.rank)
    compiler = turn % comm.size
    plan: Plan = comm.bcast(compile_plan(spec) if comm.rank == compiler else None, root=compiler)
    return plan


def run_cases(
    comm: MPI.Intracomm, run_case: Callable[[MPI.Intracomm, Chosen], None], chosen: Iterable[Chosen]
) -> None:
    """Run cases; say which one fails."""
    for one in chosen:
        try:
            run_case(comm, one)
        except BaseException as error:
            error.add_note(f"case {one}")
            raise


def run(comm: MPI.Intracomm, chosen: Chosen) -> None:
    """Run a collective by a plan and natively."""
    spec, turn = spec_of(chosen), chosen["seed"]
    collective, op = spec.collective, spec.collective.op
    truth = expected(collective, make_inputs(collective, comm.size, seed=turn))[comm.rank]
    plan = compiled(spec, comm, turn, is_own=chosen["is_own"])
    case = Case(plan, collective, comm, seed=turn)
    sent = case.sendbuf.copy()
    operation = None if op is None or chosen["way"] == "compiled" else reduction("python", op.name)
    cores = cores_of(comm, chosen)
    with bind(plan, comm, case.sendbuf, case.recvbuf, operation=operation, cores=cores) as bound:
        if chosen.get("way") == "compiled" and commutes(chosen):
            assert bound.why_callback is None
        if cores is not None:
            check_placed(plan, bound, comm.rank)
        for is_own in (False, True, True, False):
            case.fill()
            start(bound, case, in_own_buffers=is_own, by_parts=cores is not None)
            check(case, truth, "plan")
    if chosen["kind"] != "scatter":
        assert np.array_equal(case.sendbuf, sent), "sendbuf was changed"
    with NativeCollective(collective, comm, case.sendbuf, case.recvbuf) as native:
        case.fill()
        native()
        check(case, truth, "native")


def start(bound: BoundPlan, case: Case, *, in_own_buffers: bool, by_parts: bool) -> None:
    """Make a start in the caller's buffers, or in the plan's, at mirrors where it has any."""
    recvbuf = case.recvbuf
    if in_own_buffers:
        sendbuf, recvbuf = bound.allocate()
        sendbuf[:], recvbuf[:] = case.sendbuf, case.recvbuf[: len(recvbuf)]
    else:
        bound.rebind(case.sendbuf, case.recvbuf)
    if by_parts:
        bound.start()
        bound.wait()
    else:
        bound()
    case.recvbuf[: len(recvbuf)] = recvbuf


def cores_of(comm: MPI.Intracomm, chosen: Chosen) -> list[int] | None:
    """Return the processors of ranks and communication cores, if a case has such cores."""
    if chosen["progress"] is None:
        return None
    processors = sorted(set().union(*comm.allgather(affinity())))
    n_cores = comm.size + PROGRESS[chosen["progress"]][0]
    return [processors[core % len(processors)] for core in range(n_cores)]


def check_placed(plan: Plan, bound: BoundPlan, rank: int) -> None:
    """Fail unless a thread runs background tasks where they are on communication cores."""
    in_background = plan.core[(plan.rank == rank) & (plan.stage == Stage.BACKGROUND)]
    is_placed = not np.isin(in_background, plan.rank_core).all()
    is_threaded = is_placed and bound.why_callback is None
    assert bound.progress == ("thread" if is_threaded else "caller"), bound.why_caller


@lru_cache
def gathered_cases() -> list[Chosen]:
    """Return reduces on two nodes in the form that gathers at the root's node."""
    chosen = pairs(
        {
            "method": DECOMPOSITIONS,
            "ranks": GATHERED_SIZES,
            "mpi": MPIS,
            "first_node": range(1, max(GATHERED_SIZES) + 1),
            **fields_of("reduce"),
            "root": range(max(GATHERED_SIZES)),
        },
        lambda one: max(one.get("first_node", 1), one.get("root", 0) + 1) <= one.get("ranks", 99),
    )
    return [{"kind": "reduce", "seed": seed} | one for seed, one in enumerate(chosen)]


def run_gathered(comm: MPI.Intracomm, chosen: Chosen) -> None:
    """Run a reduce in the form that gathers at the root's node."""
    p, first, turn = comm.size, chosen["first_node"], chosen["seed"]
    sizes = [first, p - first] if first < p else [p]
    named = {name: value for name, value in chosen.items() if name != "root"}
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": len(sizes), "ranks_per_node": sizes, "lanes": 2},
            "collective": collective_of(named) | {"root": chosen["root"]},
            "decomposition": {"name": chosen["method"], "form": "gather"},
        }
    )
    truth = expected(spec.collective, make_inputs(spec.collective, p, seed=turn))[comm.rank]
    plan = compiled(spec, comm, turn, is_own=False)
    case = Case(plan, spec.collective, comm, seed=turn)
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        for _ in range(2):
            case.fill()
            bound()
            check(case, truth, "plan")
