"""Machines with topologies: well-known fabrics, and random ones with switches and one-way links."""

from __future__ import annotations

import numpy as np

from collplan.specs import Machine

FREE = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 0}
"""A network whose messages take time only on the links of the topology."""


def machine_on(topology: dict[str, object], **more: object) -> Machine:
    """Return a machine of one rank per host, whose copies and reductions take no time."""
    network = {
        "network": FREE,
        "copy_ns_per_byte": 0,
        "reduce_ns_per_byte": 0,
        "topology": topology,
    }
    machine = {"ranks_per_node": 1, "network": network, **more}
    if "nodes" not in machine:
        probe = Machine.model_validate({**machine, "nodes": 1})
        assert probe.network.topology is not None
        machine["nodes"] = probe.network.topology.n_hosts
    return Machine.model_validate(machine)


def torus(*dimensions: int, wrap: bool = True, **more: object) -> Machine:
    """Return a machine on a torus, or on a grid, with links of 1 GB/s."""
    shape = {"kind": "torus", "dimensions": dimensions, "wrap": wrap, "bandwidth": "1GB/s"}
    return machine_on({**shape, **more})


def boxes(n_boxes: int, n_each: int, fast: str = "4GB/s", slow: str = "1GB/s") -> Machine:
    """Return boxes of hosts behind a fast switch each, and one slow switch between all hosts."""
    hosts = [f"g{box}.{i}" for box in range(n_boxes) for i in range(n_each)]
    links = [{"source": host, "target": f"s{host[1:].split('.')[0]}"} for host in hosts]
    links = [{**link, "bandwidth": fast} for link in links]
    links += [{"source": host, "target": "all", "bandwidth": slow} for host in hosts]
    return machine_on({"kind": "graph", "hosts": hosts, "links": links})


def random_fabric(seed: int, most_hosts: int = 6, most_switches: int = 3) -> Machine:
    """Return a machine on a random connected graph, with links of different rates."""
    rng = np.random.default_rng(seed)
    n_hosts = int(rng.integers(2, most_hosts + 1))
    n = n_hosts + int(rng.integers(0, most_switches + 1))
    names = [f"h{i}" if i < n_hosts else f"s{i}" for i in range(n)]
    # A random ring connects all vertices in one direction; other links are added at random.
    order = rng.permutation(n)
    pairs = {(int(a), int(b)) for a, b in zip(order, np.roll(order, -1), strict=True)}
    for _ in range(int(rng.integers(0, 2 * n))):
        one, other = rng.choice(n, 2, replace=False)
        pairs.add((int(one), int(other)))
    links = [
        {
            "source": names[one],
            "target": names[other],
            "both": bool(rng.integers(2)),
            "bandwidth": f"{int(rng.integers(1, 9))}GB/s",
        }
        for one, other in sorted(pairs)
    ]
    return machine_on({"kind": "graph", "hosts": names[:n_hosts], "links": links})
