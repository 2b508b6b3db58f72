"""Simulation of plans on machine models, as programs call it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.api.compiling import plan_of
from collplan.api.sources import Source
from collplan.planner.rewrite.fold import require_all_ranks
from collplan.specs.errors import show_value
from collplan.specs.syntax.calling import ArgumentError, explains_calls

if TYPE_CHECKING:
    from collplan.executors.cost.simulator import Timeline
    from collplan.specs import Machine, Network, PlanSpec


@explains_calls("simulate")
def simulate(
    source: Source,
    network: Network | Machine | PlanSpec | Mapping[str, Any] | str | None = None,
    allocated: bool = False,
) -> Timeline:
    """Simulate a plan under LogGPS with a clock for each core, lane and direction.

    See `collplan.executors.cost.simulate` for the model.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str or Path
        A plan of all ranks, or a spec or a program of which to make one, or the path of any file
        with one of them. MPI's own collectives are replaced by MPICH's algorithms.
    network : Network, Machine, PlanSpec, mapping or str, optional
        Costs of communication: those of a network, its fields, or those of a machine, of a spec's
        machine, or of a machine by the name of its preset or the path of its file. By default,
        they are those of the spec's machine, or the defaults of `Network` for a plan without a
        spec.
    allocated : bool
        Whether buffers lie at their mirrors in shared memory, as a bound plan's ``allocate()``
        provides them. If so, copies to the mirrors take no time.

    Returns
    -------
    Timeline
        Start and end of each task in ns; `makespan_s` is the time of all in seconds.

    Raises
    ------
    CollplanError
        If the source or the network is not valid.
    PlanError
        If the plan is the program of one rank.
    MatchError
        If sends and receives do not match.
    DeadlockError
        If some tasks can never run.
    AsymmetricError
        If the plan is folded and the network has a `nic`, `processors` or a `topology`.
    """
    from collplan.executors.cost import simulate as simulate_plan

    plan = plan_of(source)
    if plan.only_rank is not None:
        require_all_ranks(plan, "simulated")
    return simulate_plan(plan, network_of(network), allocated)


def network_of(
    given: Network | Machine | PlanSpec | Mapping[str, Any] | str | None,
) -> Network | None:
    """Return the network that users mean; None for that of the plan.

    Raises
    ------
    CollplanError
        If it is no network, and no machine with one.
    """
    from collplan.specs import Machine, Network, PlanSpec
    from collplan.specs.explaining import explaining
    from collplan.specs.loading import load_machine

    if given is None or isinstance(given, Network):
        return given
    if isinstance(given, Machine | PlanSpec):
        return given.network if isinstance(given, Machine) else given.machine.network
    if isinstance(given, str | Path):
        return load_machine(str(given)).network
    if isinstance(given, Mapping):
        with explaining(Network, before="network: "):
            return Network.model_validate(dict(given))
    raise ArgumentError(
        f"network: {show_value(given)} is no network; give one, its fields, or a machine's name"
    )
