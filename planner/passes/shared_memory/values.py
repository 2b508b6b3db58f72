"""Values that memory holds while tasks run, and the places from which they are read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.arrays.jit import compiled

FOREVER = np.int64(2**62)
"""The row that overwrites what nobody overwrites."""
SEND, RECV, COPY = 0, 1, 2


class Tasks(NamedTuple):
    """Columns of tasks, shape (n_tasks,) each.

    `sender` is the send of a receive whose message is shared, `receiver` the receive
    of such a send; -1 for other tasks.
    """

    op: Ints
    round: Ints
    sender: Ints
    receiver: Ints


class Positions(NamedTuple):
    """Atoms in the order in which tasks touch them, in CSR by task."""

    indptr: Ints
    atom: Ints

    @property
    def owner(self) -> Ints:
        """Return the task of every position."""
        return csr.row_numbers(self.indptr)


class Values(NamedTuple):
    """Values that atoms hold.

    Value i < n_atoms is what atom i holds at first, value n_atoms + j what
    position j of the writes puts there.

    Parameters
    ----------
    found : ndarray of int64, shape (n_reads,)
        The value that every read finds.
    end : ndarray of int64, shape (n_values,)
        The row that overwrites each value.
    origin : ndarray of int64, shape (n_values,)
        The value that each is a copy of; itself if it is none.
    """

    found: Ints
    end: Ints
    origin: Ints


class Places(NamedTuple):
    """Places in shared memory from which shared messages are read.

    Parameters
    ----------
    place : ndarray of int64, shape (n_reads,)
        For each position of the reads of a shared send, an atom that lies in
        shared memory, or ``-1 - k`` if position k is staged in a slot of its own.
    until : ndarray of int64, shape (n_reads,)
        The row that overwrites it.
    needed : ndarray of bool, shape (n_values,)
        Values written by a shared receive that have to be where they are.
    """

    place: Ints
    until: Ints
    needed: Bools


@compiled
def number_values(tasks: Tasks, reads: Positions, writes: Positions, n_atoms: int) -> Any:
    """Return the `Values` that atoms hold while tasks run."""
    holds = np.arange(n_atoms)
    found = np.empty(len(reads.atom), np.int64)
    end = np.full(n_atoms + len(writes.atom), FOREVER, np.int64)
    origin = np.arange(n_atoms + len(writes.atom))
    for row in range(len(tasks.op)):
        for k in range(reads.indptr[row], reads.indptr[row + 1]):
            found[k] = holds[reads.atom[k]]
        source = row if tasks.op[row] == COPY else tasks.sender[row]
        for j in range(writes.indptr[row], writes.indptr[row + 1]):
            value = n_atoms + j
            if source >= 0:
                k = reads.indptr[source] + j - writes.indptr[row]
                origin[value] = origin[found[k]]
            end[holds[writes.atom[j]]] = row
            holds[writes.atom[j]] = value
    return Values(found, end, origin)


@compiled
def find_places(
    tasks: Tasks, reads: Positions, writes: Positions, values: Values, relocated: Bools
) -> Any:
    """Return the `Places` from which the receivers of messages read.

    `relocated` marks atoms that lie in shared memory.
    """
    n_atoms, n_values = len(relocated), len(values.end)
    place, until = np.zeros(len(reads.atom), np.int64), np.zeros(len(reads.atom), np.int64)
    needed = np.zeros(n_values, np.bool_)
    home, home_until = np.zeros(n_values, np.int64), np.full(n_values, -1, np.int64)
    end, origin = values.end, values.origin
    for row in range(len(tasks.op)):
        receiver = tasks.receiver[row]
        if tasks.op[row] == SEND and receiver >= 0:
            for k in range(reads.indptr[row], reads.indptr[row + 1]):
                value, atom = values.found[k], reads.atom[k]
                first = origin[value]
                if home_until[first] > receiver:
                    place[k], until[k] = home[first], home_until[first]
                    continue
                # What a receive writes is there only if that receive is.
                needed[value] = True
                if relocated[atom] and end[value] > receiver:
                    place[k], until[k] = atom, end[value]
                    continue
                place[k], until[k] = -1 - k, FOREVER
                home[first], home_until[first] = -1 - k, FOREVER
        elif tasks.sender[row] < 0:
            for j in range(writes.indptr[row], writes.indptr[row + 1]):
                value, atom = n_atoms + j, writes.atom[j]
                if relocated[atom] and end[value] > home_until[origin[value]]:
                    home[origin[value]], home_until[origin[value]] = atom, end[value]
    return Places(place, until, needed)


@compiled
def find_needless(
    tasks: Tasks, reads: Positions, writes: Positions, write_owner: Ints,
    values: Values, places: Places, is_final: Bools,
) -> Any:  # fmt: skip
    """Find receives whose readers can all read in shared memory instead.

    A receive must stay where what it writes is left to the caller (`is_final`
    positions), is needed in its place, or is read after the sender's side has been
    overwritten. A message reads until it has been received, so what it reads
    must last for the round.

    Returns a mark for such rows, and for each position of the reads the
    position of a shared send from whose place to read instead, -1 for none.
    """
    n_atoms = len(values.end) - len(writes.atom)
    sender, until = tasks.sender, places.until
    needless = sender >= 0
    instead = np.full(len(reads.atom), -1, np.int64)
    for row in range(len(sender)):
        if sender[row] >= 0:
            needless[row] = writes.indptr[row] < writes.indptr[row + 1]
            for j in range(writes.indptr[row], writes.indptr[row + 1]):
                value = n_atoms + j
                if places.needed[value] or (is_final[j] and values.end[value] == FOREVER):
                    needless[row] = False
    for row in range(len(sender)):
        if tasks.receiver[row] >= 0:
            continue
        for k in range(reads.indptr[row], reads.indptr[row + 1]):
            j = values.found[k] - n_atoms
            if j < 0 or sender[write_owner[j]] < 0:
                continue
            recv = write_owner[j]
            source = reads.indptr[sender[recv]] + j - writes.indptr[recv]
            lasts = until[source] > row
            if tasks.op[row] == SEND and until[source] < FOREVER:
                lasts = lasts and tasks.round[until[source]] > tasks.round[row]
            if not lasts:
                needless[recv] = False
            instead[k] = source
    for k in range(len(instead)):
        if instead[k] >= 0 and not needless[write_owner[values.found[k] - n_atoms]]:
            instead[k] = -1
    return needless, instead
