"""Files of recorded runs: the results of ``collplan run --predict`` and the times of all tasks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from collplan.executors.cost import Timeline, simulate
from collplan.planner.arrays import Floats
from collplan.planner.formats.output_files import write_text
from collplan.planner.plan.plan import Op
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError, naming
from collplan.specs.loading import parse_spec
from collplan.specs.syntax.documents import Limits, read_document

if TYPE_CHECKING:
    from collplan.measure.task_times import TaskTimes

MOST_TASKS: Final = 1_000_000
"""Largest number of tasks of a recorded plan."""
_LIMITS: Final = Limits(1 << 26, 3 * MOST_TASKS)

Json = dict[str, Any]
_Number = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_Error = Annotated[float, Field(strict=True, allow_inf_nan=False)] | None


class _Phase(BaseModel):
    """A phase in the output of a run."""

    name: str
    measured_s: _Number
    simulated_s: _Number
    error: _Error


class _Document(BaseModel):
    """The fields that the output of a run has at least."""

    library: str
    ranks: _Number
    bytes: _Number
    median_s: _Number
    native_median_s: _Number
    predicted_s: _Number
    measured_s: _Number
    prediction_error: _Error
    phases: list[_Phase]


@dataclass(frozen=True, eq=False, slots=True)
class Recording:
    """A recorded run.

    Parameters
    ----------
    document : dict
        Output of ``collplan run --predict --json``.
    timeline : Timeline or None
        Simulation of the plan that ran; None if tasks were not recorded.
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        Measured start and end of each task in ns; empty if tasks were not recorded.
    """

    document: Json
    timeline: Timeline | None
    start_ns: Floats
    end_ns: Floats

    @property
    def count(self) -> int:
        """The count of the collective that ran."""
        assert self.timeline is not None, "tasks were not recorded"
        assert self.timeline.plan.spec is not None, "only plans of specs are recorded"
        return self.timeline.plan.spec.collective.count

    @property
    def measured(self) -> Timeline:
        """The timeline with measured times in place of simulated ones.

        A receive is posted long before its message is sent. Its start in this timeline is
        therefore that of the send.
        """
        timeline = self.timeline
        assert timeline is not None, "tasks were not recorded"
        start = self.start_ns
        sent = start[timeline.partner]
        begin = np.where(timeline.plan.op == Op.RECV, np.maximum(start, sent), start)
        return replace(timeline, start_ns=np.minimum(begin, self.end_ns), end_ns=self.end_ns)

    @property
    def finishes(self) -> tuple[Floats, Floats]:
        """Simulated and measured end of each rank in s, as two arrays of shape (n_ranks,)."""
        assert self.timeline is not None, "tasks were not recorded"
        plan = self.timeline.plan
        ends = np.zeros((2, plan.n_ranks))
        for own, end_ns in zip(ends, (self.timeline.end_ns, self.end_ns), strict=True):
            np.maximum.at(own, plan.rank, end_ns / 1e9)
        return ends[0], ends[1]


def recording_of(document: Json, timeline: Timeline, times: TaskTimes) -> Recording:
    """Return the recording of a run from its document, simulation and measured times."""
    return Recording(document, timeline, times.start_ns, times.end_ns)


def write_recording(path: Path, recording: Recording) -> None:
    """Write a recording as JSON.

    Raises
    ------
    CollplanError
        If the plan has more than `MOST_TASKS` tasks, or the file cannot be written.
    """
    timeline = recording.timeline
    assert timeline is not None, "tasks were recorded"
    assert timeline.plan.spec is not None, "only plans of specs are recorded"
    n_tasks = timeline.plan.n_tasks
    if n_tasks > MOST_TASKS:
        raise CollplanError(
            f"--record: the plan has {n_tasks:,} tasks, a recording at most {MOST_TASKS:,}; "
            f"record a smaller plan"
        )
    tasks = {
        "spec": timeline.plan.spec.model_dump(mode="json"),
        "start_ns": np.rint(recording.start_ns).astype(np.int64).tolist(),
        "end_ns": np.rint(recording.end_ns).astype(np.int64).tolist(),
    }
    write_text(path, json.dumps(recording.document | tasks, allow_nan=False, default=str) + "\n")


def read_recording(path: Path, spec: PlanSpec) -> Recording:
    """Read a recorded run from a file.

    Parameters
    ----------
    path : Path
        File that ``collplan run --predict`` has written by ``--record``, or its output with
        ``--json``.
    spec : PlanSpec
        Spec whose machine and collective the recording must have; the count may differ.

    Raises
    ------
    CollplanError
        If the file is not a recording, or one of another machine or collective.
    """
    found = read_document(path, "recording", _LIMITS)
    try:
        _Document.model_validate(found, strict=True)
    except ValidationError:
        raise CollplanError(
            f"--measured: {path} is not what 'collplan run --predict' writes by --record or "
            f"prints by --json; give such a file"
        ) from None
    if found["ranks"] != spec.machine.n_ranks:
        raise CollplanError(
            f"--measured: {path} is of {found['ranks']} ranks, the spec has "
            f"{spec.machine.n_ranks}; run the spec itself"
        )
    tasks = {name: found.pop(name, None) for name in ("spec", "start_ns", "end_ns")}
    if all(one is None for one in tasks.values()):
        return Recording(found, None, np.empty(0), np.empty(0))
    timeline = _simulated(path, spec, tasks["spec"])
    start_ns, end_ns = (_times(path, name, tasks[name], timeline.plan.n_tasks)
                        for name in ("start_ns", "end_ns"))  # fmt: skip
    if (end_ns < start_ns).any():
        raise CollplanError(f"--measured: {path} has a task that ends before it starts; run again")
    return Recording(found, timeline, start_ns, end_ns)


def _simulated(path: Path, spec: PlanSpec, document: Any) -> Timeline:
    """Check the spec of a recording, and return the simulation of its plan."""
    from collplan.planner.compiler.compile import compile_plan

    before = f"--measured: {path}: spec: "
    with naming(before):
        own = parse_spec(document)
    for what in ("machine", "collective"):
        theirs, ours = getattr(own, what), getattr(spec, what)
        if what == "collective" and ours.has_data and ours.kind == theirs.kind:
            theirs = theirs.with_count(ours.count)
        if theirs != ours:
            raise CollplanError(
                f"--measured: {path}: {what} differs from the spec's; run the spec itself"
            )
    with naming(before):
        return simulate(compile_plan(own))


def _times(path: Path, name: str, values: Any, n_tasks: int) -> Floats:
    """Check the times of all tasks, and return them as an array in ns."""
    if (
        not isinstance(values, list)
        or len(values) != n_tasks
        or not all(type(one) is int and 0 <= one < 1 << 62 for one in values)
    ):
        raise CollplanError(
            f"--measured: {path}: {name} is not a list of {n_tasks} times in ns, as the plan has "
            f"tasks; record with this collplan"
        )
    return np.array(values, dtype=np.float64)
