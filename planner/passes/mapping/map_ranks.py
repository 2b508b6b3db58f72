"""Mapping of ranks to positions of an algorithm, so that few bytes cross coarse network levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.blueprint.blueprint import Blueprint, Component
from collplan.planner.blueprint.groups import Groups
from collplan.planner.blueprint.regions import Regions
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.lower import lower
from collplan.planner.lowering.select import state
from collplan.planner.lowering.stated import Stated
from collplan.planner.passes.mapping.partition import FREE, PositionTraffic, partition
from collplan.planner.passes.registry import register_pass
from collplan.planner.topology import fabric_of
from collplan.planner.topology.levels import nearness
from collplan.planner.topology.link_loads import LinkLoads
from collplan.specs import PlanSpec

MOST_MESSAGES: Final = 4_000_000
"""Maximum number of messages of a group whose ranks are mapped, since each message is examined."""
_AS_LONG: Final = 1 + 1e-9
"""Ratio up to which two times count as equal, because of rounding."""


@register_pass(
    "map_ranks",
    level="blueprint",
    locality="rank",
    needs="an algorithm whose positions can be permuted, neither in rank order nor MPI's own, and "
    "that then sends fewer bytes between distant nodes",
)
def map_ranks(blueprint: Blueprint) -> Blueprint:
    """Reorder the ranks within each algorithm, so that few bytes cross the network's global links.

    An algorithm sends messages between positions. Each rank has one position, by default in rank
    order. This pass assigns positions that exchange many bytes to ranks of the same group of the
    topology, within a group to ranks of the same switch, and within a switch to ranks of the same
    node. It uses recursive bisection with swaps, or tries all partitions if these are few.

    An order is accepted if fewer bytes cross the levels, counted from the coarsest; if the busiest
    link is no busier; and if the rounds, each of which lasts as long as its links need for its
    bytes, do not take longer in total. Otherwise, an order by fewer levels is tried.

    Every rank contributes and receives the same data as before, and a root remains the root. If
    operands must be combined in rank order, as in scans, ranks keep their positions.

    Parameters
    ----------
    blueprint : Blueprint
        Blueprint for a machine whose network has a topology.

    Returns
    -------
    Blueprint
        A new blueprint, or `blueprint` itself if no order changes.

    Raises
    ------
    AlgorithmError
        If the network has no topology.
    """
    machine = blueprint.spec.machine
    if machine.network.topology is None:
        raise AlgorithmError(
            "passes.map_ranks: machine.network has no topology by which ranks are near or far; "
            "give one, or leave the pass out"
        )
    if blueprint.exchange is not None:
        return blueprint
    stated = state(blueprint)
    mapping = _Mapping(blueprint, nearness(machine))
    components = [mapping.mapped(part) for part in stated]
    if all(new is old for new, old in zip(components, blueprint.components, strict=True)):
        return blueprint
    return _with_same_algorithms(blueprint, stated, components)


def _with_same_algorithms(
    blueprint: Blueprint, stated: Sequence[Stated], components: Sequence[Component]
) -> Blueprint:
    """Return a blueprint with those changed components for which `auto` chooses the same.

    Parameters
    ----------
    blueprint : Blueprint
    stated : sequence of Stated
        Unchanged components with their algorithms and options.
    components : sequence of Component
        Changed components, in the same order.
    """
    changed = replace(blueprint, components=tuple(components))
    kept = [
        new.component
        if (new.algorithm, new.options) == (old.algorithm, old.options)
        else old.component
        for new, old in zip(state(changed), stated, strict=True)
    ]
    return replace(blueprint, components=tuple(kept))


@dataclass(eq=False)
class _Mapping:
    """Mapping of the ranks of each group. Equal groups of a component are mapped once.

    Parameters
    ----------
    blueprint : Blueprint
    levels : ndarray of int64, shape (n_levels, n_ranks)
        Number of the place of every rank on each level of the network, the coarsest level first.
    """

    blueprint: Blueprint
    levels: Ints
    _orders: dict[tuple[object, ...], Ints] = field(default_factory=dict)

    @property
    def spec(self) -> PlanSpec:
        """Return the spec of the blueprint."""
        return self.blueprint.spec

    def mapped(self, part: Stated) -> Component:
        """Return a component with reordered ranks, or the component itself if no order changes."""
        component = part.component
        if component.is_local or part.algorithm.is_native or self._keeps_order(component):
            return component
        ends, orders = component.first_rows, []
        for number in range(len(component.groups)):
            rows = np.arange(ends[number], ends[number + 1])
            orders.append(self._order(part, number, rows))
        if all((order[:-1] < order[1:]).all() for order in orders):
            return component
        return _reordered(component, orders, ends)

    def _keeps_order(self, component: Component) -> bool:
        traits = component.traits
        return (
            traits.is_prefix
            or traits.has_edges
            or (traits.has_op and not self.spec.collective.may_reorder)
        )

    def _order(self, part: Stated, number: int, rows: Ints) -> Ints:
        """Return the member of a group that takes each position.

        Parameters
        ----------
        part : Stated
        number : int
            Number of the group.
        rows : ndarray of int64
            Rows of the component's regions that belong to the group.

        Returns
        -------
        ndarray of int64, shape (n_members,)
        """
        component = part.component
        ranks, root = component.groups[number], int(component.root[number])
        places = self.levels[:, ranks]
        size = len(ranks)
        natural = np.arange(size)
        if size < 3 or (places[:, 1:] == places[:, :-1]).all():
            return natural
        totals = component.given.totals[rows]
        key = (id(part), size, root, totals.tobytes(), places.tobytes())
        if key not in self._orders:
            self._orders[key] = self._best_order(part, number, rows, places)
        return self._orders[key]

    def _best_order(self, part: Stated, number: int, rows: Ints, places: Ints) -> Ints:
        """Return the accepted order by the most levels, or the natural order if none is accepted.

        `map_ranks` describes when an order is accepted. Other parameters are those of `_order`.

        Parameters
        ----------
        places : ndarray of int64, shape (n_levels, n_members)
            Place of every member on each level.
        """
        one = _only(part.component, number, rows)
        natural = np.arange(len(places[0]))
        if part.least_messages > MOST_MESSAGES:
            return natural
        before = self._messages(replace(part, component=one))
        traffic = PositionTraffic.of(*before.ends(one.groups.ranks), before.n_bytes, len(natural))
        least, most_ns = crossing(traffic, places), self._link_times(before) * _AS_LONG
        root = int(one.root[0]) if one.traits.is_rooted else None
        for n_levels in range(len(places), 0, -1):
            order = arrange(traffic, places[:n_levels], root)
            moved = _reordered(one, [order], one.first_rows)
            # If blocks differ in size, a position sends other numbers of bytes in another order.
            after = self._messages(replace(part, component=moved))
            bytes_of = PositionTraffic.of(
                *after.ends(moved.groups.ranks), after.n_bytes, len(natural)
            )
            is_closer = crossing(bytes_of, places[:, order]) < least
            if is_closer and (self._link_times(after) <= most_ns).all():
                return order
        return natural

    def _messages(self, part: Stated) -> _Messages:
        """Return the messages of a component that has one group."""
        messages = lower([part], self.spec, self.blueprint.n_scratch).messages
        n_bytes = messages.read.elements * self.spec.collective.itemsize
        source, dest, turn = (
            column.astype(np.int64) for column in (messages.source, messages.dest, messages.round)
        )
        return _Messages(source, dest, turn, np.asarray(n_bytes))

    def _link_times(self, messages: _Messages) -> Floats:
        """Return the time of the busiest link and the sum of the times of all rounds, in ns."""
        machine = self.spec.machine
        fabric = fabric_of(machine)
        assert fabric is not None, "ranks are mapped on a topology only"
        node, lane = (np.array(of) for of in (machine.rank_to_node, machine.rank_to_lane))
        source, dest = messages.source, messages.dest
        loads = LinkLoads.of(fabric, node[source], node[dest], lane[dest])
        chain_ns = loads.chain_ns(messages.round, messages.n_bytes, (source, dest))
        return np.array([loads.busiest_ns(messages.n_bytes), chain_ns])


class _Messages(NamedTuple):
    """Messages of a group.

    Parameters
    ----------
    source, dest : ndarray of int64, shape (n_messages,)
        Ranks at both ends.
    round : ndarray of int64, shape (n_messages,)
    n_bytes : ndarray of int64, shape (n_messages,)
    """

    source: Ints
    dest: Ints
    round: Ints
    n_bytes: Ints

    def ends(self, ranks: Ints) -> tuple[Ints, Ints]:
        """Return the positions of source and destination; rank ``ranks[i]`` has position i."""
        position = np.zeros(int(ranks.max()) + 1, dtype=np.int64)
        position[ranks] = np.arange(len(ranks))
        return position[self.source], position[self.dest]


def _only(component: Component, number: int, rows: Ints) -> Component:
    """Return a component of one group, whose regions are `rows`."""
    received = component.received
    return replace(
        component,
        groups=Groups.of([component.groups[number]]),
        root=component.root[number : number + 1],
        given=component.given.take(rows),
        received=None if received is None else received.take(rows),
    )


def _reordered(component: Component, orders: Sequence[Ints], ends: Ints) -> Component:
    """Return a component in which member ``order[i]`` of each group has position i.

    Parameters
    ----------
    component : Component
    orders : sequence of ndarray of int64
        Order of the members of every group.
    ends : ndarray of int64, shape (n_groups + 1,)
        Group i has rows ``ends[i]:ends[i + 1]`` of the regions.
    """
    groups = component.groups
    ranks, roots, rows = [], [], []
    for number, order in enumerate(orders):
        ranks.append(groups[number][order])
        root = int(component.root[number])
        roots.append(int(np.flatnonzero(order == root)[0]) if component.traits.is_rooted else root)
        first, size = int(ends[number]), len(order)
        if not component.traits.has_blocks:
            rows.append(np.array([first]))
        elif component.traits.is_pairwise:
            rows.append(first + (order[:, None] * size + order).ravel())
        else:
            rows.append(first + order)
    row = np.concatenate(rows)
    given: Regions = component.given.take(row)
    received = None if component.received is None else component.received.take(row)
    return replace(
        component, groups=Groups.of(ranks), root=np.array(roots), given=given, received=received
    )


def arrange(traffic: PositionTraffic, places: Ints, root: int | None) -> Ints:
    """Return the member that takes each position, so that few bytes cross the coarse levels.

    Parameters
    ----------
    traffic : PositionTraffic
        Bytes between positions.
    places : ndarray of int64, shape (n_levels, n_members)
        Place of every member on each level, the coarsest level first. Each place is part of one
        place of the previous level.
    root : int or None
        Position that keeps its member, if there is one: member `root` has position `root`.

    Returns
    -------
    ndarray of int64, shape (n_positions,)

    Examples
    --------
    >>> pairs = PositionTraffic.of(np.array([0, 2]), np.array([1, 3]), np.array([8, 8]), 4)
    >>> order = arrange(pairs, np.array([[0, 1, 0, 1]]), None)
    >>> order.tolist(), crossing(pairs, np.array([[0, 1, 0, 1]])[:, order])
    ([0, 2, 1, 3], (0,))
    """
    order = np.empty(len(traffic), dtype=np.int64)
    everyone = np.arange(len(traffic))
    waiting = [(everyone, everyone, 0)]
    while waiting:
        positions, members, level = waiting.pop()
        if level == len(places) or len(members) == 1:
            order[positions] = members
            continue
        _, place = np.unique(places[level, members], return_inverse=True)
        sizes = np.bincount(place)
        bound = np.full(len(positions), FREE)
        # The root's member stays with the root's position: both are in the same part on each level.
        bound[positions == root] = place[members == root]
        part = partition(traffic.among(positions), sizes.tolist(), bound)
        for number in range(len(sizes)):
            waiting.append((positions[part == number], members[place == number], level + 1))
    if root is not None:
        # Within the last place, another position may have the root's member.
        other = int(np.flatnonzero(order == root)[0])
        order[[root, other]] = order[[other, root]]
    return order


def crossing(traffic: PositionTraffic, places: Ints) -> tuple[int, ...]:
    """Return the number of bytes between different places, for each level.

    Parameters
    ----------
    traffic : PositionTraffic
        Bytes between positions.
    places : ndarray of int64, shape (n_levels, n_positions)
        Place of every position on each level.
    """
    return tuple(traffic.cut(place) for place in places)
