"""``collplan profile``: what is counted of programs, and what is said to gain from plans."""

from __future__ import annotations

import importlib
import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from collplan.cli import native_runs
from collplan.cli.native_runs import NativeRun
from collplan.deciding import gains
from collplan.deciding.gains import gains_of
from collplan.specs import Machine
from collplan.tables.sweep import NodePlacement
from collplan.tables.table import save_table
from command_line import CommandLine
from mpi_launching import MPIS, mpi_python, mpiexec_of, run
from native_building import built
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
for _ in range(5):
    for count in (4, 5000):
        out = np.zeros(count)
        comm.Allreduce(np.ones(count), out)
        assert (out == comm.size).all()
    comm.Bcast(out, 0)
comm.Barrier()
comm.Iallreduce(np.ones(4), np.zeros(4)).Wait()
if comm.rank == 0:
    print("passed", *sys.argv[1:])
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    return str(path)


def profile(mpi: str, *words: str) -> tuple[int, list[str], str]:
    done = run([str(mpi_python(mpi)), "-m", "collplan", "profile", *words], 180)
    return done.returncode, done.stdout.splitlines(), done.stderr


def row(**given: Any) -> dict[str, Any]:
    return {"collective": "allreduce", "ranks": 4, "least_bytes": 64, "most_bytes": 64, "calls": 2,
            "seconds": 1.0, "why": "no sweep of allreduce"} | given  # fmt: skip


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_calls_are_counted_by_size_and_judged_by_a_table(
    mpi: str, program: str, tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    save_table(planning_table(2), table)
    words = ["-n", "2", "--table", str(table), "--json", program]
    status, lines, errors = profile(mpi, *words)
    assert status == 0, errors
    assert lines[0] == "passed"
    document = json.loads(lines[-1])
    rows = {(one["collective"], one["most_bytes"]): one for one in document["rows"]}
    counted = {key: one["calls"] for key, one in rows.items()}
    assert counted == {
        ("allreduce", 32): 5, ("allreduce", 40_000): 5, ("bcast", 40_000): 5, ("barrier", 0): 1,
        ("Iallreduce", 32): 1,
    }  # fmt: skip
    assert document["calls"] == 17
    assert document["seconds"] == pytest.approx(sum(one["seconds"] for one in rows.values()))
    small = rows["allreduce", 32]
    placement = NodePlacement(ranks_per_node=(2,))
    chosen = planning_table(2).decide("allreduce", 32, 2, placement, op_commutes=True)
    assert chosen.native_s is not None
    assert chosen.chosen_s is not None
    assert (small["plan"], small["how"]) == (chosen.label, chosen.why)
    assert small["factor"] == chosen.native_s / chosen.chosen_s
    assert 0 <= small["waiting_s"] <= small["seconds"]
    busy_s = small["seconds"] - small["waiting_s"]
    assert small["saved_s"] == pytest.approx(busy_s * (1 - 1 / small["factor"]))
    assert rows["Iallreduce", 32]["factor"] is None
    assert "tune it with --computation" in rows["Iallreduce", 32]["how"]


@pytest.mark.system
def test_native_programs_are_counted_too(tmp_path: Path) -> None:
    mpi = "mpich"
    table = tmp_path / "table.json"
    save_table(planning_table(2), table)
    words = ["-n", "2", "--table", str(table), "--json", str(built(mpi, "calling.c")), "10"]
    status, lines, errors = profile(mpi, *words)
    assert status == 0, errors
    rows = json.loads(lines[-1])["rows"]
    kinds = {one["collective"] for one in rows}
    assert "allreduce" in kinds
    assert all(one["ranks"] <= 2 and one["calls"] > 0 for one in rows)
    assert all(one["most_bytes"] < 2 * max(one["least_bytes"], 1) for one in rows)
    gaining = [one for one in rows if one["plan"] is not None]
    assert gaining
    assert all(one["how"].startswith("won at") for one in gaining)


@pytest.mark.system
def test_native_calls_whose_counts_differ_have_the_bytes_of_rank_0() -> None:
    mpi = "openmpi"
    status, lines, errors = profile(mpi, "-n", "2", "--json", str(built(mpi, "vectors.c")))
    assert status == 0, errors
    assert lines[0] == "passed"
    rows = {one["collective"]: one for one in json.loads(lines[-1])["rows"]}
    found = {kind: (one["most_bytes"], one["calls"]) for kind, one in rows.items()}
    assert found == {
        "gatherv": (8, 3), "scatterv": (16, 3), "allgatherv": (24, 3), "alltoallv": (32, 3),
    }  # fmt: skip


@pytest.mark.system
def test_the_model_judges_without_a_table_and_the_status_is_the_programs(program: str) -> None:
    status, lines, errors = profile("mpich", "-n", "2", program, "3")
    assert status == 3, errors
    text = "\n".join(lines)
    assert "passed 3" in text
    assert "by the model" in text
    assert "rank 0 of 2: 17 calls" in text


def test_what_nobody_knows_is_said() -> None:
    cluster = Machine(nodes=2, ranks_per_node=2)
    rows = [
        row(collective="Alltoallw", why="calls with a datatype per rank are native"),
        row(collective="alltoallv", seconds=2.0),
        row(collective="Reduce_scatter_block_init", why="the table has no plan", seconds=2.5),
        row(ranks=1, seconds=3.0),
        row(ranks=2, seconds=4.0),
        row(most_bytes=0, least_bytes=0, seconds=5.0),
    ]
    found = gains_of(rows, 4, None, cluster)
    assert [one.how.partition(":")[0] for one in found] == [
        "nothing to move",
        "the placement of this communicator's ranks is not known",
        "one rank alone",
        "only the start of the call was timed",
        "counts differ per rank",
        "calls with a datatype per rank are native",
    ]
    assert all(one.plan is None and one.saved_s == 0 for one in found)


def test_rows_of_one_size_are_added_up_and_the_model_names_a_plan() -> None:
    found = gains_of([row(), row(why="x", calls=3)], 4, None, None)
    (one,) = found
    assert (one.calls, one.seconds) == (5, 2.0)
    assert one.plan is not None
    assert one.factor is not None
    assert one.factor > 1
    assert one.saved_s == pytest.approx(2.0 * (1 - 1 / one.factor))


def test_what_cannot_be_profiled_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    collplan = CommandLine(tmp_path, capsys)
    assert "-n: is missing" in collplan("profile", program).error()
    assert "no such file; give a program" in collplan("profile", "-n", "2", "no.py").error()
    assert "no such file" in collplan("profile", "-n", "2", "--table", "no", program).error()


@pytest.mark.system
def test_ranks_that_run_already_are_refused(program: str) -> None:
    python = mpi_python("mpich")
    inner = [str(python), "-m", "collplan", "profile", program]
    done = run([str(mpiexec_of(python)), "-n", "2", *inner])
    assert done.returncode != 0
    assert "profile: starts the ranks itself" in done.stderr


@pytest.mark.parametrize(("factor", "plan"), [(1.5, "ring"), (1.1, "ring"), (1.04, None)])
def test_plans_that_gain_a_twentieth_are_named(
    factor: float, plan: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(
        sizes=[64], call="native", leading={64: "ring"},
        makespans={("native", 64): factor, ("ring", 64): 1.0},
    )  # fmt: skip
    monkeypatch.setattr(gains, "compare", lambda specs, seconds: found)
    row = {"collective": "bcast", "most_bytes": 64}
    name, gain, _ = gains._by_model(row, Machine(ranks_per_node=4))
    assert (name, gain) == (plan, factor if plan else 1.0)


def test_a_terminal_says_what_takes_time_and_the_last_line_measures_what_was_called(
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said: list[str] = []

    def say(text: str) -> AbstractContextManager[None]:
        said.append(text)
        return nullcontext()

    def run_natively(*_: object) -> NativeRun:
        said.append("the program runs")
        rows = [row(), row(most_bytes=8192, ranks=2)]
        return NativeRun(0, {"rows": rows}, None, "")

    judged = "ring", 1.5, "by the model"
    module = importlib.import_module("collplan.cli.profile")
    monkeypatch.setattr(module, "announce_compiling", lambda: say("announced"))
    monkeypatch.setattr(module, "spinner", say)
    monkeypatch.setattr(module, "run_natively", run_natively)
    monkeypatch.setattr(gains, "_by_model", lambda *_: judged)
    lines = CommandLine(tmp_path, capsys)("profile", "-n", "4", program).out.splitlines()
    assert said == ["announced", "the program runs", "comparing the calls with plans"]
    assert lines[-1] == (
        "measure it: collplan tune -n 4 --collectives allreduce --ranks 2,4 --sizes 64,8192 "
        "-o table.yaml"
    )


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_that_calls_nothing_is_named_unless_it_fails(
    status: int,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(native_runs, "run_again", lambda *_, **__: status)
    outcome = CommandLine(tmp_path, capsys)("profile", "-n", "2", program)
    if status:
        assert (outcome.status, outcome.out, outcome.err) == (status, "", "")
    else:
        assert "app.py: called no collective that could be counted" in outcome.error()
