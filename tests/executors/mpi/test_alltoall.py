"""Designs of alltoall on real ranks, with both MPIs."""

from __future__ import annotations

from typing import Any

import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.run import Case
from collplan.planner.collective.reference import expected, make_inputs
from collplan.select.alltoall_designs import DESIGNS
from collplan.specs import PassChoice, PlanSpec
from conformance import compiled
from covering import pairs
from mpi_launching import MPIS

RANKS = 6
MACHINES = {3: [RANKS - 3, 1, 2], 2: [RANKS - 2, 2]}
"""Ranks on each of two or three nodes, which are uneven."""
LIMIT = PassChoice(name="limit_requests", options={"remote": 1, "node": 2})


@pytest.fixture(scope="module")
def chosen() -> list[dict[str, Any]]:
    """Choose designs on uneven nodes, in place and not, packed in all ways, and limited."""
    return pairs(
        {
            "design": [name for name, one in DESIGNS.items() if "transport" in one.fields],
            "mpi": MPIS,
            "nodes": list(MACHINES),
            "staging": ["remap", "pack", "layout"],
            "is_limited": [False, True],
            "count": range(1, 6),
            "in_place": [False, True],
            "is_own": [False, True],
        }
    )


def spec_of(one: dict[str, Any]) -> PlanSpec:
    """Return the spec of a case."""
    machine = {"nodes": one["nodes"], "ranks_per_node": MACHINES[one["nodes"]]}
    collective = {"kind": "alltoall", "count": one["count"], "in_place": one["in_place"]}
    spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
    spec = DESIGNS[one["design"]].of(spec)
    if not spec.passes:
        return spec
    first = PassChoice(name="coalesce_requests", options={"staging": one["staging"]})
    return spec.replace(passes=(first, *spec.passes[1:], *[LIMIT] * one["is_limited"]))


@pytest.mark.ranks(RANKS)
def test_every_design(comm: MPI.Intracomm, chosen: list[dict[str, Any]]) -> None:
    """Whole plans and single programs, packed in every way, three starts each."""
    name = "openmpi" if "Open MPI" in MPI.Get_library_version() else "mpich"
    for seed, one in enumerate(chosen):
        if one["mpi"] != name:
            continue
        spec = spec_of(one)
        plan = compiled(spec, comm, seed, is_own=one["is_own"])
        case = Case(plan, spec.collective, comm, seed=seed)
        truth = expected(spec.collective, make_inputs(spec.collective, RANKS, seed))[comm.rank]
        with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
            for _ in range(3):
                case.fill()
                bound()
                wrong = case.own_wrong(truth)
                assert len(wrong) == 0, f"{one}: {case.recvbuf}, expected {truth}"
