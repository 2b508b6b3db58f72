"""``collplan overlap``: what scripts read, what people read, and what is refused."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from collplan.measure.overlap.model import overlap_model
from collplan.measure.overlap.sweep import OverlapMethod, OverlapSweep, overlap_row
from collplan.reports.overlap import (
    _draw_levels,
    plot_overlap,
    plot_sweep,
    print_sweep,
    sweep_document,
)
from collplan.specs import Machine
from command_line import CommandLine
from drawn_figures import keep_figures


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def test_json_has_every_number_of_ranks_and_levels(collplan: CommandLine) -> None:
    found = collplan("overlap", "--cores", 64, "--collective", "reduce", "--json").json()
    places = [(row["ranks"], row["levels"]) for row in found["rows"]]
    assert places == [(ranks, levels) for ranks in range(1, 64) for levels in range(7)]
    model = overlap_model("reduce", 64)
    for row in found["rows"]:
        assert row["time"] == model.overlapped[row["ranks"] - 1, row["levels"]]
        assert row["communication"] == model.communication[row["ranks"] - 1, row["levels"]]
    assert [one["ranks"] for one in found["best"]] == list(range(1, 64))
    for one in found["best"]:
        times = [row["time"] for row in found["rows"] if row["ranks"] == one["ranks"]]
        assert one["time"] == min(times)
        assert one["levels"] == times.index(min(times))
    assert [(one["ranks"], one["levels"]) for one in found["switches"]] == [
        (52, 1), (58, 2), (62, 3),
    ]  # fmt: skip
    assert found["best_overall"] == found["best"][50]
    assert found["references"][50] == {"ranks": 51, "blocking": 6, "compute": 64 * 6 / 51}
    assert "simulation" not in found


def test_a_radix_makes_another_tree(collplan: CommandLine) -> None:
    found = collplan("overlap", "--cores", 9, "--radix", 3, "--simulate", "--json").json()
    model = overlap_model("reduce", 9, 3)
    assert found["radix"] == 3
    for row in found["rows"]:
        assert row["time"] == model.overlapped[row["ranks"] - 1, row["levels"]]
        if row["ranks"] > 1:
            assert row["simulated"] <= row["time"] * 1.0001


def test_json_with_a_simulation_beside(collplan: CommandLine) -> None:
    found = collplan("overlap", "--cores", 6, "--simulate", "--json").json()
    for row in found["rows"]:
        if row["ranks"] > 1:
            assert row["simulated"] == pytest.approx(row["time"])
            assert row["simulated_communication"] == pytest.approx(row["communication"])
    assert found["simulation"]["machine"] is None
    assert found["simulation"]["transport"] == "shared"
    assert found["simulation"]["switches"] == found["switches"]
    names = {"machine", "transport", "transfer_bytes", "transfer_s", "references", "best"}
    assert set(found["simulation"]) == names | {"switches", "best_overall"}


def test_a_machine_has_its_cores(collplan: CommandLine) -> None:
    path = collplan.folder / "small.yaml"
    path.write_text("{ranks_per_node: 5, network: {copy_ns_per_byte: 3}}")
    arguments = ("--collective", "bcast", "--bytes", "1KiB", "--json")
    found = collplan("overlap", "--machine", path, *arguments).json()
    assert found["cores"] == 5
    assert found["simulation"]["machine"] == str(path)
    # A flag is seen 200 ns later.
    assert found["simulation"]["transfer_s"] == pytest.approx((3 * 1024 + 200) * 1e-9)
    assert collplan("overlap", "--cores", 5, "--machine", path, *arguments).json() == found


def test_people_see_ranges_of_ranks(collplan: CommandLine) -> None:
    shown = collplan("overlap").out
    for words in ("1 to 51 63 to 13 0 51 ranks 7.529", "62 to 63 2 to 1 3 62 ranks 9.194"):
        assert words in " ".join(shown.split())
    assert "least: 7.529 transfers with 51 ranks and S = 0" in shown
    beside = collplan("overlap", "--cores", 5, "--simulate", "--collective", "gather").out
    assert "transfers through messages, one takes a unit" in beside
    on_knl = collplan("overlap", "--cores", 2, "--collective", "reduce", "--simulate").out
    assert "ranks (simulated)" in on_knl


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("--collective", "reduce"), 7),
        (("--collective", "gather", "--cores", 9, "--simulate"), 5),
        (("--cores", 2), 2),
        (("--cores", 600), 7),
    ],
)
def test_a_plot_has_a_line_for_every_level(
    collplan: CommandLine, arguments: tuple[object, ...], lines: int
) -> None:
    path = collplan.folder / "plot.svg"
    outcome = collplan("overlap", *arguments, "--plot", path)
    assert outcome.status == 0
    assert f"wrote {path}" in outcome.out
    words = [
        (element.text or "").strip()
        for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert words.count("S = 0") == 2
    assert sum(word.startswith("S = ") for word in words) == 2 * lines
    assert {"computation", "blocking", "computation, then blocking"} <= set(words)
    assert words.count("simulated") == (2 if "--simulate" in arguments else 0)
    assert collplan("overlap", *arguments, "--plot", path, "--json").json()["plot"] == str(path)


@pytest.mark.parametrize("n_levels", [1, 3])
def test_all_simulated_points_of_a_plot_have_one_entry_in_its_legend(n_levels: int) -> None:
    axes = Figure().subplots()
    times = np.ones((4, n_levels))
    _draw_levels(axes, times)
    _draw_levels(axes, times, simulated=True)
    names = axes.get_legend_handles_labels()[1]
    assert names == [*(f"S = {levels}" for levels in range(n_levels)), "simulated"]


def test_curves_are_the_models_times_from_half_of_the_cores_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = keep_figures(monkeypatch)
    model = overlap_model("reduce", 9, 3)
    plot_overlap(tmp_path / "plot.png", model)
    plot_overlap(tmp_path / "plot.png", model, model)
    alone, both = figures[0].axes
    for axes, without, times in zip(
        figures[1].axes, (alone, both), (model.communication, model.overlapped), strict=True
    ):
        points = [line for line in axes.lines if line.get_marker() == "."]
        assert len(axes.lines) - len(points) == len(without.lines)
        for level, line in enumerate(points):
            assert line.get_xydata().tolist() == [[n, times[n - 1, level]] for n in range(4, 9)]
        assert len(points) == model.n_levels
    levels = {f"S = {level}": level for level in range(model.n_levels)}
    ranks = range(4, 9)
    expected = {
        alone: {name: model.communication[:, level] for name, level in levels.items()}
        | {"computation": model.compute, "blocking": model.blocking},
        both: {name: model.overlapped[:, level] for name, level in levels.items()}
        | {"computation, then blocking": model.compute + model.blocking},
    }
    for axes, curves in expected.items():
        lines = {str(line.get_label()): line for line in axes.lines}
        assert set(lines) == set(curves)
        for name, times in curves.items():
            assert lines[name].get_xydata().tolist() == [
                [rank, times[rank - 1]] for rank in ranks
            ], name
    assert alone.get_title(loc="left") == "reduce with radix 3 on 9 cores: communication alone"
    assert both.get_title(loc="left") == "reduce with radix 3 on 9 cores: with computation"


SWEEP = OverlapSweep(
    "reduce", 4096, Machine.model_validate({"ranks_per_node": 8}), (2, 4), (0, 1), (), "shared"
)
SWEEP_ROWS = [
    overlap_row(2, OverlapMethod("plan", blocking=True), 1e-6, 4e-6, 5e-6),
    overlap_row(2, OverlapMethod("plan", levels=0), 1e-6, 4e-6, 4.5e-6),
    overlap_row(4, OverlapMethod("plan", blocking=True), 2e-6, 2e-6, 3.5e-6),
    overlap_row(4, OverlapMethod("plan", levels=0), 2e-6, 2e-6, 4e-6),
    overlap_row(4, OverlapMethod("plan", levels=1), 2e-6, 2e-6, 2.5e-6),
]


def test_a_sweep_names_the_best_of_each_number_of_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = sweep_document(SWEEP, None, {"rows": SWEEP_ROWS, "computation_s": 1e-6})
    assert [(one["ranks"], one["method"], one["total_s"]) for one in document["best"]] == [
        (2, "S=0", 4.5e-6),
        (4, "S=1", 2.5e-6),
    ]
    assert [one["model_levels"] for one in document["best"]] == [
        SWEEP.model_levels(2),
        SWEEP.model_levels(4),
    ]
    asked = ("source", "collective", "algorithm", "radix", "transport", "bytes", "cores")
    assert [document[name] for name in asked] == [
        "simulated", "reduce", "binomial", 2, "shared", 4096, 8,
    ]  # fmt: skip
    assert "repetitions" not in document
    print_sweep(document)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    best = (SWEEP.model_levels(2), SWEEP.model_levels(4))
    assert [line for line in lines if line.strip("─ ")] == [
        "reduce of 4 KiB on 8 cores, binomial, simulated",
        "ranks method communication computation both overlap",
        "2 blocking 1 µs 4 µs 5 µs 0%",
        "2 S=0 1 µs 4 µs *4.5 µs 50%",
        "4 blocking 2 µs 2 µs 3.5 µs 25%",
        "4 S=0 2 µs 2 µs 4 µs 0%",
        "4 S=1 2 µs 2 µs *2.5 µs 75%",
        "* the least time of both for this number of ranks",
        f"best by the model: S={best[0]} on 2, S={best[1]} on 4",
        "computation on all cores: 1 µs",
    ]


def test_remarks_say_what_limits_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row | {"progress": "caller", "why_caller": "there is no core"} for row in SWEEP_ROWS]
    found = {
        "rows": rows,
        "computation_s": 1e-6,
        "is_mapped": True,
        "processors": 2,
        "library": "MPICH 5",
        "why_not_asynchronous": "it cannot",
        "wrong": ["a result"],
    }
    chains = replace(SWEEP, kind="scan")
    document = sweep_document(chains, 7, found)
    assert (document["source"], document["repetitions"]) == ("measured", 7)
    assert document["radix"] is None
    print_sweep(document)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert not [line for line in lines if line.startswith("best by the model")]
    assert lines[0] == "scan of 4 KiB on 8 cores, chain, MPICH 5"
    assert lines[-5:] == [
        "7 repetitions in turns; medians, from the first rank's start to the last one's end",
        "note: 8 cores share 2 processors: times only show that it works",
        "note: progress by the caller: there is no core",
        "native, asynchronous: none; it cannot",
        "WRONG: a result",
    ]


def test_a_sweep_has_a_line_for_each_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = keep_figures(monkeypatch)
    rows = [row | {"total_ci95_s": (row["total_s"] / 2, 2 * row["total_s"])} for row in SWEEP_ROWS]
    plot_sweep(tmp_path / "sweep.png", sweep_document(SWEEP, 7, {"rows": rows, "library": "MPI"}))
    (axes,) = figures[0].axes
    assert axes.get_title(loc="left") == "reduce of 4 KiB and computation on 8 cores, MPI"
    lines = {str(one.get_label()): one.lines for one in axes.containers}  # type: ignore[attr-defined]
    assert list(lines) == ["blocking", "S=0", "S=1"]
    for name, (line, _, (bars,)) in lines.items():
        own = [row for row in rows if row["method"] == name]
        assert line.get_xydata().tolist() == [[row["ranks"], row["total_s"]] for row in own]
        ends = [part[:, 1].tolist() for part in bars.get_segments()]
        assert ends == [pytest.approx(row["total_ci95_s"]) for row in own]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cores", 1), ("cores: 1", "use 2 or more")),
        (("--cores", -4), ("cores: -4", "use 2 or more")),
        (("--cores", 70_000), ("cores: 70000 is too many", "use 65536 or fewer")),
        (("--cores", "many"), ("--cores",)),
        (("--cores", 300, "--simulate"), ("cores: 300 is too many for simulating", "use 256")),
        (("--collective", "scan"), ("'scan'", "reduce, bcast, gather, scatter, allreduce")),
        (("--machine", "knl65"), ("machine: 'knl65' is not a preset", "did you mean 'knl64'")),
        (("--machine", "none.yaml"), ("none.yaml: no such file",)),
        (("--machine", "knl64", "--cores", 48), ("--cores: 48", "knl64 has 64", "leave one")),
        (("--bytes", "1KiB"), ("--bytes: 1KiB", "add --machine")),
        (("--machine", "knl64", "--bytes", "many"), ("--bytes: 'many' is not a size",)),
        (("--machine", "knl64", "--bytes", 0), ("--bytes: 0", "give 1 or more")),
        (("--machine", "knl64", "--bytes", "2TiB"), ("collective.count", "too large")),
        (("--transport", "shared"), ("--transport: shared", "add --simulate")),
        (("--simulate", "--transport", "air"), ("'air' is not a transport", "messages or shared")),
        (("--plot", "plot.eps"), ("--plot: plot.eps ends with .eps", ".svg or .png")),
        (("--plot", "/no/where.svg"), ("--plot: there is no folder /no",)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_bad_input_is_refused_in_one_line(
    collplan: CommandLine, arguments: tuple[object, ...], words: tuple[str, ...]
) -> None:
    line = collplan("overlap", *arguments, "--json").error()
    for word in words:
        assert word in line
