"""What a comparison looks like: as JSON, as a table, as a plot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.output import format_bytes, format_seconds, print_line, print_table
from collplan.plots import Series, plot_times

if TYPE_CHECKING:
    from executors.cost.comparison import Comparison, Pruned
    from specs import PlanSpec

MOST_ROWS: Final = 12
"""Candidates that a table shows unless all are wanted."""
MOST_CURVES: Final = 8
MOST_REFUSALS: Final = 6
OWN: Final = " (the spec's)"


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison, ready for JSON.

    Returns
    -------
    dict
        `rows`, a list of ``{candidate, bytes, makespan_s, pcie_reads}`` of all that
        was simulated, the last None where adapters hold all queue pairs; `best` by
        bytes; `crossovers`, a list of ``{before, after, low_bytes, high_bytes, how}``;
        `bounds` by bytes, as of ``compile``;
        `pruned`, a list of ``{candidate, bytes, by, value_s, n_tasks}``;
        `refused`, why by candidate; `own`, the spec's own candidate; `candidates`,
        what a spec has to say for each.
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
        "crossovers": [
            {
                "before": one.before,
                "after": one.after,
                "low_bytes": one.low_bytes,
                "high_bytes": one.high_bytes,
                "how": "bisected" if one.is_bisected else "neighbouring sizes",
            }
            for one in comparison.crossovers
        ],
        "bounds": {str(size): bound.to_json() for size, bound in comparison.bounds.items()},
        "pruned": [
            {
                "candidate": one.candidate,
                "bytes": one.bytes,
                "by": one.by,
                "value_s": one.value_s,
                "n_tasks": one.n_tasks,
            }
            for one in comparison.pruned
        ],
        "refused": comparison.refused,
        "own": comparison.own,
        "candidates": {
            name: spec.model_dump(mode="json", include=fields)
            for name, spec in comparison.specs.items()
        },
    }


def print_comparison(comparison: Comparison, *, is_all: bool) -> None:
    """Print the best candidates of every size, or all, and what there is to say of the rest."""
    sizes, times = comparison.sizes, comparison.makespans
    ranked = _ranked(comparison)
    shown = ranked if is_all else ranked[:MOST_ROWS]
    if comparison.own in ranked and comparison.own not in shown:
        shown = [*shown[: MOST_ROWS - 1], comparison.own]

    def cell(name: str, size: int) -> str:
        if (name, size) not in times:
            return ""
        mark = "*" if comparison.best.get(size) == name else ""
        return mark + format_seconds(times[name, size])

    rows = [
        [name + OWN * (name == comparison.own), *(cell(name, size) for size in sizes)]
        for name in shown
    ]
    bounds = [comparison.bounds[size].time_s for size in sizes]
    if any(bounds):
        rows.append(["at least", *map(format_seconds, bounds)])
    print_table(["candidate", *map(format_bytes, sizes)], rows)
    for line in _remarks(comparison, len(ranked) - len(shown)):
        print_line(line)


def _ranked(comparison: Comparison) -> list[str]:
    """Return what was simulated: first the best anywhere, then by the best rank at any size."""
    ranks: dict[str, list[int]] = {}
    for size in comparison.sizes:
        there = [name for name in comparison.specs if (name, size) in comparison.makespans]
        there.sort(key=lambda name: comparison.makespans[name, size])
        winner = comparison.best.get(size)
        there.sort(key=lambda name: name != winner)
        for rank, name in enumerate(there):
            ranks.setdefault(name, []).append(rank)
    order = {name: i for i, name in enumerate(dict.fromkeys(comparison.best.values()))}
    return sorted(
        ranks,
        key=lambda name: (
            order.get(name, len(order)),
            min(ranks[name]),
            -len(ranks[name]),
            sum(ranks[name]),
        ),
    )


def _remarks(comparison: Comparison, n_hidden: int) -> list[str]:
    lines = ["* the best of its size"]
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
        from executors.cost.comparison import SAFETY

        lines.append(
            f"pruned: {by['bound']} whose busiest lane, core or memory alone takes longer than "
            f"the best, {by['price']} whose closed form is over {SAFETY:g} times the best"
        )
    if by["tasks"]:
        lines.append(_too_large([one for one in comparison.pruned if one.by == "tasks"]))
    reasons = list(dict.fromkeys(comparison.refused.values()))
    lines += [f"not possible: {reason}" for reason in reasons[:MOST_REFUSALS]]
    if len(reasons) > MOST_REFUSALS:
        lines.append(f"not possible: {len(reasons) - MOST_REFUSALS} more; --json says all")
    return lines


def _too_large(left_out: Sequence[Pruned]) -> str:
    """Say what was not simulated for its size alone, which may be better than the best shown."""
    tasks = [one.n_tasks for one in left_out]
    sizes = sorted({one.bytes for one in left_out})
    between = " to ".join(format_bytes(size) for size in dict.fromkeys((sizes[0], sizes[-1])))
    return (
        f"too large: {len(tasks)}, of {min(tasks):,} tasks and more, at {between}: not simulated, "
        "any of them may be better; --max-tasks sets the limit"
    )


def plot_comparison(path: Path, spec: PlanSpec, comparison: Comparison) -> None:
    """Plot the winners, the best of each family, and the bound."""
    names = _curves(comparison)
    series = [
        _series(
            name + OWN * (name == comparison.own),
            comparison,
            {
                size: comparison.makespans[name, size]
                for size in comparison.sizes
                if (name, size) in comparison.makespans
            },
        )
        for name in names
    ]
    bounds = {size: bound.time_s for size, bound in comparison.bounds.items()}
    series.append(_series("lower bound", comparison, bounds))
    machine = spec.machine
    title = f"{spec.collective.kind} on {machine.nodes} x {max(machine.node_to_n_ranks)} ranks"
    plot_times(path, series, title=title, size_label="bytes of the count")


def _series(name: str, comparison: Comparison, times: dict[int, float]) -> Series:
    there = [size for size in comparison.sizes if times.get(size, 0.0) > 0]
    return Series(name, there, [times[size] for size in there])


def _curves(comparison: Comparison) -> list[str]:
    """Return the winners, the spec's own, then the next of every family in turn."""
    ranked = _ranked(comparison)
    counts = Counter(comparison.best.values())
    winners = [name for name, _ in counts.most_common(MOST_CURVES - 1)]
    chosen = [name for name in ranked if name in winners]
    if comparison.own in ranked and comparison.own not in chosen:
        chosen.append(comparison.own)
    families = {comparison.specs[name].decomposition.name for name in chosen}
    for name in ranked:
        family = comparison.specs[name].decomposition.name
        if family not in families and len(chosen) < MOST_CURVES - 1:
            families.add(family)
            chosen.append(name)
    return chosen
