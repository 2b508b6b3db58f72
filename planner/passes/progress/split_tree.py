"""Split a tree between the cores of its ranks and those that make its progress."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, SkipValidation

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import occurrence
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.progress.cores import CorePlacement
from collplan.planner.passes.progress.task_cores import move_to_cores, placement_of
from collplan.planner.passes.progress.transfers import number_transfers
from collplan.planner.passes.progress.tree_levels import DOWN, UP, Phase, leaf_phases, phases_of
from collplan.planner.passes.progress.tree_model import best_levels
from collplan.planner.passes.registry import register_pass
from collplan.planner.passes.scheduling.message_graph import require_all_ranks
from collplan.planner.plan.plan import INTENT, ON_START, Op, Plan, Stage

AUTO: Final = "auto"
DOUBLING: Final = ("gather", "scatter")
"""Collectives whose messages double from level to level."""
Levels = Annotated[
    Annotated[int, Field(ge=0)] | Literal["auto"],
    "{} is not a number of at least 0; or use auto",
]


@register_pass(
    "split_tree",
    level="plan",
    locality="global",
    needs="levels above 0, or free cores: machine.cores above the ranks of a node",
)
def split_tree(
    plan: Plan, levels: Levels = "auto", comm_cores: Annotated[int | None, SkipValidation] = None
) -> Plan:
    """Run a tree's leaf levels on its ranks' own cores, the rest on communication cores.

    The leaves' levels are most of a tree's work, but little of its depth. Those
    of a tree to the root run inside start, those of a tree from it inside wait;
    all others in the background, the transfers of each level dealt evenly over
    the communication cores of the node. In a decomposition the leaves are those
    of the first phase, or the last; what lies in between is background, and what
    is no tree there progresses as with ``place_progress``.

    A start with leaf levels in it waits for the starts of other ranks, which
    MPI's own non-blocking collectives never do.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    levels : int or "auto"
        How many levels are split off; ``auto`` takes the number that is best by
        the model of the paper, and 0 where no core is free.
    comm_cores : int, optional
        Communication cores a node, of its free ones; all of them if left out.

    Returns
    -------
    Plan
        A new plan, or `plan` itself where all is so already.

    Raises
    ------
    AlgorithmError
        If an option is out of range, the plan is one rank's program or has no
        machine, no phase is a tree, ``auto`` does not know the tree, or other
        passes have been here that belong after this one.

    References
    ----------
    Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement
    and dedicated cores for overlapping MPI nonblocking collectives on manycore
    processor, 2019, section 6.
    """
    require_all_ranks(plan, "split_tree")
    placement = _limited(placement_of(plan, "split_tree"), comm_cores)
    if (plan.op == Op.COMPUTE).any():
        raise AlgorithmError(
            "passes.split_tree: add_compute has tied computation to stages already; put "
            "split_tree before it"
        )
    split = _Split(plan, placement, levels)
    stage = split.stages()
    return move_to_cores(plan, placement, split.cores(stage), stage)


def _limited(placement: CorePlacement, comm_cores: Any) -> CorePlacement:
    """Return a placement with so many communication cores a node, evenly spread."""
    if comm_cores is None:
        return placement
    most = max(len(cores) for cores in placement.free)
    is_int = isinstance(comm_cores, int) and not isinstance(comm_cores, bool)
    if not is_int or not 1 <= comm_cores <= most:
        way_out = f"use 1 to {most}" if most else "no core is free: raise machine.cores"
        raise AlgorithmError(
            f"passes.split_tree.comm_cores: {comm_cores!r} communication cores, the emptiest node "
            f"has {most} free cores; {way_out}"
        )
    free = tuple(
        cores[np.unique(np.arange(comm_cores) * len(cores) // comm_cores)] if len(cores) else cores
        for cores in placement.free
    )
    return replace(placement, free=free)


class _Split:
    """Where the tasks of a plan lie in its trees, and what follows for each."""

    def __init__(self, plan: Plan, placement: CorePlacement, levels: int | str) -> None:
        self.plan, self.placement = plan, placement
        self.phases = phases_of(plan, "split_tree")
        self.transfer, self.source = number_transfers(plan)
        self.level, self.direction = np.zeros((2, plan.n_tasks), dtype=np.int64)
        self.n_split = np.zeros(plan.n_tasks, dtype=np.int64)
        """Levels that are split off the tree of every task."""
        ends = {way: leaf_phases(self.phases, way) for way in (UP, DOWN)}
        for number, phase in enumerate(self.phases):
            rows = np.flatnonzero(plan.phase == number)
            if phase.shapes:
                rank = plan.rank[rows]
                self.level[rows], self.direction[rows] = phase.place(rank, plan.round[rows])
                if ends[UP][number] or ends[DOWN][number]:
                    self.n_split[rows] = self._levels_of(phase, levels)[phase.group[rank]]
        self.is_end = {way: ends[way][plan.phase] for way in ends}
        self._join_local(ends)

    def _levels_of(self, phase: Phase, levels: int | str) -> Ints:
        """Return, group by group, how many levels of a phase's trees are split off."""
        groups = phase.part.component.groups
        if isinstance(levels, int):
            return np.full(len(groups), levels)
        is_doubling = phase.part.component.kind in DOUBLING
        n_free = np.array([len(cores) for cores in self.placement.free])
        best = np.zeros(len(groups), dtype=np.int64)
        for group, size in enumerate(groups.sizes.tolist()):
            ranks = groups.ranks[groups.indptr[group] : groups.indptr[group + 1]]
            n_cores = size + int(n_free[np.unique(self.placement.node[ranks])].sum())
            if n_cores > size:
                self._require_model(phase)
                best[group] = best_levels(size, n_cores, is_doubling)
        return best

    def _require_model(self, phase: Phase) -> None:
        if phase.part.algorithm.tree != "binomial":
            raise AlgorithmError(
                f"passes.split_tree.levels: auto knows binomial trees, {phase.part.label} is none; "
                "give a number, or choose binomial"
            )

    def _join_local(self, ends: dict[int, Bools]) -> None:
        """Let local phases before the leaves of the first trees, or after the last's, join them."""
        for way in ends:
            most = self.n_split[self.is_end[way]].max(initial=0)
            for number in np.flatnonzero(ends[way]):
                if self.phases[number].is_local:
                    rows = self.plan.phase == number
                    self.direction[rows], self.n_split[rows] = way, most

    def stages(self) -> Ints:
        """Return the stage of every task: only leaves that nothing else holds up are split off."""
        plan = self.plan
        is_leaf = (self.level <= self.n_split) & (self.n_split > 0)
        before = plan.deps.task
        after = plan.deps.owner()
        stage = np.full(plan.n_tasks, Stage.BACKGROUND, dtype=np.int8)
        for way, name, edges in (
            (UP, Stage.START, (before, after)),
            (DOWN, Stage.WAIT, (after, before)),
        ):
            chosen = is_leaf & self.is_end[way] & (self.direction == way)
            stage[self._closed(chosen, *edges)] = name
        return stage

    def _closed(self, chosen: Bools, first: Ints, second: Ints) -> Bools:
        """Take back what comes second while its first is not chosen, by transfers as a whole."""
        is_stated = (self.plan.deps.kind & (INTENT | ON_START)) == INTENT
        while True:
            lost = chosen[second] & ~chosen[first]
            if (lost & is_stated).any():
                i = int(np.argmax(lost & is_stated))
                raise AlgorithmError(
                    f"passes.split_tree: tasks #{first[i]} and #{second[i]} would be of different "
                    "stages, but an earlier pass has put them in order; put split_tree before "
                    "limit_requests"
                )
            kept = chosen.copy()
            kept[second[lost]] = False
            broken = np.zeros(len(self.source) + 1, dtype=bool)
            broken[self.transfer[~kept]] = True
            kept &= ~broken[self.transfer] | (self.transfer < 0)
            if np.array_equal(kept, chosen):
                return chosen
            chosen = kept

    def cores(self, stage: Ints) -> Ints:
        """Return the communication core of every task."""
        plan, free = self.plan, self.placement.free
        core = self.placement.progress("odd_even")[plan.rank]
        dealt = (self.transfer >= 0) & (self.direction != 0) & (stage == Stage.BACKGROUND)
        rows = np.flatnonzero(dealt)
        turn = self._turns(rows)
        for node, cores in enumerate(free):
            if len(cores):
                mine = plan.node[rows] == node
                core[rows[mine]] = cores[turn[mine] % len(cores)]
        return core

    def _turns(self, rows: Ints) -> Ints:
        """Return whose turn it is: number transfers of a level on a node, in order of rank."""
        plan = self.plan
        ends, index = np.unique(
            self.transfer[rows] * plan.n_nodes + plan.node[rows], return_inverse=True
        )
        index = index.ravel()
        first = np.empty(len(ends), dtype=np.int64)
        first[index[::-1]] = np.arange(len(rows))[::-1]
        row = rows[first]
        level = np.column_stack(
            (plan.phase[row], self.direction[row], self.level[row], plan.node[row])
        )
        _, key = np.unique(level, axis=0, return_inverse=True)
        # Transfers are numbered by round, then rank; levels of other groups may be other rounds.
        transfer = self.transfer[row]
        receiver = self._receivers()[transfer]
        order = np.lexsort((self.source[transfer], receiver, key.ravel()))
        turn = np.empty(len(row), dtype=np.int64)
        turn[order] = occurrence(key.ravel()[order])
        return turn[index]

    def _receivers(self) -> Ints:
        """Return the rank every transfer goes to."""
        plan = self.plan
        receiver = np.zeros(len(self.source), dtype=np.int64)
        ends = np.flatnonzero((self.transfer >= 0) & (plan.op != Op.SEND))
        receiver[self.transfer[ends]] = plan.rank[ends]
        return receiver
