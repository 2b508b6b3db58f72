"""Descriptions of emulated clusters, and machines that can't emulate: one line each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from collplan.emulate import kernel, nodes, running
from collplan.emulate.cluster import MAX_RATE, Cluster, EmulationError, parse_rate, parse_rates
from collplan.emulate.launching import prepare_launch
from collplan.emulate.machine import emulated_machine, lane_bytes
from collplan.emulate.nodes import queues
from collplan.executors.mpi.launch.launcher import Launcher, MpiLibrary
from command_line import CommandLine
from emulating import emulate, need_emulation
from mpi_launching import mpi_python, run

CLUSTER = ("--nodes", "2", "--per-node", "1")


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("100Mbit", 10**8),
        ("1Gbit", 10**9),
        ("12.5MB/s", 10**8),
        ("12.5 MB", 10**8),
        ("1.5mbit/s", 1_500_000),
        ("10kbit", 10_000),
        ("1MiB/s", 8 * 2**20),
        ("10Gibit", 10 * 2**30),
        ("20000bit", 20_000),
    ],
)
def test_rates(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "100", "Mbit", "-1Mbit", "5Mbps", "5Mb", "1e3bit", "5 M bit"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(EmulationError, match=r"^rate: .* is not a rate; give .*100Mbit"):
        parse_rate(text)


def test_rates_are_whole_bits() -> None:
    with pytest.raises(EmulationError, match=r"'0.5bit' is 0.5 bit/s; give a whole number"):
        parse_rate("0.5bit")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--nodes", "0", "--per-node", "1"), "nodes: 0 cannot be emulated; give 1 to 1000"),
        (("--nodes", "1001", "--per-node", "1"), "nodes: 1001 cannot be emulated"),
        ((*CLUSTER, "--lanes", "0"), "lanes: 0 cannot be emulated; give 1 to 64"),
        ((*CLUSTER, "--lanes", "-2"), "lanes: -2 cannot be emulated"),
        ((*CLUSTER, "--rate", "0Mbit"), "rate: '0Mbit' is out of range; give 1 to"),
        ((*CLUSTER, "--rate", "1000Gbit"), f"give 10000 to {MAX_RATE} bit/s"),
        ((*CLUSTER, "--rate", "fast"), "rate: 'fast' is not a rate"),
        (("--nodes", "2", "--per-node", "0"), "ranks_per_node: 0 ranks on a node; give 1 or more"),
        (("--nodes", "2", "--per-node", "many"), "--per-node: 'many' is not a list of numbers"),
        (("--nodes", "2", "--per-node", "1,,2"), "--per-node: '1,,2' is not a list of numbers"),
        (
            ("--nodes", "2", "--per-node", "5,5,2"),
            "ranks_per_node lists 3 nodes, nodes is 2; give one number for each node",
        ),
        (("--nodes", "100", "--per-node", "21"), "ranks: 2100 would be started on this machine"),
        ((*CLUSTER, "--order", "random"), "--order: 'random' is not a list of numbers; give block"),
        ((*CLUSTER, "--order", "0,1,1"), "rank_order lists 3 ranks, the machine has 2"),
        ((*CLUSTER, "--order", "0,2"), "rank_order names node 2, nodes is 2; use nodes 0 to 1"),
        ((*CLUSTER, "--order", "1,1"), "rank_order puts 0 ranks on node 0"),
        (
            (*CLUSTER, "--topology", "{kind: torus, down: [2]}"),
            "--topology: kind: 'torus' is not valid",
        ),
        ((*CLUSTER, "--topology", "none.yaml"), "none.yaml: no such file; give the path of a topo"),
        (
            (*CLUSTER, "--topology", "{kind: fat_tree, down: [2, 2]}"),
            "topology: only two levels with one link up from each leaf switch are emulated; give",
        ),
        (
            (
                *CLUSTER,
                "--topology",
                "{kind: fat_tree, down: [2, 2], oversubscription: 2, latency_ns: 5}",
            ),
            "topology: links have the rates of lanes, divided by oversubscription, no latency",
        ),
        (
            (
                "--nodes",
                "3",
                "--per-node",
                "1",
                "--topology",
                "{kind: fat_tree, down: [1, 2], up: [1, 1]}",
            ),
            "topology: has 2 hosts for 3 nodes; give more hosts",
        ),
        (
            (
                *CLUSTER,
                "--topology",
                "{kind: fat_tree, down: [2, 2], up: [1, 1], oversubscription: 100000}",
            ),
            "topology: a leaf's link of 2000 bit/s cannot be emulated; give 10000 to",
        ),
    ],
)
def test_impossible_clusters(collplan: CommandLine, options: tuple[str, ...], words: str) -> None:
    assert words in collplan("emulate", *options, "--", "true").error()


def test_no_command(collplan: CommandLine) -> None:
    assert collplan("emulate", *CLUSTER).error().startswith("Missing argument 'CMD...'")


@pytest.mark.system
def test_no_such_program(collplan: CommandLine) -> None:
    mpi_python("mpich")
    line = collplan("emulate", *CLUSTER, "--", "./nothing-of-this-name").error()
    assert line == "CMD: './nothing-of-this-name' is not a program; give one on PATH, or its path"


@pytest.mark.system
@pytest.mark.parametrize(
    ("mpi", "words"),
    [
        ("openmpi", "has MPICH {}; run the collplan of an environment with openmpi"),
        ("lam", "mpi: 'lam' cannot be emulated on; valid: mpich, openmpi"),
    ],
)
def test_another_mpi(collplan: CommandLine, mpi: str, words: str) -> None:
    launcher = running.find_launcher() if mpi_python("mpich") else None
    assert launcher is not None
    version = launcher.library.version.removeprefix("MPICH ")
    line = collplan("emulate", *CLUSTER, "--mpi", mpi, "--", "true").error()
    assert words.format(version) in line


def test_foreign_mpi(collplan: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Launcher(Path("mpiexec"), MpiLibrary("Intel MPI 2021", "intelmpi", "", ""))
    monkeypatch.setattr(running, "find_launcher", lambda: other)
    monkeypatch.setattr(running, "find_tools", dict)  # a minimal system has none
    line = collplan("emulate", *CLUSTER, "--", "true").error()
    assert line == (
        "mpi: Intel MPI 2021 cannot be started on emulated nodes; "
        "use an environment with MPICH or Open MPI"
    )


def test_no_linux(collplan: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.sys, "platform", "darwin")
    line = collplan("emulate", *CLUSTER, "--", "true").error()
    assert line == ("emulation needs the namespaces of Linux, this is darwin; use a Linux machine")


@pytest.mark.parametrize(
    ("missing", "package"), [("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")]
)
def test_missing_programs(
    collplan: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: str,
    package: str,
) -> None:
    for name in {"ip", "tc", "nsenter"} - {missing}:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(running, "_MORE_PATHS", ())
    line = collplan("emulate", *CLUSTER, "--", "true").error()
    assert line == (
        f"the program {missing} is not installed; install the system's package {package}"
    )


@pytest.mark.system
@pytest.mark.parametrize("folder", ["/dev/shm", "/proc/self", "/sys/class"])
def test_folders_that_nodes_hide(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    mpi_python("mpich")
    monkeypatch.chdir(folder)
    line = collplan("emulate", *CLUSTER, "--", "true").error()
    assert "every emulated node has its own /" in line
    assert line.endswith("change to another directory")


def refused(*prefix: str, **env: str) -> str:
    done = run([*prefix, *emulate("mpich"), *CLUSTER, "--", "true"], **env)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("collplan: error: ")
    return line.removeprefix("collplan: error: ")


def need_users(prefix: list[str]) -> None:
    need_emulation()
    if subprocess.run([*prefix, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("unshare cannot make a user namespace here")


@pytest.mark.system
def test_no_namespaces_allowed() -> None:
    need_users(["unshare", "--user", "--map-root-user"])
    forbid = 'echo 0 > /proc/sys/user/max_net_namespaces; exec "$@"'
    line = refused("unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh")
    assert line.startswith("namespaces: No space left on device; raise the limits of sysctl user.")


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give away")
def test_no_rights() -> None:
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    need_users(drop)
    line = refused(*drop)
    assert "Operation not permitted; run as root" in line


@pytest.mark.system
@pytest.mark.parametrize(
    ("program", "failing", "module"),
    [("ip", 1, "bridge"), ("ip", 3, "veth"), ("tc", 1, "sch_tbf")],
)
def test_no_such_module(tmp_path: Path, program: str, failing: int, module: str) -> None:
    need_emulation()
    fake = tmp_path / program
    reason = "RTNETLINK answers: Operation not supported"
    fake.write_text(f"#!/bin/sh\ncat >&2 <<.\n{reason}\nCommand failed -:{failing}\n.\nexit 1\n")
    fake.chmod(0o755)
    line = refused(PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert line.startswith(f"{program} ")
    assert f": {reason}; load the kernel's module: modprobe {module}" in line


def test_a_rank_on_the_wrong_node_is_refused(tmp_path: Path) -> None:
    cluster = Cluster(nodes=2, ranks_per_node=1, lanes=1, rate_bits_per_s=10**8)
    launcher = Launcher(Path("mpiexec"), MpiLibrary("MPICH", "mpich", "", ""))
    _, _, files = prepare_launch(launcher, emulated_machine(cluster), ["true"], striped=False)
    script = tmp_path / "rank"
    script.write_text(files["rank"])
    done = run(["sh", str(script), "echo", "passed"], PMI_RANK="1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "the launcher started rank 1 on" in done.stderr
    assert "instead of node1" in done.stderr


def test_the_machine_has_the_lanes_payload_rate() -> None:
    cluster = Cluster(
        nodes=2, ranks_per_node=(3, 1), lanes=2, rate_bits_per_s=10**8, rank_order="cyclic"
    )
    machine = emulated_machine(cluster)
    assert (machine.nodes, machine.ranks_per_node, machine.lanes) == (2, (3, 1), 2)
    assert machine.rank_to_node == (0, 1, 0, 0)
    # 100 Mbit/s are 80 ns per byte, 1448 of 1514 of them payload.
    assert machine.network.network.G_ns_per_byte == pytest.approx(80 / 0.9564, rel=1e-3)
    assert machine.network.node.G_ns_per_byte < 0.1 * machine.network.network.G_ns_per_byte


def test_counters_of_lanes() -> None:
    table = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:     900       9    0    0    0     0          0         0      900       9    0
lane10:      33       1    0    0    0     0          0         0       44       1    0
 lane0:71591000    1000    0    0    0     0          0         0      196       3    0
"""
    assert lane_bytes(table) == {0: (71591000, 196), 10: (33, 44)}


def test_lanes_of_different_rates() -> None:
    cluster = Cluster(2, 2, 2, parse_rates("100Mbit,25Mbit"))
    machine, same = (
        emulated_machine(cluster),
        emulated_machine(Cluster(2, 2, 2, parse_rates("100Mbit"))),
    )
    assert (machine.lanes, same.lanes) == ((10**8, 25 * 10**6), 2)
    assert machine.network == same.network
    assert emulated_machine(Cluster(2, 2, 2, parse_rates("100Mbit,100Mbit"))) == same
    assert queues(["a", "b"], (8, 9))[1] == (
        "qdisc add dev b root tbf rate 9bit burst 32kb latency 200ms"
    )
    with pytest.raises(EmulationError, match="2 rates for 3 lanes; give one rate, or one for each"):
        Cluster(2, 2, 3, parse_rates("100Mbit,25Mbit"))


def test_flags_of_the_kernel_are_bits_of_their_own() -> None:
    for names in (
        ("NEWNS", "NEWUTS", "NEWIPC", "NEWUSER", "NEWPID", "NEWNET"),
        ("MS_NOSUID", "MS_NODEV", "MS_NOEXEC", "MS_BIND", "MS_REC", "MS_PRIVATE"),
    ):
        flags = [getattr(kernel, name) for name in names]
        assert all(flag.bit_count() == 1 for flag in flags)
        assert len(set(flags)) == len(flags)


def test_every_interface_gets_its_rate_and_its_commands_on_its_node(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    batches: list[tuple[str, list[str], list[str]]] = []
    monkeypatch.setattr(nodes, "SCRIPTS", str(tmp_path))
    monkeypatch.setattr(nodes, "_set_up_protocols", lambda: None)
    monkeypatch.setattr(nodes, "_start_nodes", lambda n: [os.getpid()] * n)
    monkeypatch.setattr(
        nodes, "_batch", lambda program, lines, enter=(): batches.append((program, lines, enter))
    )
    programs = {"ip": "ip", "tc": "tc", "nsenter": "nsenter"}
    pids = nodes.build(nodes=2, lane_rates=[5, 7], leaf_of=[3, 3], uplink_rates=[11, 13],
                       files={"hello": "there"}, **programs)  # fmt: skip
    enter = ["nsenter", "--target", str(os.getpid()), "--net", "--"]
    assert pids == [os.getpid()] * 2
    assert (tmp_path / "hello").read_text() == "there"
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o755}
    (first, switches, _), *queued = batches
    assert first == "ip"
    assert switches == nodes.switch_links(pids, 2, [3, 3])
    wanted = [
        ("tc", queues(["p0l0", "p0l1", "p1l0", "p1l1"], [5, 7, 5, 7]), ()),
        ("tc", queues(nodes.uplink_ports(3, 0), [11, 11]), ()),
        ("tc", queues(nodes.uplink_ports(3, 1), [13, 13]), ()),
    ]
    for node in range(2):
        wanted.append(("ip", nodes.node_links(node, 2), enter))
        wanted.append(("tc", queues(["lane0", "lane1"], [5, 7]), enter))
    assert queued == wanted


@pytest.mark.parametrize(
    ("told", "line"),
    [
        ("Not allowed\nCommand failed -:2", "ip link add b type veth: Not allowed; load the "
         "kernel's module: modprobe veth"),
        ("Not allowed\nCommand failed -:1", "ip link add a: Not allowed"),
        ("Unknown option", "ip -batch: Unknown option"),
        ("", "ip -batch: exit 3"),
    ],
)  # fmt: skip
def test_a_command_that_fails_is_named_with_its_first_reason(
    told: str, line: str, tmp_path: Path
) -> None:
    program = tmp_path / "ip"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/lines\nprintf '{told}' >&2\nexit 3\n")
    program.chmod(0o755)
    commands = ["link add a", "link add b type veth"]
    with pytest.raises(nodes.SetUpError) as refused:
        nodes._batch(str(program), commands)
    assert str(refused.value) == line
    assert (tmp_path / "lines").read_text().splitlines() == commands
    program.write_text("#!/bin/sh\nexit 0\n")
    nodes._batch(str(program), commands)
