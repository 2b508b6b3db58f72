"""Steps of a few positions, from rounds that are stated once for all positions.

A ring of p positions has about 2·p² messages, of which each position sends and receives 4·p. If an
algorithm can state its rounds relative to a position, only these messages are created.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from collplan.planner.algorithms.registry import Algorithm
from collplan.planner.algorithms.relative import NotRelativeError, Relative
from collplan.planner.algorithms.rounds import Chunks, Group, Message, Round, Step
from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.lowering.collect import (
    BYTES_PER_ROW,
    Collected,
    Runs,
    Steps,
    collect,
    fields_of,
    size_of,
)
from collplan.planner.lowering.recent_steps import Made, RecentSteps
from collplan.planner.memory import require_memory
from collplan.specs.collectives.collective import traits_of

STEPS = (1, 2)
"""Sizes of blocks that are tried: 1 if all positions act alike, 2 if even and odd ones differ."""

_recent: Final = RecentSteps()
"""Steps relative to positions."""


def motions(size: int) -> Iterator[Motion]:
    """Yield the motions under which the rounds of a group of `size` may stay the same."""
    for step in STEPS:
        if size % step == 0:
            yield Motion("shift", size, step)
    if size & (size - 1) == 0:
        yield Motion("xor", size, 1)


def place_steps(collected: Collected, motion: Motion, kept: Ints) -> Collected:
    """Return the steps of some positions from steps that are relative to positions.

    Parameters
    ----------
    collected : Collected
        Steps that `relative_steps` returns for a group with this motion.
    motion : Motion
    kept : ndarray of int64
        Positions.

    Returns
    -------
    Collected
        The same rows that `collect` keeps of the rounds of all positions.
    """
    blocks = csr.sorted_unique(kept // motion.step)
    placed = Collected(None, collected.n_rounds, collected.sends)
    for steps, own in zip(collected.tables, placed.tables, strict=True):
        _place(motion, blocks, kept, steps, own)
    return placed


def relative_steps(algorithm: Algorithm, group: Group) -> Made | None:
    """Return an algorithm's steps relative to positions; None if it names absolute positions.

    The root or the first position of a prefix acts unlike others, so that algorithms of such
    collectives need not be run. There is a row per step and position of a block. Recent steps are
    remembered.

    Parameters
    ----------
    algorithm : Algorithm
    group : Group
        A group with a motion.

    Returns
    -------
    tuple of Collected and sequence of Scratch, or None
    """
    traits = traits_of(algorithm.kind)
    if traits.is_rooted or traits.is_prefix:
        return None
    if algorithm.by_counts or group.pair_counts is not None:
        return _made(algorithm, group)
    key = (
        *(algorithm.steps, group.size, group.root, group.commutative, group.n_chunks),
        *(str(sorted(group.options.items())), group.motion),
    )
    return _recent.find(key, group.chunk_counts, lambda: _made(algorithm, group))


def _made(algorithm: Algorithm, group: Group) -> Made | None:
    try:
        return collect(map(_checked, algorithm.steps(group))), group.scratch
    except Exception:
        # An algorithm may do with arrays what relative numbers do not imitate. Its own errors occur
        # again when it runs with the array of all positions.
        return None


def _checked(one: Round) -> Round:
    """Return a round, or raise `NotRelativeError` if its steps name absolute positions."""
    return Round.of(map(_checked_step, one.steps))


def _checked_step(step: Step) -> Step:
    ends = (step.source, step.dest) if isinstance(step, Message) else (step.rank,)
    # Steps without positions, such as those for absent surplus ranks, are omitted anyway.
    if not all(map(size_of, ends)):
        return step
    if not all(isinstance(end, Relative) and not end.has_offset for end in ends):
        raise NotRelativeError
    n = size_of(ends[0])
    for name in step.__slots__:
        where = getattr(step, name)
        for run in where if isinstance(where, tuple) else (where,):
            if isinstance(run, Chunks):
                _check_sizes(run, n)
    return step


def _check_sizes(run: Chunks, n: int) -> None:
    """Raise `NotRelativeError` if a run of chunks has an entry for every position."""
    for value in fields_of(run):
        if type(value) is not int and size_of(value) not in (1, n):
            raise NotRelativeError


def _place(motion: Motion, blocks: Ints, kept: Ints, steps: Steps, placed: Steps) -> None:
    """Add the rows with a kept end, and their runs.

    A row of the first block represents one row of every block. The rows of a step have the order
    of positions.
    """
    spread = {name: column.spread() for name, column in steps.columns.items()}
    # Each row has an instance per block, of which those with a kept end are needed.
    n_instances = min(motion.n_blocks, len(steps.ends) * len(kept) // motion.step)
    require_memory(steps.n * n_instances * BYTES_PER_ROW)
    key = _instances(motion, blocks, [spread[end].values for end in steps.ends])
    before, place = np.divmod(key, motion.step)
    step, block = np.divmod(before, motion.n_blocks)
    row = step * motion.step + place
    values = {name: column.at(motion, row, block) for name, column in spread.items()}
    if len(kept) < len(blocks) * motion.step:
        concerned = np.any([np.isin(values[end], kept) for end in steps.ends], axis=0)
        values = {name: column[concerned] for name, column in values.items()}
        row, block = row[concerned], block[concerned]
    placed.append(values.values(), len(row))
    for name, runs in steps.runs.items():
        _place_runs(motion, row, block, runs, placed.runs[name])
    placed.n = len(row)


def _instances(motion: Motion, blocks: Ints, ends: list[Ints]) -> Ints:
    """Return the rows that start or end in one of `blocks`, each with its block.

    A row in a block is encoded as the number ``(step * n_blocks + block) * motion.step + place``,
    in ascending order.
    """
    n_rows = len(ends[0])
    step, place = np.divmod(np.repeat(np.arange(n_rows), len(blocks)), motion.step)
    target = np.tile(blocks, n_rows)
    keys = []
    for end in ends:
        block = motion.block_to(np.repeat(end // motion.step, len(blocks)), target)
        keys.append((step * motion.n_blocks + block) * motion.step + place)
    return csr.sorted_unique(np.concatenate(keys))


def _place_runs(motion: Motion, row: Ints, block: Ints, source: Runs, target: Runs) -> None:
    """Add the runs of rows in blocks."""
    columns = source.columns
    owner = columns["owner"].array()
    order = np.argsort(owner, kind="stable")
    n_rows = int(row.max(initial=-1)) + 1
    used = order[: int(np.searchsorted(owner[order], n_rows))]
    indptr, entries = csr.take_rows(csr.indptr_of(owner[used], n_rows), row)
    index = csr.row_numbers(indptr)
    target.n = len(index)
    fields = (columns[name].spread() for name in Runs.FIELDS[1:])
    placed = (field.at(motion, used[entries], block[index]) for field in fields)
    target.append((index, *placed), len(index))
