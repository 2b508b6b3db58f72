"""Shapes of decompositions worth trying on a machine: leaders, balanced shares, meshes."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt
from typing import Any, Final

import numpy as np

from collplan.planner.decompose import second_forms
from collplan.planner.decompose.balanced import like_leaders
from collplan.planner.topology.levels import rank_places
from collplan.specs import Decomposition, Machine, PlanSpec
from collplan.specs.levels import NETWORK_LEVELS, LevelName

MANY_RANKS: Final = 256
"""Number of ranks from which p² messages of an algorithm, or blocks to cut, are too many."""
MOST_LEADERS: Final = 16


def through_leaders(spec: PlanSpec) -> Iterator[Decomposition]:
    """Yield the decompositions through leaders worth trying, in all forms that the kind has."""
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
    for form in (None, *second_forms(spec.collective.planned_kind)):
        for shape in shapes:
            yield Decomposition.model_validate(shape | {"form": form})


def network_shapes(machine: Machine) -> list[dict[str, Any]]:
    """Return decompositions by the groups and switches of the network, the nodes inside in turn.

    Levels whose places are the same as those of a level above, or the nodes, are left out.
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
    """Return numbers of leaders worth trying.

    As many as lanes; powers of two, and times the lanes, that share a node out;
    and as many as share the lanes out. Where the lanes do not share a node out, all
    powers of two times the lanes.
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
    """Return the decompositions through leaders of which as many are on every lane.

    On lanes of different rates, in proportion to these, too.
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
    """Return the lanes of the ranks of the fullest node."""
    return [local % machine.n_lanes for local in range(max(machine.node_to_n_ranks))]


def has_like_shares(machine: Machine, chosen: Decomposition) -> bool:
    """Return whether all leaders of a decomposition carry the same."""
    lanes = _lanes_of_fullest(machine)
    n_leaders = chosen.leaders or len(lanes)
    return chosen.shares == "equal" or n_leaders in like_leaders(lanes, machine.lane_rates)


def balanced_shapes(spec: PlanSpec) -> list[dict[str, Any]]:
    """Return decompositions in which leaders carry what their lanes can.

    None where whole blocks and equal shares load all lanes of a node alike, or where an
    alltoall has more pairs of ranks than can be cut one by one.
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
    """Return meshes along nodes, and of extents as alike as can be; then of three dimensions."""
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


def _half(n: int) -> int:
    """Return the greatest divisor of n that is not above its root."""
    return next(d for d in range(isqrt(n), 0, -1) if n % d == 0)
