"""Codes for requests from Python to compiled code, and for their outcomes."""

from __future__ import annotations

SEND, RECV, COPY, REDUCE, COMPUTE, NOTHING = range(6)
"""Kinds of tasks: those of `collplan.planner.plan.plan.Op` with messages first, and NOTHING."""
CALL = -1
"""Kind of a collective of MPI, which has a request like a message."""

STAGE_START, STAGE_BACKGROUND, STAGE_WAIT = range(3)
"""Stages of tasks, as in `collplan.planner.plan.plan.Stage`."""

START, GO_ON_STARTING, TEST, WAIT, RUN, SERVE = range(6)
"""Requests to the loop, named after the step that has ended when the call returns DONE.

`SERVE` runs the background tasks of each start that is handed over, until the thread is stopped.
"""

DONE, PENDING, DEADLOCK, FAILED, FAILED_IN_STATUS, BUSY, RAISED = range(7)
"""Outcomes of a call of the loop.

`RAISED` means that a reduction or a computation in Python raised an exception.
"""
