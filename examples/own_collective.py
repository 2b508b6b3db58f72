"""Add a collective: every rank gets the block of the rank before it.

Registers the kind, what it promises, how numpy computes it, an algorithm, and a call
of MPI to measure it against. Then proves it on 1 to 12 ranks. Needs no MPI.

    python examples/own_collective.py
    collplan --import examples/own_collective.py run SPEC.yaml -n 4
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from collplan import compile, parse_spec, verify
from collplan.own_algorithms import native_call
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Message, Round, Rounds, at
from collplan.planner.collective.reference import Array, reference
from collplan.planner.collective.semantics import Contents, promise, received
from collplan.specs import Moving, register_collective


@register_collective
class Rotate(Moving):
    """Every rank gets the `count` elements of the rank before it, rank 0 those of the last."""

    kind: Literal["rotate"] = "rotate"


@promise("rotate")
def rotated(collective: Rotate, size: int) -> Contents:
    """Return what the receive buffers must hold: the contribution of the rank before."""
    ranks = np.arange(size)
    return received(rank=ranks, count=collective.count, first=(ranks - 1) % size)


@reference("rotate")
def rotate(collective: Rotate, inputs: list[Array]) -> list[Array]:
    """Return the results of all ranks."""
    return [*inputs[-1:], *inputs[:-1]]


@algorithm("rotate", "direct", best_for=("short", "long"), streams=True)
def direct(group: Group) -> Rounds:
    """Send straight to the next rank. One round; c per rank, which is optimal."""
    me, size = group.positions, group.size
    yield Round(Message(me, (me + 1) % size, at(group.input, 0), at(group.output, 0)))


@native_call("rotate")
def shift(comm: Any, sent: Any, received: Any, starts: bool) -> Any:
    """Call MPI; return a request at once if it `starts` only."""
    call = comm.Isendrecv if starts else comm.Sendrecv
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    return call(sent, after, recvbuf=received, source=before)


def main() -> None:
    """Prove it."""
    for n_ranks in range(1, 13):
        collective = {"kind": "rotate", "count": 5}
        verify(compile(parse_spec({"machine": {"nodes": n_ranks}, "collective": collective})))
    print("proved on 1 to 12 ranks")


if __name__ == "__main__":
    main()
