"""The benchmark on emulated clusters: its bounds by formula, and that it runs and reports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from collplan.emulate.cluster import Cluster
from collplan.emulate.machine import emulated_machine
from collplan.planner.collective.bounds import lower_bounds
from collplan.specs.errors import CollplanError
from emulating import need_emulation
from folders import BENCHMARKS
from mpi_launching import run

sys.path.insert(0, str(BENCHMARKS))

import cluster
from cluster_cases import KINDS, spec_of

C = 4 * 2**20
RATE = 10**8


def wire_s(kind: str, nodes: int, per_node: int, lanes: int) -> float:
    """Return how long the busiest lane is busy, by what must leave or enter a node."""
    share = (nodes - 1) / nodes
    crossing = {
        "bcast": C,
        "reduce": C,
        "scan": C,
        "allreduce": 2 * share * C,
        "allgather": share * C,
        "reduce_scatter_block": share * C,
        "gather": share * C,
        "scatter": share * C,
        "alltoall": per_node * C * share,
    }[kind]
    payload_per_s = RATE / 8 * 1448 / 1514
    return crossing / (lanes * payload_per_s)


@pytest.mark.parametrize(("nodes", "per_node", "lanes"), [(4, 4, 2), (2, 2, 1), (4, 4, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_what_must_cross(kind: str, nodes: int, per_node: int, lanes: int) -> None:
    machine = emulated_machine(Cluster(nodes, per_node, lanes, RATE))
    bound = lower_bounds(spec_of(kind, machine, C)).time_s
    burst_s = machine.network.burst_bytes * machine.network.network.G_ns_per_byte * 1e-9
    assert bound == pytest.approx(wire_s(kind, nodes, per_node, lanes) - burst_s, rel=1e-9)


@pytest.mark.system
def test_a_small_cluster_is_measured(tmp_path: Path) -> None:
    need_emulation()
    output = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "cluster.py"), "--nodes", "2", "--per-node", "2"]
    command += ["--bytes", "64KiB", "--repetitions", "2", "--collectives", "bcast,alltoall"]
    done = run([*command, "--json", str(output)], timeout_s=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(output.read_text())
    assert document["library"].startswith("MPICH")
    assert [row["collective"] for row in document["rows"]] == ["bcast", "alltoall"]
    for row in document["rows"]:
        assert row["refused"] == {}
        assert list(row["times"]) == [
            *("native", "striped", "hierarchical native", "full_lane native"),
            *("hierarchical", "full_lane", "best"),
        ]
        for times in row["times"].values():
            assert times["wrong"] is None
            assert 0 < times["min_s"] <= times["median_s"] <= times["max_s"]
            assert [len(lanes) for lanes in times["lanes"]] == [2, 2]
        best = cluster.busiest(row["times"]["best"])
        # Counted frames have headers, acknowledgements and the barrier beside what the plan says.
        least = max(row["best_plan"].values())
        assert least <= best <= 1.15 * least + 8192
        assert f"{row['collective']}: best is {row['times']['best']['plan']}" in done.stdout
    assert "best/bound" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("--collectives bcast,bcats", "--collectives: no bcats; valid: bcast,reduce,"),
        ("--repetitions 1", "--repetitions: a spread needs 2 or more"),
        ("--rate fast", "rate: 'fast' is not a rate"),
        ("--nodes 0", "nodes: 0 cannot be emulated"),
    ],
)
def test_mistakes_are_said(
    arguments: str,
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", ["cluster.py", *arguments.split()])
    with pytest.raises((SystemExit, CollplanError)) as refused:
        cluster.main()
    assert problem in f"{refused.value}{capsys.readouterr().err}"
