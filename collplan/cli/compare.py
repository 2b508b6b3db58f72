"""``collplan compare``: comparison of all candidates of a collective over message sizes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.cli.inputs import open_spec
from collplan.cli.options import (
    CountSizes,
    DaskScheduler,
    Json,
    Options,
    Spec,
    flag,
    option,
    output_file,
    plot_file,
    split_list,
)
from collplan.cli.workers import workers
from collplan.reports.output import print_json, print_line, print_result
from collplan.reports.progress import progress_bar, shows_progress, spinner
from collplan.select.sizes import counts_of
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.reports.recording import Recording
    from collplan.select.compared import Comparison


class CompareOptions(Options):
    """Options of ``collplan compare``."""

    source: Spec
    sizes: CountSizes = None
    candidates: str | None = option(
        "NAME,...", "Only these candidates, by name or family, like 'ring,full_lane*,mesh'."
    )
    is_all: bool = flag("--all", "Simulate and show all; leave nothing out by bounds.")
    max_tasks: int | None = option("TASKS", "Simulate no larger plans; no limit by default.", min=1)
    seconds: float | None = option(
        "SECONDS", "Time per processor for estimates and simulations; 60 by default.", min=0
    )
    plot: Path | None = plot_file("Draw times against sizes into an SVG, PNG or PDF file.")
    html: Path | None = output_file("Also write a report for a browser into this HTML file.")
    metrics: bool = flag(
        "--metrics", "Alltoall: resources per node of each design, beside the published formulas."
    )
    levels: bool = flag(
        "--levels",
        "Also show the best at each level of collective.reproducible, as is done if the spec names "
        "one. Takes three times as long.",
    )
    dask: DaskScheduler = None
    as_json: Json = False


def command(options: CompareOptions) -> int:
    """Compare all candidates of the spec's collective over a range of sizes.

    Candidates are flat algorithms, decompositions with one leader per node,
    several or all, meshes, and compositions of other collectives, in several
    segment sizes. The report names the candidates that were refused and those
    that were left out, with reasons.
    """
    spec, plot = open_spec(options.source), options.plot
    counts = counts_of(options.sizes, spec)
    specs = [spec.with_count(count) for count in counts]
    patterns = [] if options.candidates is None else split_list(options.candidates)
    if options.metrics:
        return _count_designs(specs, patterns, options)
    comparison = compare_with_progress(
        specs,
        patterns=patterns,
        prune=not options.is_all,
        max_tasks=options.max_tasks,
        scheduler=options.dask,
        has_levels=_has_levels(spec, is_asked=options.levels),
        **({} if options.seconds is None else {"seconds": options.seconds}),
    )
    from collplan.reports.comparison import plot_comparison, print_comparison, reasons, to_json
    from collplan.reports.next_steps import lines_of, next_steps

    steps = next_steps(comparison, str(options.source))
    if options.as_json:
        print_json(to_json(comparison) | {"reasons": reasons(comparison), "next": steps})
    else:
        print_comparison(comparison, is_all=options.is_all)
        for line in lines_of(steps, comparison) if comparison.makespans else ():
            print_line(line)
    # Writing files may fail, for example on a full disk. The result is therefore printed before.
    if plot is not None:
        plot_comparison(plot, spec, comparison)
    if options.html is not None and comparison.makespans:
        write_html(options.html, spec, comparison, [str(options.source)])
    return 0 if comparison.makespans else 1


def _has_levels(spec: PlanSpec, *, is_asked: bool) -> bool:
    """Return whether to compare levels of `reproducible`: if asked for, or if the spec has one."""
    collective = spec.collective
    if is_asked and collective.level is None:
        what = "combines nothing"
        if collective.op is not None:
            what = f"{collective.op.name} of {collective.datatype} does not round"
        raise CollplanError(
            f"--levels: {collective.kind}: {what}, so that all levels are the same; leave it out"
        )
    return is_asked or collective.level not in (None, "ranks")


def compare_with_progress(
    specs: list[PlanSpec], *, scheduler: str | None = None, **options: Any
) -> Comparison:
    """Call `collplan.select.comparison.compare`, and show progress on a terminal.

    If the address or file of a dask scheduler is given, its workers do the work.
    """
    spec = specs[-1]
    title = f"{spec.collective.kind} on {spec.machine.n_ranks} ranks"
    with (
        progress_bar(title, None, shows_progress()) as update,
        workers(spec.machine.n_ranks * len(specs), scheduler) as executor,
    ):
        # Workers start during this import.
        from collplan.select.comparison import compare

        def on_progress(what: str, n_done: int, n: int) -> None:
            update(description=f"{title}: {what}", completed=n_done, total=n)

        return compare(specs, executor, on_progress=on_progress, **options)


def write_html(
    path: Path,
    spec: PlanSpec,
    comparison: Comparison,
    sources: list[str],
    recording: Recording | None = None,
) -> None:
    """Write a report as an HTML file, and show a message on a terminal while it is written."""
    from collplan.reports.html.page import write_report

    with spinner(f"writing {path}"):
        write_report(path, spec, comparison, sources, recording)


def _count_designs(specs: list[PlanSpec], patterns: list[str], options: CompareOptions) -> int:
    from collplan.reports.designs import count_designs, print_designs
    from collplan.select.waves import MAX_TASKS

    if options.plot is not None:
        raise CollplanError("--metrics: there are no times to plot; leave --plot out")
    if options.html is not None:
        raise CollplanError("--metrics: there are no times to report; leave --html out")
    rows = count_designs(specs, options.max_tasks or MAX_TASKS, patterns)
    show = partial(print_designs, specs[0])
    print_result({"metrics": rows}, show, as_json=options.as_json)
    return 0
