"""The benchmark's sweep on the cost simulator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from collplan.executors.cost import simulate
from collplan.executors.cost.traces.states import CoreStates, simulated_states
from collplan.measure.overlap.methods import BLOCKING, Method, Sweep, overlap_ratio
from collplan.planner import compile_plan


def blocking_s(sweep: Sweep) -> float:
    """Return T_blocking(N_proc): what the collective takes on all cores, in s."""
    return _makespan_s(sweep, sweep.n_cores, BLOCKING)


def simulate_sweep(
    sweep: Sweep, on_all_cores_s: float
) -> Iterator[tuple[dict[str, Any], CoreStates | None]]:
    """Generate rows of the sweep, with what the cores do in each overlapped run.

    Buffers are those that ``allocate()`` provides.

    Parameters
    ----------
    sweep : Sweep
        What to run.
    on_all_cores_s : float
        C(N_proc), the computation on all cores.

    Yields
    ------
    row : dict
        Numbers of ranks, method, and times in s.
    states : CoreStates or None
        None for the blocking collective, which computation follows.
    """
    for n_ranks in sweep.ranks:
        computation_s = sweep.computation_s(n_ranks, on_all_cores_s)
        for method in sweep.methods(n_ranks):
            communication_s = _makespan_s(sweep, n_ranks, method)
            states = None
            total_s = communication_s + computation_s
            if not method.blocking:
                total_s, states = _both(sweep, n_ranks, method, computation_s)
            yield (
                {
                    "ranks": n_ranks,
                    "method": method.name,
                    "levels": method.levels,
                    "policy": method.policy,
                    "communication_s": communication_s,
                    "computation_s": computation_s,
                    "total_s": total_s,
                    "overlap": overlap_ratio(communication_s, computation_s, total_s),
                },
                states,
            )


def _makespan_s(sweep: Sweep, n_ranks: int, method: Method) -> float:
    plan = compile_plan(sweep.spec(n_ranks, method))
    return simulate(plan, allocated=True).makespan_s


def _both(
    sweep: Sweep, n_ranks: int, method: Method, computation_s: float
) -> tuple[float, CoreStates]:
    plan = compile_plan(sweep.spec(n_ranks, method, round(computation_s * 1e9)))
    timeline = simulate(plan, allocated=True)
    label = f"simulated, {n_ranks} ranks, {method.name}"
    return timeline.makespan_s, simulated_states(timeline, sweep.machine.network, label)
