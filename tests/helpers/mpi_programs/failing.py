"""Run a command of collplan where plans of some algorithms hang or crash on the last rank.

Plans through shared memory do not fail.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from collplan.executors.mpi.world import join_world
from collplan.specs.request import MESSAGES

said, *arguments = sys.argv[1:]
how = dict(word.split("=") for word in said.split(","))
comm = join_world()

from collplan.measure import run  # noqa: E402

bind = run.bind


class Failing:
    """A bound plan that never completes."""

    def __init__(self, bound: Any, how: str) -> None:
        self._bound, self._how = bound, how

    def __call__(self) -> None:
        if comm.rank < comm.size - 1:
            self._bound()
        elif self._how == "hang":
            time.sleep(1000)
        else:
            os.kill(os.getpid(), signal.SIGSEGV)


def failing(plan: Any, *rest: Any) -> Any:
    bound = bind(plan, *rest)
    name = str(plan.spec.algorithms)
    fails = name in how and plan.spec.transport == MESSAGES
    return Failing(bound, how[name]) if fails else bound


named: Any = run
named.bind = failing

from collplan.cli.main import main  # noqa: E402

sys.argv = ["collplan", *arguments]
sys.exit(main())
