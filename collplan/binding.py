"""Bind plans, or what ranks know of a collective, to a communicator and buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from collplan.executors.mpi.binding.bound_plan import BoundPlan
from collplan.executors.mpi.binding.bound_plan import bind as bind_plan
from collplan.planner.plan.plan import Plan

if TYPE_CHECKING:  # a plan from a file is bound without what compiles plans
    from collplan.rank_view import RankView


def bind(
    plan: Plan | RankView, comm: Any, sendbuf: Any = None, recvbuf: Any = None, **options: Any
) -> BoundPlan:
    """Bind a plan, or what ranks agree on, to a communicator and buffers; collective.

    Parameters
    ----------
    plan : Plan or RankView
        A plan for as many ranks as `comm` has; or this rank's view of a collective whose counts
        differ per rank. From their views ranks agree on the collective, and compile it
        together: that takes as long as compiling does, and is to be done once.
    comm : mpi4py.MPI.Intracomm
        The plan gets a duplicate, so its messages never meet others'.
    sendbuf, recvbuf : ndarray or None
        This rank's buffers.
    **options : object
        See `collplan.executors.mpi.binding.bound_plan.bind`, which says more of all of these.

    Returns
    -------
    BoundPlan
        To be started any number of times, then freed.

    Raises
    ------
    CollplanError
        On all ranks, if one cannot bind, or views do not fit together: the message names two
        ranks whose counts differ.
    """
    if not isinstance(plan, Plan):
        from collplan.compiling_together import compile_together
        from collplan.rank_view import agree_on_spec

        plan = compile_together(agree_on_spec(plan, comm), comm, [])
    return bind_plan(plan, comm, sendbuf, recvbuf, **options)
