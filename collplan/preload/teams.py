"""Communicators of programs without Python, with decisions and plans for their calls."""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.api.rank_counts import RankCounts, counts_of_all
from collplan.deciding.calls import CollectiveCall, VectorCall
from collplan.deciding.decisions import (
    decide,
    if_paid,
    native_decision,
    own_block_at,
    spec_of,
)
from collplan.deciding.options import CallOptions
from collplan.deciding.started_decisions import (
    decide_either,
    decide_shared,
    decide_start,
    passing_messages,
)
from collplan.deciding.trials import NO_PREDICTION, TRIED
from collplan.executors.mpi.engine.portable import Node, portable
from collplan.executors.mpi.engine.reduction import Callback, Reduction
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.host.cores import Crowding, crowding_of
from collplan.executors.mpi.loop.reductions import reduction_library
from collplan.executors.mpi.program.elements import combines
from collplan.executors.mpi.program.program import rank_program, shares_memory
from collplan.planner.arrays import Ints
from collplan.planner.collective.operations import get_operation
from collplan.planner.compiler.compile import compile_plan, prove_spec
from collplan.planner.compiler.ranks import needs_all_ranks
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Plan, Stage
from collplan.planner.rewrite.rank_program import restrict
from collplan.programs.progress_places import (
    DEFAULT_POLICY,
    PLACED,
    ProgressPlaces,
    places_left,
    places_on,
    policy_of,
)
from collplan.programs.splitting import (
    may_split,
    split_for,
    split_levels,
    times_on_own_core,
    why_split,
    with_cores,
)
from collplan.select.auto import resolve
from collplan.specs import CollplanError, PlanSpec, numpy_dtype
from collplan.tables.sweep import Choice, NodePlacement
from collplan.tables.table import PLANNED, Decision, TuningTable

Words = npt.NDArray[np.uint64]
N_FACTS: Final = 24
"""Number of words that describe a rank: node, host, scheduling group, and affinity mask."""
MASK_AT: Final = 3
"""Index of the first word of the affinity mask."""
KEPT_PLANS: Final = 8
"""Number of calls whose plans are kept for further requests."""
_STARTED: Final = struct.Struct("<4q")
"""Head of a program that does not block: number in `PLACED` of the policy that places the thread,
time in ns for tasks in the start and until tasks held for the wait run without it, and whether the
time that ranks compute may change the plan."""
_FEW_RANKS: Final = 4
"""Largest ratio of all ranks to those of a node at which the plan of all ranks is compiled."""


@dataclass(frozen=True, eq=False)
class Team:
    """The ranks of a communicator.

    Parameters
    ----------
    facts : ndarray of uint64, shape (n_ranks, N_FACTS)
        Words that describe each rank, see `N_FACTS`.
    """

    facts: Words

    @cached_property
    def placement(self) -> NodePlacement:
        """Placement of the ranks on nodes."""
        return NodePlacement.of_nodes(self.facts[:, 0].tolist())

    @cached_property
    def _processors(self) -> list[list[int]]:
        bits = np.unpackbits(self.facts[:, MASK_AT:].view(np.uint8), axis=1, bitorder="little")
        return [np.flatnonzero(row).tolist() for row in bits]

    @cached_property
    def crowding(self) -> Crowding:
        """Sharing of cores by the ranks."""
        hosts, groups = self.facts[:, 1].tolist(), self.facts[:, 2].tolist()
        return crowding_of(zip(hosts, self._processors, groups, strict=True))

    def places(self, cores: Sequence[int] | None, numa_domains: int) -> list[ProgressPlaces]:
        """Return the processors of the ranks and of their progress threads.

        Parameters
        ----------
        cores : sequence of int or None
            Processor of each core of a node; None if the masks of the ranks determine the cores.
        numa_domains : int
            Number of NUMA domains per node.

        Raises
        ------
        CollplanError
            If a node has more ranks than cores.
        """
        nodes = self.facts[:, 0].tolist()
        if cores is not None:
            return places_on(nodes, cores, numa_domains)
        hosts = map(str, self.facts[:, 1].tolist())
        where = [
            (host, tuple(usable)) for host, usable in zip(hosts, self._processors, strict=True)
        ]
        return places_left(where, nodes, numa_domains)

    def node_of(self, rank: int) -> list[int]:
        """Return the ranks on the node of a rank, in ascending order."""
        found: list[int] = np.flatnonzero(self.facts[:, 0] == self.facts[rank, 0]).tolist()
        return found


class TeamDecision(NamedTuple):
    """Decision for a call, a digest with which nodes compare their decisions, and more.

    `shares` tells whether a non-blocking call may later run by a plan through shared memory.
    """

    decision: Decision
    digest: int
    shares: bool = False


class Planner:
    """Decisions of a tuning table, and plans for them.

    Parameters
    ----------
    table : TuningTable
    options : CallOptions
    callbacks : list of Callback, optional
        List of operations in Python that programs of this process call, to which those of new
        plans are added; by default, there are no such programs.

    Attributes
    ----------
    n_spare : int
        Number of communication cores of each node.
    """

    def __init__(
        self, table: TuningTable, options: CallOptions, callbacks: list[Callback] | None = None
    ) -> None:
        self.n_spare = 0
        self._options, self._callbacks = options, callbacks
        self._tables = {True: table, False: passing_messages(table)}
        """Tables for blocking calls (True) and for non-blocking ones."""
        self._plans: OrderedDict[tuple[Any, ...], dict[int, Plan]] = OrderedDict()

    def decide(self, team: Team, call: CollectiveCall, *, is_blocking: bool = True) -> TeamDecision:
        """Return the decision of the table for a call, and its digest."""
        reason, shared = call.why_unplanned(), None
        if reason is not None:
            decision = native_decision(reason)
        elif is_blocking:
            decision = if_paid(call, decide(self._tables[True], call, team.placement))
        else:
            least = self._options.nonblocking_from
            shared = decide_shared(self._tables[True], call, team.placement, least)
            decision = decide_either(self._tables[False], call, team.placement, shared, least)
        shares = shared is not None and not decision.choice.native
        choice = decision.choice.model_dump_json()
        text = f"{decision.label} {choice} {shares}"
        digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
        return TeamDecision(decision, int.from_bytes(digest, "little"), shares)

    def program(
        self,
        team: Team,
        rank: int,
        call: CollectiveCall,
        told: Sequence[RankCounts] = (),
        *,
        choice: str = "",
    ) -> bytes:
        """Return the program of a rank for a blocking call, for processes without Python.

        Parameters
        ----------
        team : Team
        rank : int
        call : CollectiveCall
        told : sequence of RankCounts
            Counts that each rank knows, if the counts of the call differ per rank.
        choice : str
            Plan of `predict` as JSON; empty for that of the table.

        Returns
        -------
        bytes
            Path of the reduction's library and name of its function, each followed by a zero
            byte, and the program; see `portable`.

        Raises
        ------
        Exception
            If the call has no plan, or a process without Python cannot run it.
        """
        if choice:
            tried = Choice.model_validate_json(choice)
            decision = Decision(tried, tried.label, TRIED)
        else:
            decision = self.decide(team, call).decision
        spec = self._spec(team, call, decision, told)
        plans = self._plans_of(spec, team, rank, (call, True, choice))
        return _written(team, rank, call, plans, self._callbacks)

    def started_program(
        self,
        team: Team,
        rank: int,
        call: CollectiveCall,
        computation_s: float | None = None,
        told: Sequence[RankCounts] = (),
    ) -> bytes:
        """Return the program of a rank for a non-blocking call, for processes without Python.

        Parameters
        ----------
        team : Team
        rank : int
        call : CollectiveCall
        computation_s : float, optional
            Time in seconds for which ranks compute during the call. Trees are then split for it.
        told : sequence of RankCounts
            Counts that each rank knows, if the counts of the call differ per rank.

        Returns
        -------
        bytes
            Head of `_STARTED`; the reason of a split, followed by a zero byte; and the program as
            from `program`. Empty if no tree is split for `computation_s`.

        Raises
        ------
        Exception
            If the call has no plan, or a process without Python cannot run it.
        """
        least, why = self._options.nonblocking_from, ""
        decision = decide_start(self._tables[False], call, team.placement, least)
        spec = self._spec(team, call, decision, told)
        plans = self._plans_of(spec, team, rank, (call, False, split_levels(spec)))
        if computation_s is not None:
            split = split_for(plans[rank], _spec_of(plans[rank]), self.n_spare, computation_s)
            if split is None:
                return b""
            why = why_split(decision.why, split_levels(split))
            plans = self._plans_of(split, team, rank, (call, False, split_levels(split)))
        spec = _spec_of(plans[rank])
        computing_s = decision.computation_s if computation_s is None else computation_s
        times = [round(1e9 * one) for one in times_on_own_core(spec, computing_s)]
        plans = {
            one: replace(plan, stage=_stages_within(plan.stage, *times))
            for one, plan in plans.items()
        }
        policy = policy_of(spec)
        number = PLACED.index(policy if policy in PLACED else DEFAULT_POLICY)
        observes = computation_s is None and may_split(plans[rank], spec, self.n_spare)
        head = _STARTED.pack(number, *times, observes) + f"{why}\0".encode()
        return head + _written(team, rank, call, plans)

    def shared_program(self, team: Team, rank: int, call: CollectiveCall) -> bytes:
        """Return the program of a rank for a non-blocking call, through shared memory.

        Returns
        -------
        bytes
            Times per call of the native collective and of the plan in seconds, negative if
            unknown; label and reason of the decision, each followed by a zero byte; and the
            program as from `program`.

        Raises
        ------
        Exception
            If the call has no plan, or a process without Python cannot run it.
        """
        least = self._options.nonblocking_from
        decision = decide_shared(self._tables[True], call, team.placement, least)
        assert decision is not None, "the decision for the call says that it shares memory"
        spec = self._spec(team, call, decision)
        plans = {
            one: replace(plan, stage=_stages_within(plan.stage, 0, 0))
            for one, plan in self._plans_of(
                spec, team, rank, (call, False, 0, spec.transport)
            ).items()
        }
        times = (-1.0 if one is None else one for one in (decision.native_s, decision.chosen_s))
        head = struct.pack("<2d", *times) + f"{decision.label}\0{decision.why}\0".encode()
        return head + _written(team, rank, call, plans)

    def _plans_of(
        self, spec: PlanSpec, team: Team, rank: int, asked: tuple[Any, ...]
    ) -> dict[int, Plan]:
        """Return the plans of the ranks of a node.

        The ranks of a node request plans of the same call one after another, so the plans of the
        last calls are kept.
        """
        key = team.facts.tobytes(), *team.node_of(rank), *asked
        if key not in self._plans:
            try:
                self._plans[key] = _plans_of(spec, team.node_of(rank))
            except AlgorithmError:
                if spec.collective.level in (None, "ranks"):
                    raise
                # The method was measured elsewhere, and calls may not be native.
                self._plans[key] = _plans_of(spec.with_method(PLANNED), team.node_of(rank))
            while len(self._plans) > KEPT_PLANS:
                self._plans.popitem(last=False)
        return self._plans[key]

    def predict(self, team: Team, call: CollectiveCall) -> list[Choice]:
        """Return the plans that a trial of a blocking call compares.

        Raises
        ------
        CollplanError
            If there is none.
        """
        # Imported late, as this takes a tenth of a second, and few programs try plans.
        from collplan.deciding.predictions import predict

        choices = predict(self._tables[True], team.placement, call.collective(), call.n_bytes)
        if not choices:
            raise CollplanError(NO_PREDICTION)
        return choices[: self._options.max_plans]

    def _spec(
        self,
        team: Team,
        call: CollectiveCall,
        decision: Decision,
        told: Sequence[RankCounts] = (),
    ) -> PlanSpec:
        machine = self._tables[True].machine(team.placement)
        if isinstance(call, VectorCall):
            collective = call.collective_of(counts_of_all(told, "bytes"))
        else:
            collective = call.collective()
        spec = spec_of(decision, machine, collective)
        # Sweeps beside computation may have methods that ask for the number of cores.
        return resolve(spec if decision.computation_s is None else with_cores(spec, self.n_spare))


def _stages_within(stage: Ints, head_ns: int, hold_ns: int) -> Ints:
    """Return the stages of tasks, of which those without any time are background tasks.

    Parameters
    ----------
    stage : ndarray of int
        Stage of each task.
    head_ns, hold_ns : int
        Times in ns for tasks of the START and of the WAIT stage, see `times_on_own_core`.
    """
    found = stage.copy()
    for name, time_ns in ((Stage.START, head_ns), (Stage.WAIT, hold_ns)):
        if not time_ns:
            found[found == name] = Stage.BACKGROUND
    return found


def _spec_of(plan: Plan) -> PlanSpec:
    assert plan.spec is not None, "the plan was compiled from a spec"
    return plan.spec


def _written(
    team: Team,
    rank: int,
    call: CollectiveCall,
    plans: Mapping[int, Plan],
    callbacks: list[Callback] | None = None,
) -> bytes:
    """Return the program of a rank, given the plans of the ranks on its node."""
    plan, node = plans[rank], None
    program = rank_program(plan, rank)
    if any(shares_memory(one) for one in plans.values()):
        ranks = team.node_of(rank)
        node = Node(ranks, [len(plans[one].foreign.awaited) for one in ranks])
    skip_bytes = own_block_at(_spec_of(plan), rank) * plan.itemsize
    body = portable(plan, program, rank, node, team.crowding, skip_bytes)
    return _reduction(call, program, callbacks) + _combined(call, plan) + body


def _plans_of(spec: PlanSpec, ranks: Sequence[int]) -> dict[int, Plan]:
    """Return plans by rank, each with the program of this rank only."""
    n_ranks = spec.machine.n_ranks
    if needs_all_ranks(spec) or n_ranks <= _FEW_RANKS * len(ranks):
        plan = compile_plan(spec)
        return {rank: restrict(plan, rank) for rank in ranks}
    prove_spec(spec)
    return {rank: compile_plan(spec, rank=rank) for rank in ranks}


def _combined(call: CollectiveCall, plan: Plan) -> bytes:
    """Return operation and type of elements that native calls combine; empty texts if none do."""
    if not combines(plan):
        return b"\0\0"
    if plan.origin is None or (not plan.origin.commutes and call.commutes):
        raise UnsupportedPlanError("MPI may exchange operands that the plan keeps in order")
    return f"{call.op}\0{call.element}\0".encode()


def _reduction(call: CollectiveCall, program: Any, callbacks: list[Callback] | None) -> bytes:
    """Return the library and the function of the reduction; both are empty if there is none.

    A function of this process has no library, and its address in place of a name.
    """
    if call.op is None or call.element is None:
        return b"\0\0"
    reduction = Reduction.of(program, numpy_dtype(call.element), get_operation(call.op))
    if reduction.callback is not None:
        if callbacks is None:
            raise UnsupportedPlanError(str(reduction.why_callback))
        reduction.callback.prints_errors = True
        callbacks.append(reduction.callback)
        return f"\0{reduction.callback.address}\0".encode()
    if reduction.predefined is None:
        return b"\0\0"
    path, symbol = reduction_library(*reduction.predefined)
    return f"{path}\0{symbol}\0".encode()
