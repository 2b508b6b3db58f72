"""Algorithms of exscan."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Reduce, Round, Rounds
from collplan.planner.algorithms.scan import doubling_prefixes, tree_prefixes


@algorithm("exscan", "binomial", streams=True)
def binomial(group: Group) -> Rounds:
    """Scan all ranks but the last up and down a binomial tree, then shift by one.

    Notes
    -----
    At most 2·⌈log₂ (p - 1)⌉ rounds; at most 2p reductions in all.

    References
    ----------
    Brent, Kung 1982.
    """
    if group.size == 1:
        return
    inclusive = group.scratch_slots(1)
    yield from tree_prefixes(group, inclusive, group.size - 1)
    me = group.positions[:-1]
    yield Round(Message(me, me + 1, group.whole(inclusive), group.whole(group.output)))


@algorithm("exscan", "chain", streams=True, pipelines=("inside", "across"))
def chain(group: Group) -> Rounds:
    """Pass prefixes from rank to rank, adding one's own after keeping what came.

    Notes
    -----
    p - 1 rounds; c per rank. With s segments, p - 2 + s steps of c/s.

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


@algorithm("exscan", "recursive_doubling", best_for=("short",))
def recursive_doubling(group: Group) -> Rounds:
    """Exchange block sums with partners at distance 1, 2, 4, ...

    As in scan, but the first thing that comes from a lower block is the
    prefix; what comes later goes in front of it.

    Notes
    -----
    ⌈log₂ p⌉ rounds; c per rank and round.

    References
    ----------
    Thakur, Rabenseifner, Gropp 2005.
    """
    yield from doubling_prefixes(group, is_exclusive=True)
