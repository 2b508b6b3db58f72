"""Configuration that a drop-in communicator shares with all communicators created from it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mpi4py import MPI

from collplan.dropin.decisions import whys_native
from collplan.dropin.statistics import (
    Statistics,
    deliver_at_exit,
    is_logged,
    log_file,
    new_statistics,
)
from collplan.dropin.trial_share import SHARE, TRIALS, parse_share
from collplan.executors.mpi.errors import one_line
from collplan.planner.collective.operations import get_operation
from collplan.specs import COLLECTIVES, CollplanError, SpecError
from collplan.specs.collectives.collective import traits_of
from collplan.specs.collectives.predefined import BUILTIN
from collplan.specs.errors import show_value
from collplan.specs.loading import machine_at_hand
from collplan.tune.fingerprint import take_fingerprint
from collplan.tune.table import TuningTable, load_table

MAX_PLANS: Final = 32
"""Default limit of plans per communicator.

Plans use communicators, of which MPI provides a limited number.
"""
NATIVE: Final = "COLLPLAN_NATIVE_CALLS"
"""Environment variable with the number of native calls before a plan is made; see `Config`."""
_MOST_CALLS: Final = 10**9
_MOST_DIGITS: Final = 10


@dataclass(eq=False)
class Config:
    """Table, operations, limits and statistics of a family of drop-in communicators.

    Parameters
    ----------
    table : TuningTable or None
        Tuning table that chooses plans; None if all calls are native.
    operations : mapping of int to str
        Names of user-defined operations by handle. Predefined operations of MPI are added.
    max_plans : int
        Largest number of plans kept per communicator.
    native_calls : int or None
        Number of equal calls that run natively before a plan is made for them; None for as many as
        would have saved the time of making it, see `calls_before`.
    nonblocking_from : int or None
        Message size in bytes, over all blocks, from which non-blocking calls run by plans; None
        for the default rule of `collplan.dropin.communicators.Comm`.
    trials : float
        Largest time of trials, as a fraction of the time of native calls; 0 for no trials.

    Attributes
    ----------
    statistics : Statistics
        Statistics of all communicators of the family.
    blocking_natives, nonblocking_natives : dict of str to str
        Reasons by kind of collective why its blocking or non-blocking calls are always native.

    Raises
    ------
    CollplanError
        If an operation is not registered, or a limit is out of range.
    """

    table: TuningTable | None
    operations: Mapping[int, str]
    max_plans: int
    native_calls: int | None
    nonblocking_from: int | None
    trials: float = SHARE
    statistics: Statistics = field(default_factory=new_statistics, init=False)
    blocking_natives: dict[str, str] = field(init=False)
    nonblocking_natives: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        for name in self.operations.values():
            get_operation(name)
        if self.max_plans < 1:
            raise CollplanError(f"max_plans is {self.max_plans}; keep at least 1 plan")
        if self.native_calls is not None and self.native_calls < 0:
            raise CollplanError(
                f"native_calls is {self.native_calls}; give 0 to plan from the first call"
            )
        self.operations = {**PREDEFINED, **self.operations}
        are_tried = self.trials > 0
        self.blocking_natives = whys_native(self.table, is_blocking=True, are_tried=are_tried)
        self.nonblocking_natives = whys_native(self.table, is_blocking=False, are_tried=False)

    @property
    def has_plans(self) -> bool:
        """True if the table has a plan, so that its plans are not only those that are tried."""
        natives = whys_native(self.table, is_blocking=True, are_tried=False)
        return any(
            kind not in natives or kind not in self.nonblocking_natives for kind in COLLECTIVES
        )

    def log_at_exit(self, comm: MPI.Intracomm) -> None:
        """Have rank 0 report the statistics at program exit, if the environment requests them.

        Rank 0 of the world writes a file, and rank 0 of the communicator prints a table.
        """
        speaker = comm if log_file() is None else MPI.COMM_WORLD
        if is_logged() and speaker.Get_rank() == 0:
            deliver_at_exit(self.statistics)


def read_table(
    comm: MPI.Intracomm, table: TuningTable | str | Path | None, *, force: bool, named: str = ""
) -> TuningTable | None:
    """Return the table on all ranks, after rank 0 has read and checked it; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    table : TuningTable, str, Path or None
        Table, or the path of its file. The value of rank 0 is used.
    force : bool
        Whether to accept a table with another fingerprint.
    named : str
        Environment variable with the path, for messages; empty if there is none.

    Returns
    -------
    TuningTable or None
        The table, the same on all ranks; None if `table` is None on all ranks.

    Raises
    ------
    CollplanError
        On all ranks, if the table cannot be read, names algorithms that do not exist, or was
        tuned on another machine or with other software. Also if rank 0 has no table and another
        rank has one.
    """
    is_any = comm.allreduce(table is not None, MPI.LOR)
    if not is_any:
        return None
    fingerprint = None
    if not force:
        machine = machine_at_hand()
        fingerprint = take_fingerprint(comm, None if machine is None else machine.n_lanes)
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
            if fingerprint is not None:
                found.check(fingerprint)
            text = json.dumps(found.model_dump(mode="json"))
        except Exception as error:
            problem = one_line(error)
    text, problem = comm.bcast((text, problem))
    if text is None:
        before = f"{named}: " if named else ""
        raise CollplanError(before + (problem or "table: rank 0 could not read it"))
    return TuningTable.model_validate_json(text)


def read_share(comm: MPI.Intracomm, share: float | None) -> float:
    """Return the share of time for trials that rank 0 passes, on all ranks; collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    share : float or None
        Time of trials as a fraction of the time of native calls; None for the value of the
        environment variable `TRIALS`, or `SHARE` if it is not set.

    Raises
    ------
    CollplanError
        On all ranks, if the share is not a finite number of at least 0.
    """
    given = os.environ.get(TRIALS, SHARE) if share is None else share
    given, name = comm.bcast((given, TRIALS if share is None else "trials"))
    return parse_share(given, name)


def parse_native_calls(text: str | None) -> int | None:
    """Return the value of the environment variable `NATIVE`; None if it is not set.

    Raises
    ------
    CollplanError
        If the text is not such a number.
    """
    if text is None:
        return None
    if not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _MOST_CALLS):
        raise CollplanError(f"{NATIVE}: {show_value(text)} is no number; give 0 to {_MOST_CALLS}")
    return int(text)


def check_choices(table: TuningTable) -> None:
    """Check that all algorithms of winners exist in this version of collplan.

    Raises
    ------
    SpecError
        If an algorithm does not exist. The message names the choice and the valid algorithms.
    """
    if all(sweep.choices[one.winner].native for sweep in table.sweeps for one in sweep.points):
        return
    # Imported late, as this takes a tenth of a second, on rank 0 only.
    from collplan.planner.algorithms.registry import registry
    from collplan.planner.lowering.select import ANYWHERE

    for sweep in table.sweeps:
        planned_kind = traits_of(sweep.collective).regular or sweep.collective
        for label in {point.winner for point in sweep.points}:
            choice = sweep.choices[label]
            named = [] if choice.native else choice.named_algorithms(planned_kind)
            for kind, name in named:
                # Without a kind, the algorithm may belong to components of any kind.
                kinds = [kind] if kind else registry.kinds()
                names = [one.name for each in kinds for one in registry.of(each)]
                valid = names if kind else sorted({*names})
                if name not in (*ANYWHERE, *valid):
                    raise SpecError(
                        f"sweeps: {sweep.collective}: choice {show_value(label)} names the "
                        f"algorithm {show_value(name)}, which does not exist; "
                        f"valid: {', '.join(valid)}"
                    )


PREDEFINED: Final = {getattr(MPI, name.upper()).handle: name for name in BUILTIN}
"""Names of MPI's predefined operations by handle."""
