"""Split trees of unit transfers, and their levels one after the other."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner import compile_plan
from collplan.planner.passes.progress.split_tree import number_transfers
from collplan.planner.plan.phases import DOWN, UP
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import INTENT, Dependencies
from collplan.specs import Link, Network, PlanSpec

Ints = npt.NDArray[np.int64]

UNIT_NS: Final = 10**6
"""Time of a transfer of one unit: through shared memory exactly, by messages a ns less, as
LogGP does not count the first byte."""
ALGORITHMS: Final = {"allreduce": "reduce_bcast"}


@cache
def tree(kind: str, n_ranks: int, n_free: int, transport: str, radix: int = 0) -> Plan:
    """Return a binomial or k-nomial tree of `UNIT_NS` bytes a transfer or block, on one node."""
    knomial = {"name": "knomial", "radix": radix}
    collective: dict[str, Any] = {"kind": kind, "count": UNIT_NS, "datatype": "uint8"}
    spec = {
        "machine": {"ranks_per_node": n_ranks, "cores": n_ranks + n_free},
        "collective": collective,
        "algorithms": knomial if radix else ALGORITHMS.get(kind, "binomial"),
        "transport": transport,
    }
    return compile_plan(PlanSpec.model_validate(spec))


def unit_network(transport: str) -> Network:
    """Return a network on which every byte of a transfer takes one core 1 ns, and nothing else."""
    moves = 1.0 if transport == "shared" else 0.0
    link = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=1.0 - moves)
    return Network(
        core=link,
        numa=link,
        node=link,
        network=link,
        eager_limit_bytes=2**50,
        copy_ns_per_byte=moves,
        reduce_ns_per_byte=moves,
    )


def in_sequence(plan: Plan) -> Plan:
    """Return a split tree in which every level waits for all transfers of the level before."""
    level, direction = levels_of(plan)
    height = level.max(initial=0)
    steps = [(UP, i) for i in range(1, height + 1)] + [(DOWN, i) for i in range(height, 0, -1)]
    rows = [np.flatnonzero((direction == way) & (level == i)) for way, i in steps]
    stated = [
        (int(before), int(after))
        for one, other in pairwise([some for some in rows if len(some)])
        for before in one[plan.op[one] != Op.SEND]
        for after in other[plan.op[other] != Op.RECV]
    ]
    return with_intents(plan, stated)


def levels_of(plan: Plan) -> tuple[Ints, Ints]:
    """Return level and direction of the tasks of transfers; 0 for what is none."""
    (phase,) = plan.phases
    level, direction = phase.levels(plan.rank.astype(np.int64), plan.round.astype(np.int64))
    is_transfer = number_transfers(plan)[0] >= 0
    return np.where(is_transfer, level, 0), np.where(is_transfer, direction, 0)


def with_intents(plan: Plan, stated: list[tuple[int, int]]) -> Plan:
    """Return a plan in which some tasks also wait for others, as intended."""
    new = np.array(stated, dtype=np.int64).reshape(-1, 2)
    old = plan.deps
    owner = np.repeat(np.arange(plan.n_tasks), np.diff(old.indptr))
    after, before = np.concatenate((owner, new[:, 1])), np.concatenate((old.task, new[:, 0]))
    kind = np.concatenate((old.kind, np.full(len(new), INTENT)))
    order = np.argsort(after, kind="stable")
    indptr = np.concatenate(([0], np.cumsum(np.bincount(after, minlength=plan.n_tasks))))
    return plan.replace(deps=Dependencies(indptr, before[order], kind[order]))
