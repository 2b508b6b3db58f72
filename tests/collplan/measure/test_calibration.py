"""Calibration: the fit finds known parameters again, files are checked, and real runs work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from collplan.measure.calibration import fit, measure, pair_timing
from collplan.measure.calibration.fit import Parameter, fit_machine, machine_text
from collplan.measure.calibration.local_timing import _steps
from collplan.measure.calibration.measurements import Layout, Measurements, load_measurements
from collplan.measure.calibration.pair_timing import (
    BURST_MESSAGES,
    PING_PONG_SIZES,
    TRANSFER_SIZES,
    burst_plan,
    ping_pong_plan,
)
from collplan.planner.plan.plan import Op
from collplan.specs import Machine, load_spec
from collplan.specs.errors import CollplanError
from command_line import CommandLine
from emulating import emulate, need_emulation
from machinery import CACHE, LANES, LIMIT, NETWORK, Machinery
from mpi_launching import mpi_python, run

SAMPLES = fit._RESAMPLES


@pytest.fixture(autouse=True)
def few_samples(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let fits of this process take a moment, unless they are compared with those of others."""
    if request.node.get_closest_marker("system") is None:
        monkeypatch.setattr(fit, "_RESAMPLES", 5)


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "measurements.json"
    path.write_text(json.dumps(Machinery().measure()))
    return path


def in_turns(*latencies_ns: float) -> dict[str, Any]:
    """Return measurements of turns in which the network has these latencies."""
    found: dict[str, Any] = {}
    for turn, latency in enumerate(latencies_ns):
        document = Machinery().measure()
        change = 1e-9 * (latency - NETWORK["network.network.L_ns"])
        for name in ("ping_pongs", "bursts", "transfers"):
            for entry in document[name]:
                entry["turn"] = turn
                if name == "ping_pongs" and entry["link"] == "network":
                    entry["seconds"] = [one + change for one in entry["seconds"]]
            document[name] = [*found.get(name, ()), *document[name]]
        found = document
    return found


def test_intervals_contain_all_turns_and_turns_that_disagree_are_said(
    saved: Path, tmp_path: Path, collplan: CommandLine
) -> None:
    name = "network.network.L_ns"
    calibration = fit_machine(Measurements.model_validate(in_turns(20_000, 21_000, 22_000)))
    assert calibration.warnings == ()
    (found,) = (one for one in calibration.parameters if one.name == name)
    assert found.interval is not None
    assert found.interval[0] < 20_400
    assert found.interval[1] > 21_600
    saved.write_text(json.dumps(in_turns(20_000, 20_000, 80_000)))
    outcome = collplan("calibrate", "--fit", saved, "-o", tmp_path / "machine.yaml")
    (line,) = outcome.err.splitlines()
    assert f"machine.yaml: {name} differs between turns: " in line
    assert line.endswith("measure again while nothing else runs")


def test_a_latency_of_zero_is_said() -> None:
    document = in_turns(-1_000)
    (line,) = fit_machine(Measurements.model_validate(document)).warnings
    assert line.startswith("network.network.L_ns is 0, as half a round trip takes no longer than")


def fitted(document: dict[str, Any]) -> dict[str, Any]:
    calibration = fit_machine(Measurements.model_validate(document))
    return {parameter.name: parameter for parameter in calibration.parameters}


def test_a_known_machine_says_its_cores_domains_and_lanes() -> None:
    names = ("nodes", "numa_domains", "lanes", "network.processors")
    seen = [Parameter(name, 1, None, "seen") for name in names]
    known = Machine(nodes=1, ranks_per_node=2, cores=8, numa_domains=2, lanes=3)
    found = [(one.name, one.value) for one in fit._with_known(seen, known, 0)]
    stated = [("cores", 8), ("lanes", 3), ("numa_domains", 2)]
    assert found == [("nodes", 1), *stated, ("network.processors", 1)]
    seen[1] = Parameter("numa_domains", 4, None, "seen")
    found = [(one.name, one.value) for one in fit._with_known(seen, known, 0)]
    assert found == [("nodes", 1), ("numa_domains", 4), *stated[:2], ("network.processors", 1)]


def test_ranks_of_the_first_node_send_to_the_second_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[list[tuple[int, int]]] = []

    def send(_comm: object, pairs: list[tuple[int, int]], *_: object) -> tuple[float, ...]:
        sent.append(pairs)
        return (1.0,)

    monkeypatch.setattr(measure, "_send_at_once", send)
    place: Any = SimpleNamespace(rank_to_node=(0, 2, 1, 0, 2, 1, 1))
    effort: Any = SimpleNamespace(longest_s=1.0)
    comm: Any = None
    found = measure._lanes_at_once(comm, place, effort, [])
    assert [one.ranks for one in found] == [1, 1, 2, 2]
    assert sent == [[(0, 2)]] * 2 + [[(0, 2), (3, 5)]] * 2


@pytest.mark.parametrize("seed", range(2))
def test_known_parameters_are_found_again(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "_RESAMPLES", SAMPLES)
    found = fitted(Machinery(seed).measure())
    for name, true in NETWORK.items():
        assert found[name].value == pytest.approx(true, rel=0.05), name
        low, high = found[name].interval
        assert low <= found[name].value <= high
        assert high - low < 0.5 * true, name
    assert found["network.numa.g_ns"].value == 0
    assert found["network.eager_limit_bytes"].value == LIMIT
    assert found["network.eager_limit_bytes"].interval == (LIMIT, LIMIT + 1)
    assert found["network.cache_bytes"].value == CACHE
    assert found["network.handshake"].value is True
    assert found["network.network.offload"].value is True
    assert found["network.numa.offload"].value is False
    assert found["lanes"].value == LANES
    assert found["nodes"].value == found["ranks_per_node"].value == 2


def test_long_messages_that_do_not_ask_are_seen() -> None:
    found = fitted(Machinery(asks=False).measure())
    assert found["network.handshake"].value is False
    assert found["network.network.L_ns"].value == pytest.approx(20_000, rel=0.05)


def test_where_ranks_share_cores_a_round_of_all_counts() -> None:
    document = Machinery(asks=False).measure()
    document["place"] |= {"ranks_per_core": 8.0}
    document["rounds"] = {"rounds": 4, "seconds": [4e-4] * 3}
    found = fitted(document)
    for link in ("numa", "network"):
        latency, overhead = (found[f"network.{link}.{name}"].value for name in ("L_ns", "o_ns"))
        # The burst of 4 is the shortest; with each burst come 2 µs.
        assert overhead == pytest.approx(500 + NETWORK[f"network.{link}.o_ns"], rel=0.02)
        assert latency == pytest.approx(100_000 - 8 * 2 * overhead, rel=1e-3)


def test_lanes_that_are_told_are_taken() -> None:
    document = Machinery().measure()
    document["place"] |= {"lanes": 1, "processors": 2, "rank_to_node": [0, 1, 1, 0]}
    machine = fit_machine(Measurements.model_validate(document)).machine
    assert (machine.lanes, machine.network.processors) == (1, 2)
    assert machine.rank_order == (0, 1, 1, 0)


def test_one_node_has_no_network_of_its_own() -> None:
    document = Machinery().measure()
    for name in ("ping_pongs", "bursts", "transfers", "late_receives"):
        document[name] = [entry for entry in document[name] if entry["link"] == "numa"]
    document["lanes_at_once"] = []
    document["place"] |= {"rank_to_node": [0, 0, 0, 0]}
    machine = fit_machine(Measurements.model_validate(document)).machine
    assert (machine.nodes, machine.lanes) == (1, 1)
    assert machine.network.core == machine.network.node == machine.network.numa
    assert machine.network.network == Machine().network.network


def test_caches_that_hold_all_and_memory_for_all_cost_nothing() -> None:
    document = Machinery().measure()
    document["local_work"] = [
        entry
        for entry in document["local_work"]
        if entry["working_set_bytes"] <= CACHE and entry["ranks"] == 1
    ]
    found = fitted(document)
    assert found["network.cache_bytes"].value is None
    assert found["network.uncached_ns_per_byte"].value == 0
    assert "network.memory_ns_per_byte" not in found


def test_files_survive_the_round_trip(tmp_path: Path, saved: Path) -> None:
    measurements = load_measurements(saved)
    again = tmp_path / "again.json"
    again.write_text(measurements.to_text())
    assert load_measurements(again) == measurements
    calibration = fit_machine(measurements)
    (tmp_path / "machine.yaml").write_text(machine_text(calibration, measurements))
    spec = tmp_path / "spec.yaml"
    spec.write_text("machine: machine.yaml\ncollective: {kind: bcast, count: 4}\n")
    assert load_spec(spec).machine == calibration.machine
    document = yaml.safe_load((tmp_path / "machine.yaml").read_text())
    assert Machine.model_validate(document) == calibration.machine


def test_the_command_fits_saved_measurements(collplan: CommandLine, saved: Path) -> None:
    machine, picture = collplan.folder / "machine.yaml", collplan.folder / "fit.svg"
    done = collplan("calibrate", "--fit", saved, "-o", machine, "--plot", picture, "--json")
    document = done.json()
    assert (
        Machine.model_validate(document["machine"]) == fit_machine(load_measurements(saved)).machine
    )
    text = machine.read_text()
    assert "# Measured on nowhere, 2020-01-01 00:00 UTC," in text
    assert "# with MPI 1.0, 4 ranks." in text
    assert "eager_limit_bytes: 8000  # 8001 bytes waited for their receive" in text
    assert text.count("95 % interval") >= len(NETWORK)
    assert all(f">{word}<" in picture.read_text() for word in ("network, measured", "numa, model"))
    shown = collplan("calibrate", "--fit", saved, "-o", machine)
    assert machine.read_text() == text, "the same measurements give the same file"
    assert "network.G_ns_per_byte" in shown.out
    assert f"wrote {machine}" in shown.out


def remove(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.pop(name)


def without_small(document: dict[str, Any]) -> None:
    document["bursts"] = [{**entry, "bytes": 100} for entry in document["bursts"]]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda document: document.update(version=7), "version is 7, this collplan reads 1"),
        (lambda document: document.update(format="x"), "holds no measurements"),
        (remove("ping_pongs"), "ping_pongs: Field required"),
        (lambda document: document["place"].update(rank_to_node=[0, 0, 2, 2]), "leaves a node out"),
        (lambda document: document["place"].update(rank_to_numa=[0]), "rank_to_numa lists 1 ranks"),
        (lambda document: document["ping_pongs"][0].update(seconds=[-1]), "ping_pongs.0.seconds.0"),
        (lambda document: document["bursts"][3].update(messages=0), "bursts.3.messages"),
        (lambda document: document["place"].update(rank_to_node=[0, 10**12]), "place.rank_to_node"),
        (lambda document: document["place"].update(lanes=True), "place.lanes"),
        (
            lambda document: document.update(bursts=document["bursts"][:3]),
            "bursts: there is none over network",
        ),
        (without_small, "bursts: none over network is of 64 bytes or less"),
        (lambda document: document["ping_pongs"][-1].update(link="numa"), "none over numa is of"),
        (lambda document: document["local_work"].clear(), "local_work"),
    ],
)
def test_spoilt_measurements_are_refused(
    spoil: Callable[[dict[str, Any]], None], problem: str, saved: Path
) -> None:
    document = json.loads(saved.read_text())
    spoil(document)
    saved.write_text(json.dumps(document))
    with pytest.raises(CollplanError) as refused:
        load_measurements(saved)
    assert problem in str(refused.value)
    assert str(refused.value).startswith(f"{saved}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": ' + "9" * 5000 + "}"])
def test_measurements_are_read_within_bounds(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(CollplanError, match=r"m\.json: is not JSON; give a file that"):
        load_measurements(tmp_path / "m.json")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "machine.json"], "-o: machine.json ends with .json"),
        (["-o", "nowhere/machine.yaml", "-n", 2], "-o: there is no folder nowhere"),
        (["-o", "machine.yaml"], "-n: is missing outside mpiexec"),
        (["-o", "machine.yaml", "-n", 1], "-n: one rank has nobody to send to"),
        (["-o", "machine.yaml", "--fit", "none.json"], "none.json: no such file"),
        (["-o", "machine.yaml", "--fit", "README.md", "-n", 2], "-n: says what to measure"),
        (["-o", "machine.yaml", "--fit", "README.md"], "README.md: is not JSON"),
        (["-o", "machine.yaml", "-n", 2, "--plot", "fit.eps"], "--plot: fit.eps ends with .eps"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[object],
    problem: str,
    collplan: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (collplan.folder / "README.md").write_text("# Not JSON\n")
    monkeypatch.chdir(collplan.folder)
    assert problem in collplan("calibrate", *arguments).error()
    assert not (collplan.folder / "machine.yaml").exists()


def test_a_wrong_machine_at_hand_is_refused(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLLPLAN_MACHINE", '{"lanes": 0}')
    error = collplan("calibrate", "-n", 2, "-o", collplan.folder / "machine.yaml").error()
    assert error.startswith("COLLPLAN_MACHINE: is no machine: lanes: 0 is too small")


@pytest.mark.system
def test_a_node_is_measured(tmp_path: Path) -> None:
    machine, raw = tmp_path / "machine.yaml", tmp_path / "raw.json"
    command = [str(mpi_python("mpich")), "-m", "collplan", "calibrate", "--quick", "-n", "2"]
    done = run([*command, "-o", str(machine), "--measurements", str(raw)])
    assert done.returncode == 0, done.stderr
    assert "numa.G_ns_per_byte" in done.stdout
    measurements = load_measurements(raw)
    assert measurements.place.rank_to_node == (0, 0)
    assert {entry.link for entry in measurements.ping_pongs} == {"numa"}
    text = machine_text(fit_machine(measurements), measurements)
    assert machine.read_text() == text


@pytest.mark.system
def test_an_emulated_cluster_is_measured(tmp_path: Path) -> None:
    need_emulation()
    machine = tmp_path / "machine.yaml"
    options = ["--nodes", "2", "--per-node", "2", "--lanes", "2", "--order", "cyclic"]
    command = [*emulate("mpich"), *options, "--rate", "100Mbit", "--timeout", "200", "--"]
    done = run([*command, "collplan", "calibrate", "--quick", "-o", str(machine)])
    assert done.returncode == 0, done.stderr
    found = Machine.model_validate(yaml.safe_load(machine.read_text()))
    assert (found.nodes, found.ranks_per_node, found.lanes) == (2, 2, 2)
    assert found.rank_order == "cyclic"
    assert found.network.processors is not None
    # A lane can't be faster than it is made, but for what passes unshaped.
    assert found.network.network.G_ns_per_byte > 60
    assert found.network.network.offload


def test_control_characters_of_measurements_are_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "m.json"
    measured.write_text(json.dumps(Machinery().measure() | {"host": "a\x1b[31m\nnodes: 7"}))
    outcome = CommandLine(tmp_path, capsys)(
        "calibrate", "--fit", measured, "-o", tmp_path / "m.yaml"
    )
    assert outcome.status == 0, outcome
    assert "a\\x1b[31m" in outcome.out
    assert "\x1b" not in outcome.out
    text = (tmp_path / "m.yaml").read_text()
    assert text.startswith("# Measured on a\\x1b[31m nodes: 7, ")
    assert yaml.safe_load(text)["nodes"] == 2


def test_ping_pongs_alternate_and_bursts_are_independent() -> None:
    """Rows 2i and 2i + 1 are the receive and the send of message i."""
    plan = ping_pong_plan(16, 3)
    sends = np.flatnonzero(plan.op == Op.SEND)
    assert sends.tolist() == [1, 3, 5, 7, 9, 11]
    assert plan.rank[sends].tolist() == [0, 1] * 3
    rows = [list(part) for part in np.split(plan.deps.task, plan.deps.indptr[1:-1])]
    assert rows == [[], [], [], [0], [0], [2], [2], [4], [4], [6], [6], [8]]
    assert plan.buffer_sizes.tolist() == [[16, 16, 0]] * 2
    burst = burst_plan(8, 3)
    assert burst.rank.tolist() == [1, 0] * 3
    assert len(burst.deps.task) == 0
    assert burst.reads.offset.tolist() == burst.writes.offset.tolist() == [0, 8, 16]


def test_sizes_of_measurements_ascend() -> None:
    for sizes in (PING_PONG_SIZES, BURST_MESSAGES, TRANSFER_SIZES):
        assert list(sizes) == sorted(set(sizes))
    # Shorter messages take no time that can be told from their overhead.
    assert TRANSFER_SIZES[0] >= 1 << 16
    assert set(TRANSFER_SIZES) <= set(PING_PONG_SIZES)


@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_steps_of_local_work_take_all_of_the_buffers_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes, taken = 1 << 16, []
    steps = _steps("copy", layout, n_bytes, 1 << 13)
    monkeypatch.setattr(np, "copyto", lambda written, read: taken.append((written, read)))
    for step in steps:
        step()
    for side in zip(*taken, strict=True):
        starts = [array.__array_interface__["data"][0] for array in side]
        apart = (1 << 13) * (1 if layout == "contiguous" else 2)
        assert np.diff(starts).tolist() == [apart] * (n_bytes // apart - 1)
        assert {array.nbytes for array in side} == {1 << 13}


@pytest.mark.parametrize("rank", [0, 1])
def test_only_the_receiver_of_a_late_message_is_late(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(pair_timing.time, "sleep", slept.append)
    timer: Any = SimpleNamespace(
        _comm=SimpleNamespace(rank=rank, Barrier=lambda: None),
        _start=lambda message: SimpleNamespace(Test=lambda: True),
    )
    assert pair_timing.PairTimer._late_send(timer, np.ones(1, np.uint8), 0.5) >= 0
    assert slept == [0.5] * rank
