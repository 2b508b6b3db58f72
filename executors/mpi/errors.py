"""Errors of the execution with MPI. Every message is one line."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from collplan.planner.errors import PlanError
from collplan.specs.errors import CollplanError


class UnsupportedPlanError(PlanError):
    """A legal plan that this executor cannot run."""

    kind = "unsupported"


class BindError(CollplanError):
    """A communicator or buffers that do not fit the plan."""


class LaunchError(CollplanError):
    """An MPI that is missing, was started in a wrong way, or failed to start as requested."""


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line, with its type unless it is a `CollplanError`.

    Examples
    --------
    >>> one_line(BindError("recvbuf is read-only")), one_line(ModuleNotFoundError("no numba"))
    ('recvbuf is read-only', 'ModuleNotFoundError: no numba')
    """
    text = " ".join(str(error).split())
    if isinstance(error, CollplanError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def still_running(verb: str) -> BindError:
    """Return the error of a bound plan that cannot be `verb` now."""
    return BindError(f"the bound plan is still running: it cannot be {verb}; wait for it first")


def failed_before(failure: BaseException, verb: str) -> BindError:
    """Return the error of a bound plan that cannot be `verb`, as it has failed."""
    text = one_line(failure)
    return BindError(f"the bound plan failed before ({text}): it cannot be {verb}; bind it again")


class StallError(CollplanError):
    """A plan without progress for longer than its time limit. The job is being aborted."""


def name_ranks(ranks: Iterable[int], most: int = 6) -> str:
    """Return a text that names ranks, with consecutive ranks as ranges.

    Parameters
    ----------
    ranks : iterable of int
        Ranks in any order.
    most : int
        Maximum number of ranges.

    Examples
    --------
    >>> name_ranks([3])
    'rank 3'
    >>> name_ranks([0, 1, 2, 5])
    'ranks 0 to 2 and 5'
    """
    ordered = sorted(set(ranks))
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0])
    ]
    words: list[str] = []
    for run in runs[:most]:
        words += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(rank) for rank in run]
    left = sum(len(run) for run in runs[most:])
    if left:
        words.append(f"{left} more")
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"rank{'s' if len(ordered) > 1 else ''} {text}"
