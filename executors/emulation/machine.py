"""Say an emulated cluster as the machine of a spec, so that plans can be made and priced for it."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from executors.emulation.cluster import Cluster
from executors.emulation.errors import EmulationError
from specs.loading import explain
from specs.machine import Machine
from specs.network import Link, Network

PAYLOAD: Final = 1448 / 1514
"""The share of a lane's rate that is MPI's: TCP's payload of a full Ethernet frame."""


def emulated_machine(cluster: Cluster) -> Machine:
    """Return the machine a cluster emulates.

    Parameters
    ----------
    cluster : Cluster
        The cluster.

    Returns
    -------
    Machine
        Its nodes, ranks, lanes and costs; only the bandwidth between nodes is the cluster's.

    Raises
    ------
    EmulationError
        If ranks and nodes do not fit together.
    """
    inside = Link(L_ns=2000, o_ns=2000, g_ns=0, G_ns_per_byte=0.3)
    between = Link(
        L_ns=20_000,
        o_ns=10_000,
        g_ns=0,
        G_ns_per_byte=8e9 / (cluster.rate_bits_per_s * PAYLOAD),
    )
    network = Network(core=inside, numa=inside, node=inside, network=between)
    try:
        return Machine.model_validate(
            {
                "nodes": cluster.nodes,
                "ranks_per_node": cluster.ranks_per_node,
                "lanes": cluster.lanes,
                "rank_order": cluster.rank_order,
                "network": network,
            }
        )
    except ValidationError as error:
        raise EmulationError(explain(error)) from None
