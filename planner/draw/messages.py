"""The messages of a plan as columns, for views that count or draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from collplan.planner.errors import MatchError
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Messages:
    """One entry a message, by ascending row of the task that stands for it."""

    row: Column
    source: Column
    dest: Column
    n_bytes: Column
    lane: Column

    def __len__(self) -> int:
        return len(self.row)


def collect_messages(plan: Plan) -> Messages:
    """Return the messages of `plan`: its sends, and of one rank's program its receives too."""
    last = Op.SEND if plan.only_rank is None else Op.RECV
    row = np.flatnonzero(plan.op <= last)
    is_send = plan.op[row] == Op.SEND
    return Messages(
        row=row,
        source=np.where(is_send, plan.rank[row], plan.peer[row]).astype(np.int64),
        dest=np.where(is_send, plan.peer[row], plan.rank[row]).astype(np.int64),
        n_bytes=plan.elements[row] * plan.itemsize,
        lane=plan.lane[row].astype(np.int64),
    )


def pair_ends(plan: Plan) -> list[tuple[int, int]]:
    """Return the rows of every message's send and receive, by ascending send.

    A plan whose sends and receives do not pair up is drawn all the same, so
    that its mistake can be seen: no message joins two boxes then, nor where
    the other ends are in other ranks' programs.
    """
    if plan.only_rank is not None:
        return []
    try:
        sends, recvs = match_messages(plan)
    except MatchError:
        return []
    return list(zip(sends.tolist(), recvs.tolist(), strict=True))
