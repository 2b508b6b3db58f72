"""The HTML page of a recorded run: measured and predicted timelines, and their differences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

from collplan.reports.html.assembly import (
    answered,
    assemble,
    reproduction,
    section,
    wide_table,
    write_page,
)
from collplan.reports.html.machine_picture import describe, picture_of
from collplan.reports.html.views import drawing, measured_view, simulated_view
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.recording import Recording

MEASURED: Final = "measured run"
PREDICTED: Final = "its prediction"
_NOTE: Final = "A measured receive is drawn from the moment when its message was sent."

Json = dict[str, Any]


def write_run(path: Path, recording: Recording, source: str, cpu: str) -> None:
    """Write a recorded run and its prediction as one HTML file that loads no other files.

    Parameters
    ----------
    path : Path
        File to write.
    recording : Recording
        Recording with the times of all tasks.
    source : str
        Name of the file of the spec or plan that ran.
    cpu : str
        Description of the processors.

    Raises
    ------
    CollplanError
        If the file cannot be written.
    """
    timeline, document = recording.timeline, recording.document
    assert timeline is not None, "tasks were recorded"
    spec = timeline.plan.spec
    assert spec is not None, "only plans of specs are predicted"
    kind, machine, size = spec.collective.kind, spec.machine, int(document["bytes"])
    answer = list(_answer(recording))
    data = {
        "size": size,
        "sizes": [size],
        "labels": {str(size): format_bytes(size)},
        "answers": {str(size): answer},
        "views": recorded_views(recording),
    }
    file = shlex.quote(source)
    commands = [
        f"collplan run {file} -n {machine.n_ranks} --predict --html {shlex.quote(str(path))}",
        f"collplan cost {file}",
    ]
    text = assemble(
        f"{kind} on {machine.n_ranks:,} ranks, measured and predicted",
        f"Measured with {document['library']} on {cpu}. The model: {describe(machine)}.",
        [
            answered(answer),
            section("choice"),
            section("timeline", note=_NOTE),
            measured_section(recording),
            section("graph"),
            section("costs", title="Where the time goes, as predicted"),
            section("machine", machine=drawing(picture_of(machine))),
            reproduction(commands, [("The spec of the plan", spec.to_yaml())]),
        ],
        data,
    )
    write_page(path, text)


def recorded_views(recording: Recording) -> list[Json]:
    """Return the views of a run and of its prediction; an empty list without recorded tasks."""
    timeline = recording.timeline
    if timeline is None:
        return []
    views = [
        measured_view(MEASURED, recording.measured),
        simulated_view(PREDICTED, timeline.plan, timeline).document,
    ]
    return [{"size": int(recording.document["bytes"]), **view} for view in views]


def measured_section(recording: Recording) -> str:
    """Return the section with the predicted and measured times of phases and ranks."""
    run = recording.document
    whole = {"name": "whole", "error": run["prediction_error"]}
    whole |= {"measured_s": run["measured_s"], "simulated_s": run["predicted_s"]}
    rows = [
        (str(one["name"]), *_cells(one["simulated_s"], one["measured_s"], one["error"]))
        for one in (*run["phases"], whole)
    ]
    head = ("predicted", "measured", "error")
    tables = wide_table("Times of phases", ("phase", *head), rows, named=True)
    if recording.timeline is not None:
        ranks = [
            (f"rank {rank}", *_cells(one, other, one / other - 1 if other > 0 else None))
            for rank, (one, other) in enumerate(zip(*recording.finishes, strict=True))
        ]
        ends = wide_table("Ends of ranks", ("ends", *head), ranks, named=True)
        tables += f"<details><summary>When each rank ends</summary>{ends}</details>"
    text = escape(
        f"Recorded on {run['ranks']} ranks with {run['library']}, {format_bytes(run['bytes'])}. "
        f"Median of the plan {format_seconds(run['median_s'])}, of the native collective "
        f"{format_seconds(run['native_median_s'])}. An error is predicted minus measured "
        "time, divided by measured time."
    )
    return section("measured", text=text, tables=tables)


def _cells(predicted_s: float, measured_s: float, error: float | None) -> tuple[str, str, str]:
    said = "" if error is None else f"{error:+.1%}"
    return format_seconds(predicted_s), format_seconds(measured_s), said


def _answer(recording: Recording) -> Iterator[str]:
    """Generate sentences on the results of the run."""
    run = recording.document
    predicted, measured = run["predicted_s"], run["measured_s"]
    error = run["prediction_error"]
    if error is None:
        yield "All measured times are zero."
    else:
        how = "longer" if error >= 0 else "shorter"
        yield (
            f"The prediction of {format_seconds(predicted)} is {abs(error):.0%} {how} than the "
            f"{format_seconds(measured)} of the median recorded run."
        )
    verdict = {
        True: f"The results are correct, checked against {run.get('checked_against')}.",
        False: "The results are WRONG.",
        None: "The results were not checked.",
    }
    yield verdict[run.get("correct")]
    if run["median_s"] > 0:
        factor = run["native_median_s"] / run["median_s"]
        yield (
            f"Timed without recording, the plan takes {format_seconds(run['median_s'])}, and is "
            f"{factor:.2f} times as fast as the native collective of {run['library']}, "
            f"{format_seconds(run['native_median_s'])}."
        )
    if len(run["phases"]) > 1:
        worst = max(run["phases"], key=lambda one: abs(one["simulated_s"] - one["measured_s"]))
        yield (
            f"Phases differ most in {worst['name']}: predicted "
            f"{format_seconds(worst['simulated_s'])}, measured "
            f"{format_seconds(worst['measured_s'])}."
        )
