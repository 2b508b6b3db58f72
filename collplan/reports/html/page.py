"""The HTML page of a comparison, with data, styles and scripts in one file."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any, Final

from collplan.planner.draw.style import format_count
from collplan.planner.errors import PlanError
from collplan.reports.comparison import OWN, curves_of, to_json
from collplan.reports.html.assembly import (
    answered,
    assemble,
    reproduction,
    section,
    table,
    write_page,
)
from collplan.reports.html.machine_picture import describe, picture_of
from collplan.reports.html.run_page import measured_section, recorded_views
from collplan.reports.html.views import View, drawing, view_of
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.recording import Recording
from collplan.reports.words import KINDS, explain, losers
from collplan.select.auto import resolve
from collplan.select.compared import Comparison
from collplan.select.entries import bytes_of
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError

MOST_TASKS: Final = 3_000_000
"""Number of tasks of all views of a report above which further views are left out."""
_TASKS_OF_LARGE: Final = 1_000_000
_AUTO: Final = "auto: "
"""Prefix of the names of views of plans that `auto` chooses."""
_RANKS_OF_ALL: Final = 64
"""Largest number of ranks for which all curves have views, not only the best and references."""

Views = dict[tuple[str, int], View]
Json = dict[str, Any]


def write_report(
    path: Path,
    spec: PlanSpec,
    comparison: Comparison,
    sources: Sequence[str],
    recording: Recording | None = None,
) -> None:
    """Write a comparison as one HTML file that loads no other files.

    Parameters
    ----------
    path : Path
        File to write.
    spec : PlanSpec
        First spec. The page shows its size first, or the largest size if its size was not
        compared.
    comparison : Comparison
        Comparison in which at least one size was simulated.
    sources : sequence of str
        Names of the files of all specs, for the commands that reproduce the report.
    recording : Recording, optional
        Recorded run to show together with its prediction.

    Raises
    ------
    CollplanError
        If nothing was simulated, or the file cannot be written.
    """
    if not comparison.leading:
        raise CollplanError("report: nothing was simulated; give more time with --seconds")
    write_page(path, page(spec, comparison, sources, recording))


def page(
    spec: PlanSpec,
    comparison: Comparison,
    sources: Sequence[str],
    recording: Recording | None = None,
) -> str:
    """Return the text of the page that `write_report` writes."""
    own = bytes_of(spec)
    size = own if own in comparison.leading else max(comparison.leading)
    views = _views(spec, comparison, size)
    data = _document(comparison, views, size)
    kind, machine = spec.collective.kind, spec.machine
    if recording is not None:
        data["views"] += recorded_views(recording)
    return assemble(
        f"{kind} on {machine.n_ranks:,} ranks",
        f"{describe(machine)}. Times are simulated on the machine's model.",
        [
            answered(_answer(comparison, views, size)),
            section("choice"),
            section("sizes", table=_table(comparison), explained=_explained(comparison)),
            section("machine", machine=drawing(picture_of(machine))),
            section("timeline", note=""),
            section("graph"),
            section("costs", title="Where the time goes"),
            "" if recording is None else measured_section(recording),
            _reproduce(spec, comparison, size, sources),
        ],
        data,
    )


def _answer(comparison: Comparison, views: Views, size: int) -> list[str]:
    costs = {name: view.cost for (name, at), view in views.items() if at == size}
    lines = answer(comparison, size, costs)
    time = comparison.makespans[comparison.leading[size], size]
    for name, cost in costs.items():
        if name.startswith(_AUTO) and time > 0:
            factor = cost["makespan_s"] / time
            lines.append(
                f"The spec says auto, which chooses {name.removeprefix(_AUTO)} here: "
                f"{format_seconds(cost['makespan_s'])}, {factor:.2f} times the best."
            )
    return lines


def _views(spec: PlanSpec, comparison: Comparison, first: int) -> Views:
    """Return views of the most interesting plans, until they have more than `MOST_TASKS` tasks."""
    views: Views = {}
    n_tasks = 0
    chosen = list(_chosen(spec, comparison))
    candidates = (
        (name, size, _at(comparison.specs[name], size))
        for name, size in _wanted(spec, comparison, first)
    )
    for name, size, own in chain(chosen, candidates):
        if n_tasks > MOST_TASKS:
            break
        try:
            view = view_of(name, own)
        except (PlanError, MemoryError):
            continue
        n_tasks += view.document["n_tasks"]
        views[name, size] = view
    return views


def _at(spec: PlanSpec, size: int) -> PlanSpec:
    """Return a spec at a size in bytes."""
    return spec if bytes_of(spec) == size else spec.with_count(size // spec.collective.itemsize)


def _chosen(spec: PlanSpec, comparison: Comparison) -> Iterator[tuple[str, int, PlanSpec]]:
    """Generate name, size and spec of the choice of `auto` at every size, if the spec says auto."""
    if spec.decomposition.name != "auto":
        return
    for size in comparison.leading:
        try:
            own = resolve(_at(spec, size))
        except CollplanError:
            continue
        yield f"{_AUTO}{own.method.label}", size, own


def _wanted(spec: PlanSpec, comparison: Comparison, first: int) -> Iterator[tuple[str, int]]:
    sizes = sorted(comparison.leading, key=lambda size: size != first)
    pairs = [
        (name, size)
        for size in sizes
        for name in (comparison.leading[size], *comparison.references)
    ]
    if spec.machine.n_ranks <= _RANKS_OF_ALL:
        pairs += [(name, size) for name in curves_of(comparison) for size in sizes]
    for pair in dict.fromkeys(pairs):
        if pair in comparison.makespans:
            yield pair


def _document(comparison: Comparison, views: Views, size: int) -> Json:
    """Return the data for the page's script."""
    names = {name for name, _ in views if not name.startswith(_AUTO)}
    curves = list(dict.fromkeys([*curves_of(comparison), *sorted(names)]))
    return {
        "size": size,
        "sizes": sorted(comparison.leading),
        "labels": {str(one): format_bytes(one) for one in comparison.sizes},
        "leading": {str(one): name for one, name in comparison.leading.items()},
        "references": list(comparison.references),
        "call": comparison.call,
        "answers": {str(one): _answer(comparison, views, one) for one in comparison.leading},
        "comparison": to_json(comparison),
        "curves": curves,
        "views": [{"size": size, **view.document} for (_, size), view in views.items()],
    }


def _table(comparison: Comparison) -> str:
    """Return a table of the times of curves and libraries, and a list of the crossovers."""
    rows = [
        [
            name + OWN * (name == comparison.own),
            *(_cell(comparison, name, size) for size in comparison.sizes),
        ]
        for name in curves_of(comparison)
    ]
    for library, by_size in comparison.defaults.items():
        times = [by_size[size].time_s if size in by_size else None for size in comparison.sizes]
        rows.append([library, *(format_seconds(one) if one else "" for one in times)])
    bounds = [comparison.bounds[size].time_s for size in comparison.sizes]
    if any(bounds):
        rows.append(["lower bound", *map(format_seconds, bounds)])
    crossed = "".join(
        f"<li>{escape(one.before)} up to {format_bytes(one.low_bytes)}, {escape(one.after)} from "
        f"{format_bytes(one.high_bytes)}</li>"
        for one in comparison.crossovers
    )
    head = ("candidate", *map(format_bytes, comparison.sizes))
    listed = f"<p>The best changes:</p><ul>{crossed}</ul>" if crossed else ""
    return table(head, rows, named=True) + listed


def _cell(comparison: Comparison, name: str, size: int) -> str:
    if (name, size) not in comparison.makespans:
        return ""
    is_best = comparison.leading.get(size) == name
    return format_seconds(comparison.makespans[name, size]) + " (best)" * is_best


def _explained(comparison: Comparison) -> str:
    return "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(explain(name, comparison.specs[name]))}</dd>"
        for name in curves_of(comparison)
    )


def _reproduce(spec: PlanSpec, comparison: Comparison, size: int, sources: Sequence[str]) -> str:
    """Return the section with the commands and specs that reproduce this report."""
    name = comparison.leading[size]
    best = _at(comparison.specs[name], size)
    files = shlex.join(sources)
    sizes = f" --sizes {','.join(map(str, comparison.sizes))}" if any(comparison.sizes) else ""
    commands = [
        f"collplan report {files}{sizes} -o report.html",
        f"collplan compare {shlex.quote(sources[0])}{sizes}",
        "collplan cost best.yaml",
        f"collplan run best.yaml -n {spec.machine.n_ranks} --predict",
    ]
    blocks = (
        (f"The spec, {sources[0]}", spec.to_yaml()),
        (f"best.yaml: {name} at {format_bytes(size)}", best.to_yaml()),
    )
    return reproduction(commands, blocks)


def answer(comparison: Comparison, size: int, costs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the sentences of the answer for one size.

    Parameters
    ----------
    comparison : Comparison
        Comparison that has the candidates.
    size : int
        Size in bytes, one of the comparison's.
    costs : mapping of str to mapping
        Cost reports of candidates that were simulated again at this size, by name.
    """
    if size not in comparison.leading:
        return [f"Nothing was simulated at {format_bytes(size)}."]
    name = comparison.leading[size]
    time = comparison.makespans[name, size]
    is_sure = size in comparison.best
    verb = "wins" if is_sure else "is the best of those simulated"
    lines = [f"{name} {verb} at {format_bytes(size)}: {format_seconds(time)}."]
    lines += _references(comparison, size, name, time)
    bound = comparison.bounds[size]
    if bound.time_s > 0:
        lines.append(
            f"That is {time / bound.time_s:.3g} times the lower bound: on this machine, "
            f"{bound.what} take {format_seconds(bound.time_s)} in any plan."
        )
    else:
        lines.append("No lower bound on the time is known here.")
    if not is_sure:
        rival = comparison.rivals[size][0].candidate
        lines.append(f"{rival} may be better, but was not simulated.")
    if name in costs:
        lines += _why(costs[name])
    lines += losers(comparison, size, costs)
    return lines


def _references(comparison: Comparison, size: int, name: str, time: float) -> Iterator[str]:
    for other in comparison.references:
        if other == name:
            yield f"It is {_role(comparison, other)}."
        elif (other, size) in comparison.makespans and time > 0:
            theirs = comparison.makespans[other, size]
            who = f"{_role(comparison, other)} ({other})"
            yield f"It is {theirs / time:.2f} times as fast as {who}, {format_seconds(theirs)}."
        else:
            yield _unknown(comparison, size, other)
    beside, theirs_s = comparison.baseline, comparison.baseline_s.get(size)
    if beside != comparison.call and theirs_s is not None and time > 0:
        yield (
            f"It is {theirs_s / time:.2f} times as fast as the blocking call of {beside}, "
            f"{format_seconds(theirs_s)}."
        )


def _unknown(comparison: Comparison, size: int, name: str) -> str:
    """Return a sentence on a candidate that was not simulated."""
    who = f"{_role(comparison, name)} ({name})"
    for one in comparison.pruned:
        if (one.candidate, one.bytes) == (name, size) and one.is_estimated:
            return (
                f"Not simulated at this size: {who}, about {format_seconds(one.price_s)} by its "
                f"closed form; more --seconds may simulate its {one.n_tasks:,} tasks."
            )
    why = comparison.refused.get(name)
    return f"Not simulated at this size: {who}{f', because {why}' if why else ''}."


def _role(comparison: Comparison, name: str) -> str:
    if name == comparison.call:
        return "MPI's own non-blocking call"
    return "the spec's own choice" if name == comparison.own else "a spec given besides"


def _why(cost: Mapping[str, Any]) -> Iterator[str]:
    """Generate sentences on the parts of the time, and on the busiest lane and core."""
    total = cost["makespan_ns"]
    if not total:
        return
    parts = sorted(cost["breakdown"].items(), key=lambda part: -part[1])
    words = [f"{KINDS[kind]} ({ns / total:.0%})" for kind, ns in parts if ns / total >= 0.05]
    yield f"The time of its critical path goes to {', '.join(words[:4])}."
    lanes = [lane for lane in cost["lanes"] if lane["utilisation"] > 0]
    if lanes:
        busiest = max(lanes, key=lambda lane: lane["utilisation"])
        numbers = {lane["lane"] for lane in lanes}
        yield (
            f"{format_count(len(numbers), 'lane')} per node {'is' if len(numbers) == 1 else 'are'} "
            f"used; the busiest, lane {busiest['lane']} of node {busiest['node']}, is busy "
            f"{busiest['utilisation']:.0%} of the time."
        )
    cores = [core["utilisation"] for core in cost["cores"]]
    if cores:
        yield f"The busiest core is busy {max(cores):.0%} of the time."
