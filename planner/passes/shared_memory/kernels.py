"""Compiled loops of sharing: which values atoms hold, and where they lie in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.jit import compiled

FOREVER = np.int64(2**62)
"""The row that overwrites what nobody overwrites."""
SEND, RECV, COPY = 0, 1, 2


@compiled
def number_values(
    op: Ints, sender: Ints, read_indptr: Ints, read_atom: Ints,
    write_indptr: Ints, write_atom: Ints, n_atoms: int,
) -> Any:  # fmt: skip
    """Follow what every atom holds.

    Value i < n_atoms is what atom i holds at first, value n_atoms + j what
    position j of the writes puts there. `sender` is the send of a receive
    whose message is followed, else -1.

    Returns the value each read finds, the row that overwrites each value, and
    of each the value that it is a copy of, itself where it is none.
    """
    holds = np.arange(n_atoms)
    found = np.empty(len(read_atom), np.int64)
    end = np.full(n_atoms + len(write_atom), FOREVER, np.int64)
    origin = np.arange(n_atoms + len(write_atom))
    for row in range(len(op)):
        for k in range(read_indptr[row], read_indptr[row + 1]):
            found[k] = holds[read_atom[k]]
        source = row if op[row] == COPY else sender[row]
        for j in range(write_indptr[row], write_indptr[row + 1]):
            value = n_atoms + j
            if source >= 0:
                k = read_indptr[source] + j - write_indptr[row]
                origin[value] = origin[found[k]]
            end[holds[write_atom[j]]] = row
            holds[write_atom[j]] = value
    return found, end, origin


@compiled
def find_places(
    op: Ints, sender: Ints, receiver: Ints, relocated: Bools, n_atoms: int,
    read_indptr: Ints, read_atom: Ints, write_indptr: Ints, write_atom: Ints,
    found: Ints, end: Ints, origin: Ints,
) -> Any:  # fmt: skip
    """Decide from where in shared memory the receiver of every message reads.

    Returns for each position of the reads of a shared send its place: an atom
    that is relocated to shared memory, or ``-1 - k`` where position k is staged
    in a slot of its own; the row that overwrites it; and which values written
    by a shared receive have to be where they are.
    """
    place = np.zeros(len(read_atom), np.int64)
    until = np.zeros(len(read_atom), np.int64)
    needed = np.zeros(len(end), np.bool_)
    home = np.zeros(len(end), np.int64)
    home_until = np.full(len(end), -1, np.int64)
    for row in range(len(op)):
        if op[row] == SEND and receiver[row] >= 0:
            for k in range(read_indptr[row], read_indptr[row + 1]):
                value, atom = found[k], read_atom[k]
                first = origin[value]
                if home_until[first] > receiver[row]:
                    place[k], until[k] = home[first], home_until[first]
                    continue
                # What a receive writes is there only if that receive is.
                needed[value] = True
                if relocated[atom] and end[value] > receiver[row]:
                    place[k], until[k] = atom, end[value]
                    continue
                place[k], until[k] = -1 - k, FOREVER
                home[first], home_until[first] = -1 - k, FOREVER
        elif sender[row] < 0:
            for j in range(write_indptr[row], write_indptr[row + 1]):
                value, atom = n_atoms + j, write_atom[j]
                if relocated[atom] and end[value] > home_until[origin[value]]:
                    home[origin[value]], home_until[origin[value]] = atom, end[value]
    return place, until, needed


@compiled
def find_needless(
    op: Ints, round: Ints, sender: Ints, receiver: Ints, is_final: Bools, n_atoms: int,
    read_indptr: Ints, read_atom: Ints, write_indptr: Ints, write_owner: Ints,
    found: Ints, end: Ints, until: Ints, needed: Bools,
) -> Any:  # fmt: skip
    """Find receives whose readers can all read in shared memory instead.

    A receive must stay where what it writes is left to the caller (`is_final`
    atoms), is needed in its place, or is read after the sender's side has been
    overwritten. A message reads until it has been received, so what it reads
    must last for the round.

    Returns a mark for such rows, and for each position of the reads the
    position of a shared send from whose place to read instead, -1 for none.
    """
    needless = sender >= 0
    instead = np.full(len(read_atom), -1, np.int64)
    for row in range(len(op)):
        if sender[row] >= 0:
            needless[row] = write_indptr[row] < write_indptr[row + 1]
            for j in range(write_indptr[row], write_indptr[row + 1]):
                value = n_atoms + j
                if needed[value] or (is_final[j] and end[value] == FOREVER):
                    needless[row] = False
    for row in range(len(op)):
        if receiver[row] >= 0:
            continue
        for k in range(read_indptr[row], read_indptr[row + 1]):
            j = found[k] - n_atoms
            if j < 0 or sender[write_owner[j]] < 0:
                continue
            recv = write_owner[j]
            source = read_indptr[sender[recv]] + j - write_indptr[recv]
            lasts = until[source] > row
            if op[row] == SEND and until[source] < FOREVER:
                lasts = lasts and round[until[source]] > round[row]
            if not lasts:
                needless[recv] = False
            instead[k] = source
    for k in range(len(instead)):
        if instead[k] >= 0 and not needless[write_owner[found[k] - n_atoms]]:
            instead[k] = -1
    return needless, instead
