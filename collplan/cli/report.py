"""``collplan report``: comparison of algorithms on a machine as an HTML page, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collplan.cli.compare import compare_with_progress, write_html
from collplan.cli.inputs import open_spec
from collplan.cli.options import (
    CountSizes,
    DaskScheduler,
    Json,
    Options,
    option,
    output_file,
)
from collplan.cli.options import split_list as split
from collplan.reports.output import print_result, require_folder
from collplan.select.sizes import counts_of
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError
from collplan.specs.request import Method

if TYPE_CHECKING:
    from collplan.reports.recording import Recording

SECONDS: Final = 10.0
"""Default time limit of estimates and simulations per processor, in seconds."""
_FACTORS: Final = (64, 8)
"""Divisors of the spec's size, which give the smaller default sizes."""


class ReportOptions(Options):
    """Options of ``collplan report``."""

    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SPEC...", help="Specs of one collective on one machine."),
    ]
    output: Path = output_file("The HTML file.", "-o", "--output", default=...)
    sizes: CountSizes = None
    candidates: str | None = option(
        "NAME,...", "Only these candidates, by name or family, like 'ring,full_lane*,mesh'."
    )
    seconds: float = option(
        "SECONDS", "Time per processor for estimates and simulations.", default=SECONDS, min=0
    )
    measured: Path | None = option(
        "FILE", "What 'collplan run --predict --record' wrote, to show beside the prediction."
    )
    dask: DaskScheduler = None
    as_json: Json = False


def command(options: ReportOptions) -> int:
    """Compare all candidates, and write which wins, by how much, and why, as one HTML file.

    The page needs no network and no server. It has the machine, the best plans as
    graphs and timelines, times over sizes, and where the time goes. Methods of further specs
    are candidates, too. Sizes are the spec's own, and a few around it by default.
    """
    require_folder("--output", options.output)
    spec, others = _read_specs(options.sources)
    recording = _read_recording(options.measured, spec)
    counts = _default_counts(spec) if options.sizes is None else counts_of(options.sizes, spec)
    if recording is not None and recording.timeline is not None:
        counts = sorted({*counts, recording.count})
    patterns = [] if options.candidates is None else split(options.candidates)
    comparison = compare_with_progress(
        [spec.with_count(count) for count in counts],
        patterns=patterns,
        seconds=options.seconds,
        scheduler=options.dask,
        others=others,
    )
    sources = list(map(str, options.sources))
    write_html(options.output, spec, comparison, sources, recording)
    document = {
        "output": str(options.output),
        "bytes": options.output.stat().st_size,
        "leading": {str(size): name for size, name in comparison.leading.items()},
    }
    print_result(document, f"wrote {options.output}", as_json=options.as_json)
    return 0


def _read_specs(paths: list[Path]) -> tuple[PlanSpec, dict[str, Method]]:
    """Return the first spec, and the methods of the other specs by the stems of their files."""
    spec, others = open_spec(paths[0]), {}
    for path in paths[1:]:
        other = open_spec(path)
        for what in ("machine", "collective"):
            one, two = getattr(spec, what), getattr(other, what)
            if what == "collective" and one.has_data:
                two = two.with_count(one.count) if two.kind == one.kind else two
            if one != two:
                raise CollplanError(
                    f"{path}: {what} differs from that of {paths[0]}; a report is on one {what}, "
                    f"write one for each"
                )
        name = path.stem
        while name in others:
            name += "'"
        others[name] = other.method
    return spec, others


def _read_recording(path: Path | None, spec: PlanSpec) -> Recording | None:
    if path is None:
        return None
    from collplan.reports.recording import read_recording

    return read_recording(path, spec)


def _default_counts(spec: PlanSpec) -> list[int]:
    """Return the spec's count with smaller and larger ones; only its own if these are invalid."""
    own = spec.collective.count
    wanted = sorted({*(own // factor for factor in _FACTORS), own, own * 8} - {0})
    itemsize = spec.collective.itemsize
    try:
        sizes = ",".join(str(count * itemsize) for count in wanted)
        counts = counts_of(sizes, spec) if wanted else [own]
        for count in counts:
            spec.with_count(count)
    except CollplanError:
        return [own]
    return counts
