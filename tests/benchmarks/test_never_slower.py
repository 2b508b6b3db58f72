"""The never-slower benchmark: when a point fails, what is gained, and what is done only once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.executors.mpi.launch.launcher import find_launcher
from collplan.specs.errors import CollplanError
from collplan.tables.fingerprint import cpu_model
from collplan.tables.table import parse_table, save_table
from folders import BENCHMARKS
from mpi_launching import mpi_python, mpiexec_of, run

sys.path.insert(0, str(BENCHMARKS))

import never_slower
from never_slower import Benchmark, Place, application_rows, parse_options, report
from never_slower_verdicts import gains, verdict_of

NOISE = np.random.default_rng(5).normal(1.0, 0.02, (2, 25))


def point(factor: float, native_s: float = 1e-2, **more: Any) -> dict[str, Any]:
    """Return a point whose drop-in takes `factor` times as long as native, with noise."""
    found = {"collective": "bcast", "bytes": 1 << 18, "winner": "chain", "correct": True}
    native, dropin = NOISE * native_s
    return found | {"native_s": native.tolist(), "dropin_s": (factor * dropin).tolist()} | more


@pytest.mark.parametrize(
    ("factor", "native_s", "word"),
    [
        (0.5, 1e-2, "faster"),
        (1.0, 1e-2, "as allowed"),
        (1.03, 1e-2, "undecided"),  # 3 % and 20 µs are allowed, the interval holds both
        (1.06, 1e-2, "SLOWER"),
        (1.06, 1e-4, "as allowed"),  # by 6 µs
        (1.4, 1e-4, "SLOWER"),  # by 40 µs
    ],
)
def test_a_point_fails_where_its_interval_excludes_the_limit(
    factor: float, native_s: float, word: str
) -> None:
    verdict = verdict_of(point(factor, native_s))
    assert verdict.word == word
    assert verdict.is_failed == (word == "SLOWER")
    assert verdict.ratio[1] <= verdict.ratio[0] <= verdict.ratio[2]
    assert abs(verdict.ratio[0] - factor) < 0.02 * factor


def test_what_is_wrong_fails_however_fast() -> None:
    verdict = verdict_of(point(0.5, correct=False))
    assert (verdict.word, verdict.is_failed) == ("WRONG", True)


def test_rounds_are_pairs_so_that_slow_phases_do_not_matter() -> None:
    found = point(1.2)
    phases = np.where(np.arange(25) % 2, 10.0, 1.0)
    drifting = {key: (np.array(found[key]) * phases).tolist() for key in ("native_s", "dropin_s")}
    verdict = verdict_of(found | drifting)
    assert verdict.is_failed
    assert verdict.ratio[1] > 1.1


def test_gains_are_those_of_long_messages_each_collective_once() -> None:
    exact = point(1) | {"native_s": [4e-2] * 9, "dropin_s": [1e-2] * 9}
    points = [
        exact,
        exact | {"dropin_s": [4e-2] * 9, "bytes": 1 << 20},
        exact | {"bytes": 1024},
        exact | {"collective": "scan"},
        exact | {"collective": "barrier"},
    ]
    found = gains(map(verdict_of, points))
    assert found == pytest.approx({"bcast": 2.0, "scan": 4.0})


def runs(native_s: float, table_s: float, correct: bool = True) -> dict[str, Any]:
    def one(seconds: float) -> dict[str, Any]:
        return {"total_s": 2 * seconds, "communication_s": seconds, "correct": correct}

    return {"native": [one(native_s)] * 2, "table": [one(table_s)] * 2}


def test_applications_have_to_communicate_less() -> None:
    rows, is_good = application_rows({"Jacobi": runs(1.0, 0.7), "Adams": runs(1.0, 0.6)})
    assert is_good
    assert [row[-1] for row in rows] == ["30%", "40%"]
    assert not application_rows({"Jacobi": runs(1.0, 0.5), "Adams": runs(1.0, 0.71)})[1]
    rows, is_good = application_rows({"Adams": runs(1.0, 0.1, correct=False)})
    assert not is_good
    assert rows[0][0] == "Adams: WRONG"
    assert application_rows({"Jacobi": {"native": [], "table": []}}) == ([], True)


def small_table(**more: Any) -> Any:
    """Return a table of this machine for bcast on 2 ranks of one node."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("mpi4py", "numpy", "collplan")}
    fingerprint = {
        "cpu": cpu_model(),
        "cores_per_node": os.cpu_count() or 1,
        "mpi": find_launcher().library.version,
        "mpiexec": "mpich",
        **packages,
    }
    time = {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "n": 9}
    sweep = {
        "collective": "bcast",
        "ranks": 2,
        "placement": {"ranks_per_node": [2]},
        "choices": {"chain": {"algorithms": "chain"}, "native": {"native": True}},
        "points": [
            {"bytes": 64, "times": {"native": time}, "winner": "native"},
            {"bytes": 4096, "times": {"chain": time}, "winner": "chain"},
        ],
        "complete": True,
    }
    return parse_table({"fingerprint": fingerprint, "sweeps": [sweep | more]})


@pytest.mark.system
def test_ranks_measure_every_point_once(tmp_path: Path) -> None:
    python = mpi_python("mpich")
    table, found = tmp_path / "t.yaml", tmp_path / "found.json"
    save_table(small_table(), table)
    line = [str(mpiexec_of(python)), "-n", "2", str(python)]
    line += [str(BENCHMARKS / "never_slower_ranks.py"), str(table), str(found)]
    known = {"bcast 64 native": {"left": "as it is"}}
    found.write_text(json.dumps(known))
    done = run([*line, "--rounds", "12", "--seconds", "1"])
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["bcast, 4096 B: measured"]
    measured = json.loads(found.read_text())
    assert measured.pop("bcast 64 native") == {"left": "as it is"}
    (one,) = measured.values()
    assert (one["collective"], one["bytes"], one["correct"]) == ("bcast", 4096, True)
    assert len(one["native_s"]) == len(one["dropin_s"]) == 12
    assert min(one["native_s"] + one["dropin_s"]) > 0


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    programs: list[list[str]] = []

    def note(place: Place, program: Any, n_ranks: int, timeout_s: float, shown: bool) -> str:
        programs.append([str(n_ranks), *program])
        return json.dumps(runs(1.0, 0.5)["native"][0])

    monkeypatch.setattr(Place, "run", note)
    return programs


def benchmark(folder: Path, *options: str) -> Benchmark:
    return Benchmark(parse_options(["--folder", str(folder), *options]), Place(None))


@pytest.mark.system
def test_only_what_is_missing_is_tuned(tmp_path: Path, recorder: list[list[str]]) -> None:
    asked = benchmark(tmp_path, "--collectives", "bcast,gather", "--sizes", "64B,4KiB")
    asked.tune()
    vectors, blocks = recorder
    assert vectors[:2] == ["4", "-m"]
    assert vectors[vectors.index("--collectives") + 1] == "bcast"
    assert vectors[vectors.index("--sizes") + 1] == "64B,4KiB"
    assert vectors[vectors.index("--ranks") + 1] == "2,4"
    assert blocks[blocks.index("--collectives") + 1] == "gather"
    assert blocks[blocks.index("--sizes") + 1] == "1KiB,16KiB,256KiB"
    recorder.clear()
    wide = small_table()
    four = wide.sweeps[0].replace(ranks=4, placement={"ranks_per_node": (4,)})
    save_table(wide.replace(sweeps=(*wide.sweeps, four)), asked.table)
    bcast = benchmark(tmp_path, "--collectives", "bcast", "--sizes", "64B,4KiB")
    bcast.tune()
    assert recorder == []
    # A run that was stopped is gone on with.
    asked.table.with_name("one-node.yaml.part").touch()
    bcast.tune()
    assert len(recorder) == 1


def test_applications_run_in_turns_as_often_as_is_asked(
    tmp_path: Path, recorder: list[list[str]]
) -> None:
    asked = benchmark(tmp_path, "--repeats", "2")
    asked.measure_applications()
    assert len(recorder) == 2 * 2 * len(never_slower.APPLICATIONS)
    assert ["collplan" in line for line in recorder[:4]] == [False, True, False, True]
    assert all("--json" in line for line in recorder)
    recorder.clear()
    benchmark(tmp_path, "--repeats", "3").measure_applications()
    assert len(recorder) == 2 * len(never_slower.APPLICATIONS)


def test_the_report_says_whether_all_is_as_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = benchmark(tmp_path)
    assert report(asked) == ("", True)
    good, bad = point(0.5), point(1.3, collective="scan")
    asked.found(2).write_text(json.dumps({"a": good}))
    text, is_good = report(asked)
    assert is_good
    assert "| bcast | 256 KiB | chain | " in text
    assert "0 of 1 points failed" in text
    asked.found(4).write_text(json.dumps({"a": good, "b": bad}))
    text, is_good = report(asked)
    assert not is_good
    assert "1 of 2 points failed" in capsys.readouterr().out


@pytest.mark.system
def test_a_program_that_fails_ends_the_benchmark(tmp_path: Path) -> None:
    mpi_python("mpich")
    with pytest.raises(CollplanError, match=r"no_such_program\.py: exit \d+"):
        Place(None).run([str(tmp_path / "no_such_program.py")], 1, 60, shown=False)
