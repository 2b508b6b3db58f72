"""Exclusive scan along the chain of ranks."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds


@algorithm("exscan", "chain", streams=True, pipelines=("inside", "across"))
def chain(group: Group) -> Rounds:
    """Pass prefixes from rank to rank, adding one's own after keeping what came.

    Notes
    -----
    p - 1 rounds; c a rank. With s segments, p - 2 + s steps of c/s.

    References
    ----------
    Denis et al. 2022: the chain of iscan.
    """
    inclusive = group.scratch_slots(1)
    for rank in range(1, group.size):
        sent = group.whole(group.input if rank == 1 else inclusive)
        message = Message(rank - 1, rank, sent, group.whole(group.output))
        own = (group.whole(group.output), group.whole(group.input), group.whole(inclusive))
        passes_on = rank < group.size - 1
        yield Round(message, Reduce(rank, *own)) if passes_on else Round(message)
