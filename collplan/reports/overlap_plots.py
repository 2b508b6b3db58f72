"""The time of a split tree beside computation, drawn over numbers of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.reports.plots import COLOURS, clear_frame, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from collplan.measure.overlap.model import OverlapTable, Times
    from collplan.planner.passes.progress.tree_model import Integers

_SIZE_INCHES: Final = (11.0, 4.8)
_MOST_LINES: Final = 7
"""Levels to draw: of a higher tree the others are best nowhere near."""
_NARROW: Final = 8
"""Below this ratio of the axis' ends, powers of two make too few ticks."""
_DARK, _GREY = COLOURS[0], "#8a8f98"
_LINES: Final = (*COLOURS[1:], "#8c564b")


def plot_overlap(path: Path, model: OverlapTable, simulated: OverlapTable | None = None) -> None:
    """Plot communication alone, and beside computation, a line for each number of levels.

    From half of the cores on: with fewer ranks every rank has a communication core for
    itself, and no level is worth splitting off.

    Parameters
    ----------
    path : Path
        Where to write; its suffix says what.
    model : OverlapTable
        Drawn as lines.
    simulated : OverlapTable, optional
        Drawn as points.

    Raises
    ------
    CollplanError
        If the path does not suit.
    """
    with new_figure(path, _SIZE_INCHES) as figure:
        alone, both = figure.subplots(1, 2)
        _draw_levels(alone, model.communication)
        _draw_line(alone, model.compute, "computation", _GREY, ":")
        _draw_line(alone, model.blocking, "blocking", _DARK, "--")
        _draw_levels(both, model.overlapped)
        one_after_other = model.compute + model.blocking
        _draw_line(both, one_after_other, "computation, then blocking", _DARK, "--")
        if simulated is not None:
            _draw_points(alone, simulated.communication)
            _draw_points(both, simulated.overlapped)
        where = f"{model.collective} on {model.n_cores} cores"
        _furnish(alone, f"{where}: communication alone")
        _furnish(both, f"{where}: with computation")


def _draw_line(axes: Axes, times: Times, name: str, colour: str, style: str) -> None:
    ranks = _drawn_ranks(times)
    axes.plot(ranks, times[ranks - 1], label=name, color=colour, linestyle=style, linewidth=1.4)


def _draw_levels(axes: Axes, times: Times) -> None:
    for levels in range(min(times.shape[1], _MOST_LINES)):
        _draw_line(axes, times[:, levels], f"S = {levels}", _LINES[levels], "-")


def _draw_points(axes: Axes, times: Times) -> None:
    for levels in range(min(times.shape[1], _MOST_LINES)):
        ranks = _drawn_ranks(times[:, levels])
        axes.plot(
            ranks,
            times[ranks - 1, levels],
            ".",
            markersize=4,
            color=_LINES[levels],
            label="simulated" if levels == 0 else None,
        )


def _drawn_ranks(times: Times) -> Integers:
    """Return the numbers of ranks from half of the cores on.

    What takes no time, as a collective of one rank, has no place on a logarithmic axis.
    """
    ranks = np.arange(1, len(times) + 1)
    return ranks[(ranks >= len(times) // 2) & (times > 0)]


def _furnish(axes: Axes, title: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel("ranks; the other cores are communication cores")
    axes.set_ylabel("time, in transfers")
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    if high < _NARROW * low:
        axes.yaxis.set_major_locator(MaxNLocator(7))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    clear_frame(axes)
    axes.legend(frameon=False, fontsize=8, ncols=2)
