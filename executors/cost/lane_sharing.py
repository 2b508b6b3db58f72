"""Long messages by turns: what leaves by one lane shares it, as connections of TCP do.

A message between nodes becomes pieces, which the simulator takes one by one.
Each pair of ranks has a queue of its own, whose first piece competes for the
lane; after a piece the queue goes behind all that wait by then.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.executors.cost.occupancy import IS_CONTINUED, IS_LONG
from collplan.executors.cost.parameters import CONTINUATION, NETWORK
from collplan.executors.cost.tables import Places, Records, table_of
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.plan.plan import Op, Plan


@dataclass(frozen=True, eq=False)
class Pieces:
    """Rows of the simulator's table that stand for each task.

    Parameters
    ----------
    first, last : ndarray of int64, shape (n_tasks,)
        Rows of its first and its last piece.
    task : ndarray of int64, shape (n_rows,)
        The task of every row.
    """

    first: Ints
    last: Ints
    task: Ints

    @classmethod
    def of(cls, tasks: Records, is_remote: Bools, turn_bytes: int) -> Pieces:
        """Cut messages between nodes into turns."""
        turns = np.maximum(1, -(-tasks["work"].astype(np.int64) // turn_bytes))
        n = np.where(is_remote, turns, 1)
        last = np.cumsum(n) - 1
        return cls(last - n + 1, last, np.repeat(np.arange(len(tasks)), n))

    @property
    def number(self) -> Ints:
        """Return which piece of its task every row is, from 0."""
        return np.asarray(np.arange(len(self.task)) - self.first[self.task])

    def join(self, rows: Records, *, handshake: bool) -> Records:
        """Return one row per task again: its first piece's, but for its end.

        That is the last piece's, or the match of a rendezvous, if that is later. What
        later pieces waited for are often turns of the message's own rivals, which
        waited for its own.
        """
        tasks = rows[self.first]
        matched, left = tasks["end"], rows["end"][self.last]
        tasks["end"] = np.where(matched < 0, matched, np.maximum(matched, left))
        if not handshake:
            tasks["state"][matched < left] &= ~np.uint8(IS_LONG)
        n_more = self.last - self.first
        tasks["work"] = np.add.reduceat(rows["work"], self.first) - n_more
        tasks["pending"] = np.maximum.reduceat(rows["pending"], self.first)
        for field in ("cause", "following"):
            tasks[field] = self._tasks_of(tasks[field])
        tasks["partner"] = self.task[tasks["partner"]]
        return tasks

    def _tasks_of(self, rows: Ints) -> Ints:
        """Return tasks for rows, and for rows in the code -2 - row."""
        found = np.where(rows >= 0, self.task[np.maximum(rows, 0)], rows)
        return np.where(rows <= -2, -2 - self.task[np.maximum(-2 - rows, 0)], found)


def take_turns(
    plan: Plan, places: Places, successors: Ints, initial: Ints, connections: Records, n_bytes: int
) -> tuple[Pieces, Places, Ints, Ints, Records]:
    """Return the simulator's tables with long messages between nodes in pieces.

    Parameters
    ----------
    plan : Plan
        The plan.
    places : Places
        Its tasks and their queues.
    successors, initial, connections : ndarray
        As `link_dependencies` and `make_connections` return them.
    n_bytes : int
        Greatest piece.
    """
    tasks, queues = places.tasks, places.queues
    is_remote = (tasks["op"] <= Op.RECV) & (tasks["link"] == NETWORK)
    pieces = Pieces.of(tasks, is_remote, n_bytes)
    number, is_send = pieces.number, plan.op[pieces.task] == Op.SEND
    cut = table_of(len(pieces.task), tasks.dtype)
    cut[:] = tasks[pieces.task]
    rest = cut["work"] - number * n_bytes
    follows = number > 0
    cut["work"] = np.where(is_remote[pieces.task], np.minimum(rest, n_bytes), cut["work"])
    # In LogGP the first byte of a message is free; of a piece that follows it is not.
    cut["work"][follows] += 1
    cut["link"][follows] = CONTINUATION
    cut["state"][follows] &= ~np.uint8(IS_LONG)
    cut["state"][np.flatnonzero(follows & is_send) - 1] |= IS_CONTINUED
    cut["partner"] = pieces.first[cut["partner"]] + number
    before, after = _edges(plan, pieces, tasks, successors)
    cut["pending"] = np.bincount(after >> 3, minlength=len(cut))
    cut["pending"][follows & is_send] = 1
    n_successors = np.bincount(before, minlength=len(cut))
    cut["end_successors"] = np.cumsum(n_successors)
    cut["successors"] = cut["end_successors"] - n_successors
    order = np.argsort(before, kind="stable")
    posted, _ = _targets(plan, pieces, initial)
    sends = np.flatnonzero(is_send & is_remote[pieces.task])
    n_ranks = plan.n_ranks * plan.n_copies
    pair = cut["queue"][sends].astype(np.int64) * n_ranks + plan.far_peer[pieces.task[sends]]
    _, some, own = np.unique(pair, return_index=True, return_inverse=True)
    queues = np.concatenate((queues, queues[cut["queue"][sends[some]]]))
    cut["queue"][sends] = len(queues) - len(some) + own
    is_message = cut["op"] <= Op.RECV
    cut["far_queue"][is_message] = cut["queue"][cut["partner"][is_message]]
    if len(connections):
        grown = np.zeros(len(cut), dtype=connections.dtype)
        grown[: len(connections)] = connections
        grown["slot"] = connections["slot"][pieces.task]
        connections = grown
    successors, initial = after[order].astype(np.int32), posted.astype(np.int32)
    return pieces, Places(places.clocks, cut, queues), successors, initial, connections


def _edges(plan: Plan, pieces: Pieces, tasks: Records, successors: Ints) -> tuple[Ints, Ints]:
    """Return dependencies between rows: from, and entries as of `link_dependencies`.

    What depends on a long message's end waits for its last piece to leave, and for
    its match, which is its first piece's.
    """
    n_successors = tasks["end_successors"] - tasks["successors"]
    source = np.repeat(np.arange(len(tasks)), n_successors)
    on_start = successors & 1
    dest, edge = _targets(plan, pieces, successors >> 3)
    before = np.where(on_start, pieces.first[source], pieces.last[source])[edge]
    target = 8 * dest + (successors & 7)[edge]
    is_cut = pieces.last[source] > pieces.first[source]
    also = (is_cut & (on_start == 0) & (tasks["state"][source] & IS_LONG > 0))[edge]
    first = pieces.first[source][edge]
    return np.concatenate((before, first[also])), np.concatenate((target, target[also]))


def _targets(plan: Plan, pieces: Pieces, tasks: Ints) -> tuple[Ints, Ints]:
    """Return the rows that wait where tasks do, and for each which of the tasks it is.

    A send's first piece waits; all of a receive's.
    """
    n_rows = np.where(plan.op[tasks] == Op.RECV, pieces.last[tasks] - pieces.first[tasks] + 1, 1)
    which, turn = csr.expand(n_rows)
    return pieces.first[tasks][which] + turn, which
