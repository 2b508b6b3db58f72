"""Compilation by all ranks of a communicator: what one rank can do for all, rank 0 does."""

from __future__ import annotations

import math
from typing import Any, Final

from mpi4py import MPI

from collplan.executors.mpi.errors import BindError, one_line
from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.executors.mpi.together import own_communicator
from collplan.planner.compiler.compile import compile_plan, prove_spec
from collplan.planner.compiler.ranks import needs_all_ranks
from collplan.planner.memory import TOO_LARGE
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.rank_program import restrict
from collplan.select.auto import resolve
from collplan.specs import CollplanError, PlanSpec
from collplan.specs.programs.program import ProgramSpec

DOING: Final = "compile the plan"
_SLEEP_S: Final = 0.01
"""Longest sleep of ranks that leave their cores to rank 0."""


def compile_together(
    spec: PlanSpec | ProgramSpec,
    comm: MPI.Intracomm,
    idle: list[str],
    *,
    is_whole: bool = False,
    is_proved: bool = True,
) -> Plan:
    """Return this rank's program of a spec or of a `ProgramSpec`; collective.

    Rank 0 resolves ``auto``. Where a pass must see all ranks, and for a `ProgramSpec`, rank 0
    compiles the plan and sends every other rank its program. Otherwise all ranks compile their own
    at the same time. If one rank compiles machine code, the others wait and load it from the cache.
    Rank 0 also proves the plan of all ranks, once per spec, if it is small.

    Parameters
    ----------
    spec : PlanSpec or ProgramSpec
        The same on all ranks.
    comm : MPI.Intracomm
        Rank r gets the program of rank r modulo the number of ranks of the spec.
    idle : list of str
        Takes a line for every pass of the spec that leaves the whole plan as it is.
    is_whole : bool
        Whether rank 0 gets the whole plan.
    is_proved : bool
        Whether rank 0 proves the plan.

    Raises
    ------
    Exception
        On all ranks, if one has no program: its own, or a `BindError` that names it.
    """
    lines: list[str] = []
    own = own_communicator(comm)
    # With a limit, even none, ranks sleep while they wait: rank 0 has the cores for its proof.
    step = RollCall(own, math.inf, DOING, listens=False)
    try:
        if own.rank == 0:
            plan = step.together(lambda: _lead(spec, own, lines, is_whole, is_proved))
        else:
            plan = step.together(lambda: _follow(spec, own, lines))
        # A pass changed nothing in the plan if it changed nothing on any rank.
        everywhere = set.intersection(*map(set, own.allgather(lines)))
    finally:
        own.Free()
    idle += [line for line in lines if line in everywhere]
    return plan


def _lead(
    spec: PlanSpec | ProgramSpec,
    comm: MPI.Intracomm,
    lines: list[str],
    is_whole: bool,
    is_proved: bool,
) -> Plan:
    """Compile for rank 0; send the others their programs, or the spec that they shall compile."""
    others = range(1, comm.size)
    for rank in others:
        comm.send(spec, rank)
    waiting = list(others)
    try:
        chosen = _resolve(spec)
        is_sent = not isinstance(chosen, PlanSpec) or needs_all_ranks(chosen)
        while waiting and not is_sent:
            comm.send(chosen, waiting.pop())
        plan = _compile(chosen, None if is_sent or is_whole else 0, lines, is_proved)
    except Exception as error:
        for rank in waiting:
            comm.send(BindError(f"rank 0 cannot {DOING}: {one_line(error)}"), rank)
        raise
    # Warn only about passes that the spec names. The user cannot change those that `auto` chose.
    lines[:] = lines if spec.passes else ()
    for rank in waiting:
        comm.send(_program(plan, rank, lines), rank)
    return plan if is_whole else restrict(plan, 0)


def _program(plan: Plan, rank: int, lines: list[str]) -> tuple[Plan, list[str]] | CollplanError:
    """Return what a rank gets: its program, with lines on idle passes, or why there is none."""
    try:
        return restrict(plan, rank % plan.n_ranks), lines
    except CollplanError as error:
        return error


def _resolve(spec: PlanSpec | ProgramSpec) -> PlanSpec | ProgramSpec:
    if isinstance(spec, PlanSpec):
        return resolve(spec)
    from collplan.select.joint import resolve_program

    return resolve_program(spec)


def _follow(spec: PlanSpec | ProgramSpec, comm: MPI.Intracomm, lines: list[str]) -> Plan:
    """Return the program that rank 0 sends, or compile the spec that it sends."""
    is_same = _receive(comm) == spec
    sent = _receive(comm)
    if not is_same:
        raise CollplanError("this spec is not that of rank 0; compile the same spec on all ranks")
    if isinstance(sent, PlanSpec):
        return _compile(sent, comm.rank % sent.machine.n_ranks, lines)
    if isinstance(sent, CollplanError):
        raise sent
    program, idle = sent
    assert isinstance(program, Plan)
    lines += idle
    return program


def _receive(comm: MPI.Intracomm) -> Any:
    """Return what rank 0 sends; it has the core until then."""
    wait = Wait(_SLEEP_S)
    while (message := comm.improbe(source=0)) is None:
        wait.pause()
    return message.recv()


def _compile(
    spec: PlanSpec | ProgramSpec, rank: int | None, lines: list[str], is_proved: bool = False
) -> Plan:
    try:
        if not isinstance(spec, PlanSpec):
            from collplan.planner.programs import compile_program

            return compile_program(spec)
        if is_proved and rank is not None:
            prove_spec(spec)
        return compile_plan(spec, rank=rank, idle=lines, is_proved=is_proved)
    except MemoryError:
        raise MemoryError(TOO_LARGE) from None
