"""Buffers of programs, and the effect of their steps one after another, computed with numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.collective.reference import expected, random_elements
from collplan.planner.collective.semantics import (
    contribution_counts,
    precondition,
    promised_places,
)
from collplan.planner.plan.plan import Buffer
from collplan.planner.programs.memory import ProgramMemory
from collplan.specs import Collective, numpy_dtype
from collplan.specs.programs.buffers import BufferRange
from collplan.specs.programs.program import ProgramSpec

Array = npt.NDArray[Any]
Memory = dict[str, Array]
"""The buffers of a rank, by name."""


def allocate_buffers(program: ProgramSpec) -> Array:
    """Return the memory of one rank, as the receive buffer of the program's plan, with zeros."""
    return np.zeros(ProgramMemory(program).n_elements, numpy_dtype(program.datatype))


def buffers_in(program: ProgramSpec, memory: Array) -> Memory:
    """Return the buffers of a program as views of a rank's memory.

    Parameters
    ----------
    program : ProgramSpec
    memory : ndarray
        As `allocate_buffers` returns it.

    Returns
    -------
    dict of str to ndarray, shape (count,)
    """
    raw, unit = memory.view(np.uint8), program.itemsize
    found = {}
    for name, first in ProgramMemory(program).places().items():
        buffer = program.buffers[name]
        bytes_of = raw[first * unit : first * unit + buffer.count * buffer.itemsize]
        found[name] = bytes_of.view(numpy_dtype(buffer.datatype))
    return found


def fill_buffers(program: ProgramSpec, memory: Array, rank: int, seed: int = 0) -> None:
    """Fill the buffers of a rank with random elements, as `random_elements` makes them."""
    for number, buffer in enumerate(buffers_in(program, memory).values()):
        generator = np.random.default_rng((seed, rank, number))
        buffer[:] = random_elements(buffer.dtype, len(buffer), generator)


def apply_steps(program: ProgramSpec, memory: Sequence[Memory]) -> None:
    """Change the buffers of all ranks as the steps of a program do, one after another.

    Parameters
    ----------
    program : ProgramSpec
    memory : sequence of dict of str to ndarray
        Buffers of all ranks, which are changed. Computations change nothing.
    """
    for number in program.order:
        step = program.steps[number]
        if step.collective is None or not step.collective.has_data:
            continue
        for ranks in program.groups[number]:
            sent, received = (
                [_view(program, one, memory[rank]) for rank in ranks]
                for one in (step.send, step.receive)
            )
            _apply(step.collective, sent, received)


def _view(program: ProgramSpec, one: BufferRange | None, memory: Memory) -> Array:
    if one is None:
        return np.zeros(0)
    first, end = one.bounds(program.buffers[one.buffer].count)
    return memory[one.buffer][first:end]


def _apply(collective: Collective, sent: list[Array], received: list[Array]) -> None:
    """Change the receive buffers of a group as a collective does."""
    size = len(received)
    counts, before = contribution_counts(collective, size), precondition(collective, size)
    dtype = numpy_dtype(collective.datatype)
    inputs = [np.zeros(0, dtype)] * size
    for rank in range(size):
        rows = np.flatnonzero(before.rank == rank)[:1]
        if counts[rank] and len(rows):
            place = int(before.offset[rows[0]])
            buffers = sent if before.buffer[rows[0]] == Buffer.SEND else received
            inputs[rank] = buffers[rank][place : place + int(counts[rank])].copy()
    for rank, result in enumerate(expected(collective, inputs)):
        if result is None:
            continue
        if collective.regular is None:
            received[rank][: len(result)] = result
        else:
            received[rank][promised_places(collective, size, rank)] = result
