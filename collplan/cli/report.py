"""``collplan report``: which algorithm, on this machine, and why, as a page for a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

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
    parse_counts,
)
from collplan.cli.options import split_list as split
from collplan.reports.output import Document, print_result, require_folder
from collplan.specs import PlanSpec
from collplan.specs.documents import require_regular
from collplan.specs.errors import CollplanError
from collplan.specs.request import Method

SECONDS: Final = 10.0
"""Default limit of the time that each processor works, in seconds."""
_FACTORS: Final = (64, 8)
"""Divisors of the spec's own size that give the smaller sizes by default."""
_MOST_BYTES: Final = 1 << 25
"""Size of a recording that is read at most."""
_NUMBERS: Final = (
    "ranks", "bytes", "median_s", "native_median_s", "predicted_s", "measured_s",
)  # fmt: skip


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
        "FILE", "What 'collplan run --predict --json' printed, to show beside the prediction."
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
    measured = None if options.measured is None else read_recording(options.measured, spec)
    counts = _default_counts(spec) if options.sizes is None else parse_counts(options.sizes, spec)
    patterns = [] if options.candidates is None else split(options.candidates)
    comparison = compare_with_progress(
        [spec.with_count(count) for count in counts],
        patterns=patterns,
        seconds=options.seconds,
        scheduler=options.dask,
        others=others,
    )
    sources = list(map(str, options.sources))
    write_html(options.output, spec, comparison, sources, measured)
    document = {
        "output": str(options.output),
        "bytes": options.output.stat().st_size,
        "leading": {str(size): name for size, name in comparison.leading.items()},
    }
    print_result(document, f"wrote {options.output}", as_json=options.as_json)
    return 0


def _read_specs(paths: list[Path]) -> tuple[PlanSpec, dict[str, Method]]:
    """Return the first spec, and the methods of the others by the names of their files."""
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


def _default_counts(spec: PlanSpec) -> list[int]:
    """Return the spec's own count, and smaller and larger ones where the collective has them."""
    own = spec.collective.count
    wanted = sorted({*(own // factor for factor in _FACTORS), own, own * 8} - {0})
    itemsize = spec.collective.itemsize
    try:
        sizes = ",".join(str(count * itemsize) for count in wanted)
        counts = parse_counts(sizes, spec) if wanted else [own]
        for count in counts:
            spec.with_count(count)
    except CollplanError:
        return [own]
    return counts


def read_recording(path: Path, spec: PlanSpec) -> Document:
    """Return what a run recorded.

    Raises
    ------
    CollplanError
        If the file holds no recording, or one of another number of ranks.
    """
    require_regular(path, "recording")
    if path.stat().st_size > _MOST_BYTES:
        raise CollplanError(f"--measured: {path} has more than {_MOST_BYTES} bytes; it is none")
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not _is_recording(found):
        raise CollplanError(
            f"--measured: {path} is not what 'collplan run --predict --json' prints; "
            f"redirect its output into a file"
        )
    if found["ranks"] != spec.machine.n_ranks:
        raise CollplanError(
            f"--measured: {path} is of {found['ranks']} ranks, the spec has "
            f"{spec.machine.n_ranks}; run the spec itself"
        )
    return dict(found)


def _is_recording(found: Any) -> bool:
    def is_number(value: Any) -> bool:
        is_real = isinstance(value, int | float) and not isinstance(value, bool)
        return is_real and 0 <= value < float("inf")

    def is_error(value: Any) -> bool:
        return value is None or (is_number(abs(value)) if isinstance(value, int | float) else False)

    if not isinstance(found, dict) or not all(is_number(found.get(key)) for key in _NUMBERS):
        return False
    phases = found.get("phases")
    return (
        isinstance(found.get("library"), str)
        and is_error(found.get("prediction_error"))
        and isinstance(phases, list)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and is_number(one.get("measured_s"))
            and is_number(one.get("simulated_s"))
            and is_error(one.get("error"))
            for one in phases
        )
    )
