"""Tables and plots of comparisons."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from collplan.reports.comparison import _gain_line, _size_line
from collplan.select.compared import Comparison, Default
from collplan.specs import PlanSpec
from command_line import RING, CommandLine

pytestmark = pytest.mark.usefixtures("priced_once")


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.long
def test_a_table_shows_a_dozen_and_all_shows_all(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    few, every = collplan("compare", spec).out, collplan("compare", spec, "--all").out
    assert "--all shows all" in few
    assert "pruned: " in few
    assert "pruned: " not in every
    assert len(few.splitlines()) < 50 < len(every.splitlines())
    assert few.count("(the spec's)") == every.count("(the spec's)") == 1


@pytest.mark.long
def test_a_table_shows_what_libraries_run_and_remarks(collplan: CommandLine) -> None:
    spec = collplan.write_spec(
        machine={"nodes": 2, "ranks_per_node": 4},
        collective={"kind": "barrier"},
        algorithms="auto",
    )
    lines = [" ".join(line.split()) for line in collplan("compare", spec).out.splitlines()]
    assert any(line.startswith("MPICH 4.x runs smp; the best is ") for line in lines)
    assert "UCC 1.x -" in lines, "there is no plan"
    assert any(line.startswith("knomial radix=8: exchanges of a radix above 2") for line in lines)
    spec = collplan.write_spec(
        machine={"nodes": 2, "ranks_per_node": 4},
        collective={"kind": "bcast", "count": 1},
        algorithms="auto",
    )
    text = collplan("compare", spec, "--sizes", "1KiB,1MiB").out
    assert "UCC 1.x runs knomial radix=4, sag_knomial radix=2 from 1 MiB; the best is " in text


def test_losers_are_named_with_what_limits_them(collplan: CommandLine) -> None:
    spec = collplan.write_spec(
        machine={"nodes": 2, "ranks_per_node": 4, "lanes": 2},
        collective={"kind": "allreduce", "count": 1 << 18, "datatype": "int32"},
        algorithms="auto",
    )
    options = ("--candidates", "flat,hierarchical,full_lane")
    text = collplan("compare", spec, *options).out
    document = collplan("compare", spec, *options, "--json").json()
    text, _, steps = text.partition("next: ")
    assert steps.startswith("collplan tune ")
    assert [line.strip() for line in text.splitlines()[-len(document["reasons"]) :]] == [
        line.strip() for line in document["reasons"]
    ]
    (head,) = (line for line in text.splitlines() if line.startswith("Others at "))
    assert head == "Others at 1 MiB:"
    said = text.partition(head)[2].strip().splitlines()
    best = next(line.split()[0] for line in text.splitlines() if " wins at 1 MiB" in line)
    assert said
    for line in said:
        assert not line.startswith(f"  {best} takes")
        assert " times as long: " in line
        assert "limited by" in line or "of its critical path is" in line


@pytest.mark.long
def test_plots_show_winners_families_and_the_bound(collplan: CommandLine) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    plot, pixels = (collplan.folder / f"times.{suffix}" for suffix in ("svg", "png"))
    options = ("--sizes", "64B,4KiB,1MiB", "--candidates", "flat,hierarchical,mesh,guideline")
    assert collplan("compare", spec, *options, "--plot", pixels).status == 0
    assert pixels.read_bytes().startswith(b"\x89PNG")
    document = collplan("compare", spec, *options, "--plot", plot, "--json").json()
    words = [(e.text or "").strip() for e in ElementTree.parse(plot).iter()]
    assert {"lower bound", "ring (the spec's)"} <= set(words)
    curves = [w for w in words if w.removesuffix(" (the spec's)") in document["candidates"]]
    assert set(document["best"].values()) <= {w.removesuffix(" (the spec's)") for w in curves}
    assert 3 <= len(curves) <= 7


def test_gains_are_over_the_blocking_call_of_the_installed_library() -> None:
    spec = PlanSpec.model_validate(RING)
    call = f"MPI_I{spec.collective.kind}"
    found = Comparison([64], {"ring": spec}, leading={64: "ring"})
    found.makespans = {("ring", 64): 2e-6, (call, 64): 3e-6}
    assert (found.call, found.baseline, found.gains) == (call, call, {64: pytest.approx(1.5)})
    (line,) = _gain_line(found)
    assert line == (
        f"{call} is MPI's own non-blocking call, as MPICH makes it; the best is 1.50 times as fast "
        "as it"
    )
    found.defaults = {
        "MPICH 4.x": {64: Default("smp", "", None, makespan_s=4e-6)},
        "Open MPI 5.0.x": {64: Default("ring", "", None, estimate_s=8e-6)},
    }
    assert (found.baseline, found.gains) == ("MPICH 4.x", {64: pytest.approx(2.0)})
    found.installed = "Open MPI 5.0.x"
    assert (found.baseline, found.gains) == ("Open MPI 5.0.x", {64: pytest.approx(4.0)})
    assert "4.00 times as fast as the blocking call of Open MPI 5.0.x" in _gain_line(found)[0]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("barrier", []),
        ("allreduce", ["sizes are those of the whole vector"]),
        ("allgatherv", ["sizes are those of all blocks together"]),
        (
            "allgather",
            ["sizes are those of the block of each rank: at 1 MiB, all 8 blocks have 8 MiB"],
        ),
        (
            "alltoall",
            [
                "sizes are those of the block of each pair of ranks: at 1 MiB, "
                "all 64 blocks have 64 MiB"
            ],
        ),
    ],
)
def test_what_sizes_are_is_named(kind: str, line: list[str]) -> None:
    counts = {"barrier": {}, "allgatherv": {"counts": [1] * 8}}.get(kind, {"count": 1})
    spec = PlanSpec.model_validate(
        {"machine": {"ranks_per_node": 8}, "collective": {"kind": kind, **counts}}
    )
    assert _size_line(Comparison([1024, 2**20], specs={"any": spec})) == line
