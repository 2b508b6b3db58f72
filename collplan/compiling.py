"""Compile specs as users write them: `auto` is resolved, and idle passes are reported."""

from __future__ import annotations

import warnings
from typing import Any

from collplan.planner.compiler import compile_folded, compile_plan
from collplan.planner.plan.plan import Plan
from collplan.select.auto import resolve
from collplan.specs import CollplanError, PlanSpec


def compile_spec(
    spec: PlanSpec,
    *,
    rank: int | None = None,
    comm: Any = None,
    idle: list[str] | None = None,
    fold: bool = False,
) -> Plan:
    """Compile a spec, choosing a decomposition where it leaves that to the planner.

    Parameters, result and errors are those of `collplan.planner.compile_plan`, and:

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        Compile the program of this rank of `comm`; collective. Rank 0 resolves ``auto``
        for all ranks. Where a pass must see all ranks, rank 0 alone compiles the plan, and
        sends the others their programs. Do not give `rank` then.
    idle : list of str, optional
        Takes the lines that are warnings otherwise.
    fold : bool
        Compile one node's programs, which stand for those of all nodes. Such a plan can be
        priced, proved and counted, in a fraction of the time and memory, but not run or
        saved.

    Raises
    ------
    CollplanError
        On all ranks of `comm`, if one of them has no program.
    AsymmetricError
        With `fold`, if nodes do not do the same.

    Warns
    -----
    UserWarning
        For every pass of the spec that leaves the whole plan as it is; the message
        says what the pass needs. With `comm`, rank 0 warns. With `rank`, nobody does,
        because a pass that changes nothing there may change another rank's program.
    """
    lines: list[str] = []
    if fold and (comm is not None or rank is not None):
        raise CollplanError("fold: a folded plan is of all ranks; leave rank and comm out")
    if comm is not None:
        from collplan.compiling_together import compile_together

        if rank is not None:
            raise CollplanError("rank: with comm, it is this process' rank there; leave rank out")
        plan = compile_together(spec, comm, lines)
    elif fold:
        plan = compile_folded(resolve(spec), lines if spec.passes else None)
    else:
        # Only of passes that the spec names: the user cannot change what `auto` chooses.
        plan = compile_plan(resolve(spec), rank=rank, idle=lines if spec.passes else None)
    if idle is not None:
        idle += lines
    elif rank is None and (comm is None or comm.rank == 0):
        for line in lines:
            warnings.warn(line, stacklevel=2)
    return plan
