"""Runs of collectives whose counts differ per rank under MPI, against numpy and native calls."""

from __future__ import annotations

import random
from functools import lru_cache, partial

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import expected, make_inputs
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.collectives.counts import Distribution
from conformance import ROOTS, Chosen, check, commutes, compiled
from covering import pairs
from mpi_launching import MPIS
from oracle import AFFINE, gaps

SIZES = (1, 2, 3, 5, 6)
DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")
FLAVOURS = (
    {"datatype": "int32", "op": "sum"},
    {"datatype": "uint64", "op": AFFINE},
    {"datatype": "float64", "op": "max"},
)
METHODS: dict[str, Chosen] = {
    "segments": {"passes": [{"name": "segment", "max_bytes": 16}]},
    "full_lane": {"decomposition": "full_lane"},
    "hierarchical": {"decomposition": "hierarchical"},
    "a leader": {"decomposition": {"name": "multi_leader", "leaders": 1}},
}
"""Fields of specs beside algorithms."""


def is_possible(kind: str, chosen: Chosen) -> bool:
    """Return whether an algorithm works for a number of ranks, and the nodes are there."""
    method, p, nodes = (chosen.get(name) for name in ("method", "ranks", "nodes"))
    fits = {"even": p != 1 and not (p and p % 2 and p % 3), "uneven": p not in (1, 2)}
    if not fits.get(nodes, True):
        return False
    if method is None or method in METHODS or p is None:
        return True
    planned = COLLECTIVES[kind].regular or kind
    return registry.find(planned, method).refusal(p, commutes(chosen), False) is None


@lru_cache
def cases(kind: str) -> list[Chosen]:
    """Return the cases of a kind on all MPIs and numbers of ranks."""
    model = COLLECTIVES[kind]
    every = FLAVOURS if model.has_op else [{"datatype": one["datatype"]} for one in FLAVOURS]
    chosen = pairs(
        {
            "method": [*(one.name for one in registry.of(model.regular or kind)), *METHODS],
            "ranks": SIZES,
            "mpi": MPIS,
            "flavour": every,
            "root": list(ROOTS) if model.is_rooted else [],
            "distribution": DISTRIBUTIONS,
            "total": ["many", "100", "p", "1", "0"],
            "in_place": [False, True],
            "has_gaps": [False, True],
            "nodes": ["one", "even", "uneven"],
            "transport": ["messages", "shared"],
            "is_own": [False, True],
        },
        partial(is_possible, kind),
    )
    return [{"kind": kind, "seed": seed} | one for seed, one in enumerate(chosen)]


def machine_of(p: int, nodes: str) -> dict[str, object]:
    """Return nodes for `p` ranks: one, or several, of equal size or not."""
    if nodes == "uneven":
        return {"nodes": 2, "ranks_per_node": [p - p // 3, p // 3]}
    n_nodes = 1 if nodes == "one" else next(n for n in (3, 2) if p % n == 0)
    return {"nodes": n_nodes, "ranks_per_node": p // n_nodes}


def collective_of(chosen: Chosen) -> dict[str, object]:
    """Return the collective of a case as it stands in a spec."""
    kind, p, in_place, seed = (chosen[name] for name in ("kind", "ranks", "in_place", "seed"))
    model = COLLECTIVES[kind]
    total = {"many": 7 * p + 3, "100": 100, "p": p, "1": 1, "0": 0}[chosen["total"]]
    drawn = Distribution(distribution=chosen["distribution"], total=total, seed=seed)
    fields: dict[str, object] = {"kind": kind, "in_place": in_place, **chosen["flavour"]}
    fields["counts"] = drawn.model_dump()
    if model.is_pairwise and in_place:
        table = drawn.table((p, p))
        fields["counts"] = np.triu(table) + np.triu(table, 1).T
    if chosen["has_gaps"]:
        counts = fields["counts"]
        if isinstance(counts, dict):
            counts = fields["counts"] = drawn.table((p, p) if model.is_pairwise else (p,))
        fields |= gaps(random.Random(seed), model.regular, counts, in_place)
    if model.is_rooted:
        fields["root"] = ROOTS[chosen["root"]](p)
    return fields


def spec_of(chosen: Chosen) -> PlanSpec:
    """Return the spec of a case."""
    method = chosen["method"]
    return PlanSpec.model_validate(
        {
            "machine": machine_of(chosen["ranks"], chosen["nodes"]),
            "collective": collective_of(chosen),
            "transport": chosen["transport"],
            **METHODS.get(method, {"algorithms": method}),
        }
    )


def run(comm: MPI.Intracomm, chosen: Chosen) -> None:
    """Run a plan, and the native call, on the same buffers."""
    spec, turn = spec_of(chosen), chosen["seed"]
    collective = spec.collective
    plan = compiled(spec, comm, turn, is_own=chosen["is_own"])
    case = Case(plan, collective, comm, seed=turn)
    results = expected(collective, make_inputs(collective, comm.size, seed=turn))
    truth = case.in_buffer(results[comm.rank])
    case.fill()
    sent = case.sendbuf.copy()
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        bound()
        check(case, truth, "plan")
    assert np.array_equal(case.sendbuf, sent), "sendbuf was changed"
    with NativeCollective(collective, comm, case.sendbuf, case.recvbuf) as native:
        case.fill()
        native()
        check(case, truth, "native")
