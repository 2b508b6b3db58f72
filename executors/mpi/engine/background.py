"""Placement of background tasks: on communication cores by a thread, or with the caller.

A plan counts cores by node, the system counts processors. The cores of a node are the
processors that its ranks may use, in ascending order; nodes of one host, as emulated
ones are, take theirs one after the other.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.engine.reduction import Reduction
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import host
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.program.program import Program, own_computations, why_not_apart
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.plan.plan import Op, Plan, Stage

ProgressBy = Literal["thread", "caller"]
Progress = Literal["auto", "caller", "thread"]
CHOICES: Final = get_args(Progress)
_LEVELS: Final = {
    MPI.THREAD_SINGLE: "SINGLE",
    MPI.THREAD_FUNNELED: "FUNNELED",
    MPI.THREAD_SERIALIZED: "SERIALIZED",
    MPI.THREAD_MULTIPLE: "MULTIPLE",
}
MOST_PROCESSORS: Final = 1 << 15
"""More than Linux knows."""
_WORD_BITS: Final = 64


@dataclass(frozen=True, eq=False, slots=True)
class Background:
    """Processors of a progress thread and of its tasks.

    Parameters
    ----------
    processors : sequence of int
        The system's numbers of those it runs on.
    processor : ndarray of int16, shape (n_tasks,)
        Which of them each task runs on; -1 for what the caller runs.
    crowd : float
        How many threads share the fullest of them.
    """

    processors: Sequence[int]
    processor: npt.NDArray[np.int16]
    crowd: float

    def masks(self) -> npt.NDArray[np.uint64]:
        """Return the system's form of a set of processors, for each of them."""
        n_words = max(self.processors) // _WORD_BITS + 1
        masks = np.zeros((len(self.processors), n_words), dtype=np.uint64)
        for row, processor in enumerate(self.processors):
            masks[row, processor // _WORD_BITS] = 1 << processor % _WORD_BITS
        return masks


@dataclass(frozen=True, slots=True)
class Wish:
    """A rank's request for who runs background tasks, and where.

    Parameters
    ----------
    progress : {"auto", "caller", "thread"}
        Who is to run background tasks; "auto" is a thread where that can.
    cores : sequence of int or None
        The processor of each of the node's cores; None for those that ranks may use.
    """

    progress: Progress
    cores: Sequence[int] | None

    def check(self, plan: Plan, rank: int) -> None:
        """Raise `BindError` for what cannot be meant."""
        if self.progress not in CHOICES:
            raise BindError(f"progress is {self.progress!r}; use one of {', '.join(CHOICES)}")
        if self.cores is None:
            return
        for i, processor in enumerate(self.cores):
            is_number = isinstance(processor, int | np.integer)
            if not (is_number and 0 <= processor < MOST_PROCESSORS):
                raise BindError(f"cores[{i}] is {processor!r}; use the number of a processor")
        n_cores = cores_of_node(plan, rank)
        if len(self.cores) < n_cores:
            raise BindError(
                f"cores names {len(self.cores)} processors, the plan's node has {n_cores} cores; "
                "name one for each, the same for several if need be"
            )


def cores_of_node(plan: Plan, rank: int) -> int:
    """Return how many cores a rank's node has, as far as its plan or program shows."""
    if plan.spec is not None:
        return plan.spec.machine.cores_per_node
    used = np.concatenate(
        (
            plan.rank_core[plan.rank_node == plan.rank_node[rank]],
            plan.core[plan.rank_node[plan.rank] == plan.rank_node[rank]],
        )
    )
    return 1 + int(used.max())


def is_placed(plan: Plan, program: Program, rank: int) -> bool:
    """Return whether a rank has background tasks on communication cores, which hold no rank."""
    core = plan.core[program.row[program.stage == Stage.BACKGROUND]]
    held = plan.rank_core[plan.rank_node == plan.rank_node[rank]]
    return not bool(np.isin(core, held).all())


def why_not_placed(plan: Plan, rank: int) -> str:
    """Say that a rank has no background tasks on communication cores."""
    return (
        f"all background tasks of rank {rank} are on cores that hold ranks, as core "
        f"{plan.rank_core[rank]} does; the passes place_progress and split_tree use free ones"
    )


def place_background(
    plan: Plan, rank: int, program: Program, reduction: Reduction, wish: Wish, call: RollCall
) -> Background | str:
    """Find processors for the background tasks of all ranks; collective.

    Parameters
    ----------
    plan : Plan
        The whole plan or this rank's program.
    rank : int
        This one.
    program : Program
        This rank's tasks.
    reduction : Reduction
        How they reduce.
    wish : Wish
        What was asked for, checked.
    call : RollCall
        Of all ranks.

    Returns
    -------
    Background or str
        What the progress thread needs, or why there is none.

    Raises
    ------
    BindError
        On all ranks, if one asked for a thread and cannot have it.
    """
    name, node = MPI.Get_processor_name(), int(plan.rank_node[rank])
    fact = call.together(
        lambda: _Fact(host(), name, sorted(affinity()), node, cores_of_node(plan, rank))
    )
    facts: list[_Fact] = call.gather(fact)
    offer, processor = call.together(
        lambda: _find_place(plan, rank, program, reduction, wish, facts)
    )
    offers: list[_Offer] = call.gather(offer)
    _refuse(offers, rank)
    if offer.reason is not None:
        return offer.reason
    return Background(offer.processors, processor, _crowd(facts, offers, rank))


def _find_place(
    plan: Plan,
    rank: int,
    program: Program,
    reduction: Reduction,
    wish: Wish,
    facts: Sequence[_Fact],
) -> tuple[_Offer, npt.NDArray[np.int16]]:
    """Return what a rank offers, and which of its processors each task runs on."""
    computes = own_computations(plan, program, rank)
    in_background = (program.stage == Stage.BACKGROUND) & ~computes
    core = plan.core[program.row]
    cores: Sequence[int] = ()
    reason = _own_reason(plan, program, rank, reduction, wish) or why_not_apart(program, computes)
    if reason is None:
        cores, reason = _cores_of(facts, rank) if wish.cores is None else (wish.cores, None)
    used = [] if reason else sorted({int(cores[c]) for c in np.unique(core[in_background])})
    reason = reason or _pinning_reason(rank, used)
    insists = wish.progress == "thread"
    offer = _Offer(is_placed(plan, program, rank), insists, reason, [] if reason else used)
    processor = np.full(program.n_tasks, -1, dtype=np.int16)
    if reason is None:
        row_of_core = np.array([used.index(p) if p in used else -1 for p in cores], dtype=np.int16)
        processor[in_background] = row_of_core[core[in_background]]
    return offer, processor


@dataclass(frozen=True, slots=True)
class _Fact:
    """Host, node and processors of one rank."""

    host: str
    name: str
    affinity: Sequence[int]
    node: int
    n_cores: int


@dataclass(frozen=True, slots=True)
class _Offer:
    """One rank's finding: whether it is placed, insists on a thread or lacks one, and where."""

    is_placed: bool
    insists: bool
    reason: str | None
    processors: Sequence[int]


def _own_reason(
    plan: Plan, program: Program, rank: int, reduction: Reduction, wish: Wish
) -> str | None:
    """Return why a rank has no thread, wherever it is."""
    if wish.progress == "caller":
        return "it was asked for"
    if not is_placed(plan, program, rank):
        return why_not_placed(plan, rank)
    n_cores = cores_of_node(plan, rank)
    core = plan.core[program.row[program.stage == Stage.BACKGROUND]]
    strange = core[(core < 0) | (core >= n_cores)]
    if len(strange):
        return f"background tasks are on core {strange[0]}, a node has cores 0 to {n_cores - 1}"
    if reduction.why_callback is not None:
        return f"{reduction.why_callback}, and Python cannot run beside the caller"
    if not hasattr(os, "sched_setaffinity"):
        return "this system lets no thread choose its processor"
    level = MPI.Query_thread()
    sends = bool((program.op <= Op.RECV).any())
    needed = MPI.THREAD_MULTIPLE if sends else MPI.THREAD_FUNNELED
    if level < needed:
        return (
            f"MPI was initialised with MPI_THREAD_{_LEVELS[level]}, the background needs "
            f"MPI_THREAD_{_LEVELS[needed]}"
        )
    return None


def _cores_of(facts: Sequence[_Fact], rank: int) -> tuple[Sequence[int], str | None]:
    """Return the processors of the cores of a rank's node, and why there are none."""
    mine = facts[rank]
    apart = [i for i, fact in enumerate(facts) if fact.node == mine.node and fact.host != mine.host]
    if apart:
        other = apart[0]
        return (), (
            f"rank {rank} runs on {mine.name} and rank {other} of the same node of the plan on "
            f"{facts[other].name}; compile for the nodes that ranks run on"
        )
    here = [fact for fact in facts if fact.host == mine.host]
    processors = sorted({p for fact in here for p in fact.affinity})
    n_cores = dict(sorted((fact.node, fact.n_cores) for fact in here))
    n_needed = sum(n_cores.values())
    if n_needed > len(processors):
        whose = f"node {mine.node} has" if len(n_cores) == 1 else f"{len(n_cores)} nodes here have"
        return (), (
            f"the plan's {whose} {n_needed} cores, its ranks may use {len(processors)} processors "
            f"of {mine.name}; name a processor for each core by bind(cores=[...])"
        )
    first = sum(n for node, n in n_cores.items() if node < mine.node)
    return processors[first : first + mine.n_cores], None


def _pinning_reason(rank: int, processors: Sequence[int]) -> str | None:
    """Return why a thread of this process could not run where it should."""
    allowed = affinity()
    for processor in set(processors) - allowed:
        # What a launcher bound a rank to, it may leave, but not what it was locked into.
        try:
            os.sched_setaffinity(0, {processor})
        except OSError as error:
            return f"processor {processor} cannot be used by rank {rank} ({error.strerror})"
        finally:
            os.sched_setaffinity(0, allowed)
    return None


def _refuse(offers: Sequence[_Offer], rank: int) -> None:
    """Raise on all ranks if one insists on a thread that it cannot have."""
    any_placed = any(offer.is_placed for offer in offers)
    for culprit, offer in enumerate(offers):
        # Where others have a background, a rank without one lacks nothing.
        lacks = offer.reason is not None and (offer.is_placed or not any_placed)
        if offer.insists and lacks:
            text = f"progress is thread, but {offer.reason}; leave it out to do without"
            raise BindError(
                text if culprit == rank else f"rank {culprit} cannot bind the plan: {text}"
            )


def _crowd(facts: Sequence[_Fact], offers: Sequence[_Offer], rank: int) -> float:
    """Return how many threads share the fullest processor of a rank's background."""
    crowd: Counter[int] = Counter()
    processors: set[int] = set()
    n_threads = 0
    for fact, offer in zip(facts, offers, strict=True):
        if fact.host != facts[rank].host:
            continue
        crowd.update(offer.processors)
        if len(fact.affinity) == 1:
            crowd.update(fact.affinity)
        n_threads += 1 + bool(offer.processors)
        processors.update(fact.affinity, offer.processors)
    fullest = max(crowd[processor] for processor in offers[rank].processors)
    return max(fullest, n_threads / len(processors))
