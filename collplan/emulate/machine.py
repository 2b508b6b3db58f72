"""Convert an emulated cluster to the machine of a spec, for which plans are made and priced."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from collplan.emulate.cluster import Cluster, EmulationError
from collplan.executors.mpi.launch.environment import n_cores
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import Machine
from collplan.specs.machines.network import Link, Network
from collplan.specs.syntax.numbers import write_rate

PAYLOAD: Final = 1448 / 1514
"""Part of a lane's rate that is available to MPI: the TCP payload of a full Ethernet frame."""
HEADER_BYTES: Final = 66
"""Bytes of headers that a lane carries for the shortest message."""

TURN_BYTES: Final = 64 * 1024
"""Approximate bytes that the kernel sends for a connection before another one has its turn."""
BURST_BYTES: Final = 32 * 1024
"""Bytes that tbf lets pass at once over an idle lane."""

# Medians with MPICH 5.0.2 on two cores of an AMD EPYC virtual machine. In a ping-pong with all
# other ranks asleep, half a round trip of one byte takes 88 to 113 µs between nodes and 75 to
# 110 µs inside a node; a rank that yields sleeps for most of it. In broadcasts of 4 MiB with
# segments of 4 and 16 KiB, a rank's core is busy for 4.6 µs per task and for 1.2 ns per byte
# that it sends or receives.
_INSIDE: Final = Link(L_ns=80_000, o_ns=4_600, g_ns=0, G_ns_per_byte=1.2)


def emulated_machine(cluster: Cluster) -> Machine:
    """Return the machine that a cluster emulates.

    Parameters
    ----------
    cluster : Cluster
        Description of the cluster.

    Returns
    -------
    Machine
        Nodes, ranks, lanes and costs of the cluster. Rates between nodes are those of the
        cluster. Latencies and overheads are estimates, from measurements on one virtual
        machine. All ranks share the processors of this machine.

    Raises
    ------
    EmulationError
        If ranks and nodes do not fit together.
    """
    rates = cluster.lane_rates
    ns_per_byte = 8e9 / max(rates)
    between = Link(
        L_ns=75_000,
        o_ns=9_500,
        g_ns=HEADER_BYTES * ns_per_byte,
        G_ns_per_byte=ns_per_byte / PAYLOAD,
        O_ns_per_byte=1.2,
        # The kernel receives data while ranks sleep, so a transfer does not occupy a processor.
        offload=True,
    )
    network = Network(
        core=_INSIDE,
        numa=_INSIDE,
        node=_INSIDE,
        network=between,
        handshake=True,
        turn_bytes=TURN_BYTES,
        burst_bytes=BURST_BYTES,
        processors=n_cores(),
        copy_ns_per_byte=0.2,
        reduce_ns_per_byte=0.4,
        topology=cluster.topology,
    )
    names = ("nodes", "ranks_per_node", "rank_order")
    fields = {name: getattr(cluster, name) for name in names}
    fields["lanes"] = cluster.lanes if len(set(rates)) == 1 else list(map(write_rate, rates))
    with explaining(error=EmulationError):
        return Machine.model_validate({**fields, "network": network})


_COUNTERS: Final = Path("/proc/self/net/dev")
_LANE: Final = re.compile(r"\s*lane(\d+):(.*)")


def lane_bytes(text: str | None = None) -> dict[int, tuple[int, int]]:
    """Return the bytes that a node has received and sent on each lane.

    The kernel counts whole frames. They include 1 to 5 % of headers for messages of MPI, and
    acknowledgments in the opposite direction. The launcher's own messages use lane 0.

    Parameters
    ----------
    text : str, optional
        Table in the format of ``/proc/net/dev``; by default that of the node of this process.

    Returns
    -------
    dict of int to (int, int)
        Received and sent bytes by lane; empty if there are no lanes.

    Examples
    --------
    >>> lane_bytes(" lane1: 70 1 0 0 0 0 0 0 1514 1 0 0 0 0 0 0\\n    lo: 9")
    {1: (70, 1514)}
    """
    found = {}
    for line in (_COUNTERS.read_text() if text is None else text).splitlines():
        match = _LANE.fullmatch(line)
        if match is not None:
            # Each direction has eight counters; the first counts bytes.
            counters = match[2].split()
            found[int(match[1])] = (int(counters[0]), int(counters[8]))
    return dict(sorted(found.items()))
