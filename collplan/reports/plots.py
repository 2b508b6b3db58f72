"""Plots of times against sizes or numbers of ranks, for benchmarks and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from collplan.planner.formats.output_files import replacing
from collplan.reports.output import format_bytes, format_seconds, require_folder
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES: Final = (".svg", ".png", ".pdf")
"""Suffixes of the file types of plots."""

# Metadata that would make files depend on the date and on the release of matplotlib.
_UNTOLD: Final = {
    ".svg": ("Date", "Creator"),
    ".png": ("Software",),
    ".pdf": ("CreationDate", "Creator", "Producer"),
}
_SIZE_INCHES: Final = (7.0, 4.5)
_DOTS_PER_INCH: Final = 150
_MOST_TICKS: Final = 9
_LEAST_END: Final = 0.1
_FEW_LINES: Final = 7
"""Largest number of lines for which the legend has text of full size."""
_MARGIN: Final = 1.25
"""Ratio of the ends of the axis of times to the times, where a bound does not extend the axis."""
_NARROW: Final = 5
"""Ratio of the ends of an axis below which powers of ten give too few ticks."""
_FAR: Final = 20
"""Ratio of times above which short times are not visible on a linear axis."""
_GREY: Final = "#5f6368"
# Colors of Okabe and Ito, which color-blind readers can also distinguish.
COLOURS: Final = (
    "#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
)  # fmt: skip
"""Colors of lines."""
_MARKERS: Final = "osD^vPX"


Role = Literal["plain", "library", "bound"]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot.

    Parameters
    ----------
    name : str
        Name of the line in the legend.
    sizes : sequence of int, shape (n,)
        Sizes in bytes, or numbers of ranks, ascending.
    times : sequence of float, shape (n,)
        Times in s, each more than 0.
    intervals : sequence of tuple of float, shape (n,), optional
        Ends of the error bar of each point in s: one below its time, one above it.
    role : {"plain", "library", "bound"}
        What the line is beside the others: "library" is dashed, and "bound" is a grey line for
        which the axis of times is not extended.
    """

    name: str
    sizes: Sequence[int]
    times: Sequence[float]
    intervals: Sequence[tuple[float, float]] | None = None
    role: Role = "plain"


def check_plot_path(path: Path, option: str = "--plot") -> None:
    """Check that a plot can be written to `path`, before a long run produces its data.

    Parameters
    ----------
    path : Path
        Path of the plot.
    option : str
        Option that gives the path, for error messages.

    Raises
    ------
    CollplanError
        If the suffix is not one of `SUFFIXES`, or the folder does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise CollplanError(
            f"{option}: {path} ends with {path.suffix or 'nothing'}; "
            f"plots are written as {' or '.join(SUFFIXES)}"
        )
    require_folder(option, path)


def plot_times(path: Path, series: Sequence[Series], *, title: str, size_label: str) -> None:
    """Plot times against sizes on logarithmic axes, one line per series.

    The same input gives the same file, byte for byte, with the same release of matplotlib.

    Parameters
    ----------
    path : Path
        File to write; its suffix gives the file type.
    series : sequence of Series
        Lines in the order of the legend. A line without points is left out.
    title : str
        Title above the plot.
    size_label : str
        Label of the axis of sizes.

    Raises
    ------
    CollplanError
        If `check_plot_path` refuses the path.
    """
    with _lines(path, series, title) as (axes, sizes):
        furnish_sizes(axes, sizes, size_label)
        _furnish_times(axes)


def plot_by_ranks(path: Path, series: Sequence[Series], *, title: str) -> None:
    """Plot times against numbers of ranks, one line per series.

    The axis of ranks is linear. The axis of times is linear from 0, or logarithmic if the
    times differ by a factor of more than 20.

    Parameters
    ----------
    path : Path
        File to write; its suffix gives the file type.
    series : sequence of Series
        Lines whose `sizes` are numbers of ranks. A line without points is left out.
    title : str
        Title above the plot.

    Raises
    ------
    CollplanError
        If `check_plot_path` refuses the path.
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
    """Draw lines, yield their axes and sizes so that the caller sets scales, and write the plot."""
    with new_figure(path) as figure:
        axes = figure.add_subplot()
        drawn = [line for line in series if len(line.sizes)]
        for i, line in enumerate(drawn):
            _draw_line(axes, line, i)
        times = [time for line in drawn if line.role != "bound" for time in line.times]
        if times and len(drawn) > sum(line.role != "bound" for line in drawn):
            axes.set_ylim(min(times) / _MARGIN, max(times) * _MARGIN)
        yield axes, sorted({size for line in drawn for size in line.sizes})
        finish(axes, title, fontsize=8 if len(drawn) > _FEW_LINES else 10)


@contextmanager
def new_figure(path: Path, size_inches: tuple[float, float] = _SIZE_INCHES) -> Iterator[Figure]:
    """Yield an empty figure in the style of all plots, and write it to a file at the end.

    The same drawing gives the same file, byte for byte, with the same release of matplotlib.

    Parameters
    ----------
    path : Path
        File to write; its suffix gives the file type.
    size_inches : tuple of float
        Width and height in inches.

    Raises
    ------
    CollplanError
        If `check_plot_path` refuses the path.
    """
    check_plot_path(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {
        # Text stays text, so that files are small and can be searched.
        "svg.fonttype": "none",
        # Without a salt, ids in the file are random.
        "svg.hashsalt": "collplan",
        "font.size": 10,
        "axes.edgecolor": _GREY,
        "xtick.color": _GREY,
        "ytick.color": _GREY,
    }
    suffix = path.suffix.lower()
    with mpl.rc_context():
        mpl.rcdefaults()  # The user's own settings would change the file.
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
    """Add title, light grid and legend to axes, and remove the upper and right frame lines."""
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
        # A logarithmic axis cannot show an end at 0 or below, so the bar ends at a small value.
        below = [time - max(low, time * _LEAST_END) for time, (low, _) in pairs]
        above = [high - time for time, (_, high) in pairs]
        bars = [below, above]
    is_bound = line.role == "bound"
    is_dashed = line.role == "library" or place >= len(COLOURS)
    axes.errorbar(
        line.sizes,
        line.times,
        yerr=bars,
        label=line.name,
        color=_GREY if is_bound else COLOURS[place % len(COLOURS)],
        marker="" if is_bound else _MARKERS[place % len(_MARKERS)],
        linestyle=":" if is_bound else "--" if is_dashed else "-",
        markersize=4,
        linewidth=1.4,
        elinewidth=1,
        capsize=3,
    )


def furnish_sizes(axes: Axes, sizes: Sequence[int], label: str) -> None:
    """Make the first axis a logarithmic axis of sizes in bytes."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_xlabel(label)
    if 0 in sizes:
        # 0 has no logarithm, so the axis is linear up to the smallest other size.
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
