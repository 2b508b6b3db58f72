"""Estimates: no plan is faster than its bound, whatever a machine's resources."""

from __future__ import annotations

from typing import Any

import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError
from collplan.select import estimate as estimates
from collplan.select import structures as structures_module
from collplan.select.candidates import Form, all_forms
from collplan.select.estimate import estimate, with_even_count
from collplan.select.structures import Structures
from collplan.specs import PlanSpec
from tiers import briefly

NETWORKS: dict[str, dict[str, Any]] = {
    "default": {},
    "adapters write memory": {
        "network": {"L_ns": 900, "o_ns": 500, "g_ns": 150, "G_ns_per_byte": 0.08, "offload": True},
        "memory_ns_per_byte": 0.05,
        "strided_ns_per_byte": 0.4,
    },
    "memory is slow": {"memory_ns_per_byte": 1.0},
    "processors are shared": {"processors": 2, "handshake": True},
    "bursts and turns": {
        "network": {"L_ns": 0, "o_ns": 0, "g_ns": 10, "G_ns_per_byte": 10},
        "burst_bytes": 4096,
        "turn_bytes": 1024,
    },
}
FORMS = ("linear", "ring", "full_lane", "full_lane pipelined", "hierarchical pipelined")


def spec_of(kind: str, network: dict[str, Any], count: int) -> PlanSpec:
    return PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "ranks_per_node": 4, "lanes": 2, "network": network},
            "collective": {"kind": kind, "count": count, "datatype": "int32"},
        }
    )


def some_forms(spec: PlanSpec, first: int) -> list[Form]:
    """Return those of `FORMS`, and every second of the others, beginning at the first or second."""
    forms = all_forms(spec)
    return [form for i, form in enumerate(forms) if i % 2 == first or form.name in FORMS]


@pytest.mark.many
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", ["allreduce", "reduce", "allgather"])
def test_no_plan_is_faster_than_its_bound(kind: str, network: str) -> None:
    spec = spec_of(kind, NETWORKS[network], 20_000)
    tightest = 0.0
    for form in all_forms(spec):
        segments = (16_384,) if form.has_segments else ()
        for found in estimate(form.of(spec), segments) if form.name in FORMS else ():
            time = simulate(compile_plan(form.of(spec, found.segment))).makespan_s
            assert found.bound_s <= time, (form.name, found)
            tightest = max(tightest, found.bound_s / time)
    # Something is busy nearly all the time, and that is counted.
    assert tightest > 0.8


@pytest.mark.many
@pytest.mark.parametrize("transport", ["messages", "shared"])
@pytest.mark.parametrize("kind", ["allreduce", "bcast", "alltoall"])
def test_a_few_nodes_stand_for_a_large_machine(
    kind: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {"nodes": 6, "ranks_per_node": 4, "lanes": 2}
    collective = {"kind": kind, "count": 5_000, "datatype": "int32"}
    spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
    forms = some_forms(spec, 0 if transport == "messages" else 1)
    for form in briefly(forms, f"{kind} {transport}"):
        if form.is_native and transport == "shared":
            continue
        chosen = form.of(spec).replace(transport=transport)
        try:
            (whole,) = estimate(chosen)
        except AlgorithmError:
            continue
        with monkeypatch.context() as patch:
            patch.setattr(estimates, "FEW_RANKS", 8)
            (sampled,) = estimate(chosen)
            patch.setattr(estimates, "MOST_PAIRS", 100)
            (rough,) = estimate(chosen)
        assert sampled.bound_s <= whole.bound_s * (1 + 1e-6), form.name
        assert 0.5 * whole.price_s < sampled.price_s < 2 * whole.price_s, form.name
        assert 0.5 * whole.n_tasks < sampled.n_tasks < 2 * whole.n_tasks, form.name
        if rough != sampled or form.name in (*FORMS, "rabenseifner", "binomial"):
            time_s = simulate(compile_plan(chosen, is_proved=False)).makespan_s
            assert whole.bound_s <= time_s, form.name
            assert rough.bound_s <= time_s, form.name


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["scan", "exscan", "reduce", "bcast"])
@pytest.mark.parametrize("few_ranks", [512, 8])
def test_the_estimate_of_a_chain_is_the_time_of_all_its_rounds(
    kind: str, few_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exscan reduces in steps of its own, others as messages come. A few nodes may stand in."""
    monkeypatch.setattr(estimates, "FEW_RANKS", few_ranks)
    machine = {"nodes": 12, "ranks_per_node": 4, "lanes": 2}
    collective = {"kind": kind, "count": 1 << 17}
    spec = PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "algorithms": "chain"}
    )
    (found,) = estimate(spec)
    time_s = simulate(compile_plan(spec)).makespan_s
    assert found.price_s == pytest.approx(time_s, rel=0.01 if few_ranks > 8 else 0.2)


def test_a_gap_that_goes_on_when_all_is_done_is_not_counted() -> None:
    network = {"network": {"L_ns": 10, "o_ns": 20, "g_ns": 1000, "G_ns_per_byte": 1}}
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "network": network},
            "collective": {"kind": "bcast", "count": 1001, "datatype": "uint8"},
        }
    )
    (found,) = estimate(spec)
    assert simulate(compile_plan(spec)).makespan_s == pytest.approx(1_050e-9)
    assert found.bound_s == pytest.approx(1_020e-9)


def test_of_a_plan_that_is_too_large_tasks_are_counted_only() -> None:
    spec = spec_of("bcast", {}, 100_000).replace(algorithms={"name": "chain"})
    whole, cut = estimate(spec, (4_096,), max_tasks=100)
    assert 0 < whole.bound_s < whole.price_s
    assert (cut.bound_s, cut.price_s) == (0.0, 0.0)
    assert cut.n_tasks > 100 > whole.n_tasks


@pytest.mark.many
@pytest.mark.parametrize("kind", ["allreduce", "reduce", "allgather", "alltoall"])
@pytest.mark.long
def test_messages_of_one_count_serve_others(kind: str) -> None:
    """Prices differ a little, as parts differ by an element; bounds stay bounds.

    Each form has one transport and some of the counts, and those of `FORMS` have both transports.
    """
    n_shared = 0
    for i, form in enumerate(some_forms(spec_of(kind, {}, 1), len(kind) % 2)):
        structures = Structures()
        segments = (4_096,) if form.has_segments else ()
        transports = ("messages", "shared")
        for count in (50_000, *((3_001, 5), (260, 0))[i // 2 % 2]):
            for transport in transports if form.name in FORMS else (transports[i % 2],):
                chosen = form.of(spec_of(kind, {}, count)).replace(transport=transport)
                known = set(structures.kept.values())
                try:
                    found = estimate(chosen, segments, structures=structures)
                except AlgorithmError:
                    continue
                n_shared += set(structures.kept.values()) == known
                for one, alone in zip(found, estimate(chosen, segments), strict=True):
                    assert one.price_s == pytest.approx(alone.price_s, rel=0.05), form.name
                    assert one.n_tasks == alone.n_tasks
                    assert one.bound_s == pytest.approx(alone.bound_s, rel=0.1), form.name
                    if transport == "messages" and form.name in FORMS:
                        plan = compile_plan(form.of(chosen, one.segment), is_proved=False)
                        assert one.bound_s <= simulate(plan).makespan_s, form.name
    assert n_shared > 20


@pytest.mark.quick
@pytest.mark.parametrize(
    ("count", "even"),
    [(5_000, 4_992), (24_100, 24_192), (2_020, 2_016), (4_992, 4_992), (1_000, 1_000), (0, 0)],
)
def test_ranks_of_a_large_machine_share_a_vector_evenly(
    count: int, even: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless that changes its count much; blocks are of one size anyway.

    Shares of whole cache lines, 8 elements, come first: 24,096 would be nearer to 24,100.
    """
    machine = {"nodes": 6, "ranks_per_node": 4}
    for kind, expected in (("allreduce", even), ("allgather", count)):
        spec = PlanSpec.model_validate(
            {"machine": machine, "collective": {"kind": kind, "count": count}}
        )
        assert with_even_count(spec) == spec
        with monkeypatch.context() as patch:
            patch.setattr(estimates, "FEW_RANKS", 8)
            assert with_even_count(spec) == spec.with_count(expected)


@pytest.mark.long
def test_whether_a_plan_folds_is_known_from_other_even_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the effort is as if nothing were known; counts that are not even are looked at alone."""
    looked = []
    n_copies = structures_module.n_copies_of
    monkeypatch.setattr(estimates, "FEW_RANKS", 8)
    monkeypatch.setattr(structures_module, "LEAST_FOLDED", 0)
    monkeypatch.setattr(
        structures_module, "n_copies_of", lambda *a: looked.append(a) or n_copies(*a)
    )
    machine = {"nodes": 6, "ranks_per_node": 4, "lanes": 2}
    collective = {"kind": "allreduce", "count": 1}
    first = PlanSpec.model_validate({"machine": machine, "collective": collective})
    efforts, n_answers = set(), 0
    for form in some_forms(first, 0):
        structures = Structures()
        for count in (4_800, 2_400, 480, 101, 24):
            spec = form.of(first.with_count(count))
            try:
                (found,) = estimate(spec, structures=structures)
            except AlgorithmError:
                continue
            n_answers += 1
            n_looked = len(looked)
            (alone,) = estimate(spec)
            del looked[n_looked:]
            assert found.effort == alone.effort, (form.name, count)
            efforts.add(alone.effort < alone.n_tasks)
    assert efforts == {False, True}
    assert n_answers / 5 < len(looked) < n_answers


def test_bounds_of_few_small_messages_are_overheads() -> None:
    """Of two ranks, either does little else than send and receive."""
    network = {"network": {"L_ns": 0, "o_ns": 1000, "g_ns": 0, "G_ns_per_byte": 0.001}}
    machine = {"nodes": 2, "network": network}
    for kind in ("reduce", "bcast", "scan", "allgather"):
        collective = {"kind": kind, "count": 1, "datatype": "int32"}
        spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
        tightest = 0.0
        for form in all_forms(spec):
            if form.is_native:
                continue
            (found,) = estimate(form.of(spec))
            time_s = simulate(compile_plan(form.of(spec), is_proved=False)).makespan_s
            assert found.bound_s <= time_s * (1 + 1e-9), form.name
            tightest = max(tightest, found.bound_s / time_s)
        assert tightest > 0.4, kind


@pytest.mark.parametrize("name", ["ring", "linear"])
def test_the_bound_of_many_small_messages_is_the_overhead_of_all(name: str) -> None:
    """Each rank sends and receives p - 1 messages, and nothing else takes time."""
    network = {"network": {"L_ns": 0, "o_ns": 1000, "g_ns": 0, "G_ns_per_byte": 0.001}}
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 2000, "network": network},
            "collective": {"kind": "allgather", "count": 1, "datatype": "int8"},
            "algorithms": name,
        }
    )
    (found,) = estimate(spec)
    assert found.bound_s == pytest.approx(2 * 1999 * 1e-6, rel=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["allreduce", "reduce_scatter_block", "reduce", "scan", "exscan"])
@pytest.mark.parametrize("per_node", [1, 2])
def test_bounds_hold_where_reductions_take_most_of_the_time(kind: str, per_node: int) -> None:
    """A chain reduces each element on one rank after another; a ring, all ranks at once."""
    machine = {
        "nodes": 8 // per_node,
        "ranks_per_node": per_node,
        "network": {"reduce_ns_per_byte": 50},
    }
    for one in registry.of(kind):
        if not one.forwards:
            continue
        collective = {"kind": kind, "count": 4000, "datatype": "int32"}
        spec = PlanSpec.model_validate(
            {"machine": machine, "collective": collective, "algorithms": one.name}
        )
        plan = compile_plan(spec, is_proved=False)
        share = estimate(spec)[0].bound_s / simulate(plan, spec.machine.network).makespan_s
        assert share <= 1
        assert share > (0.97 if one.name == "ring" else 0.1), one.name
