"""The drop-in communicator under both MPIs: results, buffers, families, what it counts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from check_names import checks_of
from collplan.deciding.decisions import (
    LEAST_VECTOR_GAIN_S,
    MAKING_S,
    NATIVE_CALLS,
    calls_before,
    if_paid,
    whys_native,
)
from collplan.deciding.statistics import FASTER, Statistics
from collplan.tune.sweep import Choice
from collplan.tune.table import Decision, parse_table
from folders import PROGRAMS
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run
from tables_everywhere import planning_table

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
run_check = pytest.importorskip("drop_in_calls").run_check

ONCE = "check_that_there_is_no_table_is_said_once"
"""A check of what a process says once in its life, and so has processes of its own."""
SUITE = "COLLPLAN_MPI4PY_TESTS"
"""Environment variable: the folder ``test`` of mpi4py's source distribution."""


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("drop_in.py"))
def test_drop_in_leaves_what_native_mpi_leaves(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "drop_in.py", check)


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("untuned.py"))
def test_plans_are_tried_on_ranks_that_no_sweep_speaks_for(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "untuned.py", check)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_trials_on_five_ranks_and_on_three_of_them(mpi: str) -> None:
    assert_passes(mpirun(5, "untuned.py", "check_families", mpi=mpi))


@pytest.mark.ranks(3)
@pytest.mark.parametrize("check", sorted({*checks_of("drop_in_failures.py")} - {ONCE}))
def test_a_plan_that_fails_on_one_rank_leaves_all_ranks_native(
    comm: MPI.Intracomm, check: str
) -> None:
    run_check(comm, "drop_in_failures.py", check)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_that_there_is_no_table_is_said_once(mpi: str) -> None:
    assert_passes(mpirun(3, "drop_in_failures.py", ONCE, mpi=mpi))


def test_the_package_can_be_imported_without_mpi() -> None:
    code = "import sys, collplan.dropin; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_statistics_say_what_ran_as_text_as_a_table_and_as_a_dict() -> None:
    from rich.console import Console

    statistics = Statistics()
    measured = {"planned": True, "native_s": 4e-3, "chosen_s": 1e-3}
    row = statistics.row("bcast", "chain", "won at 8 bytes", 4, 4096, **measured)
    again = statistics.row("bcast", "chain", "won at 8 bytes", 4, 16, **measured)
    assert again is row
    row.calls, row.seconds = 2, 3e-3
    statistics.row("scan", "native", "no sweep of scan", 4, 8)  # not called yet
    (found,) = statistics.as_dict()["rows"]
    assert (found["gain"], found["calls"], found["least_bytes"]) == (4.0, 2, 16)
    assert statistics.as_dict()["planned_calls"] == 2
    words = " ".join(str(statistics).splitlines()[1].split())
    # The gain in the table was not measured in this run.
    assert words == "bcast chain 4 16 to 4096 2 3 ms 1.5 ms won at 8 bytes"
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(statistics)
    assert "4.00x" not in console.export_text()
    row.why = FASTER
    assert f"4.00x  {FASTER}" in str(statistics)


def test_statistics_tell_the_time_of_making_plans_and_where_they_are_slower() -> None:
    statistics = Statistics()
    assert "making" not in statistics.report()
    statistics.making_s = 0.25
    native = statistics.row("bcast", "native", "a plan takes time to make", 4, 64)
    by_plan = statistics.row("bcast", "chain", "won at 8 bytes", 4, 64, planned=True)
    native.calls, native.seconds = 2, 2e-3
    by_plan.calls, by_plan.seconds = 4, 4e-3
    assert "4 collectives by plans, 2 native; making plans took 250 ms" in statistics.report()
    assert "slower" not in statistics.report()
    assert "  1.00x  won at 8 bytes" in statistics.report()
    by_plan.seconds = 8e-3
    line = "won at 8 bytes; slower here: native took 1 ms"
    assert line in statistics.report()
    # Rows of several sizes are not comparable.
    statistics.row("bcast", "native", "a plan takes time to make", 4, 4096)
    assert "slower" not in statistics.report()


def test_calls_are_native_until_they_would_have_paid_for_a_plan() -> None:
    def decision(native_s: float | None, chosen_s: float | None) -> Decision:
        return Decision(Choice(algorithms="ring"), "ring", "", native_s, chosen_s)

    assert calls_before(decision(2e-3, 1e-3), None) == MAKING_S / 1e-3
    assert calls_before(decision(1.0, 0.5), None) == NATIVE_CALLS
    for unknown in (decision(None, 1e-3), decision(1e-3, 1e-3), decision(1e-3, 2e-3)):
        assert calls_before(unknown, None) == NATIVE_CALLS
    assert calls_before(decision(2e-3, 1e-3), 0) == 0


@pytest.mark.system
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("mpi", MPIS)
def test_mpi4py_own_tests_pass_that_pass_natively(mpi: str, n_ranks: int) -> None:
    folder = os.environ.get(SUITE)
    if folder is None:
        # They are not in its wheels, and take minutes; all else here runs without them.
        pytest.skip(
            f"{SUITE} names no folder with mpi4py's own tests; unpack what 'pip download "
            "--no-deps --no-binary :all: mpi4py' brings, and name its folder test"
        )
    python = mpi_python(mpi)
    program = str(PROGRAMS / "mpi4py_suite.py")
    found = {}
    for mode in ("native", "drop-in"):
        command = [str(mpiexec_of(python)), "-n", str(n_ranks), str(python), program, folder, mode]
        done = run(command, timeout_s=1800)
        assert done.returncode == 0, done.stderr
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    assert found["drop-in"]["run"] == found["native"]["run"]
    assert found["drop-in"]["planned_calls"] > 1000
    assert found["drop-in"]["planned_vector_calls"] > 100
    assert set(found["drop-in"]["bad"]) <= set(found["native"]["bad"])


def test_a_table_says_which_kinds_it_never_plans() -> None:
    document = planning_table(2, ("bcast", "reduce", "scan")).model_dump()
    document["sweeps"] += planning_table(2, ("gather",), native_s=1e-4).model_dump()["sweeps"]
    for sweep in document["sweeps"]:
        for point in sweep["points"]:
            if sweep["collective"] == "scan":
                point["winner"] = "native"
            if sweep["collective"] == "gather":  # both plans are measured at both sizes
                point["times"] |= {"binomial": point["times"][point["winner"]]}
                point["times"] |= {"linear": point["times"]["binomial"]}
        sweep["complete"] = sweep["collective"] != "reduce"
        if sweep["collective"] == "bcast":
            sweep |= {"computation_s": 1e-3, "cores": 4}
    table = parse_table(document)
    natives = whys_native(table, is_blocking=True, are_tried=False)
    assert natives["reduce"] == "no sweep of reduce"
    assert natives["bcast"] == "no sweep of bcast"
    assert natives["scan"] == "native won all sizes of scan"
    assert natives["gatherv"] == "each plan of gather gains less than agreeing on counts costs"
    assert "gather" not in natives
    assert "scan" not in whys_native(table, is_blocking=True, are_tried=True)
    natives = whys_native(table, is_blocking=False, are_tried=False)
    assert {"bcast", "gather", "gatherv"}.isdisjoint(natives)
    assert whys_native(None, is_blocking=True, are_tried=True)["scan"] == "no table"


@pytest.mark.parametrize(
    ("kind", "gain_s", "is_kept"),
    [
        ("allgather", LEAST_VECTOR_GAIN_S / 2, True),
        ("allgatherv", LEAST_VECTOR_GAIN_S / 2, False),
        ("allgatherv", LEAST_VECTOR_GAIN_S * 2, True),
        ("allgatherv", None, True),
    ],
)
def test_plans_must_gain_more_than_agreeing_on_counts_costs(
    kind: str, gain_s: float | None, is_kept: bool
) -> None:
    choice: Any = SimpleNamespace(native=False)
    chosen_s = None if gain_s is None else 1.0
    decision = Decision(choice, "ring", "is faster", 1.0 + (gain_s or 0.0), chosen_s)
    call: Any = SimpleNamespace(kind=kind)
    found = if_paid(call, decision)
    if is_kept:
        assert found is decision
    else:
        assert found.choice.native
        assert found.why == "ring gains less than agreeing on counts costs"
        assert found.native_s == decision.native_s


