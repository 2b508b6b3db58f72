"""Composition of the plans of steps into the plan of a program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.compiler.ranks import BYTES_PER_TASK
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.memory import require_memory
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.hazards import derive_dependencies, stated_edges
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.origin import KnownProgram
from collplan.planner.plan.phases import GroupCall, Phase
from collplan.planner.plan.pieces import Pieces, pieces_of, stack
from collplan.planner.plan.plan import NONE, Op, Plan, Stage
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.planner.plan.tags import Edges, chain_streams, number_messages
from collplan.planner.programs.memory import ProgramMemory
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import ProgramStep

Columns = dict[str, Ints]
COMPUTE_PHASE = "compute"
"""Kind of the phase of a computation."""


@dataclass(frozen=True, eq=False)
class StepTasks:
    """The tasks of one group of a step, or of a computation, in the terms of the program.

    Parameters
    ----------
    columns : dict of ndarray, shape (n_tasks,)
        Columns of a plan by name. Phases and rounds are counted from those of the step.
    reads, writes : Pieces
    edges : Edges
        Stated dependencies between the tasks.
    sends, recvs : ndarray of int64
        Rows of the two ends of each message.
    inner : tuple of ndarray
        All dependencies between tasks: rows that must complete, and rows that wait for them.
    """

    columns: Columns
    reads: Pieces
    writes: Pieces
    edges: Edges
    sends: Ints
    recvs: Ints
    inner: tuple[Ints, Ints]

    def __len__(self) -> int:
        return len(self.columns["op"])


@dataclass(frozen=True)
class StepRows:
    """Rows of the tasks of a step in the plan of a program: ``first`` up to ``end``."""

    number: int
    first: int
    end: int


def step_rows(plan: Plan) -> list[StepRows]:
    """Return the rows of each step in the plan of a program, in their order."""
    program = plan.program
    assert program is not None
    number = {step.name: i for i, step in enumerate(program.steps)}
    names = [phase.step for phase in plan.phases]
    steps = np.array([number[name] for name in names], dtype=np.int64)[plan.phase]
    first = np.flatnonzero(csr.run_starts(steps))
    ends = np.append(first[1:], len(steps))
    found = zip(steps[first].tolist(), first.tolist(), ends.tolist(), strict=True)
    return [StepRows(*one) for one in found]


def compose(program: ProgramSpec, plans: Mapping[int, Sequence[Plan]]) -> Plan:
    """Return the plan of a program.

    Parameters
    ----------
    program : ProgramSpec
        Program without ``auto``.
    plans : mapping of int to sequence of Plan
        For each step with a collective, by its number, the plans of its groups.

    Raises
    ------
    AlgorithmError
        If passes of two steps place ranks on different cores.
    AsymmetricError
        If the plans are folded, but nodes may differ in the program.
    MemoryLimitError
        If the plan does not fit into memory.
    """
    motion = _motion(program, plans)
    placement = _placement(program, plans, motion)
    memory = ProgramMemory(program, len(placement.node), placement.n_nodes)
    parts: list[StepTasks] = []
    phases: list[Phase] = []
    owners: list[int] = []
    n_rounds = 0
    for number in program.order:
        step = program.steps[number]
        found, own = _tasks_of_step(program, number, plans.get(number, ()), placement, memory)
        for one in found:
            one.columns["phase"] += len(phases)
            one.columns["round"] += n_rounds
        n_rounds = max(n_rounds, *(1 + int(one.columns["round"].max(initial=-1)) for one in found))
        phases += [replace(phase, step=step.name) for phase in own]
        parts += found
        owners += [number] * len(found)
    return _joined(program, placement, memory, parts, owners, tuple(phases), motion)


def _motion(program: ProgramSpec, plans: Mapping[int, Sequence[Plan]]) -> Motion | None:
    """Return the motion of ranks in the folded plans of steps; None if they are of all ranks.

    Raises
    ------
    AsymmetricError
        If nodes may differ: if motions or computations do, if a step has groups of several nodes,
        or if two collectives use the same elements, which may move with the nodes.
    """
    folded = [plan.folding for one in plans.values() for plan in one]
    found = {None if folding is None else folding.motion for folding in folded}
    motion = next(iter(found), None)
    if motion is None and len(found) < 2:
        return None
    if motion is None or len(found) > 1:
        raise AsymmetricError("fold: nodes do the same in different ways in different steps")
    steps = program.steps
    for number, step in enumerate(steps):
        if step.compute is None and len(program.groups[number]) > 1:
            raise AsymmetricError(f"fold: step {step.name} has several groups")
        if step.compute is not None:
            _durations(program, step, motion)
    for one, other in program.conflicts:
        if steps[one].compute is None and steps[other].compute is None:
            names = f"{steps[one].name} and {steps[other].name}"
            raise AsymmetricError(f"fold: steps {names} use the same elements")
    return motion


def _durations(program: ProgramSpec, step: ProgramStep, motion: Motion | None) -> Ints:
    """Return the duration of a computation on each rank of the plan in ns."""
    assert step.compute is not None
    machine = program.machine
    found = np.array(step.compute.durations_ns(machine.n_ranks, machine.network, step.name))
    if motion is None:
        return found
    by_node = found.reshape(-1, motion.step)
    takes_part = len(step.group.groups(machine)[0]) == machine.n_ranks
    if not takes_part or (by_node != by_node[0]).any():
        raise AsymmetricError(f"fold: step {step.name} computes differently on different nodes")
    first: Ints = by_node[0]
    return first


def _placement(
    program: ProgramSpec, plans: Mapping[int, Sequence[Plan]], motion: Motion | None
) -> RankPlaces:
    """Return the place of every rank: that of the machine, or that of passes of steps."""
    placement = RankPlaces.of(program.machine)
    if motion is not None:
        columns = {name: getattr(placement, name) for name in ("node", "numa", "lane", "core")}
        first = {name: column[: motion.step] for name, column in columns.items()}
        placement = RankPlaces(**first, n_nodes=1)
    moved: dict[bytes, str] = {}
    for number, found in plans.items():
        for plan, ranks in zip(found, program.groups[number], strict=True):
            own = RankPlaces.of(plan.machine) if plan.machine else placement
            if np.array_equal(plan.rank_core, own.core[: plan.n_ranks]):
                continue
            if len(ranks) < program.machine.n_ranks and motion is None:
                raise AlgorithmError(
                    f"step {program.steps[number].name}: passes: they reserve cores for a group "
                    "of ranks, while other ranks use these cores; leave them out"
                )
            moved[plan.rank_core.tobytes()] = program.steps[number].name
            placement = replace(placement, core=plan.rank_core)
    if len(moved) > 1:
        one, other, *_ = moved.values()
        raise AlgorithmError(
            f"passes: steps {one} and {other} reserve different cores; give both the same passes"
        )
    return placement


def _tasks_of_step(
    program: ProgramSpec,
    number: int,
    plans: Sequence[Plan],
    placement: RankPlaces,
    memory: ProgramMemory,
) -> tuple[list[StepTasks], tuple[Phase, ...]]:
    """Return the tasks of each group of a step, and its phases."""
    step, groups = program.steps[number], program.groups[number]
    if step.collective is None:
        ranks = np.array(sorted(rank for group in groups for rank in group), dtype=np.int64)
        ranks = ranks[ranks < len(placement.node)]
        phase = Phase(kind=COMPUTE_PHASE)
        return [_computations(program, step, ranks, placement, memory)], (phase,)
    # A folded plan has the first ranks of its group, which are those of node 0.
    members = [
        np.array(group, dtype=np.int64)[: plan.n_ranks]
        for group, plan in zip(groups, plans, strict=True)
    ]
    found = [
        _in_program(step, plan, ranks, placement, memory)
        for plan, ranks in zip(plans, members, strict=True)
    ]
    alike: dict[tuple[str, ...], list[int]] = {}
    for i, plan in enumerate(plans):
        alike.setdefault(tuple(phase.name for phase in plan.phases), []).append(i)
    phases: list[Phase] = []
    for same in alike.values():
        for i in same:
            found[i].columns["phase"] += len(phases)
        phases += _phases([plans[i] for i in same], [members[i] for i in same])
    return found, tuple(phases)


def _computations(
    program: ProgramSpec,
    step: ProgramStep,
    ranks: Ints,
    placement: RankPlaces,
    memory: ProgramMemory,
) -> StepTasks:
    """Return one task for each rank that computes."""
    n, n_ranks = len(ranks), len(placement.node)
    is_folded = n_ranks < program.machine.n_ranks
    motion = Motion("shift", program.machine.n_ranks, n_ranks) if is_folded else None
    nothing = np.full(n, NONE, dtype=np.int64)
    columns = {
        "op": np.full(n, Op.COMPUTE, dtype=np.int8),
        "rank": ranks,
        **dict.fromkeys(("peer", "tag", "lane", "stream"), nothing),
        "core": placement.core[ranks],
        **{name: np.zeros(n, dtype=np.int64) for name in ("phase", "round", "priority")},
        "duration_ns": _durations(program, step, motion)[ranks],
        "apart": np.zeros(n, dtype=np.int64),
    }
    reads, writes = (memory.ranges(found, n) for found in (step.reads, step.writes))
    none = np.zeros(0, dtype=np.int64)
    edges = (none, none, none.astype(np.int8))
    return StepTasks(columns, reads, writes, edges, none, none, (none, none))


def _in_program(
    step: ProgramStep, plan: Plan, ranks: Ints, placement: RankPlaces, memory: ProgramMemory
) -> StepTasks:
    """Return the tasks of a plan of one group in the terms of the program."""
    nodes = np.zeros(plan.n_nodes, dtype=np.int64)
    nodes[plan.rank_node] = placement.node[ranks]
    begin = memory.take(plan, ranks, nodes)
    reads, writes = (memory.moved(side, plan, step, begin) for side in pieces_of(plan))
    rank = ranks[plan.rank]
    dest = np.where(plan.op == Op.SEND, np.maximum(plan.peer, 0), plan.rank)
    is_usual = plan.lane == plan.rank_lane[dest]
    columns = {
        "op": plan.op,
        "rank": rank,
        "peer": np.where(plan.peer == NONE, NONE, ranks[np.maximum(plan.peer, 0)]),
        "tag": plan.tag.astype(np.int64),
        "lane": np.where(is_usual, placement.lane[ranks[dest]], plan.lane),
        "core": np.where(plan.core == plan.rank_core[plan.rank], placement.core[rank], plan.core),
        "phase": plan.phase.astype(np.int64),
        "round": plan.round.astype(np.int64),
        "stream": np.full(plan.n_tasks, NONE, dtype=np.int64),
        "priority": plan.priority,
        "duration_ns": plan.duration_ns,
        "apart": plan.apart,
    }
    completes = (plan.deps.kind & ON_START) == 0
    inner = plan.deps.task[completes], plan.deps.owner()[completes]
    return StepTasks(columns, reads, writes, stated_edges(plan), *match_messages(plan), inner)


def _phases(plans: Sequence[Plan], members: Sequence[Ints]) -> tuple[Phase, ...]:
    """Return the phases of plans that have the same ones, on different ranks."""
    return tuple(
        replace(
            same[0],
            trees=tuple(
                replace(tree, groups=tuple(_moved(ranks, one) for one in tree.groups))
                for phase, ranks in zip(same, members, strict=True)
                for tree in phase.trees
            ),
            calls=tuple(
                GroupCall(_moved(ranks, call.members))
                for phase, ranks in zip(same, members, strict=True)
                for call in phase.calls
            ),
        )
        for same in zip(*(plan.phases for plan in plans), strict=True)
    )


def _moved(ranks: Ints, members: Iterable[int]) -> tuple[int, ...]:
    return tuple(int(ranks[one]) for one in members)


def _joined(
    program: ProgramSpec,
    placement: RankPlaces,
    memory: ProgramMemory,
    parts: Sequence[StepTasks],
    owners: Sequence[int],
    phases: tuple[Phase, ...],
    motion: Motion | None,
) -> Plan:
    """Return the plan of all tasks, with the dependencies between steps."""
    starts = csr.running_total([len(part) for part in parts])
    require_memory(int(starts[-1]) * BYTES_PER_TASK)
    placed = list(zip(parts, starts, strict=False))
    columns = {
        name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    reads, writes = (stack([getattr(part, side) for part in parts]) for side in ("reads", "writes"))
    sends, recvs = (
        np.concatenate([getattr(part, side) + start for part, start in placed])
        for side in ("sends", "recvs")
    )
    n_ranks, n_copies = len(placement.node), 1 if motion is None else motion.n_blocks
    dest = csr.joint_key(columns["peer"], columns["apart"], n_copies)
    tag, stream = number_messages(columns["rank"][sends], dest[sends], n_ranks * n_copies)
    for rows in (sends, recvs):
        columns["tag"][rows], columns["stream"][rows] = tag, stream
    columns["stage"] = np.full(starts[-1], Stage.BACKGROUND, dtype=np.int8)
    rank = columns["rank"]
    edges = _stacked(
        [
            *(_shifted(part.edges, start) for part, start in placed),
            chain_streams(columns["op"], rank, dest, columns["stream"]),
            _one_after_another(program, parts, owners, starts, rank),
        ]
    )
    buffer_sizes = np.zeros((n_ranks, 3), dtype=np.int64)
    buffer_sizes[:, 1], buffer_sizes[:, 2] = memory.n_elements, memory.scratch
    return assemble(
        placement,
        columns,
        reads,
        writes,
        derive_dependencies(rank, reads, writes, placement.node, edges),
        buffer_sizes=buffer_sizes,
        shared_sizes=memory.shared,
        itemsize=program.itemsize,
        origin=KnownProgram(program),
        phases=phases,
        folding=None if motion is None else Folding(motion, np.zeros((0, 3), dtype=np.int64)),
    )


def _shifted(edges: Edges, start: int) -> Edges:
    before, after, kind = edges
    return before + start, after + start, kind & ~np.int8(INTENT)


def _stacked(parts: Sequence[Edges]) -> Edges:
    before, after, kind = map(np.concatenate, zip(*parts, strict=True))
    return before.astype(np.int32), after.astype(np.int32), kind.astype(np.int8)


def _one_after_another(
    program: ProgramSpec,
    parts: Sequence[StepTasks],
    owners: Sequence[int],
    starts: Ints,
    rank: Ints,
) -> Edges:
    """Return the edges of `after`, and those between the computations of each rank."""
    number = {step.name: i for i, step in enumerate(program.steps)}
    computing = [i for i, owner in enumerate(owners) if program.steps[owner].compute is not None]
    pairs = [_in_turn(rank, [np.arange(starts[i], starts[i + 1]) for i in computing])]
    for later, step in enumerate(program.steps):
        for earlier in (number[name] for name in step.after):
            ends = [_last(parts[i]) + starts[i] for i in _parts(owners, earlier)]
            begins = [_first(parts[i]) + starts[i] for i in _parts(owners, later)]
            pairs.append(_same_rank(rank, np.concatenate(ends), np.concatenate(begins)))
    before, after = map(np.concatenate, zip(*pairs, strict=True))
    return before, after, np.zeros(len(before), dtype=np.int8)


def _in_turn(rank: Ints, parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return each two rows of a rank that follow one another."""
    rows = np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
    order = rows[np.lexsort((rows, rank[rows]))]
    is_same = rank[order[1:]] == rank[order[:-1]]
    return order[:-1][is_same], order[1:][is_same]


def _parts(owners: Sequence[int], number: int) -> list[int]:
    return [i for i, owner in enumerate(owners) if owner == number]


def _last(part: StepTasks) -> Ints:
    """Return the tasks for whose completion no other task of the part waits."""
    waited = np.zeros(len(part), dtype=bool)
    waited[part.inner[0]] = True
    return np.flatnonzero(~waited)


def _first(part: StepTasks) -> Ints:
    """Return the tasks that wait for the completion of no other task of the part."""
    waits = np.zeros(len(part), dtype=bool)
    waits[part.inner[1]] = True
    return np.flatnonzero(~waits)


def _same_rank(rank: Ints, before: Ints, after: Ints) -> tuple[Ints, Ints]:
    """Return all pairs of an earlier and a later row of the same rank."""
    order = np.argsort(rank[before], kind="stable")
    ordered = rank[before][order]
    first = np.searchsorted(ordered, rank[after])
    n = np.searchsorted(ordered, rank[after], side="right") - first
    index, turn = csr.expand(n)
    return before[order[first[index] + turn]], after[index]
