"""Atoms that tasks write and read, and the places in shared memory to read them from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.machine_code.kernel import compiled

FOREVER = np.int64(2**62)
"""Row that stands for no task, if an atom is never overwritten."""
SEND, RECV, COPY = 0, 1, 2


class Tasks(NamedTuple):
    """Columns of tasks, each of shape (n_tasks,).

    `sender` is the send of a receive whose message is shared, and `receiver` is the receive of
    such a send; both are -1 for other tasks.
    """

    op: Ints
    round: Ints
    sender: Ints
    receiver: Ints


class Reads(NamedTuple):
    """Atoms in the order in which tasks read them, in CSR form by task."""

    indptr: Ints
    atom: Ints

    @property
    def owner(self) -> Ints:
        """Return the task of every read."""
        return csr.row_numbers(self.indptr)


class Lives(NamedTuple):
    """Tasks that write atoms, and tasks that overwrite them.

    Parameters
    ----------
    first : ndarray of int64, shape (n_tasks + 1,)
        Task i writes the atoms ``first[i]:first[i+1]``, in this order.
    writer : ndarray of int64, shape (n_atoms,)
        Row of the task that writes each atom; -1 for the initial content of memory.
    end : ndarray of int64, shape (n_atoms,)
        Row of the task that overwrites each atom; `FOREVER` for none.
    origin : ndarray of int64, shape (n_atoms,)
        Atom that each atom is a copy of; the atom itself if it is no copy.
    """

    first: Ints
    writer: Ints
    end: Ints
    origin: Ints


class SharedPlaces(NamedTuple):
    """Places in shared memory from which shared messages are read.

    Parameters
    ----------
    place : ndarray of int64, shape (n_reads,)
        For each read of a shared send: an atom in shared memory with the same data, or ``-1 - k``
        if the data is in the slot of read k, of this or of an earlier send, which is staged there.
    until : ndarray of int64, shape (n_reads,)
        Row of the task that overwrites the place.
    needed : ndarray of bool, shape (n_atoms,)
        Whether a send reads or stages the atom itself, so that a receive that writes it remains.
    """

    place: Ints
    until: Ints
    needed: Bools


@compiled
def find_places(tasks: Tasks, reads: Reads, lives: Lives, relocated: Bools) -> Any:
    """Return the `SharedPlaces` from which the receivers of messages read.

    Parameters
    ----------
    tasks : Tasks
    reads : Reads
    lives : Lives
    relocated : ndarray of bool, shape (n_atoms,)
        Whether the atom is in shared memory.

    Returns
    -------
    SharedPlaces
    """
    n_atoms = len(relocated)
    place, until = np.zeros(len(reads.atom), np.int64), np.zeros(len(reads.atom), np.int64)
    needed = np.zeros(n_atoms, np.bool_)
    home, home_until = np.zeros(n_atoms, np.int64), np.full(n_atoms, -1, np.int64)
    end, origin = lives.end, lives.origin
    for row in range(len(tasks.op)):
        receiver = tasks.receiver[row]
        if tasks.op[row] == SEND and receiver >= 0:
            for k in range(reads.indptr[row], reads.indptr[row + 1]):
                atom = reads.atom[k]
                first = origin[atom]
                if home_until[first] > receiver:
                    place[k], until[k] = home[first], home_until[first]
                    continue
                # Data that a receive writes is in this place only if the receive remains.
                needed[atom] = True
                if relocated[atom] and end[atom] > receiver:
                    place[k], until[k] = atom, end[atom]
                    continue
                place[k], until[k] = -1 - k, FOREVER
                home[first], home_until[first] = -1 - k, FOREVER
        elif tasks.sender[row] < 0:
            for atom in range(lives.first[row], lives.first[row + 1]):
                if relocated[atom] and end[atom] > home_until[origin[atom]]:
                    home[origin[atom]], home_until[origin[atom]] = atom, end[atom]
    return SharedPlaces(place, until, needed)


@compiled
def find_needless(
    tasks: Tasks, reads: Reads, lives: Lives, places: SharedPlaces, is_final: Bools
) -> Any:
    """Find receives that are not needed, because all readers can read in shared memory instead.

    A receive must remain if it writes the final contents of a caller's buffer (`is_final` atoms),
    if its atoms are needed in their place, or if they are read after the sender's data has been
    overwritten. A message may read its data until it has been received, so the data must not be
    overwritten in the same round.

    Parameters
    ----------
    tasks : Tasks
    reads : Reads
    lives : Lives
    places : SharedPlaces
    is_final : ndarray of bool, shape (n_atoms,)
        Whether the atom is in a buffer of the caller.

    Returns
    -------
    needless : ndarray of bool, shape (n_tasks,)
        Whether the task is such a receive.
    instead : ndarray of int64, shape (n_reads,)
        Read of a shared send whose place is to be read instead; -1 for none.
    """
    sender, until, first = tasks.sender, places.until, lives.first
    needless = sender >= 0
    instead = np.full(len(reads.atom), -1, np.int64)
    for row in range(len(sender)):
        if sender[row] >= 0:
            needless[row] = first[row] < first[row + 1]
            for atom in range(first[row], first[row + 1]):
                if places.needed[atom] or (is_final[atom] and lives.end[atom] == FOREVER):
                    needless[row] = False
    for row in range(len(sender)):
        if tasks.receiver[row] >= 0:
            continue
        for k in range(reads.indptr[row], reads.indptr[row + 1]):
            recv = lives.writer[reads.atom[k]]
            if recv < 0 or sender[recv] < 0:
                continue
            source = reads.indptr[sender[recv]] + reads.atom[k] - first[recv]
            lasts = until[source] > row
            if tasks.op[row] == SEND and until[source] < FOREVER:
                lasts = lasts and tasks.round[until[source]] > tasks.round[row]
            if not lasts:
                needless[recv] = False
            instead[k] = source
    for k in range(len(instead)):
        if instead[k] >= 0 and not needless[lives.writer[reads.atom[k]]]:
            instead[k] = -1
    return needless, instead
