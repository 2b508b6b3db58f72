"""Results of plans, element by element, and a second definition of the collectives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from brute_steps import START, Faults, Place, Step, needs, settle
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import Collective
from neighborhoods import exchanged, n_contributed


@dataclass(frozen=True)
class Value:
    """Element `element` of the contributions of `ranks`, combined in that order."""

    element: int
    ranks: tuple[int, ...]
    troubles: frozenset[str] = frozenset()

    def combined(self, other: Value, commutative: bool) -> Value:
        troubles = self.troubles | other.troubles
        ranks = self.ranks + other.ranks
        if commutative:
            ranks = tuple(sorted(ranks))
        if not troubles and self.element != other.element:
            troubles |= {"postcondition"}
        if len(set(ranks)) < len(ranks):
            troubles |= {"duplicate"}
        elif list(ranks) != list(range(min(ranks, default=0), max(ranks, default=-1) + 1)):
            troubles |= set() if commutative else {"operand_order"}
        return Value(self.element, ranks, troubles)


UNDEFINED = Value(0, (), frozenset({"undefined"}))


def contributions(collective: Collective, size: int) -> dict[Place, Value]:
    """Return what lies where before the collective."""
    if collective.has_edges:
        sizes = [(rank, n_contributed(collective, rank)) for rank in range(size)]
        return {("SEND", rank, i): Value(i, (rank,)) for rank, n in sizes for i in range(n)}
    if collective.regular is not None:
        return vector_contributions(collective, size)
    c, kind = collective.count, collective.kind
    root, in_place = collective.root, collective.in_place
    held = {}
    for rank in range(size):
        n, buffer, first = c, "RECV" if in_place else "SEND", 0
        if kind == "bcast":
            n, buffer = c if rank == root else 0, "RECV"
        elif kind == "scatter":
            n, buffer = c * size if rank == root else 0, "SEND"
        elif kind in ("reduce_scatter_block", "alltoall"):
            n = c * size
        elif kind in ("gather", "reduce") and rank != root:
            buffer = "SEND"
        if kind in ("gather", "allgather") and buffer == "RECV":
            first = rank * c
        for i in range(n):
            held[buffer, rank, first + i] = Value(i, (rank,))
    return held


def promises(collective: Collective, size: int) -> dict[Place, Value]:
    """Return what must lie where after the collective."""
    if collective.has_edges:
        return neighbor_promises(collective, size)
    if collective.regular is not None:
        return vector_promises(collective, size)
    c, kind = collective.count, collective.kind
    root, in_place = collective.root, collective.in_place
    everybody = tuple(range(size))
    wanted = {}
    for rank in everybody:
        for i in range(c):
            blocks = {("RECV", rank, block * c + i): block for block in everybody}
            here = ("RECV", rank, i)
            if kind == "bcast":
                wanted[here] = Value(i, (root,))
            elif kind == "scatter" and not (in_place and rank == root):
                wanted[here] = Value(rank * c + i, (root,))
            elif kind == "allgather" or (kind == "gather" and rank == root):
                wanted |= {place: Value(i, (block,)) for place, block in blocks.items()}
            elif kind == "alltoall":
                wanted |= {place: Value(rank * c + i, (block,)) for place, block in blocks.items()}
            elif kind == "allreduce" or (kind == "reduce" and rank == root):
                wanted[here] = Value(i, everybody)
            elif kind == "reduce_scatter_block":
                wanted[here] = Value(rank * c + i, everybody)
            elif kind == "scan":
                wanted[here] = Value(i, everybody[: rank + 1])
            elif kind == "exscan" and rank > 0:
                wanted[here] = Value(i, everybody[:rank])
    return wanted


def neighbor_promises(collective: Collective, size: int) -> dict[Place, Value]:
    """Return what must lie where after a collective whose ranks send along edges."""
    sizes = [n_contributed(collective, rank) for rank in range(size)]
    most = max(1, *sizes)
    inputs = [np.arange(n) + rank * most for rank, n in enumerate(sizes)]
    wanted = {}
    for rank, buffer in enumerate(exchanged(collective, inputs, -1)):
        for at, number in enumerate(buffer.tolist()):
            if number >= 0:
                wanted["RECV", rank, at] = Value(number % most, (number // most,))
    return wanted


def block_places(collective: Collective, size: int, field: str = "displs") -> list[list[range]]:
    """Return the places of the blocks of every rank's buffer (row)."""
    table = collective.table(size).tolist()
    rows = table if collective.is_pairwise else [table] * size
    if field == "recv_displs":
        rows = [list(column) for column in zip(*rows, strict=True)]
    given = getattr(collective, field, None)
    given = None if given is None else given.array.tolist()
    found = []
    for rank, counts in enumerate(rows):
        displs = given[rank] if collective.is_pairwise and given else given
        begins = displs or [sum(counts[:block]) for block in range(size)]
        found.append([range(b, b + n) for b, n in zip(begins, counts, strict=True)])
    return found


def vector_contributions(collective: Collective, size: int) -> dict[Place, Value]:
    """Return what lies where; an element of a buffer of blocks is known by its place there."""
    kind, root = collective.kind, collective.root
    sent = block_places(collective, size, "send_displs" if kind == "alltoallv" else "displs")
    held = {}
    for rank in range(size):
        in_place = collective.in_place and (kind not in ("gatherv", "scatterv") or rank == root)
        if kind in ("gatherv", "allgatherv"):
            own = sent[rank][rank]
            for i, at in enumerate(own):
                place = ("RECV", rank, at) if in_place else ("SEND", rank, i)
                held[place] = Value(i, (rank,))
            continue
        if kind == "scatterv" and rank != root:
            continue
        blocks = sent[rank]
        if kind == "alltoallv" and in_place:
            blocks = block_places(collective, size, "recv_displs")[rank]
        buffer = "RECV" if in_place and kind != "scatterv" else "SEND"
        # Gaps between blocks are contributed, too.
        end = max((block.stop for block in blocks if block), default=0)
        held |= {(buffer, rank, at): Value(at, (rank,)) for at in range(end)}
    return held


def vector_promises(collective: Collective, size: int) -> dict[Place, Value]:
    """Return what must lie where after a collective whose counts differ per rank."""
    kind, root = collective.kind, collective.root
    everybody = tuple(range(size))
    places = block_places(collective, size, "recv_displs" if kind == "alltoallv" else "displs")
    sent = block_places(collective, size, "send_displs")
    wanted = {}
    for rank in everybody:
        if kind == "allgatherv" or (kind == "gatherv" and rank == root):
            for block, own in enumerate(places[rank]):
                wanted |= {("RECV", rank, at): Value(i, (block,)) for i, at in enumerate(own)}
        elif kind == "alltoallv":
            for block, own in enumerate(places[rank]):
                source = (places if collective.in_place else sent)[block][rank]
                pairs = zip(own, source, strict=True)
                wanted |= {("RECV", rank, at): Value(there, (block,)) for at, there in pairs}
        elif kind == "reduce_scatter" or (
            kind == "scatterv" and not (collective.in_place and rank == root)
        ):
            ranks = everybody if kind == "reduce_scatter" else (root,)
            own = places[rank][rank]
            wanted |= {("RECV", rank, i): Value(at, ranks) for i, at in enumerate(own)}
    return wanted


def final_values(plan: Plan, steps: list[Step], sender: Mapping[int, int]) -> dict[Place, Value]:
    """Execute a plan on values, in some legal eager order."""
    assert plan.spec is not None
    op = plan.spec.collective.op
    values = contributions(plan.spec.collective, plan.n_ranks)
    mail: dict[int, list[Value]] = {}
    for what, row in settle(needs(steps, sender, eager=True)):
        step = steps[row]
        operands = [values.get(place, UNDEFINED) for place in step.reads]
        if step.op is Op.SEND and what == START:
            mail[row] = operands
        if what == START or not step.writes:
            continue
        if step.op is Op.RECV:
            operands = mail[sender[row]]
        elif step.op is Op.REDUCE:
            half = len(operands) // 2
            operands = [
                left.combined(right, op is None or op.commutative)
                for left, right in zip(operands[:half], operands[half:], strict=True)
            ]
        values |= zip(step.writes, operands, strict=True)
    return values


def wrong_contents(plan: Plan, steps: list[Step], sender: Mapping[int, int]) -> Faults:
    """Return places that do not hold what the collective promises."""
    assert plan.spec is not None
    values = final_values(plan, steps, sender)
    faults: Faults = defaultdict(set)
    for place, wanted in promises(plan.spec.collective, plan.n_ranks).items():
        value = values.get(place, UNDEFINED)
        if value == wanted:
            continue
        kinds = set(value.troubles)
        if not kinds:
            lacks = value.element == wanted.element and set(value.ranks) < set(wanted.ranks)
            kinds = {"missing"} if lacks else {"postcondition"}
        for kind in kinds:
            faults[kind].add(place)
    return dict(faults)
