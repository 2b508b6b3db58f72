"""Reduce along chains of ranks that end at the root."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds


@algorithm("reduce", "chain", tree="any", streams=True, pipelines=("across",))
def chain(group: Group) -> Rounds:
    """Pass partial results from rank to rank towards the root.

    A commutative operation takes one chain around all ranks. Otherwise two
    chains, from rank 0 up and from rank p - 1 down, meet at the root, each
    in rank order.

    Notes
    -----
    p - 1 rounds in one chain, max(r, p - 1 - r) in two (for the root r the two
    last messages share its receive); c a rank. With s segments: p - 2 + s steps.

    References
    ----------
    Hartmann et al. 2006: the ring topology, for rooted collectives.
    """
    size, root = group.size, group.root
    if group.commutative:
        hops = [((root + v) % size, (root + v - 1) % size) for v in range(size - 1, 0, -1)]
    else:
        down = [(v, v - 1) for v in range(size - 1, root, -1)]
        hops = down + [(v, v + 1) for v in range(root)]
    holds_partial: set[int] = set()
    for source, dest in hops:
        value = [group.output if r in holds_partial else group.input for r in (source, dest)]
        yield Round(
            Message(
                source,
                dest,
                group.whole(value[0]),
                group.whole(group.output),
                combine=group.whole(value[1]),
                incoming_left=source < dest,
            )
        )
        holds_partial.add(dest)
