"""Longest path through the rounds of an algorithm, and the terms along it."""

from __future__ import annotations

from typing import Final

import numpy as np

from collplan.fitting.points import RankLayout
from collplan.fitting.round_tables import RoundTable
from collplan.fitting.terms import (
    BYTES,
    COPIES,
    FAR,
    GLOBAL,
    LANE,
    LINKS,
    LOGS,
    MEMORY,
    MESSAGES,
    N_KNOTS,
    N_TERMS,
    PEERS,
    PER_LINK,
    PIECES,
    REDUCTIONS,
    STEPS,
    level_weights,
    size_weights,
    times_at,
    waits_of,
)
from collplan.planner.arrays import Bools, Floats, Ints

_NONE: Final = -1
_SENDS: Final = -2
"""Events of a rank in a round: nothing, or its own sends. Others are twice the number of a message,
and one more if the messages after it were received one after another."""
TAKEN: Final = 0.4
"""Cost of a further message to its receiver, as a part of that to its sender."""
HIDDEN: Final = 0.5
"""Part of a reduction in segments that passes while further segments arrive."""


class PathCounter:
    """Rounds of an algorithm on a layout, for several sizes at once.

    Clocks of ranks pass through the rounds by the rules of LogGP: a rank sends the messages of a
    round one after another, and receives each when it has arrived. The path that leads to the last
    rank is followed backwards, and the terms along it are counted.

    Parameters
    ----------
    table : RoundTable
    layout : RankLayout
        Places of at least as many ranks as the table has.
    n_bytes : ndarray of float64, shape (n_sizes,)
        Sizes of the vector, or of all blocks.
    costs : ndarray of float64, shape (N_TERMS,)
        Costs in ns by which the longest path is found.
    segment : float
        Greatest bytes of a message; longer ones are cut, and each segment waits for the one before.
    """

    def __init__(
        self,
        table: RoundTable,
        layout: RankLayout,
        n_bytes: Floats,
        costs: Floats,
        segment: float = np.inf,
    ) -> None:
        self.table = table
        self.total = np.asarray(n_bytes, dtype=np.float64)
        node, domain, group = (
            column[: table.n_ranks] for column in (layout.node, layout.domain, layout.group)
        )
        source, dest = table.source, table.dest
        crosses = node[source] != node[dest]
        self.link = np.where(crosses, 2, 1 * (domain[source] != domain[dest]))
        self.is_global = group[source] != group[dest]
        self.size = np.multiply.outer(self.total, table.share)
        self.cut = np.minimum(self.size, segment)
        self.n_more = np.ceil(np.maximum(self.size, 1) / np.maximum(self.cut, 1)) - 1
        combined = np.multiply.outer(self.total, table.combined)
        self.combined = np.where(self.n_more > 0, HIDDEN * combined, combined)
        self.step_size = np.multiply.outer(self.total, table.step_share)
        self.level = level_weights(self.total * layout.per_node)
        self.logs = float(np.log2(max(2, layout.n_ranks)))
        number = np.repeat(np.arange(table.n_rounds), np.diff(table.begin))
        self.lane_share = np.maximum(
            self._others(number, source, node[source], crosses),
            self._others(number, dest, node[dest], crosses),
        )
        self.lane_share /= layout.n_lanes
        self.memory_share = self._others(number, source, node[source], ~crosses)
        self._price(costs)

    def _others(self, number: Ints, rank: Ints, node: Ints, mask: Bools) -> Floats:
        """Return the bytes that other ranks of a node send in a round, per byte of the rank."""
        share = np.where(mask, self.table.share, 0.0)
        totals = []
        for end in (node, rank):
            key = number * (int(end.max(initial=0)) + 1) + end
            _, place = np.unique(key, return_inverse=True)
            totals.append(np.bincount(place, share, minlength=1)[place])
        ratio = np.divide(totals[0], totals[1], out=np.ones(len(rank)), where=totals[1] > 0)
        return np.where(mask, np.maximum(0.0, ratio - 1), 0.0)

    def _price(self, costs: Floats) -> None:
        """Compute the time of each message until it arrives, and for which it keeps a rank."""
        table = self.table
        shape = self.size.shape
        self.wait_ns, self.busy_ns = np.zeros(shape), np.zeros(shape)
        self.taken_ns = np.zeros(shape)
        alone = table.pieces * costs[PIECES] + self.is_global * costs[FAR]
        by_byte = self.lane_share * costs[LANE] + self.memory_share * costs[MEMORY]
        by_byte = by_byte + self.is_global * costs[GLOBAL]
        for link in range(len(LINKS)):
            rows = np.flatnonzero(self.link == link)
            base = link * PER_LINK
            more, size, cut = (one[:, rows] for one in (self.n_more, self.size, self.cut))
            each = alone[rows] + table.changes[rows] * costs[base + PEERS] + size * by_byte[rows]
            once = times_at(cut, costs[waits_of(link)])
            self.wait_ns[:, rows] = (more + 1) * once + each
            self.busy_ns[:, rows] = (more + 1) * costs[base + MESSAGES] + each
            self.busy_ns[:, rows] += size * costs[base + BYTES]
            self.taken_ns[:, rows] = self.busy_ns[:, rows]
            self.taken_ns[:, rows] -= (1 - TAKEN) * (more + 1) * costs[base + MESSAGES]
        rates = (self.level @ costs[REDUCTIONS])[:, None], (self.level @ costs[COPIES])[:, None]
        self.combine_ns = (self.combined * rates[0] + costs[STEPS]) * (self.combined > 0)
        self.step_ns = costs[STEPS] + self.step_size * np.where(table.step_copies, *rates[::-1])

    def counts(self) -> Floats:
        """Return the terms along the longest path, shape (n_sizes, N_TERMS)."""
        table, n_sizes = self.table, len(self.total)
        clock = np.zeros((n_sizes, table.n_ranks))
        events: list[Ints | None] = []
        for number in range(table.n_rounds):
            rows = slice(int(table.begin[number]), int(table.begin[number + 1]))
            events.append(self._exchange(rows, clock) if rows.stop > rows.start else None)
            steps = slice(int(table.step_begin[number]), int(table.step_begin[number + 1]))
            if steps.stop > steps.start:
                np.add.at(clock.T, table.step_rank[steps], self.step_ns[:, steps].T)
        return self._follow(clock, events) * table.scale

    def _exchange(self, rows: slice, clock: Floats) -> Ints:
        """Let the messages of a round pass; return the event of each rank."""
        table = self.table
        source, dest = table.source[rows], table.dest[rows]
        wait, busy = self.wait_ns[:, rows], self.busy_ns[:, rows]
        order = np.argsort(source, kind="stable")
        first = np.flatnonzero(np.diff(source[order], prepend=-1))
        lengths = np.diff(np.append(first, len(order)))
        ordered = busy[:, order]
        until = np.cumsum(ordered, axis=1)
        until -= np.repeat(until[:, first] - ordered[:, first], lengths, axis=1)
        last = first + lengths - 1
        before = until - ordered
        if table.is_at_once:
            before = np.repeat(until[:, last], lengths, axis=1) - ordered
        start = clock[:, source[order]]
        arrival = np.empty(wait.shape)
        arrival[:, order] = start + before + wait[:, order]
        event = np.full(clock.shape, _NONE)
        senders = source[order][first]
        taken = self.taken_ns[:, rows]
        received = _received(arrival, taken, self.combine_ns[:, rows], dest)
        clock[:, senders] = start[:, last] + until[:, last]
        event[:, senders] = _SENDS
        receivers, done, combining, by = received
        is_later = done > clock[:, receivers]
        clock[:, receivers] = np.where(is_later, done, clock[:, receivers]) + combining
        event[:, receivers] = np.where(is_later, by + 2 * rows.start, event[:, receivers])
        return event

    def _follow(self, clock: Floats, events: list[Ints | None]) -> Floats:
        """Follow the paths that lead to the last ranks backwards, and count their terms."""
        table, sizes = self.table, np.arange(len(self.total))
        counts = np.zeros((len(sizes), N_TERMS))
        rank = clock.argmax(axis=1)
        for number in range(table.n_rounds - 1, -1, -1):
            steps = np.arange(table.step_begin[number], table.step_begin[number + 1])
            if len(steps):
                for one in np.unique(rank):
                    mine = steps[table.step_rank[steps] == one]
                    self._count_steps(mine, np.flatnonzero(rank == one), counts)
            event = events[number]
            if event is None:
                continue
            rows = np.arange(table.begin[number], table.begin[number + 1])
            found = event[sizes, rank]
            for value, one in {*zip(found.tolist(), rank.tolist(), strict=True)}:
                some = np.flatnonzero((found == value) & (rank == one))
                rank[some] = self._count_event(value, one, rows, some, counts)
        return counts

    def _count_steps(self, steps: Ints, sizes: Ints, counts: Floats) -> None:
        for is_copy, terms in ((True, COPIES), (False, REDUCTIONS)):
            some = steps[self.table.step_copies[steps] == is_copy]
            amount = self.step_size[np.ix_(sizes, some)].sum(axis=1)
            counts[sizes, terms] += self.level[sizes] * amount[:, None]
        counts[sizes, STEPS] += len(steps)

    def _count_event(self, event: int, rank: int, rows: Ints, sizes: Ints, counts: Floats) -> int:
        """Count the terms of a round; return the rank that the path comes from."""
        table = self.table
        arriving = rows[table.dest[rows] == rank]
        combining = arriving[table.combined[arriving] > 0]
        amount = self.combined[np.ix_(sizes, combining)].sum(axis=1)
        counts[sizes, REDUCTIONS] += self.level[sizes] * amount[:, None]
        counts[sizes, STEPS] += len(combining)
        if event == _NONE:
            return rank
        if event == _SENDS:
            self._count_busy(rows[table.source[rows] == rank], sizes, counts)
            return rank
        message, sender = event // 2, int(table.source[event // 2])
        sent = rows[table.source[rows] == sender]
        self._count_busy(
            sent[sent != message] if table.is_at_once else sent[sent < message], sizes, counts
        )
        base = int(self.link[message]) * PER_LINK
        times = self.n_more[sizes, message] + 1
        weights = size_weights(self.cut[sizes, message])
        counts[sizes, base : base + N_KNOTS] += times[:, None] * weights
        counts[sizes, LOGS] += self.logs * (self.link[message] == 2)
        self._count_common(np.array([message]), sizes, counts)
        if event % 2:
            self._count_busy(arriving[arriving != message], sizes, counts, TAKEN)
        return sender

    def _count_busy(self, messages: Ints, sizes: Ints, counts: Floats, part: float = 1.0) -> None:
        """Count messages that only keep a rank busy; `part` of the cost of each."""
        for link in set(self.link[messages].tolist()):
            some = messages[self.link[messages] == link]
            base = link * PER_LINK
            n_sent = (self.n_more[np.ix_(sizes, some)] + 1).sum(axis=1)
            counts[sizes, base + MESSAGES] += part * n_sent
            counts[sizes, base + BYTES] += self.size[np.ix_(sizes, some)].sum(axis=1)
        if len(messages):
            self._count_common(messages, sizes, counts)

    def _count_common(self, messages: Ints, sizes: Ints, counts: Floats) -> None:
        """Count the terms of messages that do not depend on whether a rank waits for them."""
        table, size = self.table, self.size[np.ix_(sizes, messages)]
        for link in set(self.link[messages].tolist()):
            changes = table.changes[messages][self.link[messages] == link].sum()
            counts[sizes, link * PER_LINK + PEERS] += changes
        counts[sizes, PIECES] += table.pieces[messages].sum()
        counts[sizes, FAR] += self.is_global[messages].sum()
        counts[sizes, LANE] += size @ self.lane_share[messages]
        counts[sizes, MEMORY] += size @ self.memory_share[messages]
        counts[sizes, GLOBAL] += size @ self.is_global[messages]


def _received(
    arrival: Floats, busy: Floats, combine: Floats, dest: Ints
) -> tuple[Ints, Floats, Floats, Ints]:
    """Return the receivers of a round, when each has received, its reductions, and its event."""
    order = np.argsort(dest, kind="stable")
    first = np.flatnonzero(np.diff(dest[order], prepend=-1))
    receivers, arrival, busy = dest[order][first], arrival[:, order], busy[:, order]
    combining = np.add.reduceat(combine[:, order], first, axis=1)
    if len(first) == len(dest):
        return receivers, arrival, combining, np.broadcast_to(2 * order, arrival.shape)
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(dest))))
    index = np.arange(len(arrival))[:, None]
    found = []
    for extreme in (np.maximum, np.minimum):
        time = extreme.reduceat(arrival, first, axis=1)
        is_it = arrival == time[:, group]
        place = np.maximum.reduceat(np.where(is_it, np.arange(len(dest)), -1), first, axis=1)
        found.append((time, place))
    (latest, last), (earliest, head) = found
    # Messages that arrive together are received one after another.
    serial = earliest + np.add.reduceat(busy, first, axis=1) - busy[index, head]
    is_serial = serial > latest
    event = 2 * order[np.where(is_serial, head, last)] + is_serial
    return receivers, np.where(is_serial, serial, latest), combining, event
