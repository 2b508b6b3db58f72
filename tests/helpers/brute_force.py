"""The proof again, slow and obvious: what `collplan.planner.verify` is tested against.

Nothing here is shared with the planner but `plan.task(i)` and the plan's
dependency columns: tasks are unrolled into lists of elements, what happens
before what is a transitive closure over all pairs, and collectives are
defined once more, element by element.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from brute_contents import wrong_contents
from brute_restarts import restart_races
from brute_steps import END, START, Faults, Past, Step, blocks, needs, offsets, settle, unroll
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Collective


def find_faults(plan: Plan) -> Faults:
    """Return everything that is wrong with a plan; an empty dict means it is right.

    What comes later needs what comes earlier (contents need an order, an
    order needs partners), so the search ends at the first of the five steps
    (format, matching, deadlock, order, contents) that fails.
    """
    faults = format_faults(plan)
    if faults:
        return faults
    steps = unroll(plan)
    sender, faults = match(steps)
    if faults:
        return faults
    faults = deadlocks(steps, sender)
    if faults:
        return faults
    past = closure(steps, sender)
    faults = merge(races(steps, past), match_orders(steps, past), overlaps(steps))
    faults = merge(faults, restart_races(plan, steps, sender))
    if plan.spec is not None:
        faults = merge(faults, forbidden(plan.spec.collective, steps))
    if faults or plan.spec is None:
        return faults
    if plan.spec.collective.kind == "barrier":
        return early_leavers(plan.n_ranks, steps, past)
    return wrong_contents(plan, steps, sender)


def merge(*parts: Faults) -> Faults:
    merged: Faults = defaultdict(set)
    for part in parts:
        for kind, evidence in part.items():
            merged[kind] |= evidence
    return dict(merged)


def format_faults(plan: Plan) -> Faults:
    """Return tasks that touch what is not there, or that have operands of unequal sizes."""
    bad: set[object] = set()
    for task in plan.tasks():
        sizes = [*plan.buffer_sizes[task.rank], plan.shared_sizes[task.node]]
        for extent in (*task.reads, *task.writes):
            last = sizes[extent.buffer] - extent.count
            if any(not 0 <= first <= last for first in blocks(extent)):
                bad.add(frozenset({task.row}))
        n_read = sum(len(offsets(extent)) for extent in task.reads)
        n_written = sum(len(offsets(extent)) for extent in task.writes)
        unequal = {Op.COPY: n_read != n_written, Op.REDUCE: n_read != 2 * n_written}
        if unequal.get(task.op, False):
            bad.add(frozenset({task.row}))
        for before in task.after:
            if plan.rank_node[plan.rank[before]] != plan.rank_node[task.rank]:
                bad.add(frozenset({task.row, before}))
    return {"format": bad} if bad else {}


def match(steps: list[Step]) -> tuple[dict[int, int], Faults]:
    """Return the send of every receive: the k-th of a pair and tag gets the k-th."""
    sends, recvs = defaultdict(list), defaultdict(list)
    for step in steps:
        if step.op is Op.SEND:
            sends[step.rank, step.peer, step.tag].append(step)
        elif step.op is Op.RECV:
            recvs[step.peer, step.rank, step.tag].append(step)
    faults: Faults = defaultdict(set)
    sender = {}
    for key in {*sends, *recvs}:
        for send, recv in zip(sends[key], recvs[key], strict=False):
            sender[recv.row] = send.row
            if len(send.reads) != len(recv.writes):
                faults["size_mismatch"].add(frozenset({send.row, recv.row}))
        n = min(len(sends[key]), len(recvs[key]))
        faults["unmatched_send"] |= {frozenset({send.row}) for send in sends[key][n:]}
        faults["unmatched_recv"] |= {frozenset({recv.row}) for recv in recvs[key][n:]}
    return sender, {kind: evidence for kind, evidence in faults.items() if evidence}


def deadlocks(steps: list[Step], sender: Mapping[int, int]) -> Faults:
    """Return tasks that never end; if only rendezvous holds them, under a kind of its own."""
    for eager, kind in ((True, "deadlock"), (False, "rendezvous_deadlock")):
        ended = {row for what, row in settle(needs(steps, sender, eager)) if what == END}
        stuck = {step.row for step in steps} - ended
        if stuck:
            return {kind: {frozenset(stuck)}}
    return {}


def closure(steps: list[Step], sender: Mapping[int, int]) -> Past:
    """Return what is before what however early sends complete."""
    return Past(needs(steps, sender, eager=True))


def races(steps: list[Step], past: Past) -> Faults:
    """Return pairs of tasks, one of which writes what the other accesses, without an order."""
    readers, writers = defaultdict(set), defaultdict(set)
    for step in steps:
        for place in step.reads:
            readers[place].add(step.row)
        for place in step.writes:
            writers[place].add(step.row)
    conflicts = {
        frozenset({one, other})
        for place, rows in writers.items()
        for one in rows
        for other in rows | readers[place]
        if one != other
    }
    open_pairs: set[object] = set()
    for one, other in map(tuple, conflicts):
        if not past.precedes((END, one), (START, other)) and not past.precedes(
            (END, other), (START, one)
        ):
            open_pairs.add(frozenset({one, other}))
    return {"race": open_pairs} if open_pairs else {}


def match_orders(steps: list[Step], past: Past) -> Faults:
    """Return messages of one pair and tag whose starts are not in row order."""
    ends = defaultdict(list)
    for step in steps:
        if step.op in (Op.SEND, Op.RECV):
            ends[step.op, step.rank, step.peer, step.tag].append(step.row)
    bad: set[object] = {
        frozenset({one, other})
        for rows in ends.values()
        for i, one in enumerate(rows)
        for other in rows[i + 1 :]
        if not past.precedes((START, one), (START, other))
    }
    return {"match_order": bad} if bad else {}


def overlaps(steps: list[Step]) -> Faults:
    """Return tasks that write an element twice, or one they read as another operand."""
    bad: set[object] = set()
    for step in steps:
        n = len(step.writes)
        index = {place: i for i, place in enumerate(step.writes)}
        clash = len(index) < n
        if step.op in (Op.COPY, Op.REDUCE):
            clash |= any(index.get(place, i % n) != i % n for i, place in enumerate(step.reads))
        if clash:
            bad.add(frozenset({step.row}))
    return {"race": bad} if bad else {}


def forbidden(collective: Collective, steps: list[Step]) -> Faults:
    """Return tasks that write to the input, or whose result nobody can know."""
    has_op = collective.op is not None
    faults: Faults = defaultdict(set)
    for step in steps:
        if any(buffer == "SEND" for buffer, _, _ in step.writes):
            faults["overwritten_input"].add(frozenset({step.row}))
        if (step.op is Op.REDUCE and not has_op) or (step.op is Op.COMPUTE and step.writes):
            faults["postcondition"].add(frozenset({step.row}))
    return dict(faults)


def early_leavers(n_ranks: int, steps: list[Step], past: Past) -> Faults:
    """Return pairs (r, s) where rank r may end its last task before rank s starts any."""
    bad: set[object] = set()
    for leaver in range(n_ranks):
        for other in set(range(n_ranks)) - {leaver}:
            mine = [step.row for step in steps if step.rank == leaver]
            theirs = [step.row for step in steps if step.rank == other]
            if not any(past.precedes((START, t), (END, m)) for m in mine for t in theirs):
                bad.add((leaver, other))
    return {"missing": bad} if bad else {}
