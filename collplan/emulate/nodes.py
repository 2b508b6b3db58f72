"""Build the cluster inside the sandbox; one process per node holds the node's namespaces."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from collplan.emulate import kernel

BURST: Final = "32kb"
"""Burst size of tbf; a larger one makes short messages faster than the rate."""
QUEUE_TIME: Final = "200ms"
"""Longest wait of a packet in tbf before it is dropped; TCP never reaches it."""


def node_name(node: int) -> str:
    """Return the host name of a node."""
    return f"node{node}"


def lane_name(lane: int) -> str:
    """Return the name of a lane's interface, which is the same on every node."""
    return f"lane{lane}"


def address(node: int, lane: int) -> str:
    """Return the IP address of a node on a lane; every lane is a /16 network.

    Examples
    --------
    >>> address(0, 1), address(300, 0)
    ('10.1.0.1', '10.0.1.45')
    """
    high, low = divmod(node + 1, 256)
    return f"10.{lane}.{high}.{low}"


def hosts_file(n_nodes: int) -> str:
    """Return the text of /etc/hosts on the nodes: names have the addresses of the first lane."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address(node, 0)} {node_name(node)}" for node in range(n_nodes)]
    return "\n".join(lines) + "\n"


def switch_links(pids: Sequence[int], lanes: int, leaf_of: Sequence[int] = ()) -> list[str]:
    """Return commands for ip that create bridges, and links to the nodes with processes `pids`.

    Each lane has a switch. If `leaf_of` is given, which has the leaf of every node, each lane
    also has a switch for each leaf, with a link to the switch of the lane.
    """
    commands = []
    for lane in range(lanes):
        commands += [f"link add switch{lane} type bridge", f"link set switch{lane} up"]
        for leaf in sorted(set(leaf_of)):
            name, (up, down) = leaf_name(leaf, lane), uplink_ports(leaf, lane)
            commands += [
                f"link add {name} type bridge",
                f"link set {name} up",
                f"link add {up} type veth peer name {down}",
                f"link set {up} master {name} up",
                f"link set {down} master switch{lane} up",
            ]
    for node, pid in enumerate(pids):
        for lane in range(lanes):
            port = switch_port(node, lane)
            switch = leaf_name(leaf_of[node], lane) if leaf_of else f"switch{lane}"
            commands += [
                f"link add {port} type veth peer name {lane_name(lane)} netns {pid}",
                f"link set {port} master {switch} up",
            ]
    return commands


def leaf_name(leaf: int, lane: int) -> str:
    """Return the name of the leaf switch on a lane to which the nodes of a leaf are linked."""
    return f"leaf{leaf}l{lane}"


def uplink_ports(leaf: int, lane: int) -> tuple[str, str]:
    """Return the interfaces of a leaf's link to the lane's switch: at the leaf, at the switch.

    Examples
    --------
    >>> uplink_ports(1, 0)
    ('up1l0', 'down1l0')
    """
    return f"up{leaf}l{lane}", f"down{leaf}l{lane}"


def node_links(node: int, lanes: int) -> list[str]:
    """Return commands for ip that set up the interfaces of a node."""
    commands = ["link set lo up"]
    for lane in range(lanes):
        name = lane_name(lane)
        commands += [f"addr add {address(node, lane)}/16 dev {name}", f"link set {name} up"]
    return commands


def switch_port(node: int, lane: int) -> str:
    """Return the name of the interface at which a node is linked to a switch of a lane."""
    return f"p{node}l{lane}"


def queues(interfaces: Iterable[str], rates: Iterable[int]) -> list[str]:
    """Return commands for tc that limit the sending rates of interfaces, in bits per second."""
    return [
        f"qdisc add dev {interface} root tbf rate {rate}bit burst {BURST} latency {QUEUE_TIME}"
        for interface, rate in zip(interfaces, rates, strict=True)
    ]


SCRIPTS: Final = "/dev/shm/collplan"
"""Folder in which every node has the programs and files that launchers need."""
ENTER: Final = f"{SCRIPTS}/enter"
"""Program that launchers run in place of ssh."""

_ENTER: Final = """\
#!/bin/sh
# ssh's stand-in: run a command line on a node.
while :; do
  case $1 in
    -[bceFiJlmopS]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
node=$1
shift
case $node in
{cases}
*) echo "collplan emulate: $node is no node of the cluster" >&2; exit 255 ;;
esac
exec {enter} /bin/sh -c "$*"
"""

_PROTOCOLS: Final = {
    # Neighbor discovery would send bytes on the lanes that are not from ranks.
    "ipv6/conf/{}/disable_ipv6": "1",
    # Packets from a rank on lane 0 to one on lane 1 leave and arrive on lane 1. Their source is
    # the address of lane 0, so a kernel with strict settings would not answer them.
    "ipv4/conf/{}/rp_filter": "0",
    "ipv4/conf/{}/arp_filter": "0",
    "ipv4/conf/{}/arp_ignore": "0",
}
_START: Final = 'cd "$0" && exec "$@"'
_FAILED_LINE: Final = re.compile(r"Command failed -:(\d+)")
_MODULES: Final = {"type bridge": "bridge", "type veth": "veth", "tbf": "sch_tbf"}


class SetUpError(Exception):
    """Error in one line for a step that this machine does not allow."""


def build(
    *,
    nodes: int,
    lane_rates: Sequence[int],
    leaf_of: Sequence[int],
    uplink_rates: Sequence[int],
    ip: str,
    tc: str,
    nsenter: str,
    files: Mapping[str, str],
) -> list[int]:
    """Build nodes, switches and lanes.

    Parameters
    ----------
    nodes : int
        Number of nodes.
    lane_rates : sequence of int
        Rate of each lane in each direction, in bits per second.
    leaf_of : sequence of int
        Leaf switch of every node; empty if each lane has only one switch.
    uplink_rates : sequence of int
        Rate of a leaf's link in each direction for each lane, in bits per second.
    ip, tc, nsenter : str
        Paths of the programs.
    files : mapping of str to str
        Texts by name of the files that every node gets in `SCRIPTS`.

    Returns
    -------
    list of int
        Id of the process that holds each node's namespaces.

    Raises
    ------
    SetUpError
        If the machine lacks a program or module, or does not allow a step.
    """
    _set_up_protocols()
    pids, lanes = _start_nodes(nodes), len(lane_rates)
    ports = [switch_port(node, lane) for node in range(nodes) for lane in range(lanes)]
    _batch(ip, switch_links(pids, lanes, leaf_of))
    _batch(tc, queues(ports, [*lane_rates] * nodes))
    for leaf in sorted(set(leaf_of)):
        for lane, rate in enumerate(uplink_rates):
            _batch(tc, queues(uplink_ports(leaf, lane), [rate, rate]))
    for node, pid in enumerate(pids):
        enter = [nsenter, "--target", str(pid), "--net", "--"]
        _batch(ip, node_links(node, lanes), enter)
        _batch(tc, queues(map(lane_name, range(lanes)), lane_rates), enter)
    scripts = {**files, Path(ENTER).name: _enter_script(nsenter, pids)}
    for pid in pids:
        for name, text in scripts.items():
            path = Path(f"/proc/{pid}/root{SCRIPTS}", name)
            path.write_text(text)
            path.chmod(0o755)
    return pids


def start(nsenter: str, pid: int, directory: str, command: Sequence[str]) -> NoReturn:
    """Replace this process by `command`, in a directory on the node with process `pid`."""
    # Entering a mount namespace changes to its root, so change to the directory again.
    shell = ["/bin/sh", "-c", _START, directory]
    os.execv(nsenter, [*_enter_command(nsenter, str(pid)), *shell, *command])


def _start_nodes(n_nodes: int) -> list[int]:
    hosts = hosts_file(n_nodes)
    started = []
    for node in range(n_nodes):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _be_node(node_name(node), hosts, writer)
        os.close(writer)
        started.append((pid, reader))
    for node, (_, reader) in enumerate(started):
        with os.fdopen(reader) as answer:
            problem = answer.read()
        if problem:
            raise SetUpError(f"{node_name(node)}: {problem}")
    return [pid for pid, _ in started]


def _be_node(name: str, hosts: str, answer: int) -> NoReturn:
    """Hold a node's namespaces until the sandbox ends; close `answer` when they are set up."""
    try:
        _furnish_node(name, hosts)
    except OSError as error:
        os.write(answer, kernel.describe(error).encode())
        os._exit(1)
    os.close(answer)
    while True:
        signal.pause()


def _furnish_node(name: str, hosts: str) -> None:
    kernel.unshare(kernel.NEWNS | kernel.NEWUTS | kernel.NEWIPC | kernel.NEWNET)
    socket.sethostname(name)
    # MPI libraries must find the interfaces of this node below /sys/class/net.
    kernel.mount("sysfs", "/sys", "sysfs", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)
    os.mkdir(SCRIPTS)
    table = Path(SCRIPTS, "hosts")
    table.write_text(hosts)
    kernel.mount(str(table), "/etc/hosts", "", kernel.MS_BIND)
    # The cache of the name service would answer from the machine's own host table.
    if Path("/run/nscd").is_dir():
        kernel.mount("tmpfs", "/run/nscd", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)
    _set_up_protocols()


def _set_up_protocols() -> None:
    """Set protocol options for new interfaces, which otherwise inherit those of the machine."""
    for name, value in _PROTOCOLS.items():
        for scope in ("all", "default"):
            setting = Path("/proc/sys/net", name.format(scope))
            if setting.exists():
                setting.write_text(value)


def _enter_script(nsenter: str, pids: Sequence[int]) -> str:
    cases = [f"{node_name(node)}) pid={pid} ;;" for node, pid in enumerate(pids)]
    enter = " ".join(_enter_command(nsenter, "$pid"))
    return _ENTER.format(cases="\n".join(cases), enter=enter)


def _enter_command(nsenter: str, pid: str) -> list[str]:
    return [nsenter, "--target", pid, "--mount", "--uts", "--ipc", "--net", "--"]


def _batch(program: str, commands: Sequence[str], enter: Sequence[str] = ()) -> None:
    """Run all commands in one process of ip or tc, since one process per command is too slow."""
    done = subprocess.run(
        [*enter, program, "-batch", "-"],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return
    failed = _FAILED_LINE.search(done.stderr)
    command = commands[int(failed[1]) - 1] if failed else "-batch"
    reason = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[0]
    modules = [module for words, module in _MODULES.items() if words in command]
    way_out = f"; load the kernel's module: modprobe {modules[0]}" if modules else ""
    raise SetUpError(f"{Path(program).name} {command}: {reason}{way_out}")
