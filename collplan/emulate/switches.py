"""The network of the cluster, as commands for iproute2: one switch a lane, shaped both ways.

The switches are bridges in the sandbox's own network namespace. Their port to
node i, ``p<i>l<j>``, is one end of a virtual cable whose other end is the
node's interface ``lane<j>``. What a node sends is shaped where it leaves the
node, what it receives where it leaves the switch, so a lane is full duplex.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

BURST: Final = "32kb"
"""What tbf lets pass at once; more than this makes short messages faster than the rate."""
QUEUE_TIME: Final = "200ms"
"""How long a packet may wait in tbf before it is dropped: long enough that TCP never has to."""


def node_name(node: int) -> str:
    """Return a node's host name."""
    return f"node{node}"


def lane_name(lane: int) -> str:
    """Return the interface of a lane, the same on every node."""
    return f"lane{lane}"


def address(node: int, lane: int) -> str:
    """Return a node's address on a lane; every lane is a /16 network of its own.

    Examples
    --------
    >>> address(0, 1), address(300, 0)
    ('10.1.0.1', '10.0.1.45')
    """
    high, low = divmod(node + 1, 256)
    return f"10.{lane}.{high}.{low}"


def hosts_file(n_nodes: int) -> str:
    """Return the nodes' /etc/hosts: a name leads to the node's first lane."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address(node, 0)} {node_name(node)}" for node in range(n_nodes)]
    return "\n".join(lines) + "\n"


def switch_links(pids: Sequence[int], lanes: int) -> list[str]:
    """Return ip's commands for bridges, and for cables to the nodes whose processes are `pids`."""
    commands = []
    for lane in range(lanes):
        commands += [f"link add switch{lane} type bridge", f"link set switch{lane} up"]
    for node, pid in enumerate(pids):
        for lane in range(lanes):
            port = _port(node, lane)
            commands += [
                f"link add {port} type veth peer name {lane_name(lane)} netns {pid}",
                f"link set {port} master switch{lane} up",
            ]
    return commands


def switch_queues(n_nodes: int, lanes: int, rate_bits_per_s: int) -> list[str]:
    """Return tc's commands that shape what the switches send."""
    ports = [_port(node, lane) for node in range(n_nodes) for lane in range(lanes)]
    return [_shape(port, rate_bits_per_s) for port in ports]


def node_links(node: int, lanes: int) -> list[str]:
    """Return ip's commands for a node's own interfaces."""
    commands = ["link set lo up"]
    for lane in range(lanes):
        name = lane_name(lane)
        commands += [f"addr add {address(node, lane)}/16 dev {name}", f"link set {name} up"]
    return commands


def node_queues(lanes: int, rate_bits_per_s: int) -> list[str]:
    """Return tc's commands that shape what a node sends."""
    return [_shape(lane_name(lane), rate_bits_per_s) for lane in range(lanes)]


def _port(node: int, lane: int) -> str:
    return f"p{node}l{lane}"


def _shape(interface: str, rate_bits_per_s: int) -> str:
    return (
        f"qdisc add dev {interface} root tbf rate {rate_bits_per_s}bit "
        f"burst {BURST} latency {QUEUE_TIME}"
    )
