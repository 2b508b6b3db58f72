"""Promising shapes of decompositions on a machine: leaders, balanced shares, meshes."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, Final

import numpy as np

from collplan.planner.decompose import second_forms
from collplan.planner.decompose.balanced import like_leaders
from collplan.planner.topology.levels import rank_places
from collplan.specs import Decomposition, Machine, PlanSpec
from collplan.specs.machines.levels import NETWORK_LEVELS, LevelName

MANY_RANKS: Final = 256
"""Number of ranks from which p² messages of an algorithm, or blocks to cut, are too many."""
MOST_LEADERS: Final = 16


def through_leaders(spec: PlanSpec) -> Iterator[Decomposition]:
    """Yield promising decompositions through leaders, in all forms that the collective has."""
    machine = spec.machine
    fullest = max(machine.node_to_n_ranks)
    shapes: list[dict[str, Any]] = []
    if machine.nodes > 1 and fullest > 1:
        shapes += [{"name": "hierarchical"}, {"name": "full_lane"}]
        shapes += [
            {"name": "multi_leader", "leaders": n} for n in leader_numbers(machine.n_lanes, fullest)
        ]
        shapes += balanced_shapes(spec)
    if machine.numa_domains > 1 and fullest > machine.numa_domains:
        shapes += [{"name": name, "by": "numa"} for name in ("hierarchical", "full_lane")]
    shapes += network_shapes(machine)
    kind, level = spec.collective.planned_kind, spec.collective.level
    for form in (None, *second_forms(kind, level)):
        for shape in shapes:
            yield Decomposition.model_validate(shape | {"form": form})


def network_shapes(machine: Machine) -> list[dict[str, Any]]:
    """Return decompositions by the network's groups and switches, also with their nodes inside.

    A level is left out if it divides the ranks like a higher level, or like nodes.
    """
    if machine.network.topology is None:
        return []
    levels: list[LevelName] = []
    seen = [1, len(np.unique(rank_places(machine, "node")))]
    for level in NETWORK_LEVELS:
        n_places = len(np.unique(rank_places(machine, level)))
        if n_places not in seen:
            levels.append(level)
            seen.append(n_places)
    if max(machine.node_to_n_ranks) > 1:
        levels.append("node")
    shapes: list[dict[str, Any]] = []
    for name in ("hierarchical", "full_lane"):
        inner: dict[str, Any] = {}
        for level in reversed(levels):
            whole: dict[str, Any] = {"name": name, "by": level}
            if level != "node":
                shapes += [whole, *([whole | {"node": inner}] if inner else [])]
            inner = whole | ({"node": inner} if inner else {})
    return shapes


def leader_numbers(lanes: int, fullest: int) -> list[int]:
    """Return promising numbers of leaders.

    These are the number of lanes; powers of two, and their multiples of the number of lanes, that
    divide the ranks of a node; and divisors of the number of lanes. If the number of lanes does
    not divide the ranks of a node, all its products with powers of two are included.
    """
    found = {lanes, fullest - fullest % lanes} if lanes > 1 else set()
    for first in (2, lanes):
        n = first
        while n <= min(MOST_LEADERS, fullest // 2):
            if fullest % n == 0 or (first == lanes > 1 and fullest % lanes):
                found.add(n)
            n *= 2
    return sorted(n for n in found if 1 < n < fullest)


def leaders_on_all_lanes(machine: Machine) -> list[dict[str, Any]]:
    """Return decompositions with the same number of leaders on every lane.

    If rates of lanes differ, numbers in proportion to the rates are also included.
    """
    fullest, n_lanes = max(machine.node_to_n_ranks), machine.n_lanes
    if len(set(machine.lane_rates)) == 1:
        numbers = [n for n in leader_numbers(n_lanes, fullest) if n % n_lanes == 0]
    else:
        like = like_leaders(_lanes_of_fullest(machine), machine.lane_rates)
        doubled = {like[0] << i for i in range(len(like)) if like[0] << i in like} if like else {}
        numbers = sorted(n for n in {n_lanes, *doubled, *like[-1:]} if n < fullest)
    return [{"name": "multi_leader", "leaders": n} for n in numbers if n_lanes > 1]


def _lanes_of_fullest(machine: Machine) -> list[int]:
    """Return the lanes of the ranks of the node with the most ranks."""
    return [local % machine.n_lanes for local in range(max(machine.node_to_n_ranks))]


def balanced_shapes(spec: PlanSpec) -> list[dict[str, Any]]:
    """Return decompositions whose leaders have shares in proportion to their lanes.

    There are none if equal shares load all lanes of a node equally, or if an alltoall has too many
    pairs of ranks to cut each block.
    """
    machine, collective = spec.machine, spec.collective
    if machine.n_lanes == 1 or (collective.is_pairwise and machine.n_ranks > MANY_RANKS):
        return []
    lanes = _lanes_of_fullest(machine)
    is_needed = any(
        n not in like_leaders(lanes[:n], machine.lane_rates) for n in set(machine.node_to_n_ranks)
    )
    is_needed |= collective.regular is not None
    shapes = [{"name": "full_lane"}, *leaders_on_all_lanes(machine)]
    return [shape | {"shares": "balanced"} for shape in shapes if is_needed]


def mesh_shapes(spec: PlanSpec) -> list[tuple[int, ...]]:
    """Return meshes of two dimensions, along nodes and nearly square, and of three dimensions."""
    size, fullest, nodes = (
        spec.machine.n_ranks,
        max(spec.machine.node_to_n_ranks),
        spec.machine.nodes,
    )
    flat = [(size // n, n) for n in (fullest, nodes, _half(size)) if size % n == 0]
    deep = []
    for rows, columns in flat[:1]:
        deep = [(rows, columns // _half(columns), _half(columns))]
        deep.append((rows // _half(rows), _half(rows), columns))
    cube = round(size ** (1 / 3))
    third = next((n for n in range(cube, 1, -1) if size % n == 0), 1)
    deep.append((third, size // third // _half(size // third), _half(size // third)))
    return [shape for shape in dict.fromkeys([*flat, *deep]) if min(shape) > 1]


def every_mesh(n_ranks: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """Yield the shape of every mesh of `n_ranks` ranks whose extents are at least 2.

    Shapes are in ascending order.

    Examples
    --------
    >>> [f"{rows}x{columns}" for rows, columns in every_mesh(12, 2)]
    ['2x6', '3x4', '4x3', '6x2']
    >>> list(every_mesh(12, 3))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if dimensions == 1:
        if n_ranks > 1:
            yield (n_ranks,)
        return
    for first in range(2, n_ranks // 2 + 1):
        if n_ranks % first == 0:
            for others in every_mesh(n_ranks // first, dimensions - 1):
                yield (first, *others)


def _half(n: int) -> int:
    """Return the greatest divisor of n that does not exceed its square root."""
    return next(d for d in range(isqrt(n), 0, -1) if n % d == 0)
