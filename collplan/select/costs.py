"""Work of plans at any size, from sums over messages and steps of equal sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.plan.plan import Op
from collplan.select.cuts import Cut, longest_pieces, pieces
from collplan.select.message_costs import MessageCosts
from collplan.select.work import Held, HeldResources, Work

MOST_DENSE: Final = 1 << 16
"""Largest table of sums by size and place that is stored with its zeros."""


class Costs:
    """Messages and local steps of some phases, summed up by their sizes.

    Parameters
    ----------
    rows : MessageCosts
        Costs of each message and step.
    places : HeldResources
        Places of the ranks whose messages and steps are all in the tables.
    """

    def __init__(self, rows: MessageCosts, places: HeldResources) -> None:
        tables, machine = rows.tables, rows.machine
        there = (1 + int(one.round.max(initial=-1)) for one in (tables.messages, tables.steps))
        self.machine, self.places, self.is_sample = machine, places, rows.ranks is not None
        self.n_rounds, self.n_phases = max(tables.n_rounds, *there), len(rows.shared_phases)
        self.wire, self.loads = rows.wire, rows.loads
        self.round, self.phase = rows.round, rows.phase
        self.effort_of_parts = rows.effort_of_parts
        # Messages of equal sizes, and steps of equal sizes and rates, are cut in the same way.
        first, self.size_of = _classes(rows.n_bytes, rows.combined_bytes)
        self.n_bytes, self.combined_bytes = rows.n_bytes[first], rows.combined_bytes[first]
        first, self.step_size_of = _classes(rows.step_bytes, rows.step_per_byte)
        self.step_bytes, self.step_per_byte = rows.step_bytes[first], rows.step_per_byte[first]
        self.longest = float(self.n_bytes.max(initial=0))
        self.longest_crossing = float(rows.n_bytes[rows.crosses].max(initial=0))
        of_segment, of_piece, share = rows.tasks_there
        self.tasks = np.bincount(self.size_of, of_segment, len(self.n_bytes)) / share
        self.step_tasks = np.bincount(self.step_size_of, of_piece, len(self.step_bytes)) / share
        self.gaps_ns = np.zeros(self.n_phases)
        np.maximum.at(self.gaps_ns, rows.phase, rows.gap - rows.overhead)
        # The slowest lane takes the longest time for its burst.
        self.burst_ns = 2 * self.wire.burst_ns * max(machine.lane_slowness)
        self._sum_up(rows)
        self._list_rounds(rows)

    def _sum_up(self, rows: MessageCosts) -> None:
        """Sum up the times for which messages and steps hold resources, by size, phase and place.

        A message of s bytes in n pieces holds

        - a link of a topology for (s - n) / bandwidth,
        - a lane at either end, or inside a node a port of either rank, for n·g + (s - n)·G,
        - the core of the sender for n·o + (s - n)·O, and
        - the core of the receiver for the same time, with max(O, G) in place of O unless the
          adapter writes to memory itself.

        Copies and reductions hold cores, too; rounding may shorten each by less than 1 ns. Shared
        processors are held for as long as their cores. The gap g of the last message may exceed
        the makespan, and the first bytes at either end may pass at once, as a burst.
        """
        network, places, node = self.machine.network, self.places, rows.node
        begins, step_begins = (phase * places.n for phase in (rows.phase, rows.step_phase))
        sender, receiver = (begins + places.core[at] for at in (rows.source, rows.dest))
        out_way, in_way = (
            begins
            + np.where(rows.crosses, lanes[node[at] * self.machine.n_lanes + rows.lane], ports[at])
            for at, lanes, ports in (
                (rows.source, places.out_lane, places.out_port),
                (rows.dest, places.in_lane, places.in_port),
            )
        )
        core_ns = np.where(rows.is_copy, 0.0, rows.core_per_byte)
        taken_ns = np.where(rows.keeps_receiver, np.maximum(core_ns, rows.per_byte), core_ns)
        copied_ns = rows.is_copy * rows.core_per_byte
        combines = 1.0 * (rows.combined_bytes > 0)
        # For messages: places, and times per piece, per byte after the first byte of a piece, per
        # byte of a copy, per reduction, and per further packet.
        held = [
            (sender, [rows.overhead, core_ns, None, None, rows.crosses]),
            (receiver, [rows.overhead, taken_ns, copied_ns, combines, rows.crosses]),
            (out_way, [rows.gap, rows.per_byte, None, None, None]),
            (in_way, [rows.gap, rows.per_byte, None, None, None]),
        ]
        self.sums = _Sums.of(self.size_of, held, self.n_phases * places.n)
        worker = step_begins + places.core[rows.step_rank]
        steps = [(worker, [np.ones(len(worker))])]
        self.step_sums = _Sums.of(self.step_size_of, steps, self.n_phases * places.n)
        # These times are proportional to the size of the collective.
        strided = network.strided_ns_per_byte
        self.strided_ns = self._by_place(
            (sender, strided * rows.n_bytes * rows.is_read_strided),
            (sender, network.copy_ns_per_byte * rows.copied_bytes),
            (receiver, strided * rows.n_bytes * rows.is_write_strided),
            (worker, strided * rows.step_bytes * rows.is_step_strided),
        )
        arrived = rows.n_bytes * ~(rows.crosses | rows.is_copy) + rows.combined_bytes
        self.memory_ns = network.memory_ns_per_byte * self._by_place(
            (begins + places.memory[node[rows.dest]], arrived),
            (step_begins + places.memory[node[rows.step_rank]], rows.step_bytes),
        )

    def _by_place(self, *amounts: tuple[Ints, Any]) -> Floats:
        """Return sums by phase and place."""
        sums = np.zeros(self.n_phases * self.places.n)
        for place, amount in amounts:
            sums += np.bincount(place, amount, len(sums))
        return sums

    def _list_rounds(self, rows: MessageCosts) -> None:
        """List the distinct messages and reductions of every round."""
        columns = (rows.latency, rows.overhead, rows.through_per_byte, rows.crosses)
        first, _ = _classes(rows.round, self.size_of, *columns)
        self.of_round, self.size_in_round = rows.round[first], self.size_of[first]
        latency, overhead, self.through_per_byte, crosses = (one[first] for one in columns)
        self.late = crosses.astype(np.float64)
        self.latency = latency + 2 * overhead + self.late * self.wire.read_ns
        self.wait = self.latency - overhead
        steps = rows.tables.steps
        reduces = np.flatnonzero(steps.op == Op.REDUCE)
        # Among rounds with messages, some ranks may reduce while others send.
        has_messages = np.bincount(rows.round, minlength=self.n_rounds) > 0
        has_messages |= not len(rows.round)
        reduces = reduces[has_messages[steps.round[reduces]]]
        first, _ = _classes(steps.round[reduces], self.step_size_of[reduces])
        self.reduce_round = steps.round[reduces][first]
        self.reduce_size = self.step_size_of[reduces][first]
        self.phase_of, self.seen = self._rounds_seen(rows)

    def _rounds_seen(self, rows: MessageCosts) -> tuple[Ints, Ints]:
        """Return the phase of every round, and the round whose messages represent it.

        In tables of some ranks, rounds in which one of them receives are known. Other rounds are
        assumed to equal the last known round before them, or the first one.
        """
        phase_of, seen = np.zeros((2, self.n_rounds), dtype=np.int64)
        phase_of[rows.round] = rows.phase
        if rows.ranks is None:
            return phase_of, np.arange(self.n_rounds)
        first = np.full(self.n_phases, self.n_rounds)
        np.minimum.at(first, rows.phase, rows.round)
        known = rows.round[rows.is_there[rows.dest]]
        seen[known] = known
        begins = first[first < self.n_rounds]
        seen[begins] = begins
        seen[:1] = begins.min(initial=self.n_rounds - 1)
        seen = np.maximum.accumulate(seen)
        return phase_of[seen], seen

    def work(self, cut: Cut, factor: float = 1.0, least_factor: float = 1.0) -> Work:
        """Return the work with cut messages.

        Parameters
        ----------
        cut : int, Slices or None
            Cut of the messages.
        factor : float
            Ratio of sizes to those of the tables.
        least_factor : float
            The same for the lower bound of times.
        """
        sizes: Floats = self.n_bytes * factor
        step_sizes: Floats = self.step_bytes * factor
        n_pieces = pieces(sizes, cut)
        waits, through = self._by_round(sizes, step_sizes, cut)
        waits, through = waits[self.seen], through[self.seen]
        busy, held = self._held(cut, factor, is_sure=False)
        waited = np.bincount(self.phase_of, waits, len(busy))
        passed = np.bincount(self.phase_of, through, len(busy))
        asking_ns = self.wire.asking_ns(sizes)[self.size_in_round]
        return Work(
            n_tasks=float(n_pieces @ self.tasks + pieces(step_sizes, cut) @ self.step_tasks),
            whole_ns=float(np.maximum(busy + waited, passed).sum()),
            busy_ns=float(busy.sum()),
            through_ns=float(through.sum()),
            n_pieces=int(n_pieces.max(initial=1)),
            latency_ns=float((self.latency + self.late * asking_ns).max(initial=0)),
            held=held,
            surely_held=self._held(cut, least_factor, is_sure=True)[1],
        )

    def _by_round(self, sizes: Floats, step_sizes: Floats, cut: Cut) -> tuple[Floats, Floats]:
        """Return the longest wait for a message, and the time of the longest one, per round."""
        waits, through = np.zeros((2, self.n_rounds))
        asking_ns = self.late * self.wire.asking_ns(sizes)[self.size_in_round]
        longest = longest_pieces(sizes, cut)
        # The first bytes between nodes pass as a burst.
        passing_ns = longest[self.size_in_round] * self.through_per_byte
        passing_ns = np.maximum(passing_ns - self.late * self.wire.burst_ns, 0.0)
        np.maximum.at(waits, self.of_round, self.wait + asking_ns)
        np.maximum.at(through, self.of_round, self.latency + asking_ns + passing_ns)
        reducing_ns = longest_pieces(step_sizes, cut) * self.step_per_byte
        reducing = np.zeros(self.n_rounds)
        np.maximum.at(reducing, self.reduce_round, reducing_ns[self.reduce_size])
        through += reducing
        if self.loads is not None:
            busy_ns = self.loads.most_ns(self.round, self.n_rounds, longest[self.size_of])[:-1]
            np.maximum(through, waits + busy_ns, out=through)
        return waits, through

    def _held(self, cut: Cut, factor: float, *, is_sure: bool) -> tuple[Floats, Held]:
        """Return the time in ns of the busiest resource per phase, and all times over all phases.

        It is a lower bound if `is_sure`, otherwise an approximation. Costs that only some plans
        have are not counted in the lower bound: copies, strides, packets and so on. Of reads in
        shared memory, it counts only those by reductions.
        """
        network = self.machine.network
        sizes: Floats = self.n_bytes * factor
        step_sizes: Floats = self.step_bytes * factor
        n_pieces = pieces(sizes, cut)
        moved = np.maximum(0, sizes - n_pieces)
        reduced = np.maximum(
            0, network.reduce_ns_per_byte * self.combined_bytes * factor - n_pieces
        )
        stepped = np.maximum(0, step_sizes * self.step_per_byte - pieces(step_sizes, cut))
        amounts = [n_pieces, moved, np.zeros(len(moved)) if is_sure else moved, reduced]
        amounts += [] if is_sure else [self.wire.packets_ns(sizes)]
        held = self.sums.at(amounts) + self.step_sums.at([stepped])
        held += 0.0 if is_sure else factor * self.strided_ns
        by_place = held.reshape(self.n_phases, self.places.n)
        processors_ns = self._processors_ns(by_place)
        by_place = by_place + factor * self.memory_ns.reshape(self.n_phases, self.places.n)
        left_ns = by_place - self.places.spared_ns(self.gaps_ns, self.burst_ns)
        busy = left_ns[:, self.places.is_known].max(axis=1, initial=0.0)
        links_ns = np.zeros(self.n_phases + 1)
        if self.loads is not None:
            links_ns = self.loads.most_ns(self.phase, self.n_phases, moved[self.size_of])
        for other_ns in (links_ns[:-1], processors_ns):
            np.maximum(busy, other_ns, out=busy)
        return busy, Held(
            places=self.places,
            ns=by_place.sum(axis=0),
            gap_ns=float(self.gaps_ns.max(initial=0.0)),
            burst_ns=self.burst_ns,
            links_ns=float(links_ns[-1]),
            processors_ns=float(processors_ns.sum()),
        )

    def _processors_ns(self, by_place: Floats) -> Floats:
        """Return the mean time for which shared processors are held, per phase."""
        machine, processors = self.machine, self.machine.network.processors
        if self.is_sample and not processors:
            return np.zeros(self.n_phases)
        n_processors = min(machine.n_ranks, processors or machine.n_ranks)
        return np.asarray(by_place[:, self.places.is_core].sum(axis=1) / n_processors)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of several kinds of amounts by size and place, without pairs that have none.

    Parameters
    ----------
    size, place : ndarray of int64, shape (n_entries,)
        Class of sizes and place of every entry.
    columns : list of ndarray of float64, shape (n_entries,)
        Sums of every kind of amount.
    n_places : int
        Number of places.
    """

    size: Ints
    place: Ints
    columns: list[Floats]
    n_places: int

    @classmethod
    def of(
        cls, size: Ints, held: Sequence[tuple[Ints, Sequence[Any | None]]], n_places: int
    ) -> _Sums:
        """Return the sums of the amounts of items by size and place.

        Parameters
        ----------
        size : ndarray of int64, shape (n,)
            Class of sizes of every item.
        held : sequence of (ndarray of int64, sequence of ndarray)
            Place that each item holds, and its amounts of every kind there; None for no amount.
        n_places : int
            Number of places.
        """
        n_keys = (int(size.max(initial=-1)) + 1) * n_places
        keys: list[Ints] = [size * n_places + place for place, _ in held]
        if n_keys <= max(MOST_DENSE, 4 * len(size)):
            counts = sum(np.bincount(each, minlength=n_keys) for each in keys)
            present: Ints = np.flatnonzero(counts)
        else:
            present = csr.sorted_unique(np.concatenate(keys))
            keys = [np.searchsorted(present, each) for each in keys]
            n_keys = len(present)
        columns = []
        for amounts in zip(*(each for _, each in held), strict=True):
            total = np.zeros(n_keys)
            for each, amount in zip(keys, amounts, strict=True):
                total += 0.0 if amount is None else _bincount(each, amount, n_keys)
            columns.append(total if n_keys == len(present) else total[present])
        return cls(*np.divmod(present, n_places), columns, n_places)

    def at(self, amounts: list[Floats]) -> Floats:
        """Return the sums by place of all amounts, with a factor for each kind and size."""
        total = np.zeros(len(self.place))
        for amount, column in zip(amounts, self.columns, strict=False):
            total += amount[self.size] * column
        return _bincount(self.place, total, self.n_places)


def _bincount(keys: Ints, amounts: Floats | Bools, n_keys: int) -> Floats:
    return np.asarray(np.bincount(keys, amounts, n_keys), dtype=np.float64)


def _classes(*columns: Ints | Floats | Bools) -> tuple[Ints, Ints]:
    """Return the first row of each class of equal rows, and the class of every row."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            # Floats are numbered by their bits, because most integers need no sort.
            is_float = column.dtype == np.float64
            values = column.view(np.int64) if is_float else column.astype(np.int64)
            numbering = csr.Numbering.of(values)
            key = csr.joint_key(key, numbering.number(values), len(numbering.values))
    numbering = csr.Numbering.of(key)
    number = numbering.number(key)
    first = np.empty(len(numbering.values), dtype=np.int64)
    # Of equal indices, the last entry is kept.
    first[number[::-1]] = np.arange(len(key))[::-1]
    return first, number
