"""Reports of a comparison: JSON, table and plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collplan.executors.cost import cost_report, simulate
from collplan.reports.output import format_bytes, format_seconds, pick, print_line, print_table
from collplan.reports.plots import Role, Series, plot_times
from collplan.reports.words import losers, winners
from collplan.select.auto import resolve
from collplan.select.compared import TOLERANCE, Comparison, Default, Pruned
from collplan.select.entries import bytes_of
from collplan.select.own_proofs import WRONG
from collplan.select.sweep import compile_priced
from collplan.specs import PlanSpec

MOST_ROWS: Final = 12
"""Number of candidates that a table shows by default."""
MOST_CURVES: Final = 8
FEW_RANKS: Final = 64
FEW_TASKS: Final = 20_000
"""Numbers of ranks and tasks up to which plans are simulated again to find what limits them."""
OWN: Final = " (the spec's)"
_PRUNED: Final = "candidate bytes by price_s bound_s n_tasks"
TOO_LARGE: Final = {
    "tasks": "--max-tasks sets the limit of tasks",
    "time": "--seconds gives more time",
    "memory": "some need more memory than is free",
}
"""Reasons to leave out a candidate, each with advice for the user."""


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as a dictionary that JSON can hold.

    Returns
    -------
    dict
        `rows`, a list of ``{candidate, bytes, makespan_s, pcie_reads}`` of all simulations,
        where `pcie_reads` is None if it was not counted; `best`, the winners by bytes, where
        they are certain; `leading`, the best simulated candidates by bytes; `rivals`, lists by
        bytes of candidates that may be better than the leading one; `crossovers`, a list of
        ``{before, after, low_bytes, high_bytes, how}``; `bounds`, lower bounds by bytes, as
        `TimeBound.to_json` returns them; `pruned`, a list of ``{candidate, bytes, by, price_s,
        bound_s, n_tasks}``; `refused`, reasons by candidate; `own`, the spec's own candidate;
        `gains`, ratios of the time of the `baseline`, a library's blocking call, to the leading
        time by bytes; `candidates`, fields of a spec for each candidate; `libraries`, the defaults
        of each library, as a list of ``{bytes, runs, method, makespan_s, estimate_s, gain, remark,
        refusal}``; `reproducible`, the level of the candidates; `levels`, if they were compared,
        the best candidate of each level by bytes, as ``{candidate, makespan_s, found_at}``.
    """
    fields = {"decomposition", "algorithms", "transport", "passes"}
    return {
        "rows": [
            {
                "candidate": name,
                "bytes": size,
                "makespan_s": time,
                "pcie_reads": comparison.pcie_reads.get((name, size)),
            }
            for (name, size), time in sorted(
                comparison.makespans.items(), key=lambda item: (item[0][1], item[1])
            )
        ],
        "best": {str(size): name for size, name in comparison.best.items()},
        "leading": {str(size): name for size, name in comparison.leading.items()},
        "rivals": {
            str(size): [one.candidate for one in some] for size, some in comparison.rivals.items()
        },
        "crossovers": [
            pick(one, "before after low_bytes high_bytes")
            | {"how": "bisected" if one.is_bisected else "neighboring sizes"}
            for one in comparison.crossovers
        ],
        "bounds": {str(size): bound.to_json() for size, bound in comparison.bounds.items()},
        "pruned": [pick(one, _PRUNED) for one in comparison.pruned],
        "refused": comparison.refused,
        "own": comparison.own,
        "baseline": comparison.baseline,
        "gains": {str(size): gain for size, gain in comparison.gains.items()},
        "libraries": {
            name: _default_rows(comparison, name, by_size)
            for name, by_size in comparison.defaults.items()
        },
        "reproducible": comparison.level,
        "levels": _level_rows(comparison),
        "candidates": {
            name: spec.model_dump(mode="json", include=fields)
            for name, spec in comparison.specs.items()
        },
    }


def _level_rows(comparison: Comparison) -> dict[str, dict[str, Any]]:
    return {
        level: {str(size): cost._asdict() for size, cost in costs.items()}
        for level, costs in comparison.levels.items()
    }


def _default_rows(
    comparison: Comparison, library: str, by_size: Mapping[int, Default]
) -> list[dict[str, Any]]:
    gains = comparison.gains_over(library)
    return [
        {"bytes": size, "gain": gains.get(size)}
        | pick(one, "runs makespan_s estimate_s remark refusal")
        | {"method": None if one.method is None else one.method.model_dump(mode="json")}
        for size, one in by_size.items()
    ]


def print_comparison(comparison: Comparison, *, is_all: bool) -> None:
    """Print a table of the best candidates, or of all, with remarks and reasons."""
    columns, rows, n_hidden = comparison_table(comparison, is_all=is_all)
    print_table(columns, rows)
    for line in (*_remarks(comparison, n_hidden, is_all=is_all), *reasons(comparison)):
        print_line(line)


def reasons(comparison: Comparison) -> list[str]:
    """Return sentences that explain why winners win and why other candidates lose."""
    return [*winners(comparison), *why_lost(comparison)]


def why_lost(comparison: Comparison) -> Iterator[str]:
    """Generate sentences that explain why other candidates lose at the largest size.

    The candidates are those of `curves_of`. Candidates of more than `FEW_RANKS` ranks or
    `FEW_TASKS` tasks are left out.
    """
    size = max(comparison.leading, default=None)
    if size is None:
        return
    costs: dict[str, Any] = {}
    for name in curves_of(comparison):
        spec = comparison.specs[name]
        is_there = (name, size) in comparison.makespans and bytes_of(spec) == size
        if not is_there or name == comparison.leading[size] or spec.machine.n_ranks > FEW_RANKS:
            continue
        plan = compile_priced(resolve(spec))
        if plan.n_tasks <= FEW_TASKS:
            costs[name] = cost_report(plan, simulate(plan), spec.machine.network)
    lines = list(losers(comparison, size, costs))
    if lines:
        yield f"Others at {format_bytes(size)}:"
        yield from (f"  {line}" for line in lines)


def comparison_table(
    comparison: Comparison, *, is_all: bool
) -> tuple[list[str], list[list[str]], int]:
    """Return columns and rows of the best candidates, or of all, and the number left out.

    A row has the times of a candidate by size. The winner of a size has the mark ``*``.
    """
    sizes, times = comparison.sizes, comparison.makespans
    ranked = _ranked(comparison)
    references = [name for name in comparison.references if name in ranked]
    others = [name for name in ranked if name not in references]
    kept = {*references, *(others if is_all else others[: MOST_ROWS - len(references)])}
    shown = [name for name in ranked if name in kept]
    rivals = {
        (one.candidate, size): one for size, some in comparison.rivals.items() for one in some
    }
    nearest = dict.fromkeys(some[0].candidate for some in comparison.rivals.values())
    shown += [name for name in nearest if name not in shown]

    def cell(name: str, size: int) -> str:
        if (name, size) in rivals:
            one = rivals[name, size]
            return "~" + format_seconds(one.price_s) if one.is_estimated else "?"
        if (name, size) not in times:
            return ""
        mark = "*" if comparison.best.get(size) == name else ""
        return mark + format_seconds(times[name, size])

    rows = [
        [name + OWN * (name == comparison.own), *(cell(name, size) for size in sizes)]
        for name in shown
    ]
    rows += [
        [name, *(_default_cell(by_size.get(size)) for size in sizes)]
        for name, by_size in comparison.defaults.items()
    ]
    rows += [
        [
            f"reproducible: {level}" + " (asked for)" * (level == comparison.level),
            *(format_seconds(costs[size].makespan_s) if size in costs else "" for size in sizes),
        ]
        for level, costs in comparison.levels.items()
    ]
    bounds = [comparison.bounds[size].time_s for size in sizes]
    if any(bounds):
        rows.append(["at least", *map(format_seconds, bounds)])
    return ["candidate", *map(format_bytes, sizes)], rows, len(set(ranked) - set(shown))


def _default_cell(one: Default | None) -> str:
    """Return the time of a library's default; ``-`` if there is no time for it."""
    if one is None or one.time_s is None:
        return "-"
    return ("~" if one.makespan_s is None else "") + format_seconds(one.time_s)


def _default_lines(comparison: Comparison) -> Iterator[str]:
    """Generate lines on each library: its defaults by size, the gain over them, and remarks."""
    for library, by_size in comparison.defaults.items():
        runs: list[str] = []
        last = None
        for size, one in by_size.items():
            if one.runs != last:
                runs.append(one.runs + (f" from {format_bytes(size)}" if runs else ""))
            last = one.runs
        gains = comparison.gains_over(library).values()
        gain = f"; the best is {_range(gains)} times as fast" if gains else ""
        yield f"{library} runs {', '.join(runs)}{gain}"
        remarks: dict[str, list[str]] = {}
        for one in by_size.values():
            refusal = one.refusal and f"not possible: {one.refusal}"
            for said in filter(None, (one.remark, refusal)):
                remarks.setdefault(said, []).append(one.runs)
        for said, names in remarks.items():
            yield f"  {', '.join(dict.fromkeys(names))}: {said}"


def _level_lines(comparison: Comparison) -> Iterator[str]:
    """Generate a line on each level of `reproducible` beyond the first: what it costs, and how."""
    first, *others = comparison.levels.items() or [("ranks", {})]
    for level, costs in others:
        ratios = [
            cost.makespan_s / first[1][size].makespan_s
            for size, cost in costs.items()
            if size in first[1] and first[1][size].makespan_s > 0
        ]
        if not ratios:
            yield f"reproducible: {level}: no candidate was simulated"
            continue
        best = dict.fromkeys(cost.candidate for cost in costs.values())
        yield (
            f"reproducible: {level} takes {_range(ratios)} times as long as {first[0]}, by "
            f"{', '.join(best)}"
        )


def _range(numbers: Iterable[float]) -> str:
    """Return the smallest and the largest of some numbers as text."""
    low, high = f"{min(numbers):.2f}", f"{max(numbers):.2f}"
    return low if low == high else f"{low} to {high}"


def _ranked(comparison: Comparison) -> list[str]:
    """Return the simulated candidates, best first.

    Candidates that lead at some size come first. The others follow by their best position
    among the candidates of a size, then by the number of sizes and the sum of positions.
    """
    ranks: dict[str, list[int]] = {}
    for size in comparison.sizes:
        there = [name for name in comparison.specs if (name, size) in comparison.makespans]
        winner = comparison.leading.get(size)
        there.sort(key=lambda name: (name != winner, comparison.makespans[name, size]))
        for rank, name in enumerate(there):
            ranks.setdefault(name, []).append(rank)
    order = {name: i for i, name in enumerate(dict.fromkeys(comparison.leading.values()))}
    return sorted(
        ranks,
        key=lambda name: (
            order.get(name, len(order)),
            min(ranks[name]),
            -len(ranks[name]),
            sum(ranks[name]),
        ),
    )


def _size_line(comparison: Comparison) -> list[str]:
    """Return a line on what a size is; barriers have no sizes."""
    spec = next(iter(comparison.specs.values()), None)
    if spec is None or spec.collective.kind == "barrier":
        return []
    if spec.collective.has_edges and "count" in type(spec.collective).model_fields:
        return ["sizes are those of the block of each edge"]
    if spec.collective.regular:
        return ["sizes are those of all blocks together"]
    if not spec.collective.has_blocks:
        return ["sizes are those of the whole vector"]
    n_ranks, largest = spec.machine.n_ranks, max(comparison.sizes)
    per = "pair of ranks" if spec.collective.is_pairwise else "rank"
    n_blocks = n_ranks**2 if spec.collective.is_pairwise else n_ranks
    return [
        f"sizes are those of the block of each {per}: at {format_bytes(largest)}, all {n_blocks:,} "
        f"blocks have {format_bytes(largest * n_blocks)}"
    ]


def _remarks(comparison: Comparison, n_hidden: int, *, is_all: bool) -> list[str]:
    lines = ["* the best of its size"] if comparison.best else []
    lines += _size_line(comparison)
    lines += _gain_line(comparison)
    lines += _default_lines(comparison)
    lines += _level_lines(comparison)
    if comparison.rivals:
        lines.append("~ by closed form, not simulated")
    lines += [
        f"no winner at {format_bytes(size)}: {comparison.leading[size]} is the best simulated, but "
        f"{_may_be_better(some)}"
        for size, some in comparison.rivals.items()
    ]
    lines += [
        f"no winner at {format_bytes(size)}: nothing was simulated"
        for size in comparison.sizes
        if size not in comparison.leading
    ]
    for one in comparison.crossovers:
        how = "" if one.is_bisected else ", not bisected"
        lines.append(
            f"crossover: {one.before} up to {format_bytes(one.low_bytes)}, {one.after} from "
            f"{format_bytes(one.high_bytes)}{how}"
        )
    by = Counter(one.by for one in comparison.pruned)
    n = len(comparison.makespans)
    lines.append(
        f"{len(comparison.specs)} candidates, {n} simulations"
        + (f"; {n_hidden} more candidates were simulated: --all shows all" if n_hidden else "")
    )
    if by["bound"] or by["price"]:
        lines.append(
            f"pruned: {by['bound']} whose busiest lane, core or memory alone takes longer than "
            f"the best (large plans: {1 - TOLERANCE:.0%} of the best), {by['price']} whose closed "
            "form, corrected by those that were simulated, is far above the best"
        )
    left_out = [one for one in comparison.pruned if one.by in TOO_LARGE]
    for is_estimated in (True, False):
        some = [one for one in left_out if one.is_estimated == is_estimated]
        if some:
            lines.append(_left_out(some))
    wrong = [f"{name} {why}" for name, why in comparison.refused.items() if why.startswith(WRONG)]
    lines += [f"left out: {one}" for one in (wrong if is_all else wrong[:1])]
    if len(wrong) > 1 and not is_all:
        lines.append(
            f"left out: {len(wrong) - 1} more candidates that are wrong; --all gives the reasons"
        )
    reasons = list(dict.fromkeys(comparison.refused.values()))
    if is_all or not comparison.makespans:
        return lines + [f"not possible: {reason}" for reason in reasons]
    if reasons:
        lines.append(f"not possible: {len(comparison.refused)} candidates; --all gives the reasons")
    return lines


def _may_be_better(rivals: Sequence[Pruned]) -> str:
    """Describe the first candidate that may be better, and count the others."""
    one, n_more = rivals[0], len(rivals) - 1
    known = f"{one.candidate} (not estimated) may be better"
    if one.is_estimated:
        known = (
            f"{one.candidate} ({one.n_tasks:,} tasks, not simulated) takes about "
            f"{format_seconds(one.price_s)}, and {format_seconds(one.bound_s)} at least"
        )
    return known + (f"; {n_more} more may be better" if n_more else "")


def _left_out(some: Sequence[Pruned]) -> str:
    """Describe candidates that were not simulated, with advice for the user."""
    sizes = sorted({one.bytes for one in some})
    ends = " to ".join(format_bytes(size) for size in dict.fromkeys((sizes[0], sizes[-1])))
    what = f"not estimated: {len(some)}, at {ends}"
    if some[0].is_estimated:
        least = min(one.n_tasks for one in some)
        what = (
            f"not simulated: {len(some)}, of {least:,} tasks and more, at {ends}, priced by their "
            "closed form alone"
        )
    reasons = {one.by for one in some}
    return f"{what}; {', '.join(text for by, text in TOO_LARGE.items() if by in reasons)}"


def _gain_line(comparison: Comparison) -> list[str]:
    """Return a line on the gain over the MPI library's own collective, or none without gains."""
    gains = comparison.gains.values()
    if not gains:
        return []
    beside, what = comparison.baseline, f"{comparison.call} is MPI's own non-blocking call"
    if comparison.call not in comparison.specs and beside != comparison.call:
        return [f"the best is {_range(gains)} times as fast as the blocking call of {beside}"]
    over = "it" if beside == comparison.call else f"the blocking call of {beside}"
    return [f"{what}, as MPICH makes it; the best is {_range(gains)} times as fast as {over}"]


def plot_comparison(path: Path, spec: PlanSpec, comparison: Comparison) -> None:
    """Plot the winners, other candidates of `curves_of`, libraries' defaults, and the bound.

    The axis of times is that of the candidates and the libraries; where the bound is below it,
    the bound is not shown.
    """
    sizes, series = comparison.sizes, []
    for name in curves_of(comparison):
        own = {size: time for (other, size), time in comparison.makespans.items() if other == name}
        series.append(_series(name + OWN * (name == comparison.own), sizes, own))
    for library, by_size in comparison.defaults.items():
        times = {size: one.time_s or 0.0 for size, one in by_size.items()}
        series.append(_series(library, sizes, times, "library"))
    bounds = {size: bound.time_s for size, bound in comparison.bounds.items()}
    series.append(_series("lower bound", sizes, bounds, "bound"))
    machine = spec.machine
    title = f"{spec.collective.kind} on {machine.nodes} x {max(machine.node_to_n_ranks)} ranks"
    plot_times(path, series, title=title, size_label="bytes of the count")


def _series(
    name: str, sizes: Sequence[int], times: dict[int, float], role: Role = "plain"
) -> Series:
    there = [size for size in sizes if times.get(size, 0.0) > 0]
    return Series(name, there, [times[size] for size in there], role=role)


def curves_of(comparison: Comparison) -> list[str]:
    """Return the candidates to plot.

    These are the winners, the reference candidates, and the best of each further family. A
    family is added only if there are fewer than `MOST_CURVES` - 1 candidates.
    """
    ranked = _ranked(comparison)
    counts = Counter(comparison.leading.values())
    winners = [name for name, _ in counts.most_common(MOST_CURVES - 1)]
    chosen = [name for name in ranked if name in winners]
    chosen += [name for name in comparison.references if name in ranked and name not in chosen]
    families = {comparison.specs[name].decomposition.name for name in chosen}
    for name in ranked:
        family = comparison.specs[name].decomposition.name
        if family not in families and len(chosen) < MOST_CURVES - 1:
            families.add(family)
            chosen.append(name)
    return chosen
