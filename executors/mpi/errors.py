"""Errors between a plan and an MPI library; every message is one line."""

from __future__ import annotations

from collplan.planner.errors import PlanError
from collplan.specs.errors import CollplanError


class UnsupportedPlanError(PlanError):
    """A legal plan with something this executor cannot run."""

    kind = "unsupported"


class BindError(CollplanError):
    """A communicator or buffers that do not fit the plan."""


class LaunchError(CollplanError):
    """An MPI that is missing, was started wrongly, or did not come up as asked."""


def one_line(error: Exception) -> str:
    """Return what an error says in one line, with its type where it is not one of ours.

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


class StallError(CollplanError):
    """A plan that stood still for longer than it may; the job has been told to end."""
