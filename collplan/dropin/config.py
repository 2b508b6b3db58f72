"""State that a drop-in communicator shares with all communicators made from it."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Final

from mpi4py import MPI

from collplan.dropin.statistics import FILE, Statistics, new_statistics
from collplan.executors.mpi.errors import one_line
from collplan.planner.algorithms.registry import registry
from collplan.planner.collective.operations import get_operation
from collplan.planner.lowering.select import ANYWHERE
from collplan.specs import CollplanError, SpecError
from collplan.specs.collective import traits_of
from collplan.specs.errors import show_value
from collplan.specs.loading import machine_at_hand
from collplan.specs.predefined import BUILTIN
from collplan.tune.fingerprint import take_fingerprint
from collplan.tune.table import TuningTable, load_table

MAX_PLANS: Final = 32
"""Plans a communicator keeps; each has a communicator of MPI's, which are few."""
NATIVE_CALLS: Final = 2
"""Equal calls that run natively before a plan is made, which few calls would not pay for."""
SHARE: Final = 0.1
"""Share of the time of a signature's native calls that a trial of plans may take, by default."""
TRIALS: Final = "COLLPLAN_TRIALS"
"""Environment variable: another share, 0 for no trials."""
LOG: Final = "COLLPLAN_LOG"
"""Environment variable; where it is 1, rank 0 says at the end what ran."""


@dataclass(eq=False)
class Config:
    """Table, operations and statistics of a drop-in and its descendants.

    Parameters
    ----------
    table : TuningTable or None
        What to run; None for all native.
    operations : mapping of int to str
        The user's own, by handle; those of MPI are added.
    max_plans : int
        Plans kept for each communicator.
    native_calls : int
        Equal calls that run natively before a plan is made for them.
    nonblocking_from : int or None
        Bytes from which on non-blocking forms run by plans; None for where that pays.
    trials : float
        Share of the time of native calls that trials may take; 0 for no trials.

    Raises
    ------
    CollplanError
        If an operation is not registered, or no plan would be kept.
    """

    table: TuningTable | None
    operations: Mapping[int, str]
    max_plans: int
    native_calls: int
    nonblocking_from: int | None
    trials: float = SHARE
    statistics: Statistics = field(default_factory=new_statistics, init=False)

    def __post_init__(self) -> None:
        for name in self.operations.values():
            get_operation(name)
        if self.max_plans < 1:
            raise CollplanError(f"max_plans is {self.max_plans}; keep at least 1 plan")
        if self.native_calls < 0:
            raise CollplanError(
                f"native_calls is {self.native_calls}; say 0 to plan from the first"
            )
        self.operations = {**PREDEFINED, **self.operations}

    def log_at_exit(self, comm: MPI.Intracomm) -> None:
        """Let rank 0 print what ran when the program ends, where that is asked for."""
        if is_logged() and comm.Get_rank() == 0:
            atexit.register(self.statistics.deliver)


def is_logged() -> bool:
    """Return whether the environment asks for statistics at the end."""
    return os.environ.get(LOG, "") not in ("", "0") or bool(os.environ.get(FILE))


def read_table(
    comm: MPI.Intracomm, table: TuningTable | str | Path | None, *, force: bool
) -> TuningTable | None:
    """Return the table, the same on all ranks; rank 0 reads and checks it. Collective.

    Raises
    ------
    CollplanError
        On all ranks, if it can't be read, names what does not exist, or was tuned elsewhere.
    """
    is_any = comm.allreduce(table is not None, MPI.LOR)
    if not is_any:
        return None
    here = None
    if not force:
        machine = machine_at_hand()
        here = take_fingerprint(comm, None if machine is None else machine.n_lanes)
    text, problem = None, None
    if comm.Get_rank() == 0:
        try:
            if table is None:
                raise CollplanError("table: rank 0 has none, others do; give all the same")
            if not isinstance(table, TuningTable | str | os.PathLike):
                raise CollplanError(
                    f"table: is a {type(table).__name__}; give a TuningTable, or the path of one"
                )
            found = table if isinstance(table, TuningTable) else load_table(table)
            check_choices(found)
            if here is not None:
                found.check(here)
            text = json.dumps(found.model_dump(mode="json"))
        except Exception as error:
            problem = one_line(error)
    text, problem = comm.bcast((text, problem))
    if text is None:
        raise CollplanError(problem or "table: rank 0 could not read it")
    return TuningTable.model_validate_json(text)


def read_share(comm: MPI.Intracomm, share: float | None) -> float:
    """Return the share of time that trials may take: rank 0's, on all; collective.

    Raises
    ------
    CollplanError
        On all ranks, if it is not a number of zero or more.
    """
    given = os.environ.get(TRIALS, SHARE) if share is None else share
    given = comm.bcast(given)
    try:
        found = float(given)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found < inf:
        raise CollplanError(
            f"trials is {show_value(given)}; give the share of time that they may take, such as "
            f"{SHARE}, or 0 for none"
        )
    return found


def check_choices(table: TuningTable) -> None:
    """See that the algorithms that win are algorithms of this collplan.

    Raises
    ------
    SpecError
        Naming the choice and what there is.
    """
    for sweep in table.sweeps:
        planned_kind = traits_of(sweep.collective).regular or sweep.collective
        for label in {point.winner for point in sweep.points}:
            choice = sweep.choices[label]
            named = [] if choice.native else choice.named_algorithms(planned_kind)
            for kind, name in named:
                # An algorithm may be named for components of any kind.
                kinds = [kind] if kind else registry.kinds()
                names = [one.name for each in kinds for one in registry.of(each)]
                valid = names if kind else sorted({*names})
                if name not in (*ANYWHERE, *valid):
                    raise SpecError(
                        f"sweeps: {sweep.collective}: choice {label!r} names the algorithm "
                        f"{name!r}, which does not exist; valid: {', '.join(valid)}"
                    )


PREDEFINED: Final = {getattr(MPI, name.upper()).handle: name for name in BUILTIN}
"""MPI's operations by handle."""
