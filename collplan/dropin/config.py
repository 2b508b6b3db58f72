"""State that a drop-in communicator shares with all communicators made from it."""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mpi4py import MPI

from collplan.dropin.statistics import Statistics
from collplan.executors.mpi.errors import one_line
from collplan.planner.algorithms.registry import registry
from collplan.planner.collective.operations import get_operation
from collplan.specs import CollplanError, SpecError
from collplan.specs.elements import BUILTIN
from collplan.specs.loading import machine_at_hand
from collplan.specs.request import AUTO
from collplan.tune.fingerprint import take_fingerprint
from collplan.tune.table import TuningTable, load_table

MAX_PLANS: Final = 32
"""Plans a communicator keeps; each has a communicator of MPI's, which are few."""
NATIVE_CALLS: Final = 2
"""Equal calls that run natively before a plan is made, which few calls would not pay for."""
LOG: Final = "COLLPLAN_LOG"
"""Environment variable; where it is 1, rank 0 says at the end what ran."""


class Config:
    """Table, operations and statistics of a drop-in and its descendants.

    Parameters
    ----------
    table : TuningTable or None
        What to run; None for all native.
    operations : mapping of int to str
        The user's own, by handle.
    max_plans : int
        Plans kept for each communicator.
    native_calls : int
        Equal calls that run natively before a plan is made for them.
    nonblocking_from : int or None
        Bytes from which on non-blocking forms run by plans; None for where that pays.

    Raises
    ------
    CollplanError
        If an operation is not registered, or no plan would be kept.
    """

    def __init__(
        self,
        table: TuningTable | None,
        operations: Mapping[int, str],
        max_plans: int,
        native_calls: int,
        nonblocking_from: int | None = None,
    ) -> None:
        for name in operations.values():
            get_operation(name)
        if max_plans < 1:
            raise CollplanError(f"max_plans is {max_plans}; keep at least 1 plan")
        if native_calls < 0:
            raise CollplanError(f"native_calls is {native_calls}; say 0 to plan from the first")
        self.table = table
        self.operations = {**PREDEFINED, **operations}
        self.max_plans, self.native_calls = max_plans, native_calls
        self.nonblocking_from = nonblocking_from
        self.statistics = Statistics()

    def log_at_exit(self, comm: MPI.Intracomm) -> None:
        """Let rank 0 print what ran when the program ends, where that is asked for."""
        if os.environ.get(LOG, "") not in ("", "0") and comm.Get_rank() == 0:
            atexit.register(self.log)

    def log(self) -> None:
        """Write to standard error what ran, if anything did."""
        if not self.statistics.rows:
            return
        counts = self.statistics.as_dict()
        sys.stderr.write(
            f"collplan: rank 0: {counts['planned_calls']} collectives by plans, "
            f"{counts['native_calls']} native\n{self.statistics}\n"
        )
        sys.stderr.flush()


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
    here = None if force else take_fingerprint(comm, _known_lanes())
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


def check_choices(table: TuningTable) -> None:
    """See that the algorithms that win are algorithms of this collplan.

    Raises
    ------
    SpecError
        Naming the choice and what there is.
    """
    for sweep in table.sweeps:
        for label in {point.winner for point in sweep.points}:
            choice = sweep.choices[label]
            named = [] if choice.native else choice.named_algorithms(sweep.collective)
            for kind, name in named:
                valid = [one.name for one in registry.of(kind)] if kind else _all_names()
                if name not in (AUTO.name, *valid):
                    raise SpecError(
                        f"sweeps: {sweep.collective}: choice {label!r} names the algorithm "
                        f"{name!r}, which does not exist; valid: {', '.join(valid)}"
                    )


def _all_names() -> list[str]:
    names = {one.name for kind in registry.kinds() for one in registry.of(kind)}
    return sorted(names)


def _known_lanes() -> int | None:
    """Return the lanes of a node, where the environment tells the machine."""
    machine = machine_at_hand()
    return None if machine is None else machine.lanes


PREDEFINED: Final = {getattr(MPI, name.upper()).handle: name for name in BUILTIN}
"""MPI's operations by handle."""
