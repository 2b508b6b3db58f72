"""Tables that are there already: what is asked for is added, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collplan.specs import Allreduce, Bcast, CollplanError, Gather
from collplan.specs.collectives.elements import Operation
from collplan.specs.machines.network import Network
from collplan.tables.table import TuningTable, load_table, save_table
from collplan.tune import journal
from collplan.tune.journal import Journal, JournalState, claimed, open_state
from collplan.tune.options import Goal, TuningJob
from tuned import FINGERPRINT, JOB, begun, some_selection, verdict_of


def measured(state: JournalState, goals: Sequence[Goal], native_s: float = 2.0) -> JournalState:
    """Measure all that is missing."""
    for goal in goals:
        for size in state.missing(goal):
            verdict = verdict_of("native", native=native_s)
            state = state.after(goal, size, some_selection(), verdict)
    return state


def table_there(folder: Path, job: TuningJob = JOB, **changes: Any) -> TuningTable:
    """Write a table of what is asked for, and return it."""
    journal, goals = begun(folder, job)
    now = FINGERPRINT.replace(**changes)
    state = measured(open_state(journal, goals, job, now, restart=False), goals)
    save_table(state.table, journal.output)
    return state.table


def opened(folder: Path, job: TuningJob) -> tuple[JournalState, Journal, list[Goal]]:
    journal, goals = begun(folder, job)
    return open_state(journal, goals, job, FINGERPRINT, restart=False), journal, goals


def test_a_complete_table_is_kept(tmp_path: Path) -> None:
    there = table_there(tmp_path)
    state, journal, goals = opened(tmp_path, JOB)
    assert state.table == there
    assert all(state.missing(goal) == [] for goal in goals)
    fewer, _, _ = opened(tmp_path, TuningJob(JOB.collectives[:1], (64,)))
    assert fewer.table == state.table
    journal.output.write_text("nonsense: true")
    with pytest.raises(CollplanError, match=r"it would be replaced; give another --output"):
        opened(tmp_path, JOB)
    fresh = open_state(journal, goals, JOB, FINGERPRINT, restart=True)
    assert fresh.table.sweeps == ()


def test_sweeps_and_sizes_are_added(tmp_path: Path) -> None:
    there = table_there(tmp_path)
    state, _, goals = opened(tmp_path, TuningJob((Gather(count=0), Bcast(count=0)), (64, 4096)))
    gather, bcast = goals
    assert state.missing(gather) == [64, 4096]
    assert state.missing(bcast) == [4096]
    after = measured(state, goals, 3.0).table
    assert [sweep.collective for sweep in after.sweeps] == ["bcast", "reduce", "gather"]
    assert after.sweeps[1] == there.sweeps[1]
    assert [point.bytes for point in after.sweeps[0].points] == [64, 1024, 4096]
    assert after.sweeps[0].points[:2] == there.sweeps[0].points
    assert all(sweep.complete for sweep in after.sweeps)


def test_what_is_there_is_measured_again_if_that_is_said(tmp_path: Path) -> None:
    there = table_there(tmp_path)
    again = TuningJob((Bcast(count=0),), (64,), again=True)
    state, journal, goals = opened(tmp_path, again)
    assert state.table.sweeps == there.sweeps[1:]
    assert state.missing(goals[0]) == [64]
    # What is begun so is gone on with so; the table stays meanwhile.
    state = measured(state, goals, 9.0)
    journal.write(state)
    assert opened(tmp_path, again)[0] == state
    with pytest.raises(CollplanError, match=r"was begun with again yes, now it is none; give"):
        opened(tmp_path, again.__class__((Bcast(count=0),), (64,)))
    assert load_table(journal.output).sweeps == there.sweeps


def test_another_type_or_operation_does_not_replace(tmp_path: Path) -> None:
    table_there(tmp_path, TuningJob((Allreduce(count=0),), (64,)))
    product = Allreduce(count=0, datatype="int32", op=Operation(name="prod"))
    with pytest.raises(CollplanError) as refusal:
        opened(tmp_path, TuningJob((product,), (64,)))
    assert str(refusal.value) == (
        f"{tmp_path / 't.yaml'}: has allreduce on 2 x 2 ranks block measured with float64 sum, "
        "not int32 prod; say --again to replace it, or give another --output"
    )
    state, _, goals = opened(tmp_path, TuningJob((product,), (64,), again=True))
    assert state.table.sweeps == ()
    assert state.missing(goals[0]) == [64]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lanes": 2}, r"tuned for a machine with lanes None, here it is 2; give the same"),
        ({"numa_domains": 2}, r"with numa_domains 1, here it is 2; give the same --machine"),
        ({"network": Network(burst_bytes=1)}, r"a machine with another network; give the same"),
    ],
)
def test_another_model_of_the_machine_is_not_added_to(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    table_there(tmp_path)
    job = TuningJob((Gather(count=0),), (64,), **changes)
    journal, goals = begun(tmp_path, job)
    now = FINGERPRINT.replace(lanes=job.lanes)
    with pytest.raises(CollplanError, match=message):
        open_state(journal, goals, job, now, restart=False)


def test_another_machine_is_not_added_to(tmp_path: Path) -> None:
    table_there(tmp_path, mpi="MPICH 4")
    with pytest.raises(CollplanError, match=r"measured with mpi MPICH 4, here is MPICH 5; give"):
        opened(tmp_path, TuningJob((Gather(count=0),), (64,)))


def test_those_who_waited_for_a_removed_lock_hold_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_LOCK_POLL_S", 0.001)
    table, holders, most = tmp_path / "t.yaml", [0], [0]

    def tune() -> None:
        for _ in range(20):
            with claimed(table, patience_s=60):
                holders[0] += 1
                most[0] = max(most[0], holders[0])
                # Others wait for this file, which is removed at the end.
                time.sleep(0)
                holders[0] -= 1

    threads = [threading.Thread(target=tune) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_held_is_said(tmp_path: Path) -> None:
    with (
        claimed(tmp_path / "t.yaml"),
        pytest.raises(CollplanError, match="another run is tuning it"),
        claimed(tmp_path / "t.yaml", patience_s=0),
    ):
        pass
    with pytest.raises(CollplanError, match="cannot be written"), claimed(tmp_path / "no" / "t"):
        pass
