"""Bind plans, or what ranks know of a collective, to a communicator and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from collplan.api.sources import Request, Source, read_source
from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.bound_plan import bind as bind_plan
from collplan.planner.plan.plan import Plan
from collplan.specs.syntax.calling import explains_calls, require_comm

if TYPE_CHECKING:  # a plan from a file is bound without what compiles plans
    from collplan.api.bound_program import BoundProgram
    from collplan.api.rank_view import RankView
    from collplan.executors.mpi.binding.prepared import Progress
    from collplan.executors.mpi.engine.computations import Functions
    from collplan.executors.mpi.engine.loop_memory import Recorder
    from collplan.executors.mpi.program.elements import Applies
    from collplan.specs import PlanSpec, ProgramSpec


class BindOptions(TypedDict, total=False):
    """Options of `bind`, each of which may be left out."""

    operation: Applies | None
    recorder: Recorder | None
    timeout_s: float | None
    progress: Progress
    cores: Sequence[int] | None
    computations: Functions | None


@overload
def bind(
    source: ProgramSpec,
    comm: Any,
    sendbuf: Any = None,
    recvbuf: Any = None,
    **options: Unpack[BindOptions],
) -> BoundProgram: ...
@overload
def bind(
    source: PlanSpec | Plan | RankView,
    comm: Any,
    sendbuf: Any = None,
    recvbuf: Any = None,
    **options: Unpack[BindOptions],
) -> BoundPlan: ...
@overload
def bind(
    source: Mapping[str, Any] | str | Path,
    comm: Any,
    sendbuf: Any = None,
    recvbuf: Any = None,
    **options: Unpack[BindOptions],
) -> BoundPlan | BoundProgram: ...
@explains_calls("bind", options=BindOptions.__annotations__)
def bind(
    source: Source | RankView,
    comm: Any,
    sendbuf: Any = None,
    recvbuf: Any = None,
    **options: Unpack[BindOptions],
) -> BoundPlan | BoundProgram:
    """Bind a plan or a program to a communicator and to this rank's buffers; collective.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str, Path or RankView
        A plan for as many ranks as `comm` has; a spec or a program, the mapping of its fields, or
        the path of its file; or this rank's view of a collective whose counts differ per rank.
        The ranks compile the plan of all but a plan together, so bind once.
    comm : mpi4py.MPI.Intracomm
        The communicator. The plan gets a duplicate, so its messages never match others.
    sendbuf, recvbuf : ndarray or None
        This rank's buffers: C-contiguous arrays of the plan's dtype that do not overlap.
        None where the plan uses no buffer. Without any, call `BoundPlan.allocate` or
        `BoundPlan.rebind` before the first start. The buffers of a `ProgramSpec` are allocated,
        if `recvbuf` has no memory for them.
    **options : BindOptions
        Options of the binding:

        - `operation`, an object with ``apply(left, right, out)``: the reduction, instead of
          that of the plan's spec;
        - `timeout_s`, in seconds: how long to wait for other ranks, by default for ever.
          When it is over, every rank that waits says what for, and the job is aborted;
        - `progress`, "auto", "caller" or "thread": who runs tasks that the plan puts on
          communication cores;
        - `cores`, a sequence of int: the processor of each core of this rank's node;
        - `computations`, a mapping of str to callable: functions that the computing steps of a
          program call, by name; other ones keep the core busy;
        - `recorder`, a `Recorder`: takes the times at which tasks start and end.

    Returns
    -------
    BoundPlan or BoundProgram
        The bound plan: start it any number of times, then free it. A `ProgramSpec` gives a
        `BoundProgram`, which also has its `buffers`, by name.

    Raises
    ------
    CollplanError
        On all ranks, if one of them cannot bind, or if views of two ranks do not fit together.
    """
    require_comm(comm)
    request = source if isinstance(source, Plan) else _request_of(source, comm)
    if isinstance(request, Plan):
        return bind_plan(request, comm, sendbuf, recvbuf, **options)
    from collplan.programs.compiling_together import compile_together

    plan = compile_together(request, comm, [])
    if plan.program is None:
        return bind_plan(plan, comm, sendbuf, recvbuf, **options)
    from collplan.api.bound_program import BoundProgram

    return BoundProgram(plan, comm, recvbuf, **options)


def _request_of(source: Source | RankView, comm: Any) -> Plan | Request:
    """Return what is to be bound; if a file or fields are invalid on a rank, all ranks raise."""
    from collplan.api.rank_view import RankView, agree_on_spec
    from collplan.executors.mpi.stall.timed_collectives import RollCall

    if isinstance(source, RankView):
        return agree_on_spec(source, comm)
    return RollCall(comm, None, "read the spec").together(lambda: read_source(source))
