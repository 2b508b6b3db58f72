"""Alltoalls through shared memory on real ranks: every design, start after start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product

from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.run import Case
from collplan.planner import compile_plan
from collplan.planner.collective.reference import expected, make_inputs
from collplan.select.alltoall_designs import DESIGNS
from collplan.specs import PassChoice, PlanSpec

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
STAGINGS = ("remap", "pack", "layout")


def specs() -> Iterator[PlanSpec]:
    """Yield designs on uneven nodes, in place and not, packed in all ways, and limited."""
    uneven = {"nodes": 3, "ranks_per_node": [p - 3, 1, 2]}
    machines = (uneven, {"nodes": 2, "ranks_per_node": [p - 2, 2]})
    shared = [design for design in DESIGNS.values() if "transport" in design.fields]
    limit = PassChoice(name="limit_requests", options={"remote": 1, "node": 2})
    for turn, (machine, design) in enumerate(product(machines, shared)):
        collective = {"kind": "alltoall", "count": 1 + turn % 5, "in_place": turn % 4 > 1}
        spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
        spec = design.of(spec)
        if spec.passes:
            staging = {"staging": STAGINGS[turn % 3]}
            first = PassChoice(name="coalesce_requests", options=staging)
            spec = spec.replace(passes=(first, *spec.passes[1:], *[limit] * (turn % 2)))
        yield spec


def main() -> None:
    """Compare results of every n-th plan with numpy, three starts each."""
    n_plans, every = 0, int(sys.argv[1])
    for turn, spec in enumerate(specs()):
        if turn % every:
            continue
        plan = compile_plan(spec, rank=rank if turn % 3 else None)
        case = Case(plan, spec.collective, comm, seed=turn)
        truth = expected(spec.collective, make_inputs(spec.collective, p, turn))[rank]
        with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
            for _ in range(3):
                case.fill()
                bound()
                wrong = case.own_wrong(truth)
                assert len(wrong) == 0, f"{rank} {spec}: {case.recvbuf}, expected {truth}"
        n_plans += 1
    if rank == 0:
        print(f"{n_plans} plans passed")


if __name__ == "__main__":
    main()
