"""Runs of plans whose components are MPI's own collectives, against numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.run import Case
from collplan.planner import compile_plan
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.errors import AlgorithmError
from collplan.specs import PlanSpec
from conformance import COUNTS, ROOTS, Chosen, check, collective_of, commutes, flavours
from covering import pairs
from mpi_launching import MPIS
from oracle import REGULAR

SIZES = (1, 2, 3, 4, 6)
NO_PLAN = ("differ in size", "leaders", "no such role", "power of two", "fits none of")
"""Words of refusals of native components."""
METHODS: dict[str, Callable[[int, int], Chosen]] = {
    "flat": lambda p, per_node: {"algorithms": "native"},
    **{
        name: lambda p, per_node, name=name: {"decomposition": name, "algorithms": "native"}  # type: ignore[misc]
        for name in ("hierarchical", "full_lane", "guideline")
    },
    "two leaders": lambda p, per_node: {
        "decomposition": {"name": "multi_leader", "leaders": 2},
        "algorithms": "native",
    },
    "mesh": lambda p, per_node: {
        "decomposition": {"name": "mesh", "shape": [p // per_node, per_node]},
        "algorithms": "native",
    },
    "native lane": lambda p, per_node: {
        "decomposition": "full_lane",
        "algorithms": {"lane": "native"},
    },
    "native node": lambda p, per_node: {
        "decomposition": "hierarchical",
        "algorithms": {"node": "native"},
    },
}
"""Fields of specs for native components, by the number of ranks and of those per node."""


_has_plan: dict[tuple[Any, ...], bool] = {}
"""Presence of native components in a plan, by the values that decide on it."""


def per_node_of(p: int) -> int:
    """Return the ranks of each of several nodes of equal size, or all on one."""
    return next((n for n in (2, 3) if p % n == 0 and p > n), p)


def spec_of(chosen: Chosen) -> PlanSpec:
    """Return the spec of a case with native components."""
    p = chosen["ranks"]
    per_node = per_node_of(p)
    machine: Chosen = {"nodes": p // per_node, "ranks_per_node": per_node}
    if not chosen["is_even"]:
        machine = {"nodes": 2, "ranks_per_node": [p - p // 3, p // 3]}
    fields = METHODS[chosen["method"]](p, per_node)
    return PlanSpec.model_validate(
        {"machine": machine, "collective": collective_of(chosen), **fields}
    )


def has_native_plan(chosen: Chosen) -> bool:
    """Return whether there are native components for a case; only whole ones are judged."""
    p, method, kind = (chosen.get(name) for name in ("ranks", "method", "where"))
    if kind is not None and kind[0] == "barrier" and method not in (None, "flat"):
        return False
    if p is not None and p < 3 and (chosen.get("is_even") is False or method == "two leaders"):
        return False
    if p is not None and method == "mesh" and per_node_of(p) == p:
        return False
    if len(chosen) < len(DIMENSIONS):
        return True
    whole = one_kind(chosen)
    known = whole["kind"], method, p, chosen["is_even"], chosen["count"], commutes(whole)
    if known not in _has_plan:
        _has_plan[known] = _is_compiled(whole)
    return _has_plan[known]


def _is_compiled(whole: Chosen) -> bool:
    try:
        compile_plan(spec_of(whole), is_proved=False)
    except AlgorithmError as error:
        if any(word in str(error) for word in NO_PLAN):
            return False
        raise
    return True


DIMENSIONS: dict[str, Any] = {
    "where": [(kind, mpi) for kind in REGULAR for mpi in MPIS],
    "method": list(METHODS),
    "ranks": SIZES,
    "is_even": [True, False],
    "count": list(COUNTS),
    "root": list(ROOTS),
    "in_place": [False, True],
    "flavour": range(5),
}
"""A kind and an MPI are one dimension, so that every kind is run in every way under each MPI."""


def one_kind(chosen: Chosen) -> Chosen:
    """Return a case of native components with the kind, MPI and datatype that it has."""
    kind, mpi = chosen["where"]
    every = flavours(kind) or [{}]
    flavour = every[chosen["flavour"] % len(every)]
    return {**chosen, "kind": kind, "mpi": mpi, "flavour": flavour}


@lru_cache
def cases() -> list[Chosen]:
    """Return the cases with components that are MPI's own collectives."""
    chosen = pairs(DIMENSIONS, has_native_plan)
    return [{"seed": seed} | one_kind(one) for seed, one in enumerate(chosen)]


def run(comm: MPI.Intracomm, chosen: Chosen) -> None:
    """Run two plans at once, which ranks wait for in different orders, and one in other memory."""
    spec, turn = spec_of(chosen), chosen["seed"]
    truth = expected(spec.collective, make_inputs(spec.collective, comm.size, seed=turn))[comm.rank]
    plan = compile_plan(spec, rank=comm.rank)
    twice = [Case(plan, spec.collective, comm, seed=turn) for _ in range(2)]
    bound = [bind(plan, comm, case.sendbuf, case.recvbuf) for case in twice]
    order = [0, 1] if comm.rank % 2 else [1, 0]
    for _ in range(2):
        for case in twice:
            case.fill()
        for one_bound in bound:
            one_bound.start()
        for which in order:
            bound[which].wait()
            check(twice[which], truth, "two plans at once")
    # Other memory needs no other communicator.
    twice[0].recvbuf = np.empty_like(twice[0].recvbuf)
    twice[0].fill()
    bound[0].rebind(twice[0].sendbuf, twice[0].recvbuf)
    bound[0]()
    check(twice[0], truth, "other memory")
    for one_bound in bound:
        one_bound.free()
