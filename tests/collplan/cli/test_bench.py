"""``collplan bench``: what the benchmarks do on ranks, and what the command makes of it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collplan.cli.bench import lanes
from collplan.measure.guideline import measure_guideline
from collplan.specs import PlanSpec
from command_line import CommandLine
from emulating import emulate, need_emulation
from folders import ROOT
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run

NODES = {"machine": {"nodes": 2, "ranks_per_node": 2}}
TWO = {"machine": {"nodes": 2}}
UNEVEN = {"machine": {"nodes": 2, "ranks_per_node": [2, 1], "rank_order": "cyclic"}}
CANDIDATES = ["hierarchical", "full_lane", "best", "hierarchical native", "full_lane native"]
STATISTICS = {"median_s", "mean_s", "ci95_s", "min_s"}


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "n_ranks"), [("mpich", 4), ("openmpi", 3)])
def test_benchmarks_on_ranks(mpi: str, n_ranks: int) -> None:
    assert_passes(mpirun(n_ranks, "benching.py", mpi=mpi))


def bench(mpi: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(mpi_python(mpi)), "-m", "collplan", "bench", *map(str, arguments)]
    return run(command)


def document_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the one JSON object on standard output, and nothing else is there."""
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.system
def test_lane_pattern_reports_rows_and_plots(collplan: CommandLine) -> None:
    spec, picture = collplan.write_spec(**NODES), collplan.folder / "lanes.svg"
    done = bench(
        "mpich", "lane-pattern", "--nodes-from", spec, "--sizes", "64KiB,5", "--inner", 3,
        "--repetitions", 4, "--plot", picture, "--progress", "--json",
    )  # fmt: skip
    document = document_of(done)
    assert "measuring" in done.stderr
    assert {key: document[key] for key in ("ranks", "nodes", "ranks_per_node", "idle_ranks")} == {
        "ranks": 4,
        "nodes": 2,
        "ranks_per_node": 2,
        "idle_ranks": 0,
    }
    assert (document["inner"], document["repetitions"]) == (3, 4)
    assert document["library"].startswith("MPICH")
    found = [(row["bytes"], row["lanes"]) for row in document["rows"]]
    assert found == [(5, 1), (5, 2), (65536, 1), (65536, 2)]
    for row in document["rows"]:
        assert set(row) == {"bytes", "lanes", "speedup"} | STATISTICS
        low, high = row["ci95_s"]
        assert low <= row["median_s"] <= high
        assert 0 < row["min_s"] <= row["median_s"]
    one, two = document["rows"][2:]
    assert one["speedup"] == 1
    assert two["speedup"] == pytest.approx(one["median_s"] / two["median_s"])
    text = picture.read_text()
    assert all(f">{word}<" in text for word in ("1 lane", "2 lanes", "64 KiB"))


@pytest.mark.system
def test_multi_collective_on_uneven_nodes_says_who_is_idle(collplan: CommandLine) -> None:
    spec = collplan.write_spec(**UNEVEN)
    arguments = ["multi-collective", "--collective", "allreduce", "--nodes-from", spec]
    done = bench("openmpi", *arguments, "--sizes", "4KiB", "--repetitions", 2)
    assert done.returncode == 0, done.stderr
    assert "allreduce on each lane: 2 nodes, 3 ranks, Open MPI" in done.stdout
    assert "1 of each take part; idle: 1 of 3" in done.stdout
    assert "slowdown" in done.stdout
    assert "1 lane " in done.stdout
    assert "2 lanes" not in done.stdout


@pytest.mark.system
def test_guideline_names_candidates_and_findings(collplan: CommandLine) -> None:
    collective = {"kind": "allgather", "count": 3, "datatype": "int32"}
    spec = collplan.write_spec(**TWO, collective=collective)
    other = collplan.write_spec("bruck.yaml", **TWO, collective=collective, algorithms="bruck")
    arguments = ["guideline", spec, "--candidate", f"mine={other}", "--repetitions", 3]
    picture = collplan.folder / "guideline.png"
    document = document_of(
        bench("mpich", *arguments, "--json", "--sizes", "4,40", "--plot", picture)
    )
    names = ["native", *CANDIDATES, "mine"]
    assert [row["candidate"] for row in document["rows"]] == names * 2
    assert [row["bytes"] for row in document["rows"]] == [4] * 7 + [40] * 7
    for row in document["rows"]:
        named = {"bytes", "candidate", "factor", "faster", "violation", "wrong", "plan"}
        assert set(row) == named | STATISTICS
        assert row["wrong"] is None
    assert document["rows"][1]["plan"] == "hierarchical; auto"
    assert document["rows"][5]["plan"] == "full_lane; native"
    assert document["rows"][6]["plan"] == "flat; bruck"
    assert document["correct"] is True
    assert document["violations"] == sum(row["violation"] for row in document["rows"])
    assert (document["nodes"], document["ranks"]) == (1, 2)
    assert document["refused"] == []
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.system
def test_guideline_table_shows_refusals(collplan: CommandLine) -> None:
    """A candidate that cannot serve is a line of the table, not the end of it."""
    kinds = {"machine": {"ranks_per_node": 3}, "collective": {"kind": "allgather", "count": 3}}
    spec = collplan.write_spec(**kinds)
    mine = collplan.write_spec("mine.yaml", **kinds, algorithms="recursive_doubling")
    done = bench("mpich", "guideline", spec, "--candidate", f"mine={mine}", "--repetitions", 2)
    assert done.returncode == 0, done.stderr
    assert "allgather on 3 ranks, 1 node, MPICH" in done.stdout
    assert "refused: mine: allgather/recursive_doubling: 3 ranks is not a power" in done.stdout
    assert " native " in done.stdout
    assert "best: " in done.stdout
    assert "2 repetitions in turns" in done.stdout


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "kind"), [("mpich", "bcast"), ("openmpi", "exscan")])
def test_guideline_on_one_rank(mpi: str, kind: str, collplan: CommandLine) -> None:
    """Nothing has to move: every candidate is right, and takes some time."""
    collective = {"kind": kind, "count": 3, "datatype": "int32"}
    spec = collplan.write_spec(
        machine={"ranks_per_node": 1}, collective=collective, algorithms="auto"
    )
    document = document_of(bench(mpi, "guideline", spec, "--repetitions", 2, "--json"))
    assert (document["nodes"], document["ranks"], document["correct"]) == (1, 1, True)
    names = [row["candidate"] for row in document["rows"]]
    assert names == ["native", *CANDIDATES]
    assert document["refused"] == []
    assert all(row["min_s"] > 0 and row["factor"] > 0 for row in document["rows"])


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_guideline_on_an_emulated_cluster(mpi: str, collplan: CommandLine) -> None:
    need_emulation()
    spec = collplan.folder / "bcast.yaml"
    spec.write_text("collective: {kind: bcast, count: 1, datatype: int32}\n")
    arguments = ["--sizes", "0,4KiB", "--repetitions", "2", "--json"]
    arguments += ["--plot", str(collplan.folder / "bcast.svg")]
    document = document_of(run(on_two_nodes(mpi, 1, "guideline", str(spec), *arguments)))
    assert (document["nodes"], document["ranks"], document["correct"]) == (2, 2, True)
    names = ["native", *CANDIDATES]
    found = [(row["bytes"], row["candidate"]) for row in document["rows"]]
    assert found == [(size, name) for size in (0, 4096) for name in names]
    assert ">0 B<" in (collplan.folder / "bcast.svg").read_text()


@pytest.mark.system
def test_lanes_of_an_emulated_cluster() -> None:
    """MPI says which ranks share a node."""
    need_emulation()
    arguments = ["--sizes", "0,4KiB", "--inner", "1", "--repetitions", "2", "--json"]
    document = document_of(run(on_two_nodes("mpich", 2, "lane-pattern", *arguments)))
    assert (document["nodes"], document["ranks_per_node"], document["idle_ranks"]) == (2, 2, 0)
    found = [(row["bytes"], row["lanes"]) for row in document["rows"]]
    assert found == [(size, k) for size in (0, 4096) for k in (1, 2)]


def on_two_nodes(mpi: str, per_node: int, *arguments: str) -> list[str]:
    cluster = ["--nodes", "2", "--per-node", str(per_node), "--lanes", "2", "--rate", "100Mbit"]
    return [*emulate(mpi), *cluster, "--", "python", "-m", "collplan", "bench", *arguments]


@pytest.mark.system
def test_what_was_measured_is_printed_before_a_plot_fails(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={})
    done = bench("mpich", "guideline", spec, "--repetitions", 2, "--plot", "/proc/plot.svg")
    assert done.returncode == 2
    assert "allreduce on 1 rank" in done.stdout
    assert "collplan: error: /proc/plot.svg: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.system
def test_sizes_beyond_memory_end_all_ranks(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2})
    done = bench("mpich", "lane-pattern", "--nodes-from", spec, "--sizes", "1024TiB")
    assert done.returncode == 2
    assert "collplan: error: Unable to allocate" in done.stderr
    assert "give smaller --sizes" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.system
def test_a_rank_complains_for_all(collplan: CommandLine) -> None:
    """Under mpiexec every rank sees the mistake; one says it, and all end."""
    command = [str(mpiexec_of(mpi_python("mpich"))), "-n", "2", str(mpi_python("mpich"))]
    done = run([*command, "-m", "collplan", "bench", "lane-pattern", "--sizes", "4KiB"])
    assert done.returncode == 2
    lines = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(lines) == 1, done.stderr
    assert "one node has all ranks (2), lanes join two or more" in lines[0]
    done = run([*command, "-m", "collplan", "bench", "lane-pattern", "--sizes", "much"])
    assert done.returncode == 2
    assert done.stderr.count("'much' is not a size") == 1
    spec = collplan.write_spec(**NODES)
    done = run([*command, "-m", "collplan", "bench", "guideline", str(spec)])
    assert done.returncode == 2
    assert done.stderr.count("needs 4 ranks, the MPI world has 2; start it with -n 4") == 1


@pytest.mark.system
def test_a_wrong_result_is_exit_status_1(collplan: CommandLine, tmp_path: Path) -> None:
    """With an operation that forgets its left operand, plans are not what native computes."""
    spec = collplan.write_spec(machine={"ranks_per_node": 2})
    (tmp_path / "sitecustomize.py").write_text(
        "from collplan.programs import compiling_together\n"
        "from collplan.planner import compile_plan\n"
        "from collplan.specs import Operation\n"
        "def broken(spec, **options):\n"
        "    other = spec.collective.replace(op=Operation(name='max'))\n"
        "    return compile_plan(spec.replace(collective=other), **options)\n"
        "compiling_together.compile_plan = broken\n"
    )
    python, path = mpi_python("mpich"), f"{tmp_path}{os.pathsep}{ROOT}"
    command = [str(python), "-m", "collplan", "bench", "guideline", str(spec)]
    done = run([*command, "--repetitions", "2"], PYTHONPATH=path)
    assert done.returncode == 1, done.stderr
    assert "WRONG: rank 0, element 0: got " in done.stdout
    assert "violation x" not in done.stdout
    assert "faster x" not in done.stdout


@pytest.mark.parametrize("name", ["lane-pattern", "multi-collective", "guideline"])
def test_each_has_help(name: str, collplan: CommandLine) -> None:
    page = collplan("bench", name, "--help")
    assert page.status == 0
    assert page.out.startswith(f"Usage: collplan bench {name} ")
    assert all(option in page.out for option in ("--json", "--plot", "--sizes", "--repetitions"))
    assert f"  {name} " in collplan("bench", "--help").out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("", "Missing command"),
        ("lane-patern", "No such command 'lane-patern'"),
        ("lane-pattern", "-n: is missing outside mpiexec; say how many ranks to start"),
        ("lane-pattern -n 4 --sizes 1XB", "--sizes: '1XB' is not a size"),
        ("lane-pattern -n 4 --repetitions 1", "--repetitions"),
        ("lane-pattern -n 4 --plot lanes.eps", "--plot: lanes.eps ends with .eps"),
        ("lane-pattern -n 3 --nodes-from {spec}", "-n: 3 ranks, but the machine of {spec} has 4"),
        ("multi-collective -n 4 --sizes 6", "--sizes: 6 is not a multiple of the 4 bytes of int32"),
        ("multi-collective -n 4 --collective alltoal", "did you mean 'alltoall'?"),
        ("multi-collective -n 4 --collective barrier", "a barrier moves nothing over the lanes"),
        (
            "multi-collective -n 4 --collective gatherv",
            "the blocks of lanes are equal, those of gatherv are not; give gather",
        ),
        ("guideline", "Missing argument 'SPEC'"),
        ("guideline nowhere.yaml", "nowhere.yaml: no such file"),
        ("guideline {spec} -n 8", "-n: 8 ranks, but machine has 4 on 2 nodes"),
        ("guideline {spec} --sizes 6", "--sizes: 6 is not a multiple of the 4 bytes of int32"),
        ("guideline {spec} --sizes 1024TiB", "--sizes: "),
        ("guideline {spec} --candidate {spec}", "is not a NAME=SPEC; give it as mine=mine.yaml"),
        ("guideline {spec} --candidate best={spec}", "there is a 'best' already"),
        ("guideline {spec} --candidate a={spec} --candidate a={spec}", "there is a 'a' already"),
        ("guideline {spec} --candidate a={other}", "{other} is of another collective"),
        ("guideline {spec} --candidate a={small}", "{small} is for 3 ranks, the guideline for 4"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_before_any_rank_starts(
    arguments: str, problem: str, collplan: CommandLine
) -> None:
    files = {
        "spec": collplan.write_spec(**NODES),
        "other": collplan.write_spec("other.yaml", **NODES, collective={"kind": "barrier"}),
        "small": collplan.write_spec("small.yaml", machine={"ranks_per_node": 3}),
    }
    outcome = collplan("bench", *arguments.format(**files).split())
    assert problem.format(**files) in outcome.error()


def test_times_of_lanes_are_printed_and_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = []
    monkeypatch.setattr(lanes, "plot_rows", lambda *what, **words: drawn.append((what, words)))
    path, rows = Path("plot.svg"), [{"lanes": 1}, {"lanes": 2}]
    options: Any = SimpleNamespace(as_json=True, plot=path, title="lanes", size_label="bytes")
    lanes._show(options, {"rows": rows, "library": "MPI"})
    assert json.loads(capsys.readouterr().out) == {"rows": rows, "library": "MPI"}
    words = {"title": "lanes, MPI", "size_label": "bytes"}
    assert drawn == [((path, rows, ["1 lane", "2 lanes"]), words)]


@pytest.mark.ranks(1, 2)
def test_a_violation_is_a_native_mock_up_that_is_right_and_faster(comm: MPI.Intracomm) -> None:
    """Times are given here: native takes 4 s, the mock-up 2 s, and the others 1 s and 8 s."""
    collective = {"kind": "allreduce", "count": 0, "datatype": "int32"}
    spec = PlanSpec.model_validate(
        {"machine": {"ranks_per_node": comm.size}, "collective": collective}
    )
    candidates = {
        "mock-up": spec.replace(algorithms="native"),
        "fast": spec.replace(algorithms="ring"),
        "slow": spec.replace(algorithms="recursive_doubling"),
        "refused": spec.replace(algorithms={"name": "packed"}),
    }
    called: list[str] = []

    def watch(name: str, call: Any) -> None:
        called.append(name)
        call()

    def times(_comm: object, calls: list[Any], repetitions: int, **_: object) -> Any:
        assert repetitions == 9
        return np.repeat([[4.0], [2.0], [1.0], [8.0]][: len(calls)], repetitions, axis=1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("collplan.measure.guideline.time_in_turns", times)
        found = measure_guideline(comm, spec, candidates, [5, 0], repetitions=9, watch=watch)
    assert found.is_correct
    assert called == 2 * ["native", "mock-up", "fast", "slow"]
    assert [(one.bytes, one.candidate) for one in found.refused] == [
        (20, "refused"),
        (0, "refused"),
    ]
    rows = [(row.bytes, row.candidate, row.factor, row.faster, row.violation) for row in found.rows]
    assert rows == [
        (n_bytes, *row)
        for n_bytes in (20, 0)
        for row in (
            ("native", 1.0, False, False),
            ("mock-up", 2.0, True, True),
            ("fast", 4.0, True, False),
            ("slow", 0.5, False, False),
        )
    ]
    assert [row.plan is None for row in found.rows] == 2 * [True, False, False, False]
    assert "ring" in str(found.rows[2].plan)
    assert [row.summary.median_s for row in found.rows[:4]] == [4, 2, 1, 8]
    assert found.checked_against == ["numpy", "numpy"]
    row = found.rows[1].to_json()
    assert (row["median_s"], row["wrong"], row["violation"]) == (2, None, True)
