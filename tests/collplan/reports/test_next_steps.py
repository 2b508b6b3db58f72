"""Next steps after a comparison: commands that work, and what an MPI library has itself."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from collplan.reports.next_steps import MEASURED, _setting, lines_of, next_steps
from collplan.select.compared import Comparison
from collplan.select.comparison import compare
from collplan.specs import PlanSpec
from collplan.tune.racing import StopRules
from command_line import CommandLine


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def test_neighborhoods_are_compared_and_not_tuned(collplan: CommandLine) -> None:
    graph = {"graph": {"grid": [2, 2]}}
    for kind, size in (("neighbor_alltoall", "the block of each edge"), ("neighbor_alltoallv", "")):
        shape = {"counts": [9, 5]} if kind.endswith("v") else {"count": 9}
        path = collplan.write_spec(
            machine={"nodes": 2, "ranks_per_node": 2},
            collective={"kind": kind, **graph, **shape},
            algorithms="auto",
        )
        text = collplan("compare", path, "--sizes", "80,800").out
        assert "full_lane shared" in text
        assert f"sizes are those of {size or 'all blocks together'}" in text
        assert "next:" not in text
        assert collplan("compare", path, "--json").json()["next"] == {}
        refusal = collplan("tune", path, "-o", "table.yaml").error()
        assert refusal.startswith(f"--collectives: {kind} is not tuned, as tables decide for calls")


def compared(kind: str = "allreduce", counts: tuple[int, ...] = (64, 1 << 18)) -> Comparison:
    collective = {"kind": kind}
    specs = [
        PlanSpec.model_validate(
            {
                "machine": {"nodes": 2, "ranks_per_node": 4},
                "collective": collective | ({} if kind == "barrier" else {"count": count}),
            }
        )
        for count in counts
    ]
    found = compare(specs, prune=False, seconds=30)
    return replace(found, installed="MPICH 4.x")


@pytest.mark.long
def test_steps_name_the_best_that_the_library_has() -> None:
    comparison = compared()
    steps = next_steps(comparison, "my spec.yaml")
    assert steps["tune"] == "collplan tune 'my spec.yaml' --sizes 512,2MiB -o table.yaml"
    assert steps["library"] == "MPICH 4.x"
    assert [one["bytes"] for one in steps["own"]] == [512, 1 << 21]
    for one in steps["own"]:
        size, time = one["bytes"], one["makespan_s"]
        assert time <= comparison.baseline_s[size]
        assert time >= comparison.makespans[comparison.leading[size], size]
        assert bool(one["setting"]) == bool(one["algorithm"])
    near = [
        name
        for (name, size), seconds in comparison.makespans.items()
        if seconds <= 1.5 * comparison.makespans[comparison.leading[size], size]
    ]
    assert steps["tune_plans"] == len(near)
    assert steps["tune_s"] == pytest.approx(20 + len(near) / 2)
    lines = list(lines_of(steps, comparison))
    assert lines[0].startswith(f"next: {steps['tune']} measures")
    assert all("MPICH 4.x has" in line for line in lines[2:])


def test_a_setting_is_one_of_messages_alone() -> None:
    """Plans through shared memory, in parts or in segments are not what a library runs."""
    comparison = compared("bcast", counts=(1 << 18,))
    steps = next_steps(comparison, "spec.yaml")
    (one,) = steps["own"]
    if one["setting"]:
        assert f"MPIR_CVAR_BCAST_INTRA_ALGORITHM={one['algorithm']} mpiexec" in one["setting"]
        assert one["setting"].startswith("MPIR_CVAR_BCAST_DEVICE_COLLECTIVE=0 ")


@pytest.mark.parametrize(("is_commutative", "n"), [(True, 1), (False, 0)])
def test_algorithms_that_reorder_operands_are_for_operations_that_commute(
    is_commutative: bool, n: int
) -> None:
    """Open MPI would run its ring in any case, with wrong results."""
    op = "sum" if is_commutative else {"name": "affine", "commutative": False}
    collective = {"kind": "allreduce", "count": 64, "datatype": "float64", "op": op}
    machine = {"ranks_per_node": 4}
    spec = PlanSpec.model_validate(
        {"machine": machine, "collective": collective, "algorithms": "ring"}
    )
    assert bool(_setting("openmpi", spec)) == bool(n)


def test_the_estimate_is_of_the_defaults_of_tune(collplan: CommandLine) -> None:
    text = " ".join(collplan("tune", "--help").out.split())
    assert f"within FACTOR of the best. [default: {MEASURED}; " in text
    assert f"per measurement series. [default: {StopRules().seconds}; " in text


def test_a_library_that_is_not_known_has_no_algorithms() -> None:
    comparison = replace(compared("barrier", (0,)), defaults={}, installed=None)
    steps = next_steps(comparison, "spec.yaml")
    assert steps["own"] == []
    assert steps["tune"] == "collplan tune spec.yaml -o table.yaml", "a barrier has no sizes"
    assert len(list(lines_of(steps, comparison))) == 2


def test_the_command_is_understood(collplan: CommandLine) -> None:
    machine = {"ranks_per_node": 4}
    collective = {"kind": "bcast", "count": 64}
    spec = collplan.write_spec(machine=machine, collective=collective, algorithms="auto")
    told = collplan("compare", spec, "--sizes", "1KiB", "--json").json()["next"]
    program, *arguments = shlex.split(told["tune"])
    assert program == "collplan"
    assert "flat" in collplan(*arguments, "--list").out
