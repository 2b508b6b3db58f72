"""Plots of times against sizes or numbers of ranks, for benchmarks and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.planner.formats.output_files import replacing
from collplan.reports.output import format_bytes, format_seconds, require_folder
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".svg", ".png", ".pdf")
"""The kinds of files plots are written as."""

# What would tell when, and with which release, a file was drawn.
_UNTOLD: Final = {
    ".svg": ("Date", "Creator"),
    ".png": ("Software",),
    ".pdf": ("CreationDate", "Creator", "Producer"),
}
_SIZE_INCHES: Final = (7.0, 4.5)
_DOTS_PER_INCH: Final = 150
_MOST_TICKS: Final = 9
_LEAST_END: Final = 0.1
_NARROW: Final = 5
"""Below this ratio of the axis' ends, powers of ten make no good ticks."""
_FAR: Final = 20
"""Above this ratio of times, a linear axis would hide the short ones."""
_GREY: Final = "#5f6368"
# Okabe and Ito's colours: they differ for colour-blind readers, too.
COLOURS: Final = (
    "#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
)  # fmt: skip
"""Colours of lines."""
_MARKERS: Final = "osD^vPX"


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot.

    Parameters
    ----------
    name : str
        What the legend calls it.
    sizes : sequence of int, shape (n,)
        Bytes, or numbers of ranks, ascending.
    times : sequence of float, shape (n,)
        Seconds, more than 0.
    intervals : sequence of tuple of float, shape (n,), optional
        Ends of the bar through each point, in s: below and above its time.
    """

    name: str
    sizes: Sequence[int]
    times: Sequence[float]
    intervals: Sequence[tuple[float, float]] | None = None


def check_plot_path(path: Path, option: str = "--plot") -> None:
    """See that a plot can be written to `path`, before hours are spent on what it shows.

    Parameters
    ----------
    path : Path
    option : str
        What names the path, for messages.

    Raises
    ------
    CollplanError
        If the suffix is not one of `SUFFIXES`, or there is no such folder.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise CollplanError(
            f"{option}: {path} ends with {path.suffix or 'nothing'}; "
            f"plots are written as {' or '.join(SUFFIXES)}"
        )
    require_folder(option, path)


def plot_times(path: Path, series: Sequence[Series], *, title: str, size_label: str) -> None:
    """Plot times against sizes on logarithmic axes, a line each.

    The same input gives the same file, byte for byte, with the same matplotlib.

    Parameters
    ----------
    path : Path
        Where to write; its suffix says what.
    series : sequence of Series
        The lines, in the legend's order. A line without points is left out.
    title : str
        What stands above.
    size_label : str
        What the sizes are sizes of.

    Raises
    ------
    CollplanError
        If the path does not suit.
    """
    with _lines(path, series, title) as (axes, sizes):
        furnish_sizes(axes, sizes, size_label)
        _furnish_times(axes)


def plot_by_ranks(path: Path, series: Sequence[Series], *, title: str) -> None:
    """Plot times against numbers of ranks, a line each; the first axis is linear.

    The second is linear from 0, or logarithmic where times are too far apart for that.

    Parameters
    ----------
    path : Path
        Where to write; its suffix says what.
    series : sequence of Series
        The lines, their `sizes` being numbers of ranks. A line without points is left out.
    title : str
        What stands above.

    Raises
    ------
    CollplanError
        If the path does not suit.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    times = [time for line in series for time in line.times]
    with _lines(path, series, title) as (axes, _):
        axes.set_xlabel("ranks")
        axes.xaxis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=True))
        if times and max(times) > _FAR * min(times):
            _furnish_times(axes)
        else:
            axes.set_ylim(bottom=0)
            axes.set_ylabel("time")
            ticks = FuncFormatter(lambda time, _: format_seconds(time) if time else "0")
            axes.yaxis.set_major_formatter(ticks)


@contextmanager
def _lines(
    path: Path, series: Sequence[Series], title: str
) -> Iterator[tuple[Axes, Sequence[int]]]:
    """Draw lines, give their axes and sizes to be furnished, and write the plot."""
    with new_figure(path) as figure:
        axes = figure.add_subplot()
        drawn = [line for line in series if len(line.sizes)]
        for i, line in enumerate(drawn):
            _draw_line(axes, line, i)
        yield axes, sorted({size for line in drawn for size in line.sizes})
        finish(axes, title)


@contextmanager
def new_figure(path: Path, size_inches: tuple[float, float] = _SIZE_INCHES) -> Iterator[Figure]:
    """Give an empty figure in the style of all plots, and write what was drawn on it.

    The same drawing gives the same file, byte for byte, with the same matplotlib.

    Parameters
    ----------
    path : Path
        Where to write; its suffix says what.
    size_inches : tuple of float
        Width and height.

    Raises
    ------
    CollplanError
        If the path does not suit.
    """
    check_plot_path(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        # Text stays text: small files, and readers can search them.
        "svg.fonttype": "none",
        # Otherwise ids in the file are random.
        "svg.hashsalt": "collplan",
        "font.size": 10,
        "axes.edgecolor": _GREY,
        "xtick.color": _GREY,
        "ytick.color": _GREY,
    }
    suffix = path.suffix.lower()
    with mpl.rc_context():
        mpl.rcdefaults()  # The reader's own settings would make another file.
        mpl.rcParams.update(settings)
        figure = Figure(figsize=size_inches, layout="constrained")
        yield figure
        with replacing(path) as file:
            figure.savefig(
                file,
                format=suffix[1:],
                dpi=_DOTS_PER_INCH,
                metadata=dict.fromkeys(_UNTOLD[suffix]),
            )


def finish(axes: Axes, title: str, **legend: Any) -> None:
    """Give axes a title, a light grid, no frame above and to the right, and a legend of lines."""
    axes.set_title(title, fontsize=11, loc="left")
    axes.grid(visible=True, color="#e3e5e8", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, **legend)


def _draw_line(axes: Axes, line: Series, place: int) -> None:
    bars = None
    if line.intervals is not None:
        pairs = list(zip(line.times, line.intervals, strict=True))
        # A logarithmic axis has no place for an end at 0 or below: end the bar far down.
        below = [time - max(low, time * _LEAST_END) for time, (low, _) in pairs]
        above = [high - time for time, (_, high) in pairs]
        bars = [below, above]
    colour = COLOURS[place % len(COLOURS)]
    axes.errorbar(
        line.sizes,
        line.times,
        yerr=bars,
        label=line.name,
        color=colour,
        marker=_MARKERS[place % len(_MARKERS)],
        linestyle="-" if place < len(COLOURS) else "--",
        markersize=4,
        linewidth=1.4,
        elinewidth=1,
        capsize=3,
    )


def furnish_sizes(axes: Axes, sizes: Sequence[int], label: str) -> None:
    """Give axes a logarithmic first axis of sizes in bytes."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xlabel(label)
    if 0 in sizes:
        # 0 has no logarithm: let the axis be linear up to the least other size.
        axes.set_xscale("symlog", base=2, linthresh=next(filter(None, sizes), 1))
    else:
        axes.set_xscale("log", base=2)
    every = -(-len(sizes) // _MOST_TICKS) or 1
    axes.xaxis.set_major_locator(FixedLocator(sizes[::every]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_bytes(size)))


def _furnish_times(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator

    axes.set_ylabel("time")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    is_narrow = high < _NARROW * low
    locator: Locator = MaxNLocator(6) if is_narrow else LogLocator(subs=(1.0, 2.0, 5.0))
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time, _: format_seconds(time)))
