"""Checks of the rounds of algorithms of one's own: mistakes are one line each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

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
from collplan.planner.errors import OwnCodeError, mended
from collplan.planner.plan.phases import NATIVE
from collplan.specs.errors import show_value
from collplan.specs.syntax.numbers import MAX_COUNT

_STEPS = (Message, Copy, Reduce, Call)
_END: Final = object()
MOST_QUEUES: Final = 2**31 - 1
MOST_ROUNDS: Final = 2**20
"""Largest number of rounds of a user's algorithm. A generator that yields more may never end."""


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
    OwnCodeError
        If the algorithm raises an error, or a step names positions, spaces or chunks that do not
        exist. The message has one line, with the round and the limit.
    """
    with mended(f"{name}: "):
        found: Any = rounds(group)
    if not isinstance(found, Iterable):
        raise OwnCodeError(f"{name}: returns {show_value(found)}; let it yield rounds")
    for number, one in enumerate(_mended(f"{name}: round {{}}: ", found)):
        if number == MOST_ROUNDS:
            most = f"{MOST_ROUNDS:,} rounds"
            raise OwnCodeError(f"{name}: yields more than {most}; let the generator end")
        before = f"{name}: round {number + 1}: "
        if not isinstance(one, Round):
            raise OwnCodeError(
                f"{before}{show_value(one)} is not a Round; yield Round(Message(...), ...)"
            )
        yield Round.of(_checked_steps(before, one.steps, group, name))


def _mended(before: str, values: Iterable[Any]) -> Iterator[Any]:
    """Generate values; an error of their generator becomes one line after ``before.format(i)``."""
    generator = iter(values)
    for i in itertools.count(1):
        with mended(before.format(i)):
            value = next(generator, _END)
        if value is _END:
            return
        yield value


def _checked_steps(before: str, steps: Iterable[Any], group: Group, name: str) -> Iterator[Step]:
    def fail(problem: str) -> OwnCodeError:
        return OwnCodeError(before + problem)

    for i, step in enumerate(_mended(before.replace("{", "{{").replace("}", "}}"), steps)):
        place = f"step {i + 1}"
        if not isinstance(step, _STEPS):
            kinds = ", ".join(one.__name__ for one in _STEPS)
            raise fail(f"{place} is {show_value(step)}; steps are {kinds}")
        if isinstance(step, Call) and not name.endswith(f"/{NATIVE}"):
            only = f"only algorithms called {NATIVE} make"
            raise fail(f"{place} is a Call, which {only}; use Message")
        for problem in _problems(step, group):
            raise fail(f"{place}, a {type(step).__name__}: {problem}")
        yield step


def _problems(step: Step, group: Group) -> Iterator[str]:
    """Generate the mistakes of a step."""
    is_message = isinstance(step, Message)
    names = ("source", "dest") if is_message else ("rank",)
    sizes = {1}
    for name in names:
        for problem in _misplaced(name, getattr(step, name), 0, group.size - 1, "positions"):
            yield _naming_entry(step, problem)
        sizes.add(np.size(getattr(step, name)))
    for problem in _misplaced("queue", getattr(step, "queue", -1), -1, MOST_QUEUES, "queues"):
        yield _naming_entry(step, problem)
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
                yield _naming_entry(step, Mistake(f"{name}: {problem.text}", problem.entry))


class Mistake(NamedTuple):
    """A mistake in a step, and the entry of its arrays with the mistake, if it is in one."""

    text: str
    entry: int | None = None


def _naming_entry(step: Step, problem: Mistake) -> str:
    """Return a mistake with the positions of the message or of the local step that it is in."""
    if problem.entry is None:
        return problem.text
    names = ("source", "dest") if isinstance(step, Message) else ("rank",)
    all_entries = [np.asarray(getattr(step, name)).ravel() for name in names]
    entries = [str(some[min(problem.entry, len(some) - 1)]) for some in all_entries]
    return f"{'from' if len(entries) == 2 else 'at'} {' to '.join(entries)}: {problem.text}"


def _wrong_chunks(run: Chunks, n_steps: int, group: Group) -> Iterator[Mistake]:
    """Generate the mistakes of a run of chunks; its first chunk is taken modulo their number."""
    if not isinstance(run, Chunks):
        yield Mistake(f"{show_value(run)} are no chunks; use at(space, first, n)")
        return
    n_spaces = OUTPUT + 1 + len(group.scratch)
    mistakes = list(_misplaced("space", run.space, 0, n_spaces - 1, "spaces"))
    for name in ("first", "n", "stride"):
        mistakes += _misplaced(name, getattr(run, name), None, None, "numbers")
    mistakes += _misplaced("repeat", run.repeat, 0, MAX_COUNT, "numbers of runs")
    for name in ("space", "first", "n", "repeat"):
        if np.size(getattr(run, name)) not in (1, n_steps):
            n_entries = np.size(getattr(run, name))
            text = f"{name} has {n_entries} entries for {n_steps} steps; give as many, or one"
            mistakes.append(Mistake(text))
    yield from mistakes
    if mistakes:
        return
    sizes = [group.n_chunks] * (OUTPUT + 1) + [layout.n_chunks for layout in group.scratch]
    n, most = np.broadcast_arrays(run.n, np.array(sizes)[run.space])
    wrong = np.flatnonzero((n.ravel() < 0) | (n.ravel() > most.ravel()))
    if len(wrong):
        least, limit = n.ravel()[wrong[0]], most.ravel()[wrong[0]]
        text = f"n is {least}, the space has {limit} chunks; give 0 to {limit}"
        yield Mistake(text, int(wrong[0]))


def _misplaced(
    name: str, values: Any, low: int | None, high: int | None, what: str
) -> Iterator[Mistake]:
    """Generate a mistake if values are no whole numbers, or not from `low` to `high`."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" or array.ndim > 1 or isinstance(values, list | tuple):
        yield Mistake(f"{name} is {show_value(values)}; give a whole number, or an array of them")
        return
    if low is None or high is None or not array.size:
        return
    wrong = np.flatnonzero((array.ravel() < low) | (array.ravel() > high))
    if len(wrong):
        entry = int(wrong[0])
        yield Mistake(f"{name} is {array.ravel()[entry]}; {what} are {low} to {high}", entry)
