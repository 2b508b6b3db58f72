"""Checks of the rounds of algorithms of one's own: mistakes are one line each."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from collplan.planner.algorithms.rounds import (
    OUTPUT,
    Call,
    Chunks,
    Copy,
    Group,
    Message,
    Reduce,
    Round,
    Rounds,
    Step,
    Where,
)
from collplan.planner.errors import AlgorithmError
from collplan.specs.errors import CollplanError, show_value

_STEPS = (Message, Copy, Reduce, Call)


def checked(name: str, rounds: Callable[[Group], Rounds], group: Group) -> Rounds:
    """Generate the rounds of an algorithm on a group, after checking their steps.

    Parameters
    ----------
    name : str
        Collective and name of the algorithm, with which messages begin.
    rounds : callable
        The algorithm.
    group : Group
        Group without a motion.

    Raises
    ------
    AlgorithmError
        If the algorithm raises an error, or a step names positions, spaces or chunks that do not
        exist. The message has one line, with the round and the limit.
    """
    found: Any = rounds(group)
    if not isinstance(found, Iterable):
        raise AlgorithmError(f"{name}: returns {show_value(found)}; let it yield rounds")
    for number, one in enumerate(_mended(f"{name}: round {{}}: ", found)):
        before = f"{name}: round {number + 1}: "
        if not isinstance(one, Round):
            raise AlgorithmError(
                f"{before}{show_value(one)} is not a Round; yield Round(Message(...), ...)"
            )
        yield Round.of(_checked_steps(before, one.steps, group))


def _mended(before: str, values: Iterable[Any]) -> Iterator[Any]:
    """Generate values; an error of their generator becomes one line after ``before.format(i)``."""
    generator = iter(values)
    for i in itertools.count(1):
        try:
            value = next(generator)
        except StopIteration:
            return
        except CollplanError:
            raise
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {show_value(str(error), plain=True)}"
            where = f"{Path(at.filename).name}:{at.lineno}"
            raise AlgorithmError(f"{before.format(i)}{text} ({where}); mend it") from None
        yield value


def _checked_steps(before: str, steps: Iterable[Any], group: Group) -> Iterator[Step]:
    def fail(problem: str) -> AlgorithmError:
        return AlgorithmError(before + problem)

    for i, step in enumerate(_mended(before.replace("{", "{{").replace("}", "}}"), steps)):
        place = f"step {i + 1}"
        if not isinstance(step, _STEPS):
            kinds = ", ".join(one.__name__ for one in _STEPS)
            raise fail(f"{place} is {show_value(step)}; steps are {kinds}")
        for problem in _problems(step, group):
            raise fail(f"{place}, a {type(step).__name__}: {problem}")
        yield step


def _problems(step: Step, group: Group) -> Iterator[str]:
    """Generate the mistakes of a step."""
    is_message = isinstance(step, Message)
    names = ("source", "dest") if is_message else ("rank",)
    sizes = {1}
    for name in names:
        yield from _misplaced(name, getattr(step, name), 0, group.size - 1, "positions")
        sizes.add(np.size(getattr(step, name)))
    if 0 in sizes:
        return  # such a step does nothing
    if len(sizes) > 2:
        lengths = " and ".join(str(np.size(getattr(step, name))) for name in names)
        yield f"{' and '.join(names)} have {lengths} entries; give as many, or one"
        return
    for name in ("read", "write", "combine", "left", "right"):
        where: Where | None = getattr(step, name, None)
        for run in where if isinstance(where, tuple) else () if where is None else (where,):
            for problem in _wrong_chunks(run, max(sizes), group):
                yield f"{name}: {problem}"


def _wrong_chunks(run: Chunks, n_steps: int, group: Group) -> Iterator[str]:
    """Generate the mistakes of a run of chunks; its first chunk is taken modulo their number."""
    if not isinstance(run, Chunks):
        yield f"{show_value(run)} are no chunks; use at(space, first, n)"
        return
    n_spaces = OUTPUT + 1 + len(group.scratch)
    mistakes = list(_misplaced("space", run.space, 0, n_spaces - 1, "spaces"))
    for name in ("first", "n", "repeat"):
        mistakes += _misplaced(name, getattr(run, name), None, None, "numbers")
    for name in ("space", "first", "n", "repeat"):
        if np.size(getattr(run, name)) not in (1, n_steps):
            mistakes.append(
                f"{name} has {np.size(getattr(run, name))} entries for {n_steps} steps; give as "
                f"many, or one"
            )
    yield from mistakes
    if mistakes:
        return
    sizes = [group.n_chunks] * (OUTPUT + 1) + [layout.n_chunks for layout in group.scratch]
    n, most = np.broadcast_arrays(run.n, np.array(sizes)[run.space])
    wrong = np.flatnonzero((n.ravel() < 0) | (n.ravel() > most.ravel()))
    if len(wrong):
        least, limit = n.ravel()[wrong[0]], most.ravel()[wrong[0]]
        yield f"n is {least}, the space has {limit} chunks; give 0 to {limit}"


def _misplaced(
    name: str, values: Any, low: int | None, high: int | None, what: str
) -> Iterator[str]:
    """Generate a mistake if values are no whole numbers, or not from `low` to `high`."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim > 1 or isinstance(values, list | tuple):
        yield f"{name} is {show_value(values)}; give a whole number, or an array of them"
        return
    if low is None or high is None or not array.size:
        return
    wrong = array.ravel()[(array.ravel() < low) | (array.ravel() > high)]
    if len(wrong):
        yield f"{name} is {wrong[0]}; {what} are {low} to {high}"
