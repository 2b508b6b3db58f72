"""Levels of a machine: which ranks are near each other, from groups of the network to nodes."""

from __future__ import annotations

from typing import assert_never

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.topology.fabric import fabric_of
from collplan.specs.levels import LevelName
from collplan.specs.machine import Machine
from collplan.specs.topology import Torus


def rank_places(machine: Machine, level: LevelName) -> Ints:
    """Return the place of every rank on a level, such as its node or its switch's number.

    Parameters
    ----------
    machine : Machine
        With a topology, if the level is one of the network.
    level : str

    Returns
    -------
    ndarray of int64, shape (n_ranks,)
        Numbers may have gaps.

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
    """Return places of every rank, level by level of the network, the coarsest first.

    Groups and switches; of a torus, boxes of hosts around the machine's nodes, which are halved
    along their longest side level by level; then nodes.

    Parameters
    ----------
    machine : Machine
        With a topology.

    Returns
    -------
    ndarray of int64, shape (n_levels, n_ranks)
        A level's places lie within those of the level before it.
    """
    topology, node = machine.network.topology, np.array(machine.rank_to_node)
    if isinstance(topology, Torus):
        return _boxes(np.array(machine.node_to_host), topology.dimensions)[:, node]
    return np.array([rank_places(machine, level) for level in ("group", "switch", "node")])


def _boxes(host: Ints, dimensions: tuple[int, ...]) -> Ints:
    """Return the boxes of hosts of a torus, halved until each host has its own.

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
        # Along the longest side that boxes have.
        parts[(extent / parts).argmax()] *= 2
        halved = place * parts // np.maximum(extent, parts)
        _, box = np.unique(halved, axis=0, return_inverse=True)
        found.append(box.ravel())
    return np.array(found or [np.zeros_like(host)])
