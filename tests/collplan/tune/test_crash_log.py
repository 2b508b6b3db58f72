"""Candidates that hang or crash: they end a run, and later ones leave them out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.main import main
from collplan.tables.table import load_table
from collplan.tune.crash_log import NOTE_BYTES, Attempt, CrashLog, Failure
from collplan.tune.journal import JournalState, open_state
from folders import PROGRAMS
from mpi_launching import mpi_python, mpiexec_of, run
from tuned import FINGERPRINT, JOB, begun, some_selection, verdict_of

LAUNCH = "collplan.executors.mpi.launch"
SWEEP = "bcast on 2 x 2 ranks block"


def crash_log(folder: Path) -> CrashLog:
    return CrashLog(folder / "t.yaml")


def test_a_run_that_ended_in_a_candidate_is_remembered(tmp_path: Path) -> None:
    """Whoever kills runs may do so at any moment: only the third one is the candidate's fault."""
    assert crash_log(tmp_path).find() is None
    suspect = None
    for n_ended in (1, 2):
        run_of = crash_log(tmp_path)
        run_of.begin(suspect)
        assert run_of.find() is None
        run_of.note(SWEEP, 64, "ring")
        run_of.note(SWEEP, 64, "chain")
        suspect = crash_log(tmp_path).find()
        assert suspect == Attempt(SWEEP, 64, "chain", n_ended)
    last = crash_log(tmp_path)
    last.begin(suspect)
    last.note(SWEEP, 1024, "chain")
    assert crash_log(tmp_path).find() == Attempt(SWEEP, 1024, "chain", 1)
    last.note(SWEEP, 64, "chain")
    reason = "3 runs ended while it ran"
    assert crash_log(tmp_path).find() == Failure(SWEEP, 64, "chain", reason)
    last.clear()
    assert crash_log(tmp_path).find() is None
    last.remove()
    assert list(tmp_path.iterdir()) == []


def test_blame_is_certain_and_the_first_counts(tmp_path: Path) -> None:
    one = crash_log(tmp_path)
    one.begin()
    failure = Failure(SWEEP, 64, "chain", "did not end within 60 s")
    with one.noting_faults():
        one.note(SWEEP, 64, "binomial")  # rank 0 is done with the chain, others are not
        assert one.blame(failure)
        assert not one.blame(Failure(SWEEP, 64, "ring", "another reason"))
    assert crash_log(tmp_path).find() == failure


def test_of_ranks_that_give_up_at_once_one_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both had written when both looked, so neither was the first, and nobody said why."""
    one = crash_log(tmp_path)
    one.begin()
    write = os.write

    def write_before_another_rank(descriptor: int, line: bytes) -> int:
        written = write(descriptor, line)
        with one.path.open("ab") as others:
            others.write(line)
        return written

    with one.noting_faults():
        monkeypatch.setattr(os, "write", write_before_another_rank)
        assert one.blame(Failure(SWEEP, 64, "chain", "did not end within 60 s"))
        monkeypatch.undo()
        assert not one.blame(Failure(SWEEP, 64, "chain", "did not end within 60 s"))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Fatal Python error: Segmentation fault", "crashed: Segmentation fault"),
        ("Fatal Python error: Bus error", "crashed: Bus error"),
        # So libraries end where another rank is gone.
        ("Fatal Python error: Aborted", None),
        ("collplan: nonsense", None),
        ("[node0] some library's words", None),
    ],
)
def test_what_fatal_signals_leave_is_read(tmp_path: Path, said: str, found: str | None) -> None:
    one = crash_log(tmp_path)
    one.begin()
    one.note(SWEEP, 64, "chain")
    content = one.path.read_bytes()
    assert len(content) == NOTE_BYTES
    one.path.write_bytes(content + said.encode() + b"\n\nCurrent thread 0x01:\n  File ...\n")
    expected = Failure(SWEEP, 64, "chain", found) if found else Attempt(SWEEP, 64, "chain", 1)
    assert crash_log(tmp_path).find() == (None if "nonsense" in said else expected)


def test_failed_candidates_are_kept_with_what_is_measured(tmp_path: Path) -> None:
    journal, goals = begun(tmp_path)
    one = crash_log(tmp_path)
    one.begin()
    with one.noting_faults():
        one.blame(Failure(SWEEP, 64, "chain", "did not end within 60 s"))

    def opened() -> JournalState:
        again = crash_log(tmp_path)
        return open_state(journal, goals, JOB, FINGERPRINT, restart=False, crash_log=again)

    # Whatever ends the next runs: the failure is in the journal, once.
    (failure,) = opened().failures
    assert opened().failures == (failure,)
    state = opened()
    bcast, reduce = goals
    reason = "at 64 bytes: did not end within 60 s"
    assert state.failed_of(bcast) == {"chain": reason}
    assert state.failed_of(reduce) == {}
    # It was found at 64 bytes, and is tried at no other size.
    for size in (64, 1024):
        verdict = verdict_of("native", native=2.0)
        verdict.wrong["ring"] = "rank 0, element 0: got 1"
        state = state.after(bcast, size, some_selection("chain", "ring"), verdict)
    (sweep,) = state.table.sweeps
    assert sweep.complete
    wrong = "wrong result: rank 0, element 0: got 1"
    assert [point.failed for point in sweep.points] == [{"chain": reason, "ring": wrong}] * 2
    restarted = open_state(
        journal, goals, JOB, FINGERPRINT, restart=True, crash_log=crash_log(tmp_path)
    )
    assert restarted.failures == ()


@pytest.mark.system
def test_runs_go_on_without_who_failed(tmp_path: Path) -> None:
    """Under mpiexec: one run hangs, another one crashes, the third completes the table."""
    python = mpi_python("mpich")
    output = tmp_path / "t.yaml"
    line = [str(mpiexec_of(python)), "-n", "2", str(python), str(PROGRAMS / "failing.py")]
    line += ["binary=hang,scatter_allgather=crash", "tune", "-o", str(output)]
    line += ["--collectives", "bcast", "--sizes", "64B", "--least", "6", "--most", "6"]
    line += ["--keep-within", "100"]
    one, other, whole = (run([*line, "--give-up", "5"]) for _ in range(3))
    assert 0 not in (one.returncode, other.returncode)
    where = "bcast on 1 node of 2 ranks, 64 bytes"
    endless, crashed = "did not end within 5 s", "crashed: Segmentation fault"
    assert f"collplan: {where}: binary: {endless}; the run ends here" in one.stderr + other.stderr
    assert whole.returncode == 1, whole.stderr
    assert f"FAILED: {where}: binary: {endless}\n" in whole.stdout
    assert f"FAILED: {where}: scatter_allgather: {crashed}\n" in whole.stdout
    (point,) = load_table(output).sweeps[0].points
    failed = {"binary": f"at 64 bytes: {endless}", "scatter_allgather": f"at 64 bytes: {crashed}"}
    assert point.failed == failed
    assert not failed.keys() & point.times.keys()
    assert len(point.times) > 2
    assert [path.name for path in tmp_path.iterdir()] == ["t.yaml"]


def test_the_command_goes_on_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ranks it started end once more, each time for another candidate, then it is done."""
    mpi_python("mpich")
    output = tmp_path / "t.yaml"
    failing = ["chain", "linear"]
    lines: list[list[str]] = []

    def relaunch(program: list[str], n_ranks: int, timeout_s: float | None, **_: Any) -> int:
        lines.append(program)
        ranks = CrashLog(output)
        ranks.begin()
        if not failing:
            ranks.remove()
            return 1  # as it is where candidates failed
        with ranks.noting_faults():
            ranks.blame(Failure(SWEEP, 64, failing.pop(0), "did not end within 60 s"))
        return 3

    monkeypatch.setattr(f"{LAUNCH}.jobs.relaunch", relaunch)
    monkeypatch.setattr(f"{LAUNCH}.environment.is_under_mpi", lambda: False)
    assert main(["tune", "-o", str(output), "-n", "2", "--restart"]) == 1
    assert ["--restart" in line for line in lines] == [True, False, False]
    assert capsys.readouterr().err.splitlines() == [
        f"collplan: {SWEEP}, 64 bytes: {name}: did not end within 60 s; going on without it"
        for name in ("chain", "linear")
    ]


def test_a_failure_of_another_run_does_not_start_ranks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks that refuse their arguments have not begun, and leave what is there."""
    mpi_python("mpich")
    output = tmp_path / "t.yaml"
    earlier = CrashLog(output)
    earlier.begin()
    with earlier.noting_faults():
        earlier.blame(Failure(SWEEP, 64, "chain", "did not end within 60 s"))
    statuses = [2]
    monkeypatch.setattr(f"{LAUNCH}.jobs.relaunch", lambda *_, **__: statuses.pop())
    monkeypatch.setattr(f"{LAUNCH}.environment.is_under_mpi", lambda: False)
    assert main(["tune", "-o", str(output), "-n", "2"]) == 2
    assert isinstance(CrashLog(output).find(), Failure)
