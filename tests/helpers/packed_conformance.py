"""Runs of plans whose messages are packed into the links of a topology, against numpy."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.run import Case
from collplan.planner import compile_plan
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.packing.schedule import KINDS
from conformance import Chosen, check
from linked_machines import torus
from oracle import make_spec

SIZES = (1, 3, 4, 6)


def cases() -> list[Chosen]:
    """Return the cases on any number of ranks: small messages, and some above the eager limit."""
    return [
        {"kind": kind, "count": count, "seed": seed}
        for seed, (kind, count) in enumerate((kind, n) for kind in KINDS for n in (0, 5, 30_011))
    ]


def run(comm: MPI.Intracomm, chosen: Chosen) -> None:
    """Run a collective by a packed plan, on ranks in a ring or a torus."""
    p, kind, blocks = comm.size, chosen["kind"], (1, 3)[chosen["seed"] % 2]
    machine = torus(p // 2, 2) if p % 2 == 0 else torus(p)
    choice: Any = "packed" if kind == "alltoall" else {"name": "packed", "blocks": blocks}
    spec = make_spec(
        kind, choice, p, machine.model_dump(), root=p - 1, count=chosen["count"], datatype="int32",
        op="sum",
    )  # fmt: skip
    truth = expected(spec.collective, make_inputs(spec.collective, p, seed=chosen["seed"]))
    plan = compile_plan(spec)
    case = Case(plan, spec.collective, comm, seed=chosen["seed"])
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        for _ in range(2):
            case.fill()
            bound()
            check(case, truth[comm.rank], "plan")
