"""Runs of collectives whose counts differ per rank under MPI, against numpy and native calls.

mpiexec -n 9 python irregular_conformance.py 7 5 6 8 9

The first number is how many ranks run every algorithm of the regular collectives, too.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

import conformance
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case
from collplan.measure.timing import meet_asleep
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import expected, make_inputs
from collplan.specs import PlanSpec
from collplan.specs.collective import COLLECTIVES
from collplan.specs.counts import Distribution
from conformance import check, compile_for_all
from oracle import AFFINE, REGULAR, VECTORS, gaps

DISTRIBUTIONS = ("uniform", "linear", "zipf", "spike", "sparse")
FEW = 4
"""Number of ranks up to which every algorithm runs; on more, some do in turns."""
AT_ONCE = {True: 6, False: 2}
"""Number of methods of a kind that run on more ranks: on up to `MANY`, and beyond."""
MANY = 9
FLAVOURS = (
    {"datatype": "int32", "op": "sum"},
    {"datatype": "uint64", "op": AFFINE},
    {"datatype": "float64", "op": "max"},
)


def methods(kind: str, p: int) -> list[dict[str, object]]:
    """Return algorithms and some decompositions, segments and shared memory among them."""
    planned = COLLECTIVES[kind].regular or kind
    found: list[dict[str, object]] = [{"algorithms": one.name} for one in registry.of(planned)]
    found.append({"passes": [{"name": "segment", "max_bytes": 16}]})
    found += [{"decomposition": name} for name in ("full_lane", "hierarchical")]
    found.append({"decomposition": {"name": "multi_leader", "leaders": 1}})
    return [*found, {"decomposition": "hierarchical", "transport": "shared"}]


def machine_of(p: int, turn: int) -> dict[str, object]:
    """Return nodes for `p` ranks: one, or several, of equal size or not."""
    nodes = next((n for n in (2, 3) if p % n == 0 and p > n), 1)
    if p > FEW - 1 and turn % 3 == 0:
        return {"nodes": 2, "ranks_per_node": [p - p // 3, p // 3]}
    return {"nodes": nodes, "ranks_per_node": p // nodes}


def collective_of(kind: str, p: int, turn: int) -> dict[str, object]:
    """Return a collective as it stands in a spec: what there is to choose takes turns."""
    model = COLLECTIVES[kind]
    in_place, has_gaps = bool(turn // 2 % 2), bool(turn // 3 % 2)
    total = (7 * p + 3, 100, p, 1, 0)[turn // 5 % 5]
    drawn = Distribution(distribution=DISTRIBUTIONS[turn % 5], total=total, seed=turn)
    fields: dict[str, object] = {"kind": kind, "in_place": in_place}
    fields["counts"] = drawn.model_dump()
    if model.is_pairwise and in_place:
        table = drawn.table((p, p))
        fields["counts"] = np.triu(table) + np.triu(table, 1).T
    if has_gaps:
        counts = fields["counts"]
        if isinstance(counts, dict):
            counts = fields["counts"] = drawn.table((p, p) if model.is_pairwise else (p,))
        fields |= gaps(random.Random(turn), model.regular, counts, in_place)
    if model.is_rooted:
        fields["root"] = (0, p // 2, p - 1)[turn % 3]
    flavour: dict[str, object] = dict(FLAVOURS[turn % 3])
    return fields | (flavour if model.has_op else {"datatype": flavour["datatype"]})


def cases(kind: str, p: int) -> Iterator[tuple[int, PlanSpec]]:
    """Yield specs to run on `p` ranks, each with its turn."""
    every = methods(kind, p)
    offset = p * len(every) + 7 * [*VECTORS.values()].index(kind)
    for i in range(len(every) if p <= FEW else AT_ONCE[p <= MANY]):
        turn = offset + i
        collective = collective_of(kind, p, turn)
        document = {"machine": machine_of(p, turn), "collective": collective}
        spec = PlanSpec.model_validate(document | every[turn % len(every)])
        name, commutes = every[turn % len(every)].get("algorithms"), spec.collective.is_commutative
        planned = spec.collective.planned_kind
        if isinstance(name, str) and registry.find(planned, name).refusal(p, commutes, False):
            continue
        yield turn, spec


def run(comm: MPI.Intracomm, spec: PlanSpec, turn: int) -> None:
    """Run a spec's plan, and the native call, on the same buffers."""
    collective = spec.collective
    plan = compile_for_all(spec, comm, turn)
    case = Case(plan, collective, comm, seed=turn)
    results = expected(collective, make_inputs(collective, comm.size, seed=turn))
    truth = case.in_buffer(results[comm.rank])
    case.fill()
    sent = case.sendbuf.copy()
    with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
        bound()
        check(case, truth, spec)
    assert np.array_equal(case.sendbuf, sent), f"{spec}: sendbuf was changed"
    with NativeCollective(collective, comm, case.sendbuf, case.recvbuf) as native:
        case.fill()
        native()
        check(case, truth, f"native {spec}")


def run_all(comm: MPI.Intracomm, kind: str) -> int:
    """Run the cases of a kind on these ranks; return how many plans ran."""
    n_plans = 0
    for turn, spec in cases(kind, comm.size):
        run(comm, spec, turn)
        n_plans += 1
    return n_plans


def run_on_first(comm: MPI.Intracomm, n_ranks: int, *, is_regular: bool) -> int:
    """Run all kinds on the first ranks, while the others sleep."""
    part = comm.Split(0 if comm.rank < n_ranks else 1, key=comm.rank)
    n_plans = 0
    if comm.rank < n_ranks:
        n_plans += conformance.run_all(part) if is_regular else 0
        n_plans += sum(run_all(part, kind) for kind in VECTORS.values())
        n_plans += sum(conformance.run_native(part, kind) for kind in REGULAR if n_ranks <= MANY)
    meet_asleep(comm)
    part.Free()
    return n_plans


if __name__ == "__main__":
    world, sizes = MPI.COMM_WORLD, [int(word) for word in sys.argv[1:]]
    found = [run_on_first(world, n, is_regular=n == sizes[0]) for n in sizes]
    if world.rank == 0:
        print(f"passed: {found} plans on {sizes} ranks")
