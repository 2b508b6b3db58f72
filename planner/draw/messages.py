"""The messages of a plan as columns, for views that count or draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from planner.errors import MatchError
from planner.matching import match_messages
from planner.plan import Op

if TYPE_CHECKING:
    from planner.plan import Plan

Column = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Messages:
    """One entry a message: rows of its ends (empty where they don't pair up), and what it is."""

    send: Column
    recv: Column
    source: Column
    dest: Column
    n_bytes: Column
    lane: Column
    phase: Column
    round: Column

    def __len__(self) -> int:
        return len(self.source)


def collect_messages(plan: Plan) -> Messages:
    """Return the messages of `plan`, by ascending row of their sends.

    A plan whose sends and receives do not pair up is drawn all the same, so
    that its mistake can be seen: then no message joins two boxes. A plan of
    one rank counts its own messages, sent and received.
    """
    none = np.zeros(0, dtype=np.int64)
    try:
        send, recv = (none, none) if plan.only_rank is not None else match_messages(plan)
    except MatchError:
        send, recv = none, none
    rows = np.flatnonzero(plan.op == Op.SEND)
    if plan.only_rank is not None:
        rows = np.flatnonzero(plan.op <= Op.RECV)
    is_send = plan.op[rows] == Op.SEND
    columns = {
        "source": np.where(is_send, plan.rank[rows], plan.peer[rows]),
        "dest": np.where(is_send, plan.peer[rows], plan.rank[rows]),
        "n_bytes": plan.elements[rows] * plan.itemsize,
        "lane": plan.lane[rows],
        "phase": plan.phase[rows],
        "round": plan.round[rows],
    }
    return Messages(send, recv, **{name: c.astype(np.int64) for name, c in columns.items()})
