"""Decomposed plans on the nodes of an emulated cluster, against numpy and their own byte counts.

Rank 0 prints ``passed N plans``, then one JSON line: for every plan of the traffic check the
bytes each node's lanes must carry and did, as [received, sent] pairs.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.api.compiling import compile_spec
from collplan.emulate.machine import lane_bytes
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.measure.run import Case
from collplan.planner import Plan
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Op
from collplan.specs import Machine, PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import AFFINE, REGULAR

comm = MPI.COMM_WORLD
MACHINE = Machine.model_validate_json(os.environ["COLLPLAN_MACHINE"])
WINDOWS = [{"name": "segment", "max_bytes": 16}, "prioritize", "limit_requests"]
SEED = 5
SETTLE_S = 0.3
"""For what is still on its way, as acknowledgements."""
TRAFFIC = {
    "bcast": 1 << 18,
    "allreduce": 1 << 17,
    "gather": 1 << 15,
    "alltoall": 1 << 14,
    "scan": 1 << 17,
}
"""Collectives whose bytes are counted, and their counts of int32."""


def is_mine(number: int, n_parts: int = 2) -> bool:
    """Return whether this cluster checks it: clusters of two and of three nodes take turns."""
    return number % n_parts == MACHINE.nodes % n_parts


def specs() -> list[PlanSpec]:
    found = []
    p, n = MACHINE.n_ranks, MACHINE.node_to_n_ranks[0]
    shapes: list[Any] = ["hierarchical", "full_lane", "guideline", "auto"]
    shapes += [{"name": "multi_leader", "leaders": 2}, {"name": "mesh", "shape": [n, p // n]}]
    for turn, kind in enumerate(kind for kind in REGULAR if kind != "barrier"):
        model = COLLECTIVES[kind]
        for i, shape in enumerate(shapes):
            if not is_mine(turn + turn // 4 + i, 4):
                continue
            op: dict[str, Any] = {}
            if model.has_op:
                op = {"op": AFFINE if (turn + i) % 2 else "sum"}
            fields = {"kind": kind, "count": 3 * p + 1, "datatype": "uint64", **op}
            if model.is_rooted:
                fields["root"] = (turn + i) % p
            if "in_place" in model.model_fields:
                fields["in_place"] = bool((turn + i) // 2 % 2)
            found.append(
                PlanSpec.model_validate(
                    {
                        "machine": MACHINE.model_dump(mode="json"),
                        "collective": fields,
                        "decomposition": shape,
                        "passes": WINDOWS if i % 2 else [],
                    }
                )
            )
    return found


def check(spec: PlanSpec) -> bool:
    """Run a plan; return False where the decomposition refuses."""
    try:
        plan = compile_spec(spec, comm=comm)
    except (AlgorithmError, BindError):
        return False
    truth = expected(spec.collective, make_inputs(spec.collective, comm.size, SEED))[comm.rank]
    case = Case(plan, spec.collective, comm, SEED)
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        for _ in range(2):
            case.fill()
            bound()
            assert len(case.own_wrong(truth)) == 0, (comm.rank, spec)
    return True


def planned(plan: Plan, node: int) -> list[list[int]]:
    """Return what a node's lanes receive and send by the plan, in bytes."""
    n_bytes = plan.elements * plan.itemsize
    peer_node = plan.rank_node[np.maximum(plan.peer, 0)]
    mine = (plan.node == node) & (plan.op <= Op.RECV) & (peer_node != node)
    return [
        [
            int(n_bytes[mine & (plan.op == op) & (plan.lane == lane)].sum())
            for op in (Op.RECV, Op.SEND)
        ]
        for lane in range(MACHINE.lanes)
    ]


def count_traffic(kind: str, count: int, decomposition: str) -> dict[str, Any]:
    spec = PlanSpec.model_validate(
        {
            "machine": MACHINE.model_dump(mode="json"),
            "collective": {"kind": kind, "count": count, "datatype": "int32"},
            "decomposition": decomposition,
        }
    )
    plan = compile_spec(spec, comm=comm)
    case = Case(plan, spec.collective, comm, SEED)
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        bound()  # connections are made
        comm.Barrier()
        time.sleep(SETTLE_S)
        before = lane_bytes()
        comm.Barrier()
        bound()
        comm.Barrier()
        time.sleep(SETTLE_S)
        after = lane_bytes()
        comm.Barrier()
    counted = [
        [after[lane][way] - before[lane][way] for way in (0, 1)] for lane in range(MACHINE.lanes)
    ]
    nodes = comm.gather((MACHINE.rank_to_node[comm.rank], counted)) or []
    by_node = dict(nodes)
    plan = compile_spec(spec) if by_node else plan  # rank 0 counts what all ranks send
    return {
        "plan": f"{kind} {decomposition}",
        "nodes": [
            {"planned": planned(plan, node), "counted": by_node[node]} for node in sorted(by_node)
        ],
    }


n_run = sum(check(spec) for spec in specs())
traffic = [
    count_traffic(kind, count, shape)
    for i, (kind, count) in enumerate(TRAFFIC.items())
    for j, shape in enumerate(("full_lane", "hierarchical"))
    if is_mine(i + j)
]
if comm.rank == 0:
    print(f"passed {n_run} plans")
    print(json.dumps(traffic))
