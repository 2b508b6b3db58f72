"""Groups of ranks as programs describe them, and what the table and the planner say for them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.decisions import (
    decide,
    if_paid,
    native_decision,
    own_block_at,
    why_no_sweep,
)
from collplan.executors.mpi.engine.portable import Node, portable
from collplan.executors.mpi.engine.reduction import Reduction
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.host.cores import Crowding, crowding_of
from collplan.executors.mpi.loop.reductions import reduction_library
from collplan.executors.mpi.program.program import rank_program, shares_memory
from collplan.planner.collective.operations import get_operation
from collplan.planner.compiler import compile_plan, needs_all_ranks
from collplan.planner.plan.plan import Plan
from collplan.planner.plan.rank_program import restrict
from collplan.rank_counts import RankCounts, counts_of_all
from collplan.select.auto import resolve
from collplan.specs import PlanSpec, numpy_dtype
from collplan.tune.sweep import Placement
from collplan.tune.table import Decision, TuningTable

Words = npt.NDArray[np.uint64]
N_FACTS: Final = 24
"""Words that describe a rank: its node, its host, its scheduling group, and its processors."""
MASK_AT: Final = 3
KEPT_PLANS: Final = 8
"""Plans of all ranks that are kept, for those that ask later."""
_FEW_RANKS: Final = 4
"""Compile for all ranks together if there are at most this many times the ranks of a node."""


@dataclass(frozen=True, eq=False)
class Team:
    """The ranks of a communicator.

    Parameters
    ----------
    facts : ndarray of uint64, shape (n_ranks, N_FACTS)
        What every rank said of itself.
    """

    facts: Words

    @cached_property
    def placement(self) -> Placement:
        """Return where the ranks are."""
        return Placement.of_nodes(self.facts[:, 0].tolist())

    @cached_property
    def crowding(self) -> Crowding:
        """Return how the ranks share cores."""
        bits = np.unpackbits(self.facts[:, MASK_AT:].view(np.uint8), axis=1, bitorder="little")
        processors = [np.flatnonzero(row).tolist() for row in bits]
        hosts, groups = self.facts[:, 1].tolist(), self.facts[:, 2].tolist()
        return crowding_of(zip(hosts, processors, groups, strict=True))

    def node_of(self, rank: int) -> list[int]:
        """Return the ranks of a rank's node, in ascending order."""
        found: list[int] = np.flatnonzero(self.facts[:, 0] == self.facts[rank, 0]).tolist()
        return found


class Verdict(NamedTuple):
    """Decision for a call, and a digest of it that is equal on all nodes."""

    decision: Decision
    digest: int


class Planner:
    """Decisions and plans of a table.

    Parameters
    ----------
    table : TuningTable
    kinds : set of str
        Those that the table has a complete sweep of.
    """

    def __init__(self, table: TuningTable, kinds: set[str]) -> None:
        self._table, self._kinds = table, kinds
        self._plans: OrderedDict[tuple[bytes, CollectiveCall], Any] = OrderedDict()

    def decide(self, team: Team, call: CollectiveCall) -> Verdict:
        """Return what the table says of a call."""
        reason = why_no_sweep(self._kinds, call.kind) or call.why_unplanned()
        if reason is None:
            decision = if_paid(call, decide(self._table, call, team.placement))
        else:
            decision = native_decision(reason)
        choice = decision.choice.model_dump_json()
        digest = hashlib.blake2b(f"{decision.label} {choice}".encode(), digest_size=7).digest()
        return Verdict(decision, int.from_bytes(digest, "little"))

    def program(
        self, team: Team, rank: int, call: CollectiveCall, told: Sequence[RankCounts] = ()
    ) -> bytes:
        """Return what a rank runs for a call: the library and name of its reduction, its program.

        Parameters
        ----------
        team : Team
        rank : int
        call : CollectiveCall
        told : sequence of RankCounts
            What all ranks know of counts, if these differ per rank.

        Raises
        ------
        Exception
            If there is no such program.
        """
        spec = self._spec(team, call, told)
        key = team.facts.tobytes(), call
        if key not in self._plans:
            # Ranks of a node ask for the same, one after the other.
            self._plans[key] = _plans_of(spec, team.node_of(rank))
            while len(self._plans) > KEPT_PLANS:
                self._plans.popitem(last=False)
        plans = self._plans[key]
        plan = plans[rank]
        program = rank_program(plan, rank)
        node = None
        if any(shares_memory(one) for one in plans.values()):
            ranks = team.node_of(rank)
            node = Node(ranks, [len(plans[one].foreign.awaited) for one in ranks])
        skip_bytes = own_block_at(spec, rank) * plan.itemsize
        body = portable(plan, program, rank, node, team.crowding, skip_bytes)
        return _reduction(call, program) + body

    def _spec(self, team: Team, call: CollectiveCall, told: Sequence[RankCounts]) -> PlanSpec:
        decision = decide(self._table, call, team.placement)
        machine = self._table.machine(team.placement)
        if isinstance(call, VectorCall):
            collective = call.collective_of(counts_of_all(told, "bytes"))
        else:
            collective = call.collective()
        return resolve(decision.choice.plan_spec(machine, collective))


def _plans_of(spec: PlanSpec, ranks: Sequence[int]) -> dict[int, Plan]:
    """Return the programs of some ranks, each as a plan of its own."""
    n_ranks = spec.machine.n_ranks
    if needs_all_ranks(spec) or n_ranks <= _FEW_RANKS * len(ranks):
        plan = compile_plan(spec)
        return {rank: restrict(plan, rank) for rank in ranks}
    return {rank: compile_plan(spec, rank=rank) for rank in ranks}


def _reduction(call: CollectiveCall, program: Any) -> bytes:
    """Return the path and the name of what reduces, both empty if nothing does."""
    if call.op is None or call.element is None:
        return b"\0\0"
    reduction = Reduction.of(program, numpy_dtype(call.element), get_operation(call.op))
    if reduction.callback is not None:
        raise UnsupportedPlanError(str(reduction.why_callback))
    if reduction.predefined is None:
        return b"\0\0"
    path, symbol = reduction_library(*reduction.predefined)
    return f"{path}\0{symbol}\0".encode()
