"""Orders of accesses in folded plans: paths may lead through other nodes."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.arrays.motion import Motion
from collplan.planner.errors import RaceError
from collplan.planner.plan.folding import Folding
from collplan.planner.plan.pieces import pieces_of
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.rewrite.fold import fold
from collplan.planner.verify.order import Execution
from collplan.planner.verify.races import check_races
from handmade import PlanBook

N_NODES = 3


def answered(rows: list[int], *, waits: bool) -> Plan:
    """Return programs of nodes on a ring: each writes, asks the next one, and gets an answer.

    A rank then writes again, after the answer if it waits.
    """
    book = PlanBook(list(range(N_NODES)))
    own, question, got, answer = ([(Buffer.SCRATCH, i, 1)] for i in range(4))
    for rank in rows:
        after, before = (rank + 1) % N_NODES, (rank - 1) % N_NODES
        written = book.add(Op.COPY, rank, [(Buffer.SEND, 0, 1)], own)
        book.add(Op.SEND, rank, question, [], [written], peer=after, tag=0)
        received = book.add(Op.RECV, rank, [], got, peer=before, tag=0)
        book.add(Op.SEND, rank, got, [], [received], peer=before, tag=1)
        arrived = book.add(Op.RECV, rank, [], answer, peer=after, tag=1)
        book.add(Op.COPY, rank, [(Buffer.SEND, 1, 1)], own, [arrived] if waits else [])
    return book.plan()


def check(plan: Plan) -> None:
    check_races(plan, Execution.of(plan), pieces_of(plan))


def folded(*, waits: bool) -> Plan:
    folding = Folding(Motion("shift", N_NODES, 1), np.empty((0, 3), np.int64))
    return fold(answered([0], waits=waits), folding)


def test_an_answer_of_another_node_orders_accesses() -> None:
    check(answered([*range(N_NODES)], waits=True))
    check(folded(waits=True))


def test_accesses_without_an_order_are_refused() -> None:
    for plan in (answered([*range(N_NODES)], waits=False), folded(waits=False)):
        with pytest.raises(RaceError, match="touch the same memory"):
            check(plan)
