"""Write plans in GOAL, the text format of schedules for LogGOPSim and ATLAHS, and read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import csr
from collplan.planner.arrays.rounding import NEARLY_ONE
from collplan.planner.compiler.ranks import without_native
from collplan.planner.formats.goal_read import GoalError, parse_goal, read_goal
from collplan.planner.formats.output_files import replacing
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.planner.rewrite.fold import require_unfolded
from collplan.specs import Network

__all__ = ["GoalError", "parse_goal", "read_goal", "write_goal"]


def write_goal(plan: Plan, target: str | Path | TextIO, network: Network | None = None) -> None:
    """Write a plan as a GOAL schedule.

    Every message of a pair of ranks gets a different tag, as LogGOPSim requires.
    GOAL does not describe memory. Therefore copies and reductions become ``calc``
    statements with the time that `network` states for their bytes, rounded to whole
    nanoseconds, as in the simulator. The rank's own core is ``cpu 0``, and other cores
    are numbered from 1. GOAL serves statements by position, so the statements of a rank
    are written in the order of priorities. With one rank per node and one lane, the
    schedule has the same makespan as the plan, unless messages of several ranks begin to
    wait at the same time; these have another order in GOAL. With several ranks per node,
    the machine of GOAL differs, as it has a network adapter for every rank.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, in which no task depends on a task of another rank.
    target : str, Path or text file
        File to write; an existing file is replaced atomically.
    network : Network or None
        Costs of copies and reductions. If None, they are those of the spec's machine, or
        the defaults of `Network` for a plan without a spec.

    Raises
    ------
    GoalError
        If a task depends on a task of another rank, or the file cannot be written.
    MatchError
        If sends and receives do not match.
    """
    if network is None:
        network = Network() if plan.machine is None else plan.machine.network
    lines = _statements(plan, network)
    if isinstance(target, str | Path):
        with replacing(target, GoalError) as file:
            file.writelines(line.encode() for line in lines)
    else:
        target.writelines(lines)


def _statements(plan: Plan, network: Network) -> Iterator[str]:
    """Generate the lines of the schedule."""
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
                # Labels must be defined before use. If a required task comes later by priority,
                # the dependency is written at the end of the rank.
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
    """Return the statement of every task without its label."""
    sends, recvs = match_messages(plan)
    tag = np.zeros(plan.n_tasks, dtype=np.int64)
    pair = csr.joint_key(plan.rank[sends], plan.peer[sends], plan.n_ranks)
    tag[sends] = tag[recvs] = csr.occurrence(pair)
    n_bytes = plan.elements * plan.itemsize
    cost = np.zeros(max(Op) + 1)
    cost[Op.COPY], cost[Op.REDUCE] = network.copy_ns_per_byte, network.reduce_ns_per_byte
    local_ns = np.ceil(n_bytes * cost[plan.op] * NEARLY_ONE)
    ns = np.where(plan.op == Op.COMPUTE, plan.duration_ns, local_ns)
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
    """Return the core of every task, numbered per rank: 0 for its own, others in order of use."""
    cpu = np.zeros(plan.n_tasks, dtype=np.int64)
    elsewhere = np.flatnonzero(plan.core != plan.rank_core[plan.rank])
    numbers: dict[int, dict[int, int]] = {}
    for row in elsewhere.tolist():
        own = numbers.setdefault(int(plan.rank[row]), {})
        cpu[row] = own.setdefault(int(plan.core[row]), len(own) + 1)
    return cpu
