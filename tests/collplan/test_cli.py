"""The commands: what they write, what scripts read from their JSON, exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collplan.cli.group import COMMANDS
from collplan.planner.formats.npz import load, save
from collplan.planner.formats.text import to_text
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import PlanSpec
from command_line import CommandLine
from folders import EXAMPLES, ROOT
from mpi_launching import MPIS, mpi_python, mpiexec_of, run


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


METRICS = (
    "n_tasks",
    "n_messages",
    "n_rounds",
    "bytes_sent_per_rank",
    "bytes_sent_per_node",
    "bytes_sent_per_lane",
    "queue_pairs_per_node",
    "posted_sends_per_node",
    "scratch_bytes_per_node",
)


def test_help_lists_every_command_and_each_has_its_own(collplan: CommandLine) -> None:
    outcome = collplan("--help")
    assert outcome.status == 0
    for name in COMMANDS:
        assert f"  {name} " in outcome.out
        page = collplan(name, "--help")
        assert page.status == 0
        assert page.out.startswith(f"Usage: collplan {name} ")
        assert "--json" in page.out
    assert collplan().out == outcome.out


def test_version_is_that_of_the_package(collplan: CommandLine) -> None:
    from importlib.metadata import version

    assert collplan("--version").out == f"collplan {version('collplan')}\n"


def test_compile_writes_a_plan_and_reports_its_metrics(collplan: CommandLine) -> None:
    output = collplan.folder / "ring.plan"
    document = collplan("compile", collplan.write_spec(), "-o", output, "--json").json()
    plan = load(output)
    assert document["n_tasks"] == plan.n_tasks
    # A ring allreduce on p ranks sends 2(p-1)/p of the vector in 2(p-1) messages per rank.
    assert document["n_messages"] == 4 * 2 * 3
    assert document["bytes_sent_per_rank"] == 2 * 3 * 16
    assert document["n_rounds"] == 6
    assert document["compile_s"] > 0
    assert set(METRICS) <= set(document)
    assert document["bounds"]["bytes_sent_per_rank"] <= document["bytes_sent_per_rank"]


def test_compile_shows_what_each_pass_changes(collplan: CommandLine) -> None:
    spec = collplan.write_spec(passes=[{"name": "segment", "max_bytes": 8}])
    before, after = collplan("compile", spec, "--passes", "--json").json()["passes"]
    assert before["after"] is None
    assert after["after"] == "segment(max_bytes=8)"
    assert after["n_messages"] == 2 * before["n_messages"]
    assert after["makespan_s"] > 0
    assert "segment(max_bytes=8)" in collplan("compile", spec, "--passes").out


def test_verify_proves_specs_and_plans(collplan: CommandLine) -> None:
    for source in (collplan.write_spec(), collplan.compile()):
        outcome = collplan("verify", source, "--json")
        assert outcome.status == 0
        assert outcome.json()["ok"] is True
    assert "proved" in collplan("verify", source).out


def test_verify_says_no_with_a_counter_example(collplan: CommandLine) -> None:
    path = collplan.compile()
    plan = load(path)
    peer = np.array(plan.peer)
    peer[np.flatnonzero(plan.op == Op.SEND)[0]] = 2
    save(plan.replace(peer=peer), path)
    outcome = collplan("verify", path, "--json")
    assert outcome.status == 1
    document = outcome.json()
    assert document["ok"] is False
    assert document["kind"] == "unmatched_send"
    assert "rank 0" in document["error"]
    assert collplan("verify", path).status == 1


def test_a_rank_that_is_none_is_refused_before_warnings(collplan: CommandLine) -> None:
    spec = collplan.folder / "idle.yaml"
    spec.write_text(
        "collective: {kind: reduce, count: 4}\npasses: [{name: split_tree, levels: 1}]\n"
    )
    assert "warning: passes.split_tree" in collplan("show", spec, "--rank", "0").err
    refused = collplan("show", spec, "--rank", "1")
    assert refused.status == 2
    assert refused.err == "collplan: error: --rank: 1 is not a rank; the plan's are 0 to 0\n"


@pytest.mark.parametrize("by", ["auto", "task", "phase", "rank", "node"])
def test_draw_writes_a_picture(collplan: CommandLine, by: str) -> None:
    output = collplan.folder / "ring.svg"
    outcome = collplan("draw", collplan.write_spec(), "-o", output, "--by", by, "--json")
    assert outcome.status == 0
    assert outcome.json()["output"] == str(output)
    assert "<svg" in output.read_text()


def test_draw_writes_timelines(collplan: CommandLine) -> None:
    output, spec = collplan.folder / "both.svg", collplan.write_spec()
    outcome = collplan("draw", spec, "--timeline", "--beside", spec, "-o", output, "--json")
    assert outcome.status == 0
    assert outcome.json()["output"] == str(output)
    assert "critical path" in output.read_text()
    for wrong, said in (
        (("--beside", spec), "--beside: draws a second timeline; give --timeline, too"),
        (("--timeline", "--by", "rank"), "--by: rank is for graphs"),
        (("--timeline", "-o", "plot.dot"), "-o: plot.dot ends with .dot"),
    ):
        refused = collplan("draw", spec, "-o", output, *wrong)
        assert refused.status == 2
        assert said in refused.err


def test_cost_reports_what_scripts_read(collplan: CommandLine) -> None:
    document = collplan("cost", collplan.write_spec(), "--json").json()
    assert document["makespan_s"] > 0
    assert {"critical_path", "lanes", "simulate_s"} <= set(document)
    assert "makespan" in collplan("cost", collplan.write_spec()).out


def test_cost_of_a_goal_file_takes_loggps(collplan: CommandLine) -> None:
    goal = collplan.folder / "one.goal"
    goal.write_text("num_ranks 2\nrank 0 {\na: send 8b to 1\n}\nrank 1 {\nb: recv 8b from 0\n}\n")
    # One eager message: o + L at the sender's side, o + 7 G at the receiver's.
    outcome = collplan("cost", goal, "--loggps", "L=100,o=10,g=1,G=2,O=0,S=65535", "--json")
    assert outcome.json()["makespan_s"] == pytest.approx((10 + 100 + 10 + 7 * 2) * 1e-9)


def test_exported_goal_costs_what_the_plan_costs(collplan: CommandLine) -> None:
    spec = collplan.write_spec(
        machine={"nodes": 4}, collective={"kind": "bcast", "count": 64}, algorithms="binomial"
    )
    goal = collplan.folder / "bcast.goal"
    assert collplan("export", spec, "--to", "goal", "-o", goal, "--json").json()["to"] == "goal"
    loggps = ("--loggps", "L=1000,o=300,g=100,G=1,O=0,S=16", "--json")
    of_plan, of_goal = (collplan("cost", source, *loggps).json() for source in (spec, goal))
    assert of_goal["makespan_s"] == of_plan["makespan_s"]


def test_compare_reports_what_scripts_read(collplan: CommandLine) -> None:
    spec = collplan.write_spec()
    document = collplan("compare", spec, "--sizes", "64B,1MiB", "--all", "--json").json()
    assert {row["bytes"] for row in document["rows"]} == {64, 2**20}
    candidates = {row["candidate"] for row in document["rows"]}
    assert candidates >= {
        "circulant", "reduce_bcast", "ring", "recursive_doubling", "rabenseifner",
    }  # fmt: skip
    for size, best in document["best"].items():
        times = {
            r["candidate"]: r["makespan_s"] for r in document["rows"] if r["bytes"] == int(size)
        }
        assert times[best] == min(times.values())
    assert set(document["best"]) == {"64", str(2**20)}


def test_compare_says_what_is_not_possible(collplan: CommandLine) -> None:
    spec = collplan.write_spec(
        machine={"ranks_per_node": 3},
        collective={"kind": "allgather", "count": 4},
        algorithms="auto",
    )
    document = collplan("compare", spec, "--json").json()
    impossible = ("bine", "recursive_doubling", "neighbor_exchange")
    assert set(document["refused"]) == {*impossible, *(f"{name} shared" for name in impossible)}
    assert {row["bytes"] for row in document["rows"]} == {32}
    reason = "not possible: allgather/neighbor_exchange: 3 ranks is odd"
    assert reason in collplan("compare", spec, "--all").out
    brief = collplan("compare", spec).out
    assert "not possible: 6 candidates; --all gives the reasons" in brief
    assert reason not in brief


def test_show_prints_tasks_of_all_ranks_or_of_one(collplan: CommandLine) -> None:
    path = collplan.compile()
    plan = load(path)
    assert collplan("show", path).out.strip() == to_text(plan).strip()
    document = collplan("show", path, "--rank", 1, "--json").json()
    assert document["tasks"] == [str(task) for task in plan.tasks() if task.rank == 1]


def test_show_says_in_which_stage_and_on_which_core_a_rank_works(collplan: CommandLine) -> None:
    example = EXAMPLES / "overlap_reduce.yaml"
    lines = collplan("show", example, "--rank", 4).out.splitlines()
    ends = ["stage start", "stage start", "core 9", "core 9", "core 4"]
    assert [line.endswith(end) for line, end in zip(lines, ends, strict=True)] == [True] * 5


def test_algorithms_are_listed_with_promises(collplan: CommandLine) -> None:
    rows = collplan("algorithms", "allgather", "--json").json()["algorithms"]
    by_name = {row["name"]: row for row in rows}
    assert by_name["recursive_doubling"]["needs"] == ["2^k ranks"]
    assert by_name["ring"]["needs"] == []
    assert all(row["kind"] == "allgather" and row["summary"] for row in rows)
    assert "knomial" in collplan("algorithms").out


def test_schema_goes_to_a_file_or_to_standard_output(collplan: CommandLine) -> None:
    output = collplan.folder / "schema.json"
    assert collplan("schema", "-o", output, "--json").json() == {"output": str(output)}
    assert collplan("schema").out == output.read_text()
    assert set(collplan("schema", "--json").json()["properties"]) == set(PlanSpec.model_fields)


def test_reader_that_leaves_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m collplan schema | head -c 1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )
    assert done.stdout == "{"
    assert done.stderr == ""


def test_public_names_are_the_layers_own(collplan: CommandLine) -> None:
    import collplan as front
    from collplan.api.compiling import compile_spec
    from collplan.api.examining import simulate

    assert front.compile is compile_spec
    assert front.simulate is simulate
    assert front.Plan is Plan
    assert set(front.__all__) <= set(dir(front))
    with pytest.raises(AttributeError, match="no attribute 'frob'"):
        _ = front.frob


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_run_checks_and_times_under_the_right_mpiexec(collplan: CommandLine, mpi: str) -> None:
    python = mpi_python(mpi)
    spec = collplan.write_spec()
    options = ["-n", "2", "--repetitions", "2", "--timeout", "300", "--json"]
    done = run([str(python), "-m", "collplan", "run", str(spec), *options])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["correct"] is True
    assert document["ranks"] == 2
    assert {"median_s", "native_median_s", "ratio"} <= set(document)


@pytest.mark.system
def test_run_under_mpiexec_just_runs(collplan: CommandLine) -> None:
    python = mpi_python("mpich")
    command = [str(mpiexec_of(python)), "-n", "2", str(python), "-m", "collplan", "run"]
    plan = collplan.compile(machine={"nodes": 2})
    done = run([*command, str(plan), "--repetitions", "1", "--no-check"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not checked") == 1
    wrong = run([*command, str(collplan.write_spec(machine={"nodes": 3})), "--json"])
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr.count("collplan: error: ") == 1
    assert "needs 3 ranks, the MPI world has 2; start it with -n 3" in wrong.stderr


@pytest.mark.system
def test_run_says_no_where_a_result_is_wrong(collplan: CommandLine) -> None:
    python = mpi_python("mpich")
    path = collplan.compile(machine={"nodes": 2})
    plan = load(path)
    # A reduction that takes its left operand twice: legal to run, wrong to believe.
    reads = plan.reads
    row = int(np.flatnonzero(plan.op == Op.REDUCE)[0])
    left, right = reads.indptr[row], reads.indptr[row] + 1
    columns = {}
    for name in ("buffer", "offset"):
        column = np.array(getattr(reads, name))
        column[right] = column[left]
        columns[name] = column
    save(plan.replace(reads=replace(reads, **columns)), path)
    command = [str(python), "-m", "collplan"]
    refused = run([*command, "run", str(path), "--repetitions", "1"])
    assert refused.returncode == 2, refused.stderr
    assert "is refuted" in refused.stderr
    # Larger plans run without a proof.
    unproved = collplan.folder / "unproved.py"
    unproved.write_text(
        "import collplan.planner.passes.registry as registry\nregistry.VERIFY_LIMIT = 0\n"
    )
    done = run([*command, "--import", str(unproved), "run", str(path), "--repetitions", "1"])
    assert done.returncode == 1, done.stderr
    assert "WRONG: rank" in done.stdout


@pytest.mark.system
def test_doctor_says_what_it_looked_at(collplan: CommandLine) -> None:
    mpi_python("mpich")
    outcome = collplan("doctor", "--json")
    document = outcome.json()
    assert outcome.status == (0 if document["ok"] else 1)
    names = {finding["name"] for finding in document["findings"]}
    assert {"MPI library", "mpiexec", "graphviz"} <= names
    assert all(finding["ok"] or finding["advice"] for finding in document["findings"])
