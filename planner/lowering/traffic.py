"""Traffic of a component's busiest group on a machine, as closed forms need it."""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.algorithms.closed_forms import Traffic
from collplan.planner.arrays import Ints
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.lowering.build import Placement
from collplan.specs import Machine

UNEVEN: Final = 4
"""From how many times the mean block on the largest block makes blocks uneven."""
MOST_RANKS: Final = 2048
"""Ranks up to which all pairs of a group are looked at, to choose an algorithm for them."""


def is_uneven(component: Component) -> bool:
    """Return whether a group has a block per rank, one of them `UNEVEN` times the mean or more."""
    if not component.traits.has_blocks or component.traits.is_pairwise:
        return False
    totals, starts = component.given.totals, component.groups.indptr[:-1]
    largest, sums = np.maximum.reduceat(totals, starts), np.add.reduceat(totals, starts)
    return bool(((largest * component.groups.sizes >= UNEVEN * sums) & (sums > 0)).any())


def has_unlike_blocks(component: Component) -> bool:
    """Return whether blocks of a group differ in size, and closed forms can be had of them."""
    traits, groups = component.traits, component.groups
    if not traits.has_blocks or isinstance(component.given, PairTable):
        return False
    if traits.is_pairwise and groups.sizes.max(initial=0) > MOST_RANKS:
        return False
    totals = component.given.totals
    starts = _first_rows(component)[:-1]
    return bool((np.maximum.reduceat(totals, starts) > np.minimum.reduceat(totals, starts)).any())


def traffic_of(component: Component, machine: Machine, itemsize: int) -> Traffic:
    """Return what the group with the most bytes moves, on a lane that it shares with others."""
    groups, rows = component.groups, _first_rows(component)
    node = Placement.of(machine).node
    chosen = int(np.add.reduceat(component.given.totals, rows[:-1]).argmax())
    ranks, size = groups[chosen], int(groups.sizes[chosen])
    n_bytes = component.given.totals[rows[chosen] : rows[chosen + 1]] * itemsize
    if component.traits.is_pairwise:
        n_bytes = n_bytes.reshape(size, size)
    elif not component.traits.has_blocks:
        # Shares of a vector of which all ranks get all are like blocks of one rank.
        n_bytes = np.concatenate((n_bytes, np.zeros(size - 1, dtype=np.int64)))
    network, here = machine.network, node[ranks]
    per_node = int(np.bincount(here).max())
    speed = sum(1 / slowness for slowness in machine.lane_slowness)
    return Traffic(
        n_bytes=n_bytes,
        node=here,
        near=network.node if machine.numa_domains > 1 else network.numa,
        far=network.network,
        crowd=int(np.bincount(node[groups.ranks]).max()) / per_node / speed,
        strided_ns_per_byte=network.strided_ns_per_byte,
        combining_ns_per_byte=network.reduce_ns_per_byte if component.traits.has_op else 0.0,
    )


def _first_rows(component: Component) -> Ints:
    """Return where the rows of every group's regions begin, and where the last end."""
    groups, traits = component.groups, component.traits
    if not traits.has_blocks:
        return np.arange(len(groups) + 1)
    sizes = groups.sizes.astype(np.int64)
    return np.concatenate(([0], np.cumsum(sizes**2 if traits.is_pairwise else sizes)))
