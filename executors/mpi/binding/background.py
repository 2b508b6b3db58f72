"""Placement of background tasks: in a thread on communication cores, or in the caller.

A plan numbers cores per node, and the operating system numbers processors. The cores of a node
are the processors that its ranks may use, in ascending order. Nodes on the same host, such as
emulated nodes, use consecutive processors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.prepared import Prepared, cores_of_node
from collplan.executors.mpi.engine.progress_thread import Background
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import host
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.program.program import own_computations, why_not_apart
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.plan.plan import Stage

_LEVELS: Final = {
    getattr(MPI, name): name
    for name in ("THREAD_SINGLE", "THREAD_FUNNELED", "THREAD_SERIALIZED", "THREAD_MULTIPLE")
}


class _NoThreadError(Exception):
    """A rank that cannot have a progress thread; the message is the reason."""


@dataclass(frozen=True, slots=True)
class _Fact:
    """Host, node and processors of one rank.

    Parameters
    ----------
    host : str
        Identifier of the host.
    name : str
        Name of the host for messages.
    affinity : sequence of int
        Processors that the rank may use, ascending.
    node : int
        Node of the rank in the plan.
    n_cores : int
        Number of cores of this node in the plan.
    """

    host: str
    name: str
    affinity: Sequence[int]
    node: int
    n_cores: int


@dataclass(frozen=True, slots=True)
class _Offer:
    """Progress thread of one rank, if the rank can have one.

    Parameters
    ----------
    is_placed : bool
        Whether the plan has background tasks of this rank on communication cores.
    insists : bool
        Whether the caller requires a thread.
    reason : str or None
        Reason why there is no thread; None if there is one.
    processors : sequence of int
        Processors that the thread uses.
    """

    is_placed: bool
    insists: bool
    reason: str | None
    processors: Sequence[int]


def why_not_placed(prepared: Prepared) -> str:
    """Return the message for a rank without background tasks on communication cores."""
    rank = prepared.rank
    return (
        f"all background tasks of rank {rank} are on cores that hold ranks, as core "
        f"{prepared.plan.rank_core[rank]} does; the passes place_progress and split_tree use "
        "free ones"
    )


def place_background(prepared: Prepared, call: RollCall) -> Background | str:
    """Find processors for the background tasks of all ranks; collective.

    Parameters
    ----------
    prepared : Prepared
        This rank's program, its reduction, and its requests.
    call : RollCall
        Roll call of all ranks.

    Returns
    -------
    Background or str
        Processors of the progress thread, or the reason why there is no thread.

    Raises
    ------
    BindError
        On all ranks, if one rank requires a thread and cannot have it.
    """
    plan, rank = prepared.plan, prepared.rank
    name, node = MPI.Get_processor_name(), int(plan.rank_node[rank])
    fact = call.together(
        lambda: _Fact(host(), name, sorted(affinity()), node, cores_of_node(plan, rank))
    )
    facts: list[_Fact] = call.gather(fact)
    offer, processor = call.together(lambda: _make_offer(prepared, facts))
    offers: list[_Offer] = call.gather(offer)
    _refuse(offers, rank)
    if offer.reason is not None:
        return offer.reason
    return Background(offer.processors, processor, _crowd(facts, offers, rank))


def _make_offer(prepared: Prepared, facts: Sequence[_Fact]) -> tuple[_Offer, npt.NDArray[np.int16]]:
    """Return the offer of a rank, and the index of the processor of each task."""
    program, rank, wish = prepared.program, prepared.rank, prepared.wish
    processor = np.full(program.n_tasks, -1, dtype=np.int16)
    is_placed, insists = prepared.is_placed, wish.progress == "thread"
    try:
        _require_thread(prepared)
        computes = own_computations(prepared.plan, program, rank)
        reason = why_not_apart(program, computes)
        if reason is not None:
            raise _NoThreadError(reason)
        cores = np.array(_cores_of(facts, rank) if wish.cores is None else wish.cores)
        in_background = (program.stage == Stage.BACKGROUND) & ~computes
        at = cores[prepared.plan.core[program.row[in_background]]]
        used: list[int] = np.unique(at).tolist()
        _require_pinning(rank, used)
    except _NoThreadError as why:
        return _Offer(is_placed, insists, str(why), []), processor
    processor[in_background] = np.searchsorted(used, at)
    return _Offer(is_placed, insists, None, used), processor


def _require_thread(prepared: Prepared) -> None:
    """Raise if a rank cannot have a thread on any processor."""
    program, reduction = prepared.program, prepared.reduction
    if prepared.wish.progress == "caller":
        raise _NoThreadError("it was asked for")
    if not prepared.is_placed:
        raise _NoThreadError(why_not_placed(prepared))
    if reduction.why_callback is not None:
        raise _NoThreadError(f"{reduction.why_callback}, and Python cannot run beside the caller")
    if program.function.any():
        raise _NoThreadError("computations call functions, which need the caller's thread")
    if not hasattr(os, "sched_setaffinity"):
        raise _NoThreadError("this system lets no thread choose its processor")
    level = MPI.Query_thread()
    sends = bool(program.is_requested.any())
    needed = MPI.THREAD_MULTIPLE if sends else MPI.THREAD_FUNNELED
    if level < needed:
        raise _NoThreadError(
            f"MPI was initialized with MPI_{_LEVELS[level]}, the background needs "
            f"MPI_{_LEVELS[needed]}"
        )


def _cores_of(facts: Sequence[_Fact], rank: int) -> Sequence[int]:
    """Return the processors of the cores of a rank's node."""
    mine = facts[rank]
    apart = [i for i, fact in enumerate(facts) if fact.node == mine.node and fact.host != mine.host]
    if apart:
        raise _NoThreadError(
            f"rank {rank} runs on {mine.name} and rank {apart[0]} of the same node of the plan on "
            f"{facts[apart[0]].name}; compile for the nodes that ranks run on"
        )
    here = [fact for fact in facts if fact.host == mine.host]
    processors = sorted({p for fact in here for p in fact.affinity})
    n_cores = dict(sorted((fact.node, fact.n_cores) for fact in here))
    n_needed = sum(n_cores.values())
    if n_needed > len(processors):
        whose = f"node {mine.node} has" if len(n_cores) == 1 else f"{len(n_cores)} nodes here have"
        raise _NoThreadError(
            f"the plan's {whose} {n_needed} cores, its ranks may use {len(processors)} processors "
            f"of {mine.name}; name a processor for each core by bind(cores=[...])"
        )
    first = sum(n for node, n in n_cores.items() if node < mine.node)
    return processors[first : first + mine.n_cores]


def _require_pinning(rank: int, processors: Sequence[int]) -> None:
    """Raise if a thread of this process cannot run on some processors."""
    allowed = affinity()
    for processor in set(processors) - allowed:
        # A rank may leave the processors to which a launcher bound it, but not those of its cpuset.
        try:
            os.sched_setaffinity(0, {processor})
        except OSError as error:
            raise _NoThreadError(
                f"processor {processor} cannot be used by rank {rank} ({error.strerror})"
            ) from None
        finally:
            os.sched_setaffinity(0, allowed)


def _refuse(offers: Sequence[_Offer], rank: int) -> None:
    """Raise on all ranks if one rank requires a thread that it cannot have."""
    any_placed = any(offer.is_placed for offer in offers)
    for culprit, offer in enumerate(offers):
        # A rank needs no thread if only other ranks have background tasks on such cores.
        lacks = offer.reason is not None and (offer.is_placed or not any_placed)
        if offer.insists and lacks:
            text = f"progress is thread, but {offer.reason}; leave it out to do without"
            raise BindError(
                text if culprit == rank else f"rank {culprit} cannot bind the plan: {text}"
            )


def _crowd(facts: Sequence[_Fact], offers: Sequence[_Offer], rank: int) -> float:
    """Return the largest number of threads that share a processor of a rank's progress thread."""
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
