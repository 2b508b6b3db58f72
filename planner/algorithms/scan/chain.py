"""Scan along the chain of ranks."""

from __future__ import annotations

from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds


@algorithm("scan", "chain", streams=True, pipelines=("inside", "across"))
def chain(group: Group) -> Rounds:
    """Pass prefixes from rank to rank.

    Notes
    -----
    p - 1 rounds; c a rank. With s segments, p - 2 + s steps of c/s.

    References
    ----------
    Denis et al., "Progress threads placement and dedicated cores for
    overlapping MPI non-blocking collectives", 2022: the chain of iscan.
    """
    yield Round(Copy(0, group.whole(group.input), group.whole(group.output)))
    for rank in range(1, group.size):
        yield Round(
            Message(
                rank - 1,
                rank,
                group.whole(group.input if rank == 1 else group.output),
                group.whole(group.output),
                combine=group.whole(group.input),
                incoming_left=True,
            )
        )
