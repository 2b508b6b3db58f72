"""GOAL, the text form of schedules that LogGOPSim and ATLAHS run: plans written in it, and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import csr
from collplan.planner.compiler import without_native
from collplan.planner.formats.goal_read import GoalError, parse_goal, read_goal
from collplan.planner.formats.output_files import replacing
from collplan.planner.plan.fold import require_unfolded
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.specs import Network

__all__ = ["GoalError", "parse_goal", "read_goal", "write_goal"]


def write_goal(plan: Plan, target: str | Path | TextIO, network: Network | None = None) -> None:
    """Write a plan as a GOAL schedule.

    Every message of a pair of ranks gets a tag of its own, as LogGOPSim wants
    it. GOAL knows no memory: copies and reductions become ``calc``, of the time
    that `network` charges for their bytes, rounded to whole nanoseconds (the
    simulator charges the same). A rank's own core is ``cpu 0``; others it uses
    are numbered from 1. Where priorities differ, a rank's statements are
    written by priority, since GOAL serves by position. With one rank per node and one
    lane the schedule's makespan is the plan's; else GOAL's machine is another,
    with a network adapter for every rank.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, in which no task depends on another rank's.
    target : str, Path or text file
        Where to write; a file that exists is replaced whole.
    network : Network or None
        The costs of copies and reductions; None takes the spec's machine, or
        the defaults of `Network` for a plan without a spec.

    Raises
    ------
    GoalError
        Where a dependency crosses ranks, or the file cannot be written.
    MatchError
        Where sends and receives do not pair up.
    """
    if network is None:
        network = Network() if plan.spec is None else plan.spec.machine.network
    lines = _statements(plan, network)
    if isinstance(target, str | Path):
        with replacing(target, GoalError) as file:
            file.writelines(line.encode() for line in lines)
    else:
        target.writelines(lines)


def _statements(plan: Plan, network: Network) -> Iterator[str]:
    """Generate the schedule's lines."""
    require_unfolded(plan, "exported")
    plan = without_native(plan)
    _check_local_dependencies(plan)
    bodies = _bodies(plan, network)
    indptr = plan.deps.indptr.tolist()
    before, kind = plan.deps.task.tolist(), plan.deps.kind.tolist()
    order = np.lexsort((plan.priority, plan.rank))
    rank_indptr = csr.indptr_of(plan.rank, plan.n_ranks)
    labels = (csr.inverse(order) - rank_indptr[plan.rank]).tolist()
    rows, first = order.tolist(), rank_indptr.tolist()
    yield f"num_ranks {plan.n_ranks}\n"
    for rank in range(plan.n_ranks):
        yield f"\nrank {rank} {{\n"
        late: list[str] = []
        for row in rows[first[rank] : first[rank + 1]]:
            me = labels[row]
            yield f"l{me}: {bodies[row]}\n"
            for i in range(indptr[row], indptr[row + 1]):
                word = "irequires" if kind[i] & ON_START else "requires"
                other = labels[before[i]]
                edge = f"l{me} {word} l{other}\n"
                # Labels are defined before their use; priorities may put the required one behind.
                if other < me:
                    yield edge
                else:
                    late.append(edge)
        yield from late
        yield "}\n"


def _check_local_dependencies(plan: Plan) -> None:
    after, before = plan.deps.owner(), plan.deps.task
    if (i := csr.first_true(plan.rank[after] != plan.rank[before])) >= 0:
        raise GoalError(
            f"task #{after[i]} of rank {plan.rank[after[i]]} waits for #{before[i]} of "
            f"rank {plan.rank[before[i]]} through shared memory, which GOAL cannot say; "
            f"export a plan without shared buffers"
        )


def _bodies(plan: Plan, network: Network) -> list[str]:
    """Return every task's statement without its label."""
    sends, recvs = match_messages(plan)
    tag = np.zeros(plan.n_tasks, dtype=np.int64)
    pair = csr.joint_key(plan.rank[sends], plan.peer[sends], plan.n_ranks)
    tag[sends] = tag[recvs] = csr.occurrence(pair)
    n_bytes = plan.elements * plan.itemsize
    cost = np.zeros(max(Op) + 1)
    cost[Op.COPY], cost[Op.REDUCE] = network.copy_ns_per_byte, network.reduce_ns_per_byte
    ns = np.where(plan.op == Op.COMPUTE, plan.duration_ns, np.rint(n_bytes * cost[plan.op]))
    is_message = plan.op <= Op.RECV
    amount = np.where(is_message, n_bytes, ns.astype(np.int64))
    lane = np.where(is_message, np.maximum(plan.lane, 0), 0)
    bodies = []
    columns = np.stack((plan.op, amount, plan.peer, tag, _cpus(plan), lane))
    for op, size, peer, number, cpu, nic in columns.T.tolist():
        on = (f" cpu {cpu}" if cpu else "") + (f" nic {nic}" if nic else "")
        if op == Op.SEND:
            bodies.append(f"send {size}b to {peer} tag {number}{on}")
        elif op == Op.RECV:
            bodies.append(f"recv {size}b from {peer} tag {number}{on}")
        else:
            bodies.append(f"calc {size}{on}")
    return bodies


def _cpus(plan: Plan) -> npt.NDArray[np.int64]:
    """Number the cores of every rank's tasks: its own is 0, others follow as they come."""
    cpu = np.zeros(plan.n_tasks, dtype=np.int64)
    elsewhere = np.flatnonzero(plan.core != plan.rank_core[plan.rank])
    numbers: dict[int, dict[int, int]] = {}
    for row in elsewhere.tolist():
        own = numbers.setdefault(int(plan.rank[row]), {})
        cpu[row] = own.setdefault(int(plan.core[row]), len(own) + 1)
    return cpu
