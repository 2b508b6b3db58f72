"""Run a command of collplan where some algorithms' plans hang or crash on the last rank."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from collplan.executors.mpi.world import join_world

said, *arguments = sys.argv[1:]
how = dict(word.split("=") for word in said.split(","))
comm = join_world()

from collplan.tune import trial  # noqa: E402

bind = trial.bind


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
    return Failing(bound, how[name]) if name in how else bound


named: Any = trial
named.bind = failing

from collplan.cli.main import main  # noqa: E402

sys.argv = ["collplan", *arguments]
sys.exit(main())
