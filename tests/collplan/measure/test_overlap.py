"""``collplan bench overlap``: what it times and simulates, its files, and what it refuses."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.cli.bench.overlap import BenchOverlapOptions
from collplan.executors.cost.traces.states import (
    CoreState,
    CoreStates,
    simulated_states,
    write_states,
)
from collplan.measure.overlap.overlapped import Computation
from collplan.measure.overlap.sweep import (
    BLOCKING,
    OverlapMethod,
    OverlapSweep,
    default_ranks,
    overlap_ratio,
    plan_sweep,
)
from collplan.planner import compile_plan
from collplan.planner.passes.progress.tree_model import best_levels, shape_of
from collplan.specs import Machine
from collplan.specs.errors import CollplanError
from command_line import CommandLine
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run
from paje_checking import Paje

ROW = {"ranks", "method", "levels", "policy", "communication_s", "computation_s", "total_s",
       "overlap"}  # fmt: skip
MEASURED = {"progress", "why_caller", "total_ci95_s"}
NATIVE = ["native, blocking", "native, non-blocking"]


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def methods_of(document: dict[str, Any], n_ranks: int) -> list[str]:
    return [row["method"] for row in document["rows"] if row["ranks"] == n_ranks]


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_overlap_is_measured_for_every_number_of_ranks(mpi: str, tmp_path: Path) -> None:
    """Its own launches: one a number of ranks, and one more where the library can make progress."""
    trace = tmp_path / ("overlap.paje" if mpi == "mpich" else "overlap.json")
    picture = tmp_path / "overlap.svg"
    command = [
        str(mpi_python(mpi)), "-m", "collplan", "bench", "overlap", "--collective", "reduce",
        "--cores", "4", "--ranks", "2", "--bytes", "4KiB", "--computation", "0.0005",
        "--repetitions", "2", "--json", "--trace", str(trace), "--plot", str(picture), "--progress",
    ]  # fmt: skip
    done = run(command, timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert "measuring reduce on 2 ranks\n" in done.stderr
    document = json.loads(done.stdout)
    asynchronous = ["native, asynchronous"] if mpi == "mpich" else []
    assert methods_of(document, 2) == ["blocking", "S=0", "S=1", *NATIVE, *asynchronous]
    for row in document["rows"]:
        assert set(row) == ROW | MEASURED
        times = (row["communication_s"], row["computation_s"], row["total_s"])
        assert min(times) > 0
        assert row["overlap"] == pytest.approx(overlap_ratio(*times))
    # All levels of S=1 are the caller's: that lacks no thread.
    by_method = {row["method"]: (row["progress"], row["why_caller"]) for row in document["rows"]}
    assert by_method["S=0"] == ("thread", None)
    assert {by_method[name] for name in ("S=1", "blocking", *NATIVE)} == {("caller", None)}
    assert {by_method[name] for name in asynchronous} <= {("library", None)}
    known = {key: document[key] for key in ("source", "cores", "bytes", "correct", "blocking_s")}
    assert known == {
        "source": "measured", "cores": 4, "bytes": 4096, "correct": True, "blocking_s": None,
    }  # fmt: skip
    assert document["computation_s"] == 0.0005
    assert document["is_mapped"] == (document["processors"] < 4)
    assert (document["asynchronous"] is None) == (mpi == "openmpi")
    assert ("inside its calls" in (document["why_not_asynchronous"] or "")) == (mpi == "openmpi")
    least = min(document["rows"], key=lambda row: float(row["total_s"]))
    assert [entry["method"] for entry in document["best"]] == [least["method"]]
    assert all(f">{name}<" in picture.read_text() for name in ("S=1", "native, blocking", "ranks"))
    labels = [f"measured, 2 ranks, {name}" for name in methods_of(document, 2)]
    assert states_in(trace, labels) >= {"computation", "communication"}


def states_in(trace: Path, labels: list[str]) -> set[str]:
    """Return the states a trace shows; fails unless it is valid and has these runs."""
    if trace.suffix == ".paje":
        paje = Paje().read(trace.read_text())
        assert set(labels) <= paje.names
        return {value for _, _, value in paje.states}
    events = json.loads(trace.read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert named == labels
    slices = [event for event in events if event["ph"] == "X"]
    assert all(event["dur"] > 0 and event["ts"] >= 0 for event in slices)
    return {event["name"] for event in slices}


@pytest.mark.system
def test_under_mpiexec_the_ranks_that_are_there_are_measured() -> None:
    """Without a computation asked for, the blocking collective on them is scaled to all cores."""
    python = mpi_python("mpich")
    command = [
        str(mpiexec_of(python)), "-n", "2", str(python), "-m", "collplan", "bench", "overlap",
        "--collective", "scan", "--cores", "3", "--bytes", "400", "--repetitions", "2",
        "--policy", "odd_even,bind", "--transport", "messages",
    ]  # fmt: skip
    done = run(command, timeout_s=240)
    assert done.returncode == 0, done.stderr
    assert "scan of 400 B on 3 cores, chain, MPICH" in done.stdout
    for name in ("blocking", "odd_even", "bind", *NATIVE):
        assert f" {name} " in done.stdout
    assert " numa " not in done.stdout
    assert "computation on all cores: " in done.stdout


@pytest.mark.system
def test_overlap_on_ranks() -> None:
    assert_passes(mpirun(2, "overlapping.py", timeout_s=120))


def test_a_wrong_result_is_shown_and_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from collplan.cli.bench.overlap import _show

    row = dict.fromkeys(ROW | MEASURED) | {
        "ranks": 2, "method": "S=0", "progress": "thread", "overlap": 0.5,
        "communication_s": 1.0, "computation_s": 1.0, "total_s": 1.5,
    }  # fmt: skip
    document = {"rows": [row], "states": [], "library": "MPI", "processors": 2,
                "computation_s": 1.0, "wrong": ["S=0: rank 1, element 0: got 1"]}  # fmt: skip
    options, sweep = BenchOverlapOptions(repetitions=2), sweep_of("reduce", 3)
    assert _show(options, sweep, [("methods", document)], None) == 1
    printed = capsys.readouterr().out
    assert "WRONG: S=0: rank 1, element 0: got 1" in printed
    assert "3 cores share 2 processors" in printed
    assert _show(options, sweep, [("methods", document | {"wrong": []})], None) == 0
    assert "WRONG" not in capsys.readouterr().out


def test_other_ranks_than_mpiexec_has_started_are_refused() -> None:
    asked = BenchOverlapOptions(cores=4, ranks="3", n_bytes="4KiB")
    with pytest.raises(CollplanError, match="--ranks: 3, but mpiexec has started 2; leave --ranks"):
        asked.sweep(4, 2)
    assert asked.sweep(4, 3).ranks == (3,)


def test_the_simulated_sweep_has_the_models_best_levels(collplan: CommandLine) -> None:
    arguments = ["--simulate", "--collective", "reduce", "--cores", 10, "--json"]
    document = collplan("bench", "overlap", *arguments).json()
    assert document["source"] == "simulated"
    assert document["computation_s"] == document["blocking_s"] > 0
    assert list(dict.fromkeys(row["ranks"] for row in document["rows"])) == list(range(2, 10))
    for row in document["rows"]:
        assert set(row) == ROW
        assert row["computation_s"] == pytest.approx(document["blocking_s"] * 10 / row["ranks"])
        parts = (row["communication_s"], row["computation_s"])
        longest = sum(parts) if row["method"] == "blocking" else max(parts)
        # Tasks last whole nanoseconds.
        assert longest - 1e-9 <= row["total_s"] <= sum(parts) + 1e-9
    best = {entry["ranks"]: entry["method"] for entry in document["best"]}
    assert best == {n: f"S={best_levels(n, 10)}" for n in range(2, 10)}
    assert all(entry["method"] == f"S={entry['model_levels']}" for entry in document["best"])


def test_a_knomial_tree_has_its_own_best_levels(collplan: CommandLine) -> None:
    arguments = ["--radix", 3, "--levels", "0,1,2,3,4", "--cores", 10]
    document = collplan("bench", "overlap", "--simulate", *arguments, "--json").json()
    assert (document["algorithm"], document["radix"]) == ("knomial", 3)
    best = {entry["ranks"]: entry["method"] for entry in document["best"]}
    assert best == {n: f"S={best_levels(n, 10, shape_of('reduce', 3))}" for n in range(2, 10)}
    lines = collplan("bench", "overlap", "--simulate", "--ranks", 9, *arguments).out
    assert "on 10 cores, knomial with radix 3, simulated" in lines
    sweep = plan_sweep("gather", 4096, Machine(cores=10), [9], radix=3)
    assert sweep.blocking_ratio(9) == (2 * 9 - 1) / (9 - 1)
    assert [one.levels for one in sweep.methods(2)] == [None, 0, 1]
    for kind, words in (("scan", "--radix: scan runs as a chain"), ("allreduce", "are binomial")):
        with pytest.raises(CollplanError, match=words):
            plan_sweep(kind, 4096, Machine(cores=10), [9], radix=3)


def test_the_simulated_table_and_files(collplan: CommandLine) -> None:
    picture, trace = collplan.folder / "overlap.png", collplan.folder / "overlap.json"
    outcome = collplan(
        "bench", "overlap", "--simulate", "--collective", "scan", "--machine", "skylake48",
        "--ranks", "40", "--policy", "numa,odd_even", "--plot", picture, "--trace", trace,
    )  # fmt: skip
    assert outcome.status == 0
    assert "scan of 2 MiB on 48 cores, chain, simulated" in outcome.out
    assert "* the least time of both" in outcome.out
    assert "by the model" not in outcome.out
    assert "progress" not in outcome.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    labels = [f"simulated, 40 ranks, {policy}" for policy in ("numa", "odd_even")]
    assert states_in(trace, labels) == {"computation", "communication"}


def sweep_of(kind: str, n_cores: int, **asked: Any) -> OverlapSweep:
    return plan_sweep(kind, 4096, Machine(cores=n_cores), **asked)


def test_simulated_cores_compute_or_communicate() -> None:
    """With S=0 application cores only compute, for as long as asked; core 4 only communicates."""
    from collplan.executors.cost import simulate

    sweep = sweep_of("reduce", 5)
    plan = compile_plan(sweep.spec(4, OverlapMethod("plan", levels=0), 123_456))
    timeline = simulate(plan, allocated=True)
    states = simulated_states(timeline, plan.spec.machine.network, "run")  # type: ignore[union-attr]
    assert list(states.cores) == [f"core {i}" for i in range(5)]
    for core in range(4):
        assert states.slices(core) == [(CoreState.COMPUTATION, 0, 123_456)]
    busy = states.slices(4)
    assert {state for state, *_ in busy} == {CoreState.COMMUNICATION}
    assert sum(end - begin for _, begin, end in busy) <= timeline.core_busy_ns[0, 4] + 1


def test_states_are_merged_and_computation_prevails(tmp_path: Path) -> None:
    """Two ranks' threads on a core at once are one interval; what is empty is left out."""
    columns = np.array(
        [(0, CoreState.COMMUNICATION, 0, 50), (0, CoreState.COMMUNICATION, 30, 80),
         (0, CoreState.COMPUTATION, 40, 60), (0, CoreState.COMPUTATION, 60, 60),
         (1, CoreState.COMMUNICATION, 20, 20)]
    ).T  # fmt: skip
    states = CoreStates("run", ["core 0", "core 1"], *columns)
    expected = [
        (CoreState.COMMUNICATION, 0, 40),
        (CoreState.COMPUTATION, 40, 60),
        (CoreState.COMMUNICATION, 60, 80),
    ]
    assert states.slices(0) == expected
    assert states.slices(1) == []
    again = pickle.loads(pickle.dumps(states))
    assert again.slices(0) == expected
    path = tmp_path / "run.paje"
    write_states(path, [again])
    seen = [
        (round(at * 1e9), core, state) for at, core, state in Paje().read(path.read_text()).states
    ]
    assert seen == [
        (0, "l0c0", "idle"),
        (0, "l0c1", "idle"),
        (0, "l0c0", "communication"),
        (40, "l0c0", "computation"),
        (60, "l0c0", "communication"),
        (80, "l0c0", "idle"),
    ]


def test_help_names_what_can_be_chosen(collplan: CommandLine) -> None:
    page = collplan("bench", "overlap", "--help")
    assert page.status == 0
    options = ("--collective", "--cores", "--ranks", "--levels", "--policy", "--bytes", "--trace")
    assert all(option in page.out for option in (*options, "--simulate", "--plot", "--json"))
    assert "--job" not in page.out
    assert "  overlap " in collplan("bench", "--help").out


def test_a_trace_of_nothing_is_valid(tmp_path: Path) -> None:
    for name in ("run.paje", "run.json"):
        write_states(tmp_path / name, [])
        assert states_in(tmp_path / name, []) <= {"idle"}


def test_work_is_fixed_and_levels_end_at_the_tree() -> None:
    sweep = sweep_of("reduce", 8)
    assert sweep.computation_s(4, 1.0) == 2.0
    assert [method.name for method in sweep.methods(2)] == ["blocking", "S=0", "S=1"]
    assert [method.name for method in sweep.methods(7)][1:] == ["S=0", "S=1", "S=2", "S=3"]
    assert sweep.blocking_ratio(2) == 3
    assert sweep_of("gather", 8).blocking_ratio(4) == 7 / 3
    assert sweep_of("scan", 9).blocking_ratio(5) == 2
    assert sweep.spec(4, BLOCKING).passes == ()
    assert (sweep.transport, sweep_of("bcast", 8).transport) == ("shared", "messages")
    assert pickle.loads(pickle.dumps(sweep)) == sweep
    assert set(range(40, 48)) <= set(default_ranks(48))


def test_computation_of_no_time_does_nothing() -> None:
    assert Computation(0.0).n_updates == 0
    once, twice = Computation(0.01).n_updates, Computation(0.02).n_updates
    # Speeds differ from one calibration to the next, but not by orders of magnitude.
    assert once > 1000
    assert twice > once / 4
    Computation(0.0)()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--collective alltoall", "'alltoall' is no tree or chain; valid: bcast, reduce"),
        ("--collective redcue", "did you mean 'reduce'?"),
        ("--ranks 4", "--ranks: 4 ranks on 4 cores leave none for communication; use 1 to 3"),
        ("--ranks 0", "--ranks: 0 ranks on 4 cores"),
        ("--ranks 2,x", "--ranks: 'x' is not a whole number"),
        ("--levels 3", "--levels: 3 levels, a tree of 3 ranks has 2; use 0 to 2"),
        ("--levels -1", "--levels: '-1' is not a whole number"),
        ("--policy bind", "--policy: reduce runs as a tree, whose levels split; use --levels"),
        ("--collective scan --levels 1", "--levels: scan runs as a chain, which has none"),
        ("--collective scan --policy even", "--policy: there is no 'even'; valid: bind, numa"),
        ("--bytes 6", "--bytes: 6 bytes are not 1 or more of the 4 bytes of int32"),
        ("--bytes 0", "--bytes: 0 bytes are not 1 or more"),
        ("--bytes 1XB", "--bytes: '1XB' is not a size"),
        ("--bytes 1024TiB", "--bytes: collective.count: 281474976710656 is too large"),
        ("--transport tcp", "--transport: 'tcp' is not a transport; use messages or shared"),
        ("--plot overlap.eps", "--plot: overlap.eps ends with .eps"),
        ("--trace overlap.otf2", "trace: overlap.otf2 ends in .otf2"),
        ("--machine knl63", "'knl63' is not a preset"),
        ("--machine nowhere.yaml", "nowhere.yaml: no such file"),
        ("--machine knl64 --cores 0", "Invalid value for '--cores': Input should be"),
        ("--machine skylake48 --cores 1", "more NUMA domains than cores"),
        ("--cores 2", "--cores: 2 cores have none left beside 2 ranks; give 3 or more"),
    ],
)
def test_mistakes_are_one_line_before_any_rank_starts(
    arguments: str, problem: str, collplan: CommandLine
) -> None:
    words = arguments.split()
    if "--cores" not in words and "--machine" not in words:
        words += ["--cores", "4"]
    assert problem in collplan("bench", "overlap", *words).error()
