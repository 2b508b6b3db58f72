"""``collplan run --predict``: recorded tasks, phases beside the model's, both in one trace."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from collplan.planner.formats.npz import load
from collplan.planner.plan.plan import Op
from command_line import CommandLine
from folders import ROOT
from mpi_launching import MPIS, mpi_python, mpiexec_of, run
from paje_checking import Paje
from perfetto_checking import checked_events

BCAST = {
    "machine": {"ranks_per_node": 2, "nodes": 2},
    "collective": {"kind": "bcast", "count": 500, "datatype": "int32"},
    "decomposition": "hierarchical",
    "algorithms": {"lane": "binomial", "node": "binomial"},
}


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_run_predicts_traces_and_is_recorded_and_shown(
    collplan: CommandLine, mpi: str, tmp_path: Path
) -> None:
    """Both layers in one valid file: in Perfetto's form by one MPI, in Pajé's by the other."""
    python = mpi_python(mpi)
    path = collplan.compile(**BCAST)
    plan = load(path)
    trace = tmp_path / ("both.json" if mpi == "mpich" else "both.paje")
    page, record = tmp_path / "run.html", tmp_path / "run.json"
    options = ["--predict", "--trace", str(trace), "--repetitions", "3", "--timeout", "60"]
    options += ["--html", str(page), "--record", str(record)]
    done = run([str(python), "-m", "collplan", "run", str(path), *options, "--json"], 120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    cost = collplan("cost", path, "--json").json()
    assert document["predicted_s"] == cost["makespan_s"]
    assert document["prediction_error"] == document["predicted_s"] / document["measured_s"] - 1
    assert document["trace"] == str(trace)
    assert len(document["recorded_makespans_s"]) == 3
    assert [phase["name"] for phase in document["phases"]] == list(map(str, plan.phases))
    ends = [phase["measured_end_s"] for phase in document["phases"]]
    assert max(ends) == document["measured_s"]
    n_messages = int(np.count_nonzero(plan.op == Op.SEND))
    if trace.suffix == ".paje":
        assert len(Paje().read(trace.read_text()).links) == 2 * n_messages
    else:
        check_perfetto(trace, plan.n_tasks)
    assert (document["html"], document["record"]) == (str(page), str(record))
    text = page.read_text()
    assert document["library"] in text
    assert "correct, checked against" in text
    assert all(phase["name"] in text for phase in document["phases"])
    assert [one.name for one in tmp_path.glob("run.html*")] == ["run.html"]
    report, spec = tmp_path / "report.html", collplan.write_spec(**BCAST)
    found = collplan("report", spec, "-o", report, "--measured", record, "--candidates", "linear",
                     "--sizes", "8")  # fmt: skip
    assert found.status == 0
    assert "When each rank ends" in report.read_text()


def check_perfetto(path: Path, n_tasks: int) -> None:
    events = checked_events(path.read_text())
    nodes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert set(nodes) == {f"{kind} node {i}" for kind in ("simulated", "measured") for i in (0, 1)}
    measured = {pid for name, pid in nodes.items() if name.startswith("measured")}
    tasks = [e["args"]["task"] for e in events if e["ph"] == "X" and e["pid"] in measured]
    assert sorted(tasks) == list(range(n_tasks))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--predict", "--trace", "both.txt"],
            "both.txt ends in .txt, which is not a trace format",
        ),
        (["--trace", "both.json"], "--trace: shows what --predict finds; add --predict"),
        (["--predict", "--trace", "no/such/both.json"], "there is no folder no/such"),
        (["--html", "run.html"], "--html: shows what --predict finds; add --predict"),
        (["--record", "run.json"], "--record: shows what --predict finds; add --predict"),
        (["--predict", "--html", "no/such/run.html"], "there is no folder no/such"),
    ],
)
def test_files_that_cannot_be_are_refused_in_one_line(
    collplan: CommandLine, options: list[str], words: str
) -> None:
    assert words in collplan("run", collplan.write_spec(), *options).error()


@pytest.mark.system
def test_ranks_refuse_it_with_one_voice(collplan: CommandLine) -> None:
    python = mpi_python("mpich")
    command = [str(mpiexec_of(python)), "-n", "2", str(python), "-m", "collplan", "run"]
    done = run([*command, str(collplan.write_spec()), "--predict", "--trace", "both.txt"])
    assert done.returncode == 2
    assert done.stderr.count("collplan: error: ") == 1
    assert "both.txt ends in .txt" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("module", "name"),
    [("programs.compiling_together", "compile_plan"), ("cli.run", "go_to_core")],
)
def test_a_rank_without_memory_says_so_in_one_line(
    collplan: CommandLine, module: str, name: str, tmp_path: Path
) -> None:
    """A rank without memory for its plan, or only later, when it alone knows."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import collplan.{module} as module\n"
        f"real = module.{name}\n"
        "def exhausted(*arguments, **options):\n"
        "    from mpi4py import MPI\n"
        "    if MPI.COMM_WORLD.rank == 1:\n"
        "        raise MemoryError\n"
        "    return real(*arguments, **options)\n"
        f"module.{name} = exhausted\n"
    )
    python, path = mpi_python("mpich"), f"{tmp_path}{os.pathsep}{ROOT}"
    command = [str(mpiexec_of(python)), "-n", "2", str(python), "-m", "collplan", "run"]
    spec = collplan.write_spec(machine={"ranks_per_node": 2})
    done = run([*command, str(spec), "--repetitions", "1", "--predict"], PYTHONPATH=path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("the plan does not fit into memory; use fewer ranks") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.system
def test_what_was_measured_is_printed_before_a_trace_fails(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"ranks_per_node": 1})
    options = ["--repetitions", "1", "--predict", "--trace", "/proc/both.json"]
    command = [str(mpi_python("mpich")), "-m", "collplan", "run", str(spec)]
    done = run([*command, *options])
    assert done.returncode == 2
    assert "measured: of 1 recorded starts" in done.stdout
    assert "wrote" not in done.stdout
    assert "collplan: error: /proc/both.json: cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_only_rank_of_a_job_runs_a_plan_in_its_process(
    collplan: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collplan.executors.mpi.launch.environment.is_under_mpi", lambda: True)
    spec = collplan.write_spec(machine={}, collective={"kind": "allgather", "count": 50})
    files = {name: tmp_path / f"file.{name}" for name in ("json", "record", "html")}
    options = ["--trace", files["json"], "--record", files["record"], "--html", files["html"]]
    outcome = collplan("run", spec, "--predict", *options, "--json", "--repetitions", 2)
    assert outcome.status == 0, outcome.err
    document = outcome.json()
    assert (document["correct"], document["ranks"], document["bytes"]) == (True, 1, 400)
    assert document["predicted_s"] == collplan("cost", spec, "--json").json()["makespan_s"]
    assert document["trace"] == str(files["json"])
    assert len(document["recorded_makespans_s"]) == 2
    assert all(path.stat().st_size > 100 for path in files.values())
    text = collplan("run", spec, "--predict", *options, "--repetitions", 1).out
    assert [f"wrote {path}" in text for path in files.values()] == [True] * 3
