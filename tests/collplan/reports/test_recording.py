"""Recorded runs as files: what is written is read again, and strange files are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collplan
from collplan.planner.plan.plan import Op
from collplan.reports import recording as module
from collplan.reports.recording import Recording, read_recording, write_recording
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError

SPEC = PlanSpec.model_validate(
    {
        "machine": {"nodes": 2, "ranks_per_node": 2},
        "collective": {"kind": "allreduce", "count": 64, "datatype": "int32"},
        "algorithms": "ring",
    }
)
RUN: dict[str, Any] = {
    "ranks": 4, "bytes": 256, "library": "MPICH", "median_s": 1e-3, "native_median_s": 2e-3,
    "predicted_s": 1e-3, "measured_s": 2e-3, "prediction_error": -0.5, "phases": [],
}  # fmt: skip


@pytest.fixture
def recording() -> Recording:
    timeline = collplan.simulate(collplan.compile(SPEC))
    return Recording(RUN, timeline, np.rint(timeline.start_ns), np.rint(3 * timeline.end_ns))


@pytest.fixture
def written(tmp_path: Path, recording: Recording) -> Path:
    path = tmp_path / "run.json"
    write_recording(path, recording)
    return path


def test_what_is_written_is_read_again(written: Path, recording: Recording) -> None:
    found = read_recording(written, SPEC)
    assert found.document == RUN
    assert found.timeline is not None
    assert np.array_equal(found.start_ns, recording.start_ns)
    assert np.array_equal(found.end_ns, recording.end_ns)
    assert found.count == 64
    predicted, measured = found.finishes
    assert len(predicted) == 4
    assert measured.max() == pytest.approx(3 * predicted.max(), rel=1e-3)


def test_a_recording_of_another_size_fits(written: Path) -> None:
    assert read_recording(written, SPEC.with_count(128)).count == 64


def test_receives_begin_with_their_messages(recording: Recording) -> None:
    timeline, measured = recording.timeline, recording.measured
    assert timeline is not None
    recvs = np.flatnonzero(timeline.plan.op == Op.RECV)
    sent = recording.start_ns[timeline.partner[recvs]]
    latest = np.maximum(sent, recording.start_ns[recvs])
    assert np.array_equal(measured.start_ns[recvs], np.minimum(latest, recording.end_ns[recvs]))
    others = timeline.plan.op != Op.RECV
    assert np.array_equal(measured.start_ns[others], recording.start_ns[others])


def test_a_recording_without_tasks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN))
    assert read_recording(path, SPEC).timeline is None


def cut(document: dict[str, Any]) -> None:
    document["end_ns"].pop()


def reverse(document: dict[str, Any]) -> None:
    document["start_ns"][3] = document["end_ns"][3] + 1


def put_float(document: dict[str, Any]) -> None:
    document["start_ns"][0] = 1.5


def put_centuries(document: dict[str, Any]) -> None:
    document["end_ns"][0] = 1 << 62


def other_machine(document: dict[str, Any]) -> None:
    document["spec"]["machine"]["numa_domains"] = 2


def no_spec(document: dict[str, Any]) -> None:
    del document["spec"]


def other_kind(document: dict[str, Any]) -> None:
    document["spec"]["collective"] = {"kind": "bcast", "count": 64, "datatype": "int32"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut, "end_ns is not a list of"),
        (put_float, "start_ns is not a list of"),
        (put_centuries, "end_ns is not a list of"),
        (reverse, "a task that ends before it starts"),
        (other_machine, "machine differs from the spec's"),
        (other_kind, "collective differs from the spec's"),
        (no_spec, "spec: "),
    ],
)
def test_strange_tasks_are_refused_in_one_line(change: Any, words: str, written: Path) -> None:
    document = json.loads(written.read_text())
    change(document)
    written.write_text(json.dumps(document))
    with pytest.raises(CollplanError, match=words) as caught:
        read_recording(written, SPEC)
    assert "\n" not in str(caught.value)


PHASE = {"name": "ring", "measured_s": 2e-3, "simulated_s": 1e-3, "error": -0.5}
NUMBERS = ("ranks", "bytes", "median_s", "native_median_s", "predicted_s", "measured_s")


@pytest.mark.parametrize(
    ("place", "values"),
    [
        *((name, (None, "3", True, -1, float("nan"), float("inf"))) for name in NUMBERS),
        ("library", (None, 5)),
        ("prediction_error", ("0.5", True, float("nan"))),
        ("phases", (None, "ring", [3], [{}], ["ring"])),
        *((f"phases {name}", (None, True, -1, "2")) for name in ("measured_s", "simulated_s")),
        ("phases name", (None, 3)),
        ("phases error", ("0.5", True, float("inf"))),
    ],
)
def test_files_that_are_no_recordings_are_refused(
    place: str, values: tuple[Any, ...], tmp_path: Path
) -> None:
    """Each field is needed, and has values of one kind."""
    path = tmp_path / "run.json"
    whole = RUN | {"phases": [PHASE, PHASE | {"error": None}]}
    path.write_text(json.dumps(whole | {"prediction_error": None}))
    assert read_recording(path, SPEC).document["phases"] == whole["phases"]
    name = place.split()[-1]
    wrong = [lambda one, value=value: one.__setitem__(name, value) for value in values]
    for change in (*wrong, lambda one: one.pop(name)):
        document = json.loads(json.dumps(whole))
        change(document["phases"][1] if " " in place else document)
        path.write_text(json.dumps(document))
        with pytest.raises(
            CollplanError, match=r"is not what 'collplan run --predict' writes|run\.json"
        ):
            read_recording(path, SPEC)


def test_the_file_of_other_ranks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(RUN | {"ranks": 5}))
    with pytest.raises(CollplanError, match="is of 5 ranks, the spec has 4"):
        read_recording(path, SPEC)


def test_each_rank_ends_with_its_last_task(recording: Recording) -> None:
    assert recording.timeline is not None
    plan = recording.timeline.plan
    for ends_s, end_ns in zip(
        recording.finishes, (recording.timeline.end_ns, recording.end_ns), strict=True
    ):
        last = [end_ns[plan.rank == rank].max() for rank in range(4)]
        assert ends_s == pytest.approx(np.array(last) * 1e-9)


def test_plans_of_too_many_tasks_are_not_written(
    tmp_path: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_TASKS", 3)
    with pytest.raises(CollplanError, match="a recording at most 3"):
        write_recording(tmp_path / "run.json", recording)
