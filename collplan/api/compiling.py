"""Compile specs as users write them: `auto` is resolved, and idle passes are reported."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from collplan.api.sources import Source, read_source, request_of
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.plan.plan import Plan
from collplan.select.auto import resolve
from collplan.specs import CollplanError, PlanSpec
from collplan.specs.syntax.calling import explains_calls, require_comm

if TYPE_CHECKING:
    from collplan.specs.programs.program import ProgramSpec


@explains_calls("compile")
def compile_spec(
    source: Source,
    *,
    rank: int | None = None,
    comm: Any = None,
    idle: list[str] | None = None,
    fold: bool = False,
    is_proved: bool = True,
) -> Plan:
    """Compile a spec or a program into a plan; choose what it leaves to ``auto``.

    Parameters
    ----------
    source : PlanSpec, ProgramSpec, mapping, str, Path or Plan
        A spec or a program, the mapping of its fields, or the path of its file; a plan is
        compiled again. A program is compiled for all ranks, and is not folded.
    rank : int, optional
        Compile the program of this rank only: its rows of the whole plan. The whole plan is not
        held in memory, unless a pass must see it.
    comm : mpi4py.MPI.Intracomm, optional
        Compile the program of this rank of `comm`; collective. Rank 0 resolves ``auto`` for all
        ranks. If a pass must see all ranks, only rank 0 compiles the plan, and sends the others
        their programs. Do not give `rank` as well.
    idle : list of str, optional
        A list to which the texts of warnings are appended, instead of warnings.
    fold : bool
        Compile the programs of one node, which stand for those of all nodes, in a fraction of the
        time and memory. Such a plan can be priced, proved and counted, but not run or saved.
    is_proved : bool
        Whether a plan of all ranks with up to 100,000 tasks is verified. With `comm`, rank 0
        verifies it for all ranks; with `rank` or `fold`, it is not verified.

    Returns
    -------
    Plan
        The same spec gives the same bytes, on any machine.

    Raises
    ------
    AlgorithmError
        If an algorithm is unknown or does not support these ranks or this operation, or if a
        decomposition or pass refuses. The message names alternatives.
    CollplanError
        On all ranks of `comm`, if one of them has no program.
    PlanError
        If the plan is wrong, as by an algorithm of yours. The message is a counter-example.
    AsymmetricError
        With `fold`, if the nodes do not all do the same.

    Warns
    -----
    UserWarning
        For every pass of the spec that leaves the whole plan as it is, with what the pass needs.
        With `comm`, rank 0 warns. With `rank`, nobody does, as the pass may change other programs.
    """
    lines: list[str] = [] if idle is None else idle
    plan = _compile(request_of(source), rank, comm, lines, is_folded=fold, is_proved=is_proved)
    for line in lines if idle is None and rank is None and (comm is None or comm.rank == 0) else ():
        warnings.warn(line, stacklevel=3)  # where users call
    return plan


def _compile(
    spec: PlanSpec | ProgramSpec,
    rank: int | None,
    comm: Any,
    lines: list[str],
    *,
    is_folded: bool,
    is_proved: bool,
) -> Plan:
    """Compile a spec in the way that the arguments ask for; add the lines about idle passes."""
    if is_folded and (comm is not None or rank is not None):
        raise CollplanError("fold: a folded plan is of all ranks; leave rank and comm out")
    if comm is not None:
        require_comm(comm)
        from collplan.programs.compiling_together import compile_together

        if rank is not None:
            raise CollplanError("rank: with comm, it is this process' rank there; leave rank out")
        return compile_together(spec, comm, lines, is_proved=is_proved)
    if not isinstance(spec, PlanSpec):
        return _compile_program(spec, rank, is_folded=is_folded)
    # Warn only about passes that the spec names. The user cannot change those that `auto` chose.
    idle = lines if spec.passes else None
    if is_folded:
        return compile_folded(resolve(spec), idle)
    return compile_plan(resolve(spec), rank=rank, idle=idle, is_proved=is_proved)


def _compile_program(program: ProgramSpec, rank: int | None, *, is_folded: bool) -> Plan:
    """Compile a program for all ranks, or return the tasks of one of them."""
    from collplan.planner.programs import compile_program
    from collplan.planner.rewrite.rank_program import restrict
    from collplan.select.joint import resolve_program

    if is_folded:
        raise CollplanError("fold: plans of programs are not folded; leave fold out")
    plan = compile_program(resolve_program(program))
    return plan if rank is None else restrict(plan, rank)


def plan_of(source: Source, name: str = "source") -> Plan:
    """Return the plan that users mean; specs and programs are compiled.

    Raises
    ------
    CollplanError
        As for `read_source` and `compile_spec`.
    """
    found = read_source(source, name)
    return found if isinstance(found, Plan) else compile_spec(found)
