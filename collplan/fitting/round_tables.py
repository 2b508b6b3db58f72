"""Tables of an algorithm's messages by round, with sizes as fractions of all bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from collplan.planner.algorithms import registry
from collplan.planner.arrays import Bools, Floats, Ints
from collplan.planner.decompose import draft
from collplan.planner.lowering.program import program_of
from collplan.planner.lowering.tables import Tables
from collplan.planner.plan.plan import Op
from collplan.specs import parse_spec
from collplan.specs.collectives.collective import traits_of

MOST_RANKS: Final = 64
"""Number of ranks above which algorithms of about as many rounds as ranks are counted on this
number of ranks, with messages of the same sizes, and scaled up."""
PARTS: Final = 64
"""Elements of a rank's part of a vector in the plan whose messages are counted."""
Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, eq=False)
class RoundTable:
    """Messages and local steps of an algorithm, sorted by round.

    Parameters
    ----------
    n_ranks, n_rounds : int
        Numbers of ranks and rounds in the table.
    scale : float
        Factor by which the algorithm has more rounds than the table.
    begin, step_begin : ndarray of int64, shape (n_rounds + 1,)
        Rows at which the messages and the steps of a round begin.
    source, dest : ndarray of int64, shape (n_messages,)
        Ends of each message.
    share, combined : ndarray of float64, shape (n_messages,)
        Size of a message, and of what its receiver combines, as fractions of all bytes.
    pieces, changes : ndarray of float64, shape (n_messages,)
        Further pieces of memory of a message, and the number of its ends whose previous message
        of this direction had another peer.
    step_rank, step_share, step_copies : ndarray, shape (n_steps,)
        Rank and size of each local step, and whether it is a copy.
    is_at_once : bool
        Whether a rank sends all messages of a round at once, which then share its lane.
    """

    n_ranks: int
    n_rounds: int
    scale: float
    begin: Ints
    source: Ints
    dest: Ints
    share: Floats
    combined: Floats
    pieces: Floats
    changes: Floats
    step_begin: Ints
    step_rank: Ints
    step_share: Floats
    step_copies: Bools
    is_at_once: bool = False


@lru_cache(maxsize=512)
def round_table(
    kind: str, name: str, options: Options, n_ranks: int, at_once: bool = False
) -> RoundTable:
    """Return the table of an algorithm.

    Parameters
    ----------
    kind, name : str
        Collective and algorithm.
    options : tuple of (str, object)
        Options of the algorithm.
    n_ranks : int
        Number of ranks.
    at_once : bool
        Whether ranks of a broadcast send to all their children at once.

    Raises
    ------
    AlgorithmError
        If the algorithm does not support the number of ranks.
    """
    algorithm = registry.find(kind, name)
    size = min(n_ranks, MOST_RANKS) if algorithm.has_many_rounds else n_ranks
    scale = (n_ranks - 1) / (size - 1) if size < n_ranks else 1.0
    has_blocks = traits_of(kind).has_blocks
    count = 1 if has_blocks else size * PARTS
    if not has_blocks and size & (size - 1):
        count = size << (size.bit_length() - 1)
    collective = {"kind": kind, "count": count, "datatype": "uint8"}
    if kind == "barrier":
        collective = {"kind": kind}
    fields = {
        "machine": {"nodes": size},
        "collective": collective,
        "algorithms": {"name": name, **dict(options)},
    }
    total = float(count * (size if has_blocks else 1))
    if scale > 1 and (has_blocks or algorithm.n_parts(size, algorithm.options or {}) > 1):
        total *= n_ranks / size
    tables = program_of(draft(parse_spec(fields))).tables()
    found = _table_of(tables, size, scale, 0.0 if kind == "barrier" else 1 / total)
    return _by_depth(found) if at_once else found


def _table_of(tables: Tables, size: int, scale: float, part: float) -> RoundTable:
    messages, steps = tables.messages, tables.steps
    n_rounds = int(max(messages.round.max(initial=-1), steps.round.max(initial=-1))) + 1
    order = np.argsort(messages.round, kind="stable")
    step_order = np.argsort(steps.round, kind="stable")
    rounds = np.arange(n_rounds + 1)
    source, dest = (one[order].astype(np.int64) for one in (messages.source, messages.dest))
    return RoundTable(
        n_ranks=size,
        n_rounds=n_rounds,
        scale=scale,
        begin=np.searchsorted(messages.round[order], rounds),
        source=source,
        dest=dest,
        share=np.asarray(messages.read.elements[order] * part, dtype=np.float64),
        combined=np.asarray(messages.combine.elements[order] * part, dtype=np.float64),
        pieces=np.maximum(0.0, np.diff(messages.read.indptr)[order] - 1.0),
        changes=_changes(source, dest) + _changes(dest, source),
        step_begin=np.searchsorted(steps.round[step_order], rounds),
        step_rank=steps.rank[step_order].astype(np.int64),
        step_share=np.asarray(steps.write.elements[step_order] * part, dtype=np.float64),
        step_copies=(steps.op == Op.COPY)[step_order],
    )


def _changes(rank: Ints, peer: Ints) -> Floats:
    """Return 1 for each message whose peer is not that of the rank's previous message.

    The last message of a call precedes the first one of the next call.
    """
    if not len(rank):
        return np.zeros(0)
    order = np.argsort(rank, kind="stable")
    first = np.flatnonzero(np.diff(rank[order], prepend=-1))
    previous = np.roll(peer[order], 1)
    previous[first] = peer[order][np.append(first[1:], len(rank)) - 1]
    found = np.zeros(len(rank))
    found[order] = peer[order] != previous
    return found


def _by_depth(table: RoundTable) -> RoundTable:
    """Return a broadcast's table with all messages of a rank in one round, without local steps."""
    has_it = np.zeros(table.n_ranks, dtype=np.int64)
    number = np.zeros(len(table.source), dtype=np.int64)
    for row, (source, dest) in enumerate(zip(table.source, table.dest, strict=True)):
        number[row] = has_it[source]
        has_it[dest] = max(has_it[dest], has_it[source] + 1)
    order = np.argsort(number, kind="stable")
    n_rounds = int(number.max(initial=-1)) + 1
    names = ("source", "dest", "share", "combined", "pieces", "changes")
    columns: dict[str, Any] = {name: getattr(table, name)[order] for name in names}
    return replace(
        table,
        n_rounds=n_rounds,
        begin=np.searchsorted(number[order], np.arange(n_rounds + 1)),
        step_begin=np.zeros(n_rounds + 1, dtype=np.int64),
        is_at_once=True,
        **columns,
    )
