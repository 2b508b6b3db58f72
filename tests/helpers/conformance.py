"""Runs of every algorithm under MPI, against numpy and the native collective."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.host.processes import affinity
from collplan.measure.native import NativeCollective
from collplan.measure.run import Case
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.reference import expected, make_inputs
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Plan, Stage
from collplan.specs import PlanSpec
from collplan.specs.collective import COLLECTIVES
from mpi_plans import InPython
from oracle import AFFINE, REGULAR

WAYS = ("compiled", "python")
"""Kinds of reductions: machine code, or a callback in Python."""
PLACED_EVERY = 13
"""Number of plans of which one runs on communication cores, too."""
OWN_EVERY = 3
"""Number of plans of which one is compiled by every rank for itself alone."""
TREES = {"allreduce": ("reduce_bcast",)} | dict.fromkeys(
    ("bcast", "reduce", "gather", "scatter"), ("binomial", "chain", "linear")
)
NO_PLAN = ("differ in size", "leaders", "no such role", "power of two", "fits none of")
"""Words of refusals of native components."""
FEW = 3
"""Number of ranks up to which all roots take all counts, and reductions run in both ways."""


def flavours(kind: str, p: int, turn: int, count: int, is_last: bool) -> list[dict[str, object]]:
    """Return datatypes and operations: all of them for the largest count, else in turn.

    Of several roots the last one gets all: what a root changes is the same for all types.
    """
    if kind == "barrier":
        return [{}]
    if not COLLECTIVES[kind].has_op:
        every: list[dict[str, object]] = [{"datatype": "int32"}, {"datatype": "float64"}]
    else:
        every = [
            {"datatype": "int32", "op": "sum"},
            {"datatype": "float64", "op": "max"},
            {"datatype": "uint64", "op": AFFINE},
            {"datatype": "float64", "op": "sum"},
            {"datatype": "int32", "op": "max"},
        ]
    if count < 3 * p + 1 or not is_last:
        return [every[turn % len(every)]]
    return every if p <= FEW else every[:3]


def collectives(p: int) -> Iterator[dict[str, object]]:
    """Yield every collective to run on `p` ranks, as it stands in a spec."""
    turn = 0
    for kind in REGULAR:
        model = COLLECTIVES[kind]
        roots = sorted({0, p // 2, p - 1}) if model.is_rooted else [None]
        counts = sorted({0, 1, p - 1, p, 3 * p + 1}) if kind != "barrier" else [None]
        in_places = [False, True] if "in_place" in model.model_fields else [None]
        for (i, root), (j, count), in_place in product(
            enumerate(roots), enumerate(counts), in_places
        ):
            # Small counts take in place or not in turns, and where many ranks share two cores
            # all counts take roots in turns, the largest the last root.
            if p > 2 and count != 3 * p + 1 and in_place is bool((i + j) % 2):
                continue
            if p > FEW and (i + j) % len(roots):
                continue
            given = {"root": root, "count": count, "in_place": in_place}
            fixed = {name: value for name, value in given.items() if value is not None}
            turn += 1
            for flavour in flavours(kind, p, turn, count or 0, root == roots[-1]):
                yield {"kind": kind, **fixed, **flavour}


def check(case: Case, truth: np.ndarray | None, name: object) -> None:
    """Stop everything at the first wrong element of this rank."""
    wrong = case.own_wrong(truth)
    assert len(wrong) == 0, f"{name}: got {case.recvbuf}, expected {truth}"


def compile_for_all(spec: PlanSpec, comm: MPI.Comm, turn: int) -> Plan:
    """Compile a whole plan on one rank, in turns, for all: that all compile the same is known."""
    compiler = turn % comm.size
    plan: Plan = comm.bcast(compile_plan(spec) if comm.rank == compiler else None, root=compiler)
    return plan


def run(comm: MPI.Intracomm, collective: dict[str, object], turn: int) -> int:
    """Run a collective natively and by every algorithm; return how many plans ran."""
    rank, p = comm.rank, comm.size
    machine = {"ranks_per_node": p}
    spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
    truth = expected(spec.collective, make_inputs(spec.collective, p, seed=turn))[rank]
    n_plans = 0
    commutative = spec.collective.is_commutative
    for algorithm in registry.of(str(collective["kind"])):
        one = {"machine": machine, "collective": collective, "algorithms": algorithm.name}
        spec = PlanSpec.model_validate(one)
        if algorithm.refusal(p, commutative) is not None:
            try:
                compile_plan(spec)
            except AlgorithmError:
                continue
            raise AssertionError(f"{one} compiled, against its registration")
        # One rank's program by itself and out of the whole plan must both do.
        is_own = (turn + n_plans) % OWN_EVERY == 0
        plan = compile_plan(spec, rank=rank) if is_own else compile_for_all(spec, comm, turn)
        case = Case(plan, spec.collective, comm, seed=turn)
        sent = case.sendbuf.copy()
        op = spec.collective.op
        # Both kinds of reductions, one of them twice; or one, where ranks are many.
        ways = WAYS if turn % 2 else WAYS[::-1]
        if p > FEW or op is None:
            ways = ways[:1]
        for way in ways:
            operation = InPython(op.name) if op is not None and way == "python" else None
            with bind(plan, comm, case.sendbuf, case.recvbuf, operation=operation) as bound:
                if way == "compiled" and collective.get("op") != AFFINE:
                    assert bound.why_callback is None
                for _ in range(1 + (way == ways[0])):
                    case.fill()
                    bound()
                    check(case, truth, (way, one))
        n_plans += 1
        if (turn + n_plans) % PLACED_EVERY == 0:
            run_in_background(comm, one, case, truth, turn)
            n_plans += 1
        if collective["kind"] != "scatter":
            assert np.array_equal(case.sendbuf, sent), f"{one}: sendbuf was changed"
    with NativeCollective(spec.collective, comm, case.sendbuf, case.recvbuf) as native:
        case.fill()
        native()
        check(case, truth, f"native {collective}")
    return n_plans


def run_in_background(
    comm: MPI.Intracomm,
    one: dict[str, object],
    case: Case,
    truth: np.ndarray | None,
    turn: int,
) -> None:
    """Run a spec with communication cores, by threads; split it where it is a tree."""
    rank, p = comm.rank, comm.size
    processors = sorted(set().union(*comm.allgather(affinity())))
    n_free = 1 + turn % 2
    passes: dict[str, object] = {"name": "place_progress", "policy": ("odd_even", "numa")[turn % 2]}
    assert isinstance(one["collective"], dict)
    if turn % 3 and one["algorithms"] in TREES.get(one["collective"]["kind"], ()):
        passes = {"name": "split_tree", "levels": turn % 3 - 1}
    placed = {**one, "machine": {"ranks_per_node": p, "cores": p + n_free}, "passes": [passes]}
    spec = PlanSpec.model_validate(placed)
    plan = compile_plan(spec.replace(transport=("messages", "shared")[turn // 2 % 2]))
    cores = [processors[core % len(processors)] for core in range(p + n_free)]
    with bind(plan, comm, case.sendbuf, case.recvbuf, cores=cores) as bound:
        in_background = plan.core[(plan.rank == rank) & (plan.stage == Stage.BACKGROUND)]
        is_placed = not np.isin(in_background, plan.rank_core).all()
        is_threaded = is_placed and bound.why_callback is None
        assert bound.progress == ("thread" if is_threaded else "caller"), bound.why_caller
        for _ in range(2):
            case.fill()
            bound.start()
            bound.wait()
            check(case, truth, placed)


def run_all(comm: MPI.Intracomm, kind: str | None = None) -> int:
    """Run every collective, or those of one kind; return how many plans ran."""
    return sum(
        run(comm, collective, turn)
        for turn, collective in enumerate(collectives(comm.size))
        if kind in (None, collective["kind"])
    )


def run_gathered(comm: MPI.Intracomm) -> int:
    """Run reduces in the form that gathers at the root's node; return how many plans ran."""
    p, turn = comm.size, 0
    nodes = [[p], *([first, p - first] for first in range(1, p))]
    calls = product(nodes, ("hierarchical", "full_lane"), range(p), (0, p - 1, 3 * p + 1))
    for (sizes, name, root, count), in_place in product(calls, (False, True)):
        collective = {"kind": "reduce", "root": root, "count": count, "in_place": in_place}
        collective |= flavours("reduce", p, turn, 0, is_last=False)[0]
        one = {
            "machine": {"nodes": len(sizes), "ranks_per_node": sizes, "lanes": 2},
            "collective": collective,
            "decomposition": {"name": name, "form": "gather"},
        }
        spec = PlanSpec.model_validate(one)
        truth = expected(spec.collective, make_inputs(spec.collective, p, seed=turn))[comm.rank]
        plan = compile_for_all(spec, comm, turn)
        case = Case(plan, spec.collective, comm, seed=turn)
        with bind(plan, comm, case.sendbuf, case.recvbuf) as bound:
            for _ in range(2):
                case.fill()
                bound()
                check(case, truth, one)
        turn += 1
    return turn


def native_cases(kind: str, p: int) -> Iterator[dict[str, object]]:
    """Yield specs of native components; roots, counts, types and calls in place take turns."""
    model = COLLECTIVES[kind]
    per_node = next((n for n in (2, 3) if p % n == 0 and p > n), p)
    machines = [{"nodes": p // per_node, "ranks_per_node": per_node}]
    if p > 2:
        machines.append({"nodes": 2, "ranks_per_node": [p - p // 3, p // 3]})
    shapes: list[object] = ["hierarchical", "full_lane", "guideline"]
    shapes += [{"name": "multi_leader", "leaders": 2}] if p > 2 else []
    shapes += [{"name": "mesh", "shape": [p // per_node, per_node]}] if p > per_node else []
    methods: list[tuple[object, object]] = [(shape, "native") for shape in shapes]
    methods += [("full_lane", {"lane": "native"}), ("hierarchical", {"node": "native"})]
    if kind == "barrier":
        methods = []
    for turn, (machine, (shape, algorithms)) in enumerate(
        product(machines, [("flat", "native"), *methods])
    ):
        count = (3 * p + 1, p, 1, 0)[turn % 4]
        given = {"root": (p - 1, p // 2, 0)[turn % 3], "count": count, "in_place": turn % 5 < 2}
        fields = {name: value for name, value in given.items() if name in model.model_fields}
        flavour = flavours(kind, p, turn, 0, is_last=False)[0]
        yield {
            "machine": machine,
            "collective": {"kind": kind, **fields, **flavour},
            "decomposition": shape,
            "algorithms": algorithms,
        }


def run_native(comm: MPI.Intracomm, kind: str) -> int:
    """Run plans of MPI's own collectives, several of them at once; return how many ran."""
    n_plans = 0
    for turn, one in enumerate(native_cases(kind, comm.size)):
        spec = PlanSpec.model_validate(one)
        truth = expected(spec.collective, make_inputs(spec.collective, comm.size, seed=turn))
        try:
            plan = compile_plan(spec, rank=comm.rank)
        except AlgorithmError as error:
            if any(word in str(error) for word in NO_PLAN):
                continue
            raise
        cases = [Case(plan, spec.collective, comm, seed=turn) for _ in range(2)]
        bound = [bind(plan, comm, case.sendbuf, case.recvbuf) for case in cases]
        # Two plans in flight, which ranks wait for in different orders.
        order = [0, 1] if comm.rank % 2 else [1, 0]
        for _ in range(2):
            for case in cases:
                case.fill()
            for one_bound in bound:
                one_bound.start()
            for which in order:
                bound[which].wait()
                check(cases[which], truth[comm.rank], one)
        # Other memory needs no other communicator.
        cases[0].recvbuf = np.empty_like(cases[0].recvbuf)
        cases[0].fill()
        bound[0].rebind(cases[0].sendbuf, cases[0].recvbuf)
        bound[0]()
        check(cases[0], truth[comm.rank], one)
        for one_bound in bound:
            one_bound.free()
        n_plans += 1
    return n_plans
