"""Proofs, pictures, prices and comparisons of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.api.compiling import plan_of
from collplan.api.sources import Source, spec_of
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.fold import require_all_ranks
from collplan.specs.errors import show_value
from collplan.specs.syntax.calling import ArgumentError, explains_calls, wrong_type

if TYPE_CHECKING:
    from collplan.executors.cost.simulator import Timeline
    from collplan.planner.draw import View
    from collplan.planner.draw.style import Times
    from collplan.select.compared import Comparison
    from collplan.select.sizes import Sizes
    from collplan.specs import Machine, Network, PlanSpec
    from collplan.specs.collectives.collective_base import Reproducible


@explains_calls("verify")
def verify(source: Source) -> None:
    """Prove that a plan computes its collective, or that it has the effect of its program's steps.

    See `collplan.planner.compiler.proof.verify_plan` and
    `collplan.planner.programs.proof.prove_program`.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str or Path
        A plan of all ranks, or a spec or a program of which to make one, or the path of any file
        with one of them.

    Raises
    ------
    CollplanError
        If the source is not valid.
    PlanError
        If the plan is wrong.
    """
    from collplan.planner.compiler.proof import verify_plan

    plan = source if isinstance(source, Plan) else plan_of(source)
    if plan.program is None:
        verify_plan(plan)
        return
    from collplan.planner.programs import prove_program

    prove_program(plan)


def level_of(plan: Plan) -> Reproducible | None:
    """Prove a plan as `verify` does; return the level of `reproducible` that holds, if any.

    See `collplan.planner.compiler.proof.proved_level`. A program has no such level.
    """
    from collplan.planner.compiler.proof import proved_level

    if plan.program is None:
        return proved_level(plan)
    verify(plan)
    return None


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


@explains_calls("draw")
def draw(
    source: Source, path: str | Path, by: View | str = "auto", timeline: Times | None = None
) -> Path:
    """Draw a plan into a file.

    Parameters
    ----------
    source : Plan, PlanSpec, ProgramSpec, mapping, str or Path
        A plan of all ranks or of one rank, or a spec or a program of which to make one, or the
        path of any file with one of them.
    path : str or Path
        File to write, in the format of its suffix: ``.svg`` (with the full text of
        every task as a tooltip), ``.png``, ``.pdf``, or ``.dot`` and ``.gv`` for the
        source.
    by : {"auto", "task", "rank", "node", "phase"}
        Unit that a box represents. "auto" takes the finest view that is readable. If
        a view has more elements than can be drawn, a coarser one is drawn instead,
        and the caption states this.
    timeline : object with ``start_ns`` and ``end_ns``, optional
        Start and end of every task in ns, such as `simulate` returns them, which are
        shown in the boxes of tasks.

    Returns
    -------
    Path
        The file. The same plan and version of graphviz give the same bytes.

    Raises
    ------
    CollplanError
        If the source is not valid.
    DrawError
        If the suffix or the view is unknown, the timeline is that of another plan,
        the file cannot be written, or graphviz is missing or fails.
    """
    from collplan.planner.draw import draw as draw_plan

    return draw_plan(plan_of(source), path, by, timeline)


@explains_calls("compare")
def compare(
    source: Source,
    sizes: Sizes | None = None,
    *,
    candidates: str | Sequence[str] = (),
    seconds: float | None = 60.0,
    workers: Any = None,
) -> Comparison:
    """Find the best candidate of every size, and the sizes at which it changes.

    Parameters
    ----------
    source : PlanSpec, mapping, str, Path or Plan
        A spec, its fields, the path of its file, or a plan of it.
    sizes : int, str or sequence of int or str, optional
        Sizes in bytes of the vector, or of one block, as ``"1KiB,1MiB"`` or ``[1024, "1MiB"]``;
        by default, that of the spec.
    candidates : str or sequence of str
        Names or families, with wildcards, to which the spec's own candidate is added; all
        candidates, and the defaults of MPI libraries, if there are none.
    seconds : float, optional
        Approximate processor time of each worker in seconds; None for no limit. The candidates
        that remain are left out.
    workers : concurrent.futures.Executor or distributed.Client, optional
        Processes that simulate candidates; by default, this process does.

    Returns
    -------
    Comparison
        Its `best` has the winner by bytes; in notebooks, it is shown as a table.

    Raises
    ------
    CollplanError
        If the source is no spec, a size does not fit, or a name fits no candidate.
    PlanError
        If an algorithm of yours is wrong. The message is a counter-example.
    """
    from collplan.select.comparison import compare as compare_specs
    from collplan.select.sizes import counts_of

    if workers is not None and not hasattr(workers, "submit"):
        raise wrong_type("workers", workers, "an executor, as ProcessPoolExecutor(4)")
    if seconds is not None and seconds <= 0:
        raise ArgumentError(f"seconds: {seconds} is no time; give more than 0, or None")
    spec = spec_of(source)
    specs = [spec.with_count(count) for count in counts_of(sizes, spec, "sizes")]
    patterns = candidates.split(",") if isinstance(candidates, str) else list(candidates)
    return compare_specs(specs, workers, patterns=patterns, seconds=seconds)
