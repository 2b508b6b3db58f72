"""Splitting of trees between application cores and communication cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import Field, SkipValidation

from collplan.planner.algorithms import registry
from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.progress.cores import CorePlacement, move_to_cores, placement_of
from collplan.planner.passes.progress.tree_model import best_levels, shapes_of
from collplan.planner.passes.registry import is_number, register_pass
from collplan.planner.passes.scheduling.message_graph import require_all_ranks
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.phases import DOWN, UP, Phase
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import INTENT, ON_START, Extents
from collplan.specs.errors import show_value

AUTO: Final = "auto"
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

    The levels near the leaves are most of the work of a tree, but a small part of its depth. They
    run inside the start if the tree leads to the root, and inside the wait if it leads from the
    root. An allreduce, scan or exscan has a tree up and a tree down, and so leaf levels in both.

    All other levels run in the background. The transfers of each level are distributed evenly over
    the communication cores of the node. In a decomposition, only trees of the first or the last
    sending phases have leaf levels. Tasks of phases that are not trees progress as with
    ``place_progress``.

    A start that contains leaf levels waits for the starts of other ranks. Non-blocking collectives
    of MPI never do this.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    levels : int or "auto", default "auto"
        Number S of leaf levels that run on application cores. ``auto`` minimizes
        T_overlapped(S, N), equation 7 or 9 of the paper, and is 0 if no core is free.
    comm_cores : int, optional
        Number of communication cores per node. By default, all free cores are.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if nothing changes.

    Raises
    ------
    AlgorithmError
        If an option is out of range; if the plan holds one rank's program or was imported, so that
        it has no machine; if messages are sent, but no phase is a tree; if ``auto`` has no model
        of the tree; or if an earlier pass, which must come later, has added computations or an
        order between leaf levels and other tasks.

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
    """Return a placement with at most `comm_cores` communication cores per node, evenly spread.

    Raises
    ------
    AlgorithmError
        If the number is not an integer, is less than 1, or exceeds the free cores of every node.
    """
    if comm_cores is None:
        return placement
    most = max(len(cores) for cores in placement.free)
    if not is_number(comm_cores, 1) or comm_cores > most:
        way_out = f"use 1 to {most}" if most else "no core is free: raise machine.cores"
        raise AlgorithmError(
            f"passes.split_tree.comm_cores: {show_value(comm_cores)} communication cores, "
            f"the emptiest node has {most} free cores; {way_out}"
        )
    free = tuple(
        cores[np.unique(np.arange(comm_cores) * len(cores) // comm_cores)] if len(cores) else cores
        for cores in placement.free
    )
    return replace(placement, free=free)


def _require_trees(plan: Plan) -> None:
    """Check that a phase that sends messages is a tree, if there is a sending phase.

    Raises
    ------
    AlgorithmError
        If no such phase is a tree.
    """
    sending = [phase for phase in plan.phases if not phase.is_local]
    if sending and not any(phase.trees for phase in sending):
        labels = ", ".join(dict.fromkeys(map(str, plan.phases)))
        trees = ", ".join(
            f"{kind} ({', '.join(tree.name for tree in registry.of(kind) if tree.tree)})"
            for kind in registry.kinds()
            if any(tree.tree for tree in registry.of(kind))
        )
        raise AlgorithmError(
            f"passes.split_tree: {labels} is not a tree; it splits {trees}; use one of them, or "
            "place_progress"
        )


def leaf_phases(phases: Sequence[Phase], direction: int) -> Bools:
    """Return which phases have leaf levels inside the start, or inside the wait.

    These are the first sending phases (`UP`) or the last ones (`DOWN`), as far as they are trees
    that lead in this direction and have the same role. No phase beyond a tree that also leads in
    the other direction is included. Local phases before the first trees, or after the last ones,
    are.

    Parameters
    ----------
    phases : sequence of Phase
    direction : {UP, DOWN}
        `UP` for the start, `DOWN` for the wait.

    Returns
    -------
    ndarray of bool, shape (n_phases,)
    """
    is_leaf = np.zeros(len(phases), dtype=bool)
    role = None
    for number in range(len(phases))[::direction]:
        phase = phases[number]
        if not phase.is_local:
            if not phase.leads(direction) or role not in (None, phase.role):
                break
            role = phase.role
        elif role is not None:
            break
        is_leaf[number] = True
        if phase.leads(-direction):
            break
    return is_leaf if role is not None else np.zeros(len(phases), dtype=bool)


class _Split:
    """Levels of tasks in the trees of a plan, from which their stages and cores follow.

    Parameters
    ----------
    plan : Plan
    placement : CorePlacement
    levels : int or "auto"
    """

    def __init__(self, plan: Plan, placement: CorePlacement, levels: int | str) -> None:
        self.plan, self.placement = plan, placement
        _require_trees(plan)
        self.transfer, self.source, self.receiver = number_transfers(plan)
        self.level, self.direction = np.zeros((2, plan.n_tasks), dtype=np.int64)
        self.n_split = np.zeros(plan.n_tasks, dtype=np.int64)
        """Number of levels on application cores, for the tree of every task."""
        ends = {way: leaf_phases(plan.phases, way) for way in (UP, DOWN)}
        for number, phase in enumerate(plan.phases):
            rows = np.flatnonzero(plan.phase == number)
            if phase.trees:
                rank = plan.rank[rows]
                self.level[rows], self.direction[rows] = phase.levels(rank, plan.round[rows])
                if ends[UP][number] or ends[DOWN][number]:
                    self.n_split[rows] = self._levels_of(phase, levels)[rank]
        self.is_end = {way: ends[way][plan.phase] for way in ends}
        self._join_local(ends)

    def _levels_of(self, phase: Phase, levels: int | str) -> Ints:
        """Return the number of levels on application cores for every rank's tree in a phase."""
        if isinstance(levels, int):
            return np.full(self.plan.n_ranks, levels)
        n_free = np.array([len(cores) for cores in self.placement.free])
        best = np.zeros(self.plan.n_ranks, dtype=np.int64)
        # For a rank in several trees, the largest tree decides.
        for trees in sorted(phase.trees, key=lambda trees: trees.size):
            for ranks in map(np.array, trees.groups):
                n_cores = len(ranks) + int(n_free[np.unique(self.placement.node[ranks])].sum())
                if n_cores == len(ranks):
                    best[ranks] = 0
                    continue
                if not phase.radix:
                    raise AlgorithmError(
                        f"passes.split_tree.levels: auto knows binomial and k-nomial trees, "
                        f"{phase} is none; give a number, or choose binomial"
                    )
                best[ranks] = best_levels(len(ranks), n_cores, *shapes_of(phase.kind, phase.radix))
        return best

    def _join_local(self, ends: dict[int, Bools]) -> None:
        """Add the local phases before the first leaf levels, and after the last ones, to these."""
        for way in ends:
            most = self.n_split[self.is_end[way]].max(initial=0)
            for number in np.flatnonzero(ends[way]):
                if self.plan.phases[number].is_local:
                    rows = self.plan.phase == number
                    self.direction[rows], self.n_split[rows] = way, most

    def stages(self) -> Ints:
        """Return the stage of every task.

        A task of a leaf level is inside the start only if all tasks that it depends on are, and
        inside the wait only if all tasks that depend on it are.
        """
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
        """Return the chosen tasks that are left if dependencies and transfers are respected.

        A task is removed if it is the second of a pair whose first is not chosen, or if another
        task of its transfer is removed.

        Parameters
        ----------
        chosen : ndarray of bool, shape (n_tasks,)
        first, second : ndarray of int64, shape (n_dependencies,)
            Pairs of tasks.

        Raises
        ------
        AlgorithmError
            If an earlier pass has ordered a task to be removed and its first.
        """
        is_stated = (self.plan.deps.kind & (INTENT | ON_START)) == INTENT
        while True:
            lost = chosen[second] & ~chosen[first]
            if (i := csr.first_true(lost & is_stated)) >= 0:
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
        """Return the communication core of every task, numbered within its node."""
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
        """Return the number of each task's transfer within level and node, in order of ranks."""
        plan = self.plan
        ends = self.transfer[rows] * plan.n_nodes + plan.node[rows]
        _, first, index = np.unique(ends, return_index=True, return_inverse=True)
        row = rows[first]
        level = np.column_stack(
            (plan.phase[row], self.direction[row], self.level[row], plan.node[row])
        )
        _, key = np.unique(level, axis=0, return_inverse=True)
        # Transfers are sorted by round, then rank. Groups may have the same level in other rounds.
        transfer = self.transfer[row]
        order = np.lexsort((self.source[transfer], self.receiver[transfer], key.ravel()))
        turn = np.empty(len(row), dtype=np.int64)
        turn[order] = csr.occurrence(key.ravel()[order])
        return turn[index]


def number_transfers(plan: Plan) -> tuple[Ints, Ints, Ints]:
    """Return the transfers of a plan.

    A transfer consists of a message, which is a send and a receive, and of the copies and
    reductions of the same round with which its receiver processes it. In shared memory, it is what
    one rank reads from another in a round. All segments of a message are one transfer.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.

    Returns
    -------
    transfer : ndarray of int64, shape (n_tasks,)
        Transfer of every task; -1 for tasks of a rank that belong to none. Transfers are numbered
        by round, receiving rank and source rank.
    source : ndarray of int64, shape (n_transfers,)
        Source rank of each transfer. If a task reads shared memory of several ranks, it is
        the lowest one.
    receiver : ndarray of int64, shape (n_transfers,)
        Receiving rank of each transfer.
    """
    n, n_ranks = plan.n_tasks, plan.n_ranks
    sends, recvs = match_messages(plan)
    before, after = plan.deps.task, plan.deps.owner()
    comes = _touches_shared(plan.writes)[before] & _touches_shared(plan.reads)[after]
    comes &= plan.rank[before] != plan.rank[after]
    source = np.full(n, n_ranks, dtype=np.int64)
    np.minimum.at(source, after[comes], plan.rank[before[comes]])
    source[recvs] = plan.peer[recvs]
    source[sends] = n_ranks
    heads = np.flatnonzero(source < n_ranks)
    place = csr.joint_key(plan.round, plan.rank, n_ranks)
    keys, number = np.unique(
        csr.joint_key(place[heads], source[heads], n_ranks), return_inverse=True
    )
    transfer = np.full(n, NONE, dtype=np.int64)
    transfer[heads] = number.ravel()
    follows = (transfer[before] >= 0) & (transfer[after] < 0) & (place[before] == place[after])
    follows &= (plan.op[after] == Op.COPY) | (plan.op[after] == Op.REDUCE)
    # If there are several, take the last: a reduction also waits for the previous reduction.
    order = np.argsort(before[follows], kind="stable")
    transfer[after[follows][order]] = transfer[before[follows][order]]
    transfer[sends] = transfer[recvs]
    return transfer, keys % n_ranks, keys // n_ranks % n_ranks


def _touches_shared(extents: Extents) -> Bools:
    touches = np.zeros(len(extents.indptr) - 1, dtype=bool)
    touches[extents.owner()[extents.buffer == Buffer.SHARED]] = True
    return touches
