"""Plans with communication cores for programs under MPI, and how they bind them."""

from __future__ import annotations

import threading

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.binding.prepared import cores_of_node
from collplan.executors.mpi.host.processes import affinity
from collplan.planner import compile_plan
from collplan.planner.plan.plan import Buffer, Op, Plan, Stage
from mpi_plans import PlanWriter
from oracle import make_spec

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
PROCESSORS = sorted(set().union(*comm.allgather(affinity())))
NAME = "collplan progress"
OWN, OTHER = 0, p
"""An application core and the communication core of plans by hand."""


def machine(n_free: int = 2) -> dict[str, object]:
    return {"ranks_per_node": p, "cores": p + n_free}


def processors_of(n_cores: int) -> list[int]:
    """Return processors for all cores of a node, in turns."""
    return [PROCESSORS[core % len(PROCESSORS)] for core in range(n_cores)]


def bind_placed(plan: Plan, *buffers: np.ndarray | None, **options: object) -> BoundPlan:
    """Bind a plan with as many cores as processors may stand for."""
    n_cores = cores_of_node(plan, rank)
    given: dict[str, object] = {"cores": processors_of(n_cores), **options}
    return bind(plan, comm, *buffers, **given)  # type: ignore[arg-type]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def placed(kind: str, count: int = 40, transport: str = "messages", **fields: object) -> Plan:
    fields = {"passes": [{"name": "place_progress"}], "algorithm": "auto", **fields}
    algorithm = fields.pop("algorithm")
    spec = make_spec(
        kind, algorithm, p, machine(), count=count, datatype="int32", root=p - 1, **fields
    )
    return compile_plan(spec.replace(transport=transport))


def copies(*stages: tuple[Stage, int], compute_ns: int = 0) -> Plan:
    """Return a plan whose ranks copy their element once a stage, on some core."""
    writer = PlanWriter([[1, len(stages), 0]] * p)
    for r in range(p):
        for i, (stage, core) in enumerate(stages):
            at = {"core": r if core == OWN else core, "stage": stage}
            before = []
            if compute_ns and core != OWN:
                before = [writer.add(Op.COMPUTE, r, duration_ns=compute_ns, **at)]
            place = (Buffer.RECV, i, 1)
            writer.add(Op.COPY, r, [(Buffer.SEND, 0, 1)], [place], before, **at)
    return writer.plan()
