"""Say an emulated cluster as the machine of a spec, so that plans can be made and priced for it."""

from __future__ import annotations

from typing import Final

from collplan.emulate.cluster import Cluster, EmulationError
from collplan.executors.mpi.launch.launcher import n_cores
from collplan.specs.explaining import explaining
from collplan.specs.machine import Machine
from collplan.specs.network import Link, Network

PAYLOAD: Final = 1448 / 1514
"""The share of a lane's rate that is MPI's: TCP's payload of a full Ethernet frame."""
HEADER_BYTES: Final = 66
"""Bytes that a lane carries for the shortest message, beside the message."""

TURN_BYTES: Final = 64 * 1024
"""About what the kernel sends of a connection before another's turn comes."""
BURST_BYTES: Final = 32 * 1024
"""Bytes that tbf lets pass at once over an idle lane."""

# MPICH 5.0.2 on two cores of an AMD EPYC virtual machine. Ping-pong, the other ranks asleep,
# medians: half a round trip of a byte takes 88 to 113 µs between nodes and 75 to 110 µs inside
# one (of which a rank that yields sleeps most). Broadcasts of 4 MiB in segments of 4 and 16 KiB:
# a rank's core is busy 4.6 µs per task and 1.2 ns per byte it sends or receives.
_INSIDE: Final = Link(L_ns=80_000, o_ns=4_600, g_ns=0, G_ns_per_byte=1.2)


def emulated_machine(cluster: Cluster) -> Machine:
    """Return the machine a cluster emulates.

    Parameters
    ----------
    cluster : Cluster
        The cluster.

    Returns
    -------
    Machine
        Its nodes, ranks, lanes and costs. The bandwidth between nodes is the cluster's,
        the latencies are those of this machine's cores and kernel: estimates. All ranks
        share this machine's processors.

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
        # The kernel takes in what comes while ranks sleep: the wire's time keeps no processor.
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
    fields["lanes"] = cluster.lanes if len(set(rates)) == 1 else rates
    with explaining(error=EmulationError):
        return Machine.model_validate({**fields, "network": network})
