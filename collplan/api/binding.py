"""Bind plans, or what ranks know of a collective, to a communicator and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.bound_plan import bind as bind_plan
from collplan.planner.plan.plan import Plan

if TYPE_CHECKING:  # a plan from a file is bound without what compiles plans
    from collplan.api.bound_program import BoundProgram
    from collplan.api.rank_view import RankView
    from collplan.specs import ProgramSpec


@overload
def bind(
    plan: ProgramSpec, comm: Any, sendbuf: Any = None, recvbuf: Any = None, **options: Any
) -> BoundProgram: ...
@overload
def bind(
    plan: Plan | RankView, comm: Any, sendbuf: Any = None, recvbuf: Any = None, **options: Any
) -> BoundPlan: ...
def bind(
    plan: Plan | RankView | ProgramSpec,
    comm: Any,
    sendbuf: Any = None,
    recvbuf: Any = None,
    **options: Any,
) -> BoundPlan | BoundProgram:
    """Bind a plan or a program to a communicator and to this rank's buffers; collective.

    Parameters
    ----------
    plan : Plan, ProgramSpec or RankView
        A plan for as many ranks as `comm` has; a program; or this rank's view of a collective
        whose counts differ per rank. From such views, the ranks agree on the collective and
        compile it together. That takes as long as compiling, so bind once. So does a program.
    comm : mpi4py.MPI.Intracomm
        The communicator. The plan gets a duplicate, so its messages never match others.
    sendbuf, recvbuf : ndarray or None
        This rank's buffers: C-contiguous arrays of the plan's dtype that do not overlap.
        None where the plan uses no buffer. Without any, call `BoundPlan.allocate` or
        `BoundPlan.rebind` before the first start. The buffers of a `ProgramSpec` are allocated,
        if `recvbuf` has no memory for them.
    **options : object
        Options of the binding:

        - `operation`, an object with ``apply(left, right, out)``: the reduction, instead of
          that of the plan's spec;
        - `timeout_s`, in seconds: how long to wait for other ranks, by default for ever.
          When it is over, every rank that waits says what for, and the job is aborted;
        - `progress`, "auto", "caller" or "thread": who runs tasks that the plan puts on
          communication cores;
        - `cores`, a sequence of int: the processor of each core of this rank's node;
        - `computations`, a mapping of str to callable: functions without parameters that the
          computing steps of a program call, by name; other ones keep the core busy;
        - `recorder`, a `Recorder`: takes the times at which tasks start and end.

    Returns
    -------
    BoundPlan or BoundProgram
        The bound plan: start it any number of times, then free it. A `ProgramSpec` gives a
        `BoundProgram`, which also has its `buffers`, by name.

    Raises
    ------
    CollplanError
        On all ranks, if one of them cannot bind, or if views do not fit together. The
        message then names two ranks whose counts differ.
    """
    if isinstance(plan, Plan):
        return bind_plan(plan, comm, sendbuf, recvbuf, **options)
    from collplan.api.rank_view import RankView, agree_on_spec
    from collplan.programs.compiling_together import compile_together

    if isinstance(plan, RankView):
        found = compile_together(agree_on_spec(plan, comm), comm, [])
        return bind_plan(found, comm, sendbuf, recvbuf, **options)
    from collplan.api.bound_program import BoundProgram

    return BoundProgram(compile_together(plan, comm, []), comm, recvbuf, **options)
