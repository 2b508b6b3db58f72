"""Traffic of a component's busiest group on a machine, for closed forms."""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.planner.algorithms.closed_forms import Traffic
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.plan.assembly import RankPlaces
from collplan.specs import Machine

UNEVEN: Final = 4
"""Ratio of the largest block to the mean block from which blocks are uneven."""
MOST_RANKS: Final = 2048
"""Maximum size of groups whose pairs are all examined to choose an algorithm."""


def is_uneven(component: Component) -> bool:
    """Return whether a group has a block per rank, one of at least `UNEVEN` times the mean size."""
    traits = component.traits
    if not traits.has_blocks or traits.is_pairwise or traits.has_edges:
        return False
    totals, starts = component.given.totals, component.groups.indptr[:-1]
    largest, sums = np.maximum.reduceat(totals, starts), np.add.reduceat(totals, starts)
    return bool(((largest * component.groups.sizes >= UNEVEN * sums) & (sums > 0)).any())


def has_unlike_blocks(component: Component) -> bool:
    """Return whether blocks of a group differ in size, and closed forms can be computed."""
    traits, groups = component.traits, component.groups
    if not traits.has_blocks or traits.has_edges or isinstance(component.given, PairTable):
        return False
    if traits.is_pairwise and groups.sizes.max(initial=0) > MOST_RANKS:
        return False
    totals = component.given.totals
    starts = component.first_rows[:-1]
    return bool((np.maximum.reduceat(totals, starts) > np.minimum.reduceat(totals, starts)).any())


def traffic_of(component: Component, machine: Machine, itemsize: int) -> Traffic:
    """Return the traffic of the group with the most bytes, on lanes that it shares with others.

    Parameters
    ----------
    component : Component
    machine : Machine
    itemsize : int
        Bytes per element.
    """
    groups, rows = component.groups, component.first_rows
    node = RankPlaces.of(machine).node
    chosen = int(np.add.reduceat(component.given.totals, rows[:-1]).argmax())
    ranks, size = groups[chosen], int(groups.sizes[chosen])
    n_bytes = component.given.totals[rows[chosen] : rows[chosen + 1]] * itemsize
    if component.traits.is_pairwise:
        n_bytes = n_bytes.reshape(size, size)
    elif not component.traits.has_blocks:
        # A vector that all ranks receive is like the block of a single rank.
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
