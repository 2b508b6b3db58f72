"""Numbers by which compiled code and Python tell each other what to do and how it went."""

from __future__ import annotations

SEND, RECV, COPY, REDUCE, COMPUTE, NOTHING = range(6)
"""Kinds of tasks, messages first: those of `collplan.planner.plan.plan.Op`, and one more."""
CALL = -1
"""Kind of a collective of MPI, which is begun and ends as messages do."""

STAGE_START, STAGE_BACKGROUND, STAGE_WAIT = range(3)
"""Stages of tasks, as in `collplan.planner.plan.plan.Stage`."""

START, GO_ON_STARTING, TEST, WAIT, RUN, SERVE = range(6)
"""Requests to the loop; each names what must be over when the call returns.

`SERVE` runs the background of every start that is handed over, until told to stop.
"""

DONE, PENDING, DEADLOCK, FAILED, FAILED_IN_STATUS, BUSY, RAISED = range(7)
"""Outcomes of a call of the loop; `RAISED` is that a reduction in Python raised an exception."""

SERVE_BOARD, WAIT_FOR_FLIGHT, TEST_FLIGHT, COMPLETE_FLIGHT = range(4)
"""Requests to the board of programs in flight."""
