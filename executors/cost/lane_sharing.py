"""Division of long messages into pieces, which share a lane as TCP connections do.

A message between nodes is cut into pieces, which are tasks of the simulator. Each pair of ranks
has its own queue, whose first piece competes for the lane. After each piece, the queue moves
behind all other queues that wait at that time.
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
class TaskPieces:
    """The pieces of each task, which are rows of the simulator's table.

    Parameters
    ----------
    first, last : ndarray of int64, shape (n_tasks,)
        Rows of the first and the last piece of each task.
    task : ndarray of int64, shape (n_rows,)
        Task of every row.
    """

    first: Ints
    last: Ints
    task: Ints

    @classmethod
    def of(cls, tasks: Records, is_remote: Bools, turn_bytes: int) -> TaskPieces:
        """Cut messages between nodes into pieces of at most `turn_bytes`.

        Parameters
        ----------
        tasks : ndarray of TASK, shape (n_tasks,)
        is_remote : ndarray of bool, shape (n_tasks,)
            Whether the task sends or receives a message between nodes.
        turn_bytes : int
            Largest size of a piece in bytes.

        Returns
        -------
        TaskPieces
        """
        turns = np.maximum(1, -(-tasks["work"].astype(np.int64) // turn_bytes))
        n = np.where(is_remote, turns, 1)
        last = np.cumsum(n) - 1
        return cls(last - n + 1, last, np.repeat(np.arange(len(tasks)), n))

    @property
    def number(self) -> Ints:
        """Number of every row among the pieces of its task, from 0."""
        return np.asarray(np.arange(len(self.task)) - self.first[self.task])

    def join(self, rows: Records, *, handshake: bool) -> Records:
        """Return one row per task, made from the rows of its pieces.

        The result is the row of the first piece with the end of the last piece, or with the match
        of a rendezvous if that is later. The causes of later pieces are not used, because these
        pieces often waited for pieces of other messages, which waited for pieces of this one.

        Parameters
        ----------
        rows : ndarray of TASK, shape (n_rows,)
            Table of pieces after the simulation.
        handshake : bool
            Whether sends above the eager limit use a handshake.

        Returns
        -------
        ndarray of TASK, shape (n_tasks,)
        """
        tasks = rows[self.first]
        matched, left = tasks["end"], rows["end"][self.last]
        tasks["end"] = np.where(matched < 0, matched, np.maximum(matched, left))
        if not handshake:
            tasks["state"][matched < left] &= ~np.uint8(IS_LONG)
        n_more = self.last - self.first
        tasks["work"] = np.add.reduceat(rows["work"], self.first) - n_more
        tasks["pending"] = np.maximum.reduceat(rows["pending"], self.first)
        tasks["cause"] = self._tasks_of(tasks["cause"])
        is_send = tasks["op"] == Op.SEND
        tasks["following"][is_send] = self._tasks_of(tasks["following"][is_send])
        tasks["partner"] = self.task[tasks["partner"]]
        return tasks

    def _tasks_of(self, rows: Ints) -> Ints:
        """Return the tasks of rows, also of rows that are coded as ``-2 - row``."""
        found = np.where(rows >= 0, self.task[np.maximum(rows, 0)], rows)
        return np.where(rows <= -2, -2 - self.task[np.maximum(-2 - rows, 0)], found)


def take_turns(
    plan: Plan, places: Places, successors: Ints, initial: Ints, connections: Records, n_bytes: int
) -> tuple[TaskPieces, Places, Ints, Ints, Records]:
    """Return the simulator's tables with long messages between nodes in pieces.

    Parameters
    ----------
    plan : Plan
    places : Places
        Tasks of the plan and their queues.
    successors, initial, connections : ndarray
        Tables that `link_dependencies` and `make_connections` return.
    n_bytes : int
        Largest size of a piece.

    Returns
    -------
    pieces : TaskPieces
    places : Places
    successors, initial, connections : ndarray
        Tables whose rows are pieces.
    """
    tasks, queues = places.tasks, places.queues
    is_remote = (tasks["op"] <= Op.RECV) & (tasks["link"] == NETWORK)
    pieces = TaskPieces.of(tasks, is_remote, n_bytes)
    number, is_send = pieces.number, plan.op[pieces.task] == Op.SEND
    cut = table_of(len(pieces.task), tasks.dtype)
    cut[:] = tasks[pieces.task]
    rest = cut["work"] - number * n_bytes
    follows = number > 0
    cut["work"] = np.where(is_remote[pieces.task], np.minimum(rest, n_bytes), cut["work"])
    # In LogGP, the first byte of a message costs no G, but the first byte of a later piece does.
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
    _, first_send, pair_of_send = np.unique(pair, return_index=True, return_inverse=True)
    queues = np.concatenate((queues, queues[cut["queue"][sends[first_send]]]))
    cut["queue"][sends] = len(queues) - len(first_send) + pair_of_send
    is_message = cut["op"] <= Op.RECV
    cut["far_queue"][is_message] = cut["queue"][cut["partner"][is_message]]
    if len(connections):
        grown = np.zeros(len(cut), dtype=connections.dtype)
        grown[: len(connections)] = connections
        grown["slot"] = connections["slot"][pieces.task]
        connections = grown
    successors, initial = after[order].astype(np.int32), posted.astype(np.int32)
    return pieces, Places(places.clocks, cut, queues), successors, initial, connections


def _edges(plan: Plan, pieces: TaskPieces, tasks: Records, successors: Ints) -> tuple[Ints, Ints]:
    """Return dependencies between rows: the rows before, and entries of successors.

    Tasks that depend on the end of a long message wait until its last piece has left, and,
    for a rendezvous, until its first piece has matched. Entries are those of
    `link_dependencies`.
    """
    n_successors = tasks["end_successors"] - tasks["successors"]
    source = np.repeat(np.arange(len(tasks)), n_successors)
    on_start = successors & 1
    dest, edge = _targets(plan, pieces, successors >> 3)
    before = np.where(on_start, pieces.first[source], pieces.last[source])[edge]
    target = 8 * dest + (successors & 7)[edge]
    is_cut = pieces.last[source] > pieces.first[source]
    waits_for_match = (is_cut & (on_start == 0) & (tasks["state"][source] & IS_LONG > 0))[edge]
    first = pieces.first[source][edge][waits_for_match]
    return np.concatenate((before, first)), np.concatenate((target, target[waits_for_match]))


def _targets(plan: Plan, pieces: TaskPieces, tasks: Ints) -> tuple[Ints, Ints]:
    """Return the rows that wait for the predecessors of tasks, and the index of their tasks.

    These are the first piece of a send, and all pieces of a receive.
    """
    n_rows = np.where(plan.op[tasks] == Op.RECV, pieces.last[tasks] - pieces.first[tasks] + 1, 1)
    which, turn = csr.expand(n_rows)
    return pieces.first[tasks][which] + turn, which
