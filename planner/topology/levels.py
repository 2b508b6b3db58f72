"""Levels of a machine, such as nodes or switches, on which ranks have places."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.topology.fabric import fabric_of
from collplan.specs.machines.levels import LevelName
from collplan.specs.machines.machine import Machine
from collplan.specs.topology import Torus


def rank_places(machine: Machine, level: LevelName) -> Ints:
    """Return the place of every rank on a level, such as the number of its node or switch.

    Parameters
    ----------
    machine : Machine
        A machine, which must have a topology for levels of the network.
    level : {"node", "numa", "switch", "group"}

    Returns
    -------
    ndarray of int64, shape (n_ranks,)
        Numbers of places, which may have gaps.

    Examples
    --------
    >>> tree = {"kind": "fat_tree", "down": [2, 2]}
    >>> machine = Machine.model_validate({"nodes": 3, "network": {"topology": tree}})
    >>> rank_places(machine, "node").tolist(), rank_places(machine, "switch").tolist()
    ([0, 1, 2], [0, 0, 1])
    """
    node = np.array(machine.rank_to_node, dtype=np.int64)
    match level:
        case "node":
            return node
        case "numa":
            return np.asarray(node * machine.numa_domains + np.array(machine.rank_to_numa))
        case "switch":
            return _of_nodes(machine, level)[node]
        case "group":
            return _of_nodes(machine, level)[node]
        case _:
            assert_never(level)


def _of_nodes(machine: Machine, level: LevelName) -> Ints:
    fabric = fabric_of(machine)
    assert fabric is not None, f"no topology, and {level} is one of the network's levels"
    places = fabric.node_switch if level == "switch" else fabric.node_group
    return np.asarray(places, dtype=np.int64)


def nearness(machine: Machine) -> Ints:
    """Return the place of every rank on each level of the network, from coarse to fine.

    The levels are groups, switches and nodes. The levels of a torus are boxes of hosts. The first
    level halves the box around the machine's nodes along its longest side, and every other level
    halves the boxes of the preceding level, until every host has its own box.

    Parameters
    ----------
    machine : Machine
        A machine with a topology.

    Returns
    -------
    ndarray of int64, shape (n_levels, n_ranks)
        Places. Each place of a level lies within one place of the preceding level.
    """
    topology, node = machine.network.topology, np.array(machine.rank_to_node)
    if isinstance(topology, Torus):
        return _boxes(np.array(machine.node_to_host), topology.dimensions)[:, node]
    return np.array([rank_places(machine, level) for level in ("group", "switch", "node")])


def _boxes(host: Ints, dimensions: tuple[int, ...]) -> Ints:
    """Return the box of every host of a torus on each level of halving.

    Parameters
    ----------
    host : ndarray of int64, shape (n_nodes,)
        Host of every node.
    dimensions : tuple of int
        Sizes of the torus.

    Returns
    -------
    ndarray of int64, shape (n_levels, n_nodes)

    Examples
    --------
    >>> _boxes(np.arange(4), (4,)).tolist()
    [[0, 0, 1, 1], [0, 1, 2, 3]]
    """
    steps = np.cumprod([1, *dimensions[:-1]])
    place = host[:, None] // steps % np.array(dimensions)
    place -= place.min(axis=0)
    extent = place.max(axis=0) + 1
    parts = np.ones_like(extent)
    found = []
    while (parts < extent).any():
        # Halve boxes along their longest side.
        parts[(extent / parts).argmax()] *= 2
        halved = place * parts // np.maximum(extent, parts)
        _, box = np.unique(halved, axis=0, return_inverse=True)
        found.append(box.ravel())
    return np.array(found or [np.zeros_like(host)])
