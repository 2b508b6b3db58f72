"""Plots: what they show, that they are files of the kind asked for, always the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from collplan.reports.plots import (
    Series,
    check_plot_path,
    finish,
    furnish_sizes,
    plot_by_ranks,
    plot_times,
)
from collplan.specs.errors import CollplanError
from folders import ROOT

SIZES = (1024, 2048, 65536)
NATIVE = Series("native", SIZES, (1e-5, 2e-5, 4e-4), ((9e-6, 1.1e-5), (1e-5, 3e-5), (3e-4, 5e-4)))
BEST = Series("best", SIZES[:2], (0.9e-5, 1.9e-5))

DRAW = """
import sys
from pathlib import Path
from collplan.reports.plots import Series, plot_times
line = Series("native", (1024, 65536), (1e-5, 4e-4), ((9e-6, 1.1e-5), (3e-4, 5e-4)))
plot_times(Path(sys.argv[1]), [line], title="a", size_label="b")
"""


def draw(path: Path, *series: Series) -> Path:
    plot_times(path, series, title="allreduce on 16 ranks", size_label="bytes of the vector")
    return path


def words_of(path: Path) -> list[str]:
    elements = ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    return [(element.text or "").strip() for element in elements]


def test_a_plot_names_its_lines_sizes_and_times(tmp_path: Path) -> None:
    words = words_of(draw(tmp_path / "plot.svg", NATIVE, BEST))
    for word in ("allreduce on 16 ranks", "bytes of the vector", "native", "best"):
        assert word in words
    assert {"1 KiB", "2 KiB", "64 KiB"} <= set(words)
    assert {"10 µs", "20 µs", "50 µs", "100 µs", "200 µs"} <= set(words)


def test_many_sizes_do_not_crowd_the_axis(tmp_path: Path) -> None:
    sizes = [2**i for i in range(30)]
    words = words_of(draw(tmp_path / "plot.svg", Series("a", sizes, [1e-6 * s for s in sizes])))
    shown = [word for word in words if re.fullmatch(r"[\d.]+ ([KMG]i)?B", word)]
    assert 5 <= len(shown) <= 9
    assert "1 B" in shown


def test_times_by_ranks_begin_at_0_unless_far_apart(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    near = Series("near", (2, 3, 5), (1e-3, 2e-3, 4e-3))
    plot_by_ranks(path, [near], title="bcast")
    words = words_of(path)
    assert {"bcast", "ranks", "time", "0", "2", "3", "5", "1 ms", "4 ms"} <= set(words)
    plot_by_ranks(path, [near, Series("far", (2,), (1.0,))], title="bcast")
    words = words_of(path)
    assert "0" not in words
    assert {"near", "far", "100 ms"} <= set(words)


def test_a_narrow_range_of_times_still_has_numbers(tmp_path: Path) -> None:
    words = words_of(draw(tmp_path / "plot.svg", Series("a", SIZES, (1.1e-4, 1.3e-4, 1.7e-4))))
    assert len([word for word in words if word.endswith(" µs")]) >= 3


def test_a_line_without_points_is_left_out(tmp_path: Path) -> None:
    words = words_of(draw(tmp_path / "plot.svg", NATIVE, Series("refused", (), ())))
    assert "native" in words
    assert "refused" not in words
    assert "allreduce on 16 ranks" in words_of(draw(tmp_path / "empty.svg"))


@pytest.mark.parametrize(
    "line",
    [
        Series("barrier", (0,), (1e-5,)),
        Series("from nothing", (0, 1024), (1e-5, 2e-5)),
        Series("wide", (1024,), (1e-5,), ((-3e-5, 5e-5),)),
    ],
    ids=lambda line: line.name,
)
def test_what_has_no_logarithm_is_drawn(line: Series, tmp_path: Path) -> None:
    path = draw(tmp_path / "plot.svg", line)
    words = words_of(path)
    assert {"0 B" if 0 in line.sizes else "1 KiB", line.name} <= set(words)
    assert not re.search(r"\b(nan|inf)\b", path.read_text())


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_is_the_same_in_every_process(suffix: str, tmp_path: Path) -> None:
    files = []
    for seed in ("1", "2"):
        files.append(tmp_path / f"{seed}{suffix}")
        settings = tmp_path / "matplotlibrc"
        settings.write_text("axes.grid: True\nfont.size: 30\n" if seed == "2" else "")
        done = subprocess.run(
            [sys.executable, "-c", DRAW, str(files[-1])],
            env={**os.environ, "PYTHONHASHSEED": seed, "MATPLOTLIBRC": str(settings)},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith(b"<?xml" if suffix == ".svg" else b"\x89PNG")
    assert b"matplotlib.org" not in first
    assert b"dc:date" not in first


def test_other_plots_of_the_process_keep_their_settings(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    draw(tmp_path / "plot.svg", NATIVE)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("plot.eps", "ends with .eps; plots are written as .svg or .png or .pdf"),
        ("plot", "ends with nothing; plots are written as .svg or .png or .pdf"),
        ("none/plot.svg", "there is no folder"),
        ("folder.svg", "is a folder; give a file in it"),
    ],
)
def test_refuses_where_it_cannot_write(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(CollplanError, match="--plot: ") as refused:
        check_plot_path(tmp_path / name)
    assert problem in str(refused.value)
    with pytest.raises(CollplanError, match="--plot: "):
        draw(tmp_path / name, NATIVE)


@pytest.mark.parametrize("sizes", [(64, 128, 256, 512), (0, 64, 128, 256, 512)])
def test_sizes_that_double_are_equally_far_apart(sizes: tuple[int, ...]) -> None:
    """Nothing lies two doublings below the smallest size."""
    axes = Figure().subplots()
    furnish_sizes(axes, sizes, "bytes")
    places = axes.xaxis.get_transform().transform(np.array(sizes))
    steps = np.diff(places) / (places[-1] - places[-2])
    assert steps[-3:].tolist() == pytest.approx([1, 1, 1])
    assert steps[:-3].tolist() == pytest.approx([2] * (0 in sizes))
    assert axes.xaxis.get_ticklocs().tolist() == list(sizes)


def test_nine_sizes_at_most_have_ticks() -> None:
    for n_sizes in range(1, 40):
        sizes = [2**i for i in range(n_sizes)]
        axes = Figure().subplots()
        furnish_sizes(axes, sizes, "bytes")
        ticks = axes.xaxis.get_ticklocs().tolist()
        assert ticks == sizes[:: sizes.index(ticks[1])] if n_sizes > 1 else ticks == sizes
        assert min(n_sizes, 5) <= len(ticks) <= 9


def test_finished_axes_have_a_title_and_no_frame_above_and_on_the_right() -> None:
    axes = Figure().subplots()
    finish(axes, "times")
    assert (axes.get_title(loc="left"), axes.get_legend()) == ("times", None)
    shown = {side: spine.get_visible() for side, spine in axes.spines.items()}
    assert shown == {"left": True, "bottom": True, "right": False, "top": False}
    axes.plot([1, 2], label="native")
    finish(axes, "times")
    assert axes.get_legend() is not None


def test_a_bound_does_not_extend_the_axis_of_times(tmp_path: Path) -> None:
    sizes = [1024, 4096]
    lines = [
        Series("plan", sizes, [1e-3, 2e-3]),
        Series("MPICH", sizes, [2e-3, 4e-3], role="library"),
        Series("lower bound", sizes, [1e-9, 1e-8], role="bound"),
    ]
    path = tmp_path / "plot.svg"
    plot_times(path, lines, title="times", size_label="bytes")
    words = " ".join(ElementTree.parse(path).getroot().itertext())
    assert all(name in words for name in ("plan", "MPICH", "lower bound", "1 ms"))
    assert "ns" not in words
    plot_times(path, lines[:1], title="times", size_label="bytes")
    assert "lower bound" not in path.read_text()
