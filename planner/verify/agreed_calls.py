"""Check that all members of a group make the same call of an MPI collective."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from collplan.planner.errors import CallError, DeadlockError
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.phases import GroupCall
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.rewrite.calls import (
    CALLED,
    COMBINING,
    CallRows,
    calls_of,
    has_calls,
    write_barriers,
    write_out,
)
from collplan.planner.verify.order import completion_order
from collplan.specs.collectives.collective import traits_of
from collplan.specs.errors import show_value


def without_calls(plan: Plan) -> Plan:
    """Return a plan with its calls written out as messages, if their members agree.

    Parameters
    ----------
    plan : Plan
        A well-formed plan of all ranks.

    Raises
    ------
    CallError
        If the members disagree. The message names the call and the member.
    DeadlockError
        If calls wait for each other. MPI may block each member of a call until all members
        have made it.
    """
    if not has_calls(plan):
        return plan
    _check_members(plan)
    for call in calls_of(plan):
        _check_sizes(plan, call)
    barriers = write_barriers(plan)
    try:
        completion_order(barriers, *match_messages(barriers))
    except DeadlockError as error:
        raise DeadlockError(f"{error} (each call as a barrier of its group)") from error
    return write_out(plan)


def _check_members(plan: Plan) -> None:
    """Raise `CallError` unless each member of a group has one task and all name the same root."""
    found: dict[tuple[int, int, int], int] = {}
    for row in np.flatnonzero(plan.op == Op.CALL).tolist():
        number, rank, tag = int(plan.phase[row]), int(plan.rank[row]), int(plan.tag[row])
        if (number, rank, tag) in found:
            raise CallError(
                f"{plan.task(row)}: the rank calls it twice in phase {number} "
                f"({plan.phases[number]})"
            )
        found[number, rank, tag] = row
    in_groups = set()
    for number, phase in enumerate(plan.phases):
        for call, tags in zip(phase.calls, phase.call_tags, strict=True):
            keys = [(number, *key) for key in zip(call.members, tags, strict=True)]
            in_groups.update(keys)
            _check_call(plan, number, call, {key[1]: found[key] for key in keys if key in found})
    for key, row in found.items():
        if key not in in_groups:
            raise CallError(
                f"{plan.task(row)}: rank {key[1]} has no group {key[2]} in phase {key[0]}"
            )


def _check_call(plan: Plan, number: int, call: GroupCall, rows: dict[int, int]) -> None:
    phase, members = plan.phases[number], call.members
    name = f"the group of ranks {', '.join(map(str, members[:3]))}{', ...' * (len(members) > 3)}"
    if len(set(members)) < len(members):
        raise CallError(f"phase {number}: {name} has a rank twice")
    missing = [rank for rank in members if rank not in rows]
    if missing:
        raise CallError(
            f"phase {number} ({phase}): rank {missing[0]} is in {name}, but does not call it"
        )
    if phase.kind not in CALLED:
        raise CallError(
            f"phase {number}: {show_value(phase.kind)} is no collective that MPI could compute"
        )
    roots = {int(plan.peer[row]) for row in rows.values()}
    if traits_of(phase.kind).is_rooted:
        wrong = [row for row in rows.values() if int(plan.peer[row]) not in members]
        if wrong:
            raise CallError(f"{plan.task(wrong[0])}: its root is not of the group")
        if len(roots) > 1:
            first, other = (_first_with(plan, rows, root) for root in sorted(roots)[:2])
            raise CallError(f"{plan.task(first)} and {plan.task(other)} name different roots")
    elif roots != {NONE}:
        row = _first_with(plan, rows, max(roots))
        raise CallError(f"{plan.task(row)} names a root, but {phase.kind} has none")


def _first_with(plan: Plan, rows: dict[int, int], root: int) -> int:
    return next(row for row in rows.values() if int(plan.peer[row]) == root)


def _check_sizes(plan: Plan, call: CallRows) -> None:
    """Raise `CallError` where the sizes that members read and write do not fit together."""
    for position, wanted_read, wanted_written in _wanted(call):
        row = int(call.rows[position])
        for verb, n, wanted in (
            ("reads", call.n_read[position], wanted_read),
            ("writes", call.n_written[position], wanted_written),
        ):
            if n != wanted:
                raise CallError(
                    f"{plan.task(row)} {verb} {n} elements, {call.kind} with the other members' "
                    f"takes {wanted}"
                )


def _wanted(call: CallRows) -> Iterator[tuple[int, int, int]]:
    """Yield, for every member, its position and the elements it must read and write."""
    kind, n = call.kind, len(call.rows)
    read, written = call.n_read.tolist(), call.n_written.tolist()
    traits = traits_of(kind)
    vector = read[call.root if kind in ("bcast", "scatter") else 0]
    for position in range(n):
        is_root = position == call.root
        if not traits.has_data:
            wanted = 0, 0
        elif traits.is_pairwise:
            wanted = vector - vector % n, vector - vector % n
        elif kind == "bcast":
            wanted = (vector, 0) if is_root else (0, vector)
        elif kind == "scatter":
            # The root writes nothing, but also has a block.
            wanted = (max(vector, sum(written)), 0) if is_root else (0, written[position])
        elif kind == "reduce_scatter_block":
            wanted = sum(written), written[position]
        elif kind == "gather":
            wanted = read[position], sum(read) if is_root else 0
        elif kind == "allgather":
            wanted = read[position], sum(read)
        else:
            assert kind in COMBINING
            has_result = position > 0 if kind == "exscan" else is_root or kind != "reduce"
            wanted = vector, vector if has_result else 0
        yield (position, *wanted)
