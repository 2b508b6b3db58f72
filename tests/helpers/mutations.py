"""Corruptions of plans: what a broken algorithm, pass or file could do to one.

Every corruption is a small function on a `Draft`, a plan taken apart into
rows; `corrupt` applies one by name. Some leave a plan harmless (an edge that
others imply is dropped): which ones is for the tests to find out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT, ON_START
from drafts import Draft, NotApplicableError, Piece, Row, pick, pick_pair

Corruption = Callable[[Draft, random.Random], None]
CORRUPTIONS: dict[str, Corruption] = {}


def corruption(function: Corruption) -> Corruption:
    CORRUPTIONS[function.__name__] = function
    return function


def corrupt(plan: Plan, kind: str, rng: random.Random) -> Plan | None:
    """Return a corrupted copy of `plan`; None where `kind` finds nothing to change in it."""
    draft = Draft(plan)
    before = draft.contents()
    try:
        CORRUPTIONS[kind](draft, rng)
    except NotApplicableError:
        return None
    return draft.to_plan() if draft.contents() != before else None


@corruption
def drop_recv(draft: Draft, rng: random.Random) -> None:
    draft.remove(pick(rng, draft.having(Op.RECV)))


@corruption
def drop_send(draft: Draft, rng: random.Random) -> None:
    draft.remove(pick(rng, draft.having(Op.SEND)))


@corruption
def drop_message(draft: Draft, rng: random.Random) -> None:
    recv = pick(rng, draft.having(Op.RECV))
    draft.remove(draft.partner(recv))
    draft.remove(recv)


@corruption
def drop_local_task(draft: Draft, rng: random.Random) -> None:
    draft.remove(pick(rng, draft.having(Op.COPY, Op.REDUCE)))


@corruption
def double_end(draft: Draft, rng: random.Random) -> None:
    """A send or receive twice, one after the other."""
    row = pick(rng, draft.having(Op.SEND, Op.RECV))
    again = row.twin()
    again.waits.append((row, 0))
    draft.insert_after(row, again)


@corruption
def double_message(draft: Draft, rng: random.Random) -> None:
    """A message sent and received twice; the second copy may come at any time."""
    send = pick(rng, draft.having(Op.SEND))
    for row in (send, draft.partner(send)):
        again = row.twin()
        if rng.random() < 0.5:
            again.waits.append((row, rng.choice((0, ON_START))))
        draft.insert_after(row, again)


@corruption
def swap_tags(draft: Draft, rng: random.Random) -> None:
    one = pick(rng, draft.having(Op.SEND, Op.RECV))
    rivals = [r for r in draft.having(Op(one.op)) if r.columns["tag"] != one.columns["tag"]]
    other = pick(rng, [r for r in rivals if r.rank == one.rank] or rivals)
    one.columns["tag"], other.columns["tag"] = other.columns["tag"], one.columns["tag"]


@corruption
def change_tag(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, draft.having(Op.SEND, Op.RECV))
    row.columns["tag"] = max(0, row.columns["tag"] + rng.choice((-1, 1)))


@corruption
def share_tag(draft: Draft, rng: random.Random) -> None:
    """All messages of a pair get one tag, at both ends, perhaps in a stated order."""
    send = pick(rng, draft.having(Op.SEND))
    ends = (send.rank, send.columns["peer"])
    is_chained = rng.random() < 0.5
    for op, pair in ((Op.SEND, ends), (Op.RECV, ends[::-1])):
        rows = [r for r in draft.having(op) if (r.rank, r.columns["peer"]) == pair]
        for before, after in pairwise(rows):
            if is_chained:
                after.waits.append((before, ON_START | INTENT))
        for row in rows:
            row.columns["tag"] = 0
        if len(rows) < 2:
            raise NotApplicableError


@corruption
def swap_peers(draft: Draft, rng: random.Random) -> None:
    one = pick(rng, draft.having(Op.SEND, Op.RECV))
    other = pick(rng, [r for r in draft.having(Op(one.op)) if r.rank == one.rank and r is not one])
    one.columns["peer"], other.columns["peer"] = other.columns["peer"], one.columns["peer"]


@corruption
def send_to_itself(draft: Draft, rng: random.Random) -> None:
    """A message's receive moves to the sender's own rank."""
    send = pick(rng, draft.having(Op.SEND))
    recv = draft.partner(send)
    for name in ("rank", "core", "peer"):
        recv.columns[name] = send.columns[name] if name != "peer" else send.rank
    send.columns["peer"] = send.rank
    for row in draft.rows:
        row.waits = [e for e in row.waits if e[0] is not recv or row.rank == recv.rank]
    recv.waits = [edge for edge in recv.waits if edge[0].rank == recv.rank]


def _shift(row_pieces: list[Piece], rng: random.Random) -> None:
    if not row_pieces:
        raise NotApplicableError
    i = rng.randrange(len(row_pieces))
    buffer, offset, count, pattern = row_pieces[i]
    row_pieces[i] = (buffer, max(0, offset + rng.choice((-1, 1))), count, pattern)


@corruption
def move_read(draft: Draft, rng: random.Random) -> None:
    _shift(pick(rng, draft.having(Op.SEND, Op.COPY, Op.REDUCE)).reads, rng)


@corruption
def move_write(draft: Draft, rng: random.Random) -> None:
    _shift(pick(rng, draft.having(Op.RECV, Op.COPY, Op.REDUCE)).writes, rng)


@corruption
def move_both(draft: Draft, rng: random.Random) -> None:
    """Sender and receiver agree on wrong elements."""
    send = pick(rng, [r for r in draft.having(Op.SEND) if r.reads])
    side = draft.partner(send).writes
    step = rng.choice((-1, 1))
    for pieces in (send.reads, side):
        buffer, offset, count, pattern = pieces[0]
        pieces[0] = (buffer, max(0, offset + step), count, pattern)


@corruption
def change_count(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, [r for r in draft.rows if r.reads or r.writes])
    pieces = rng.choice([side for side in (row.reads, row.writes) if side])
    i = rng.randrange(len(pieces))
    buffer, offset, count, pattern = pieces[i]
    pieces[i] = (buffer, offset, max(0, count + rng.choice((-1, 1))), pattern)


@corruption
def shrink_consistently(draft: Draft, rng: random.Random) -> None:
    """A message or local task moves fewer elements, perhaps none, at both its sides."""
    row = pick(rng, [r for r in draft.having(Op.SEND, Op.COPY, Op.REDUCE) if r.reads])
    target = draft.partner(row) if row.op == Op.SEND else row
    pieces = row.reads + target.writes
    if any(piece[2] != pieces[0][2] or piece[3] != 0 for piece in pieces) or not pieces[0][2]:
        raise NotApplicableError
    count = rng.choice((0, pieces[0][2] - 1))
    row.reads = [(b, o, count, p) for b, o, _, p in row.reads]
    target.writes = [(b, o, count, p) for b, o, _, p in target.writes]


def _contiguous(draft: Draft, rng: random.Random) -> tuple[list[Piece], int]:
    sides = [
        (side, i)
        for row in draft.rows
        for side in (row.reads, row.writes)
        for i, piece in enumerate(side)
        if piece[2] >= 2 and piece[3] == 0
    ]
    if not sides:
        raise NotApplicableError
    return rng.choice(sides)


@corruption
def split_extent(draft: Draft, rng: random.Random) -> None:
    """An extent becomes two, in the same order or the other."""
    pieces, i = _contiguous(draft, rng)
    buffer, offset, count, _ = pieces[i]
    first = rng.randrange(1, count)
    parts = [(buffer, offset, first, 0), (buffer, offset + first, count - first, 0)]
    pieces[i : i + 1] = parts if rng.random() < 0.5 else parts[::-1]


@corruption
def make_strided(draft: Draft, rng: random.Random) -> None:
    """An extent becomes a pattern of single elements, forwards, backwards or apart."""
    pieces, i = _contiguous(draft, rng)
    buffer, offset, count, _ = pieces[i]
    stride = rng.choice((1, 1, -1, 2, 0))
    first = offset + count - 1 if stride < 0 else offset
    is_outer = rng.random() < 0.5
    draft.patterns.append([0, 1, stride, count] if is_outer else [stride, count, 0, 1])
    pieces[i] = (buffer, first, 1, len(draft.patterns) - 1)


def _waiting(draft: Draft, rng: random.Random) -> Row:
    return pick(rng, [row for row in draft.rows if row.waits])


@corruption
def drop_dependency(draft: Draft, rng: random.Random) -> None:
    row = _waiting(draft, rng)
    row.waits.pop(rng.randrange(len(row.waits)))


@corruption
def drop_dependencies(draft: Draft, rng: random.Random) -> None:
    _waiting(draft, rng).waits = []


@corruption
def drop_dependents(draft: Draft, rng: random.Random) -> None:
    """Nobody waits for a task any more."""
    row = rng.choice(_waiting(draft, rng).waits)[0]
    for other in draft.rows:
        other.waits = [edge for edge in other.waits if edge[0] is not row]


@corruption
def wait_for_start_only(draft: Draft, rng: random.Random) -> None:
    row = _waiting(draft, rng)
    i = rng.randrange(len(row.waits))
    before, kind = row.waits[i]
    row.waits[i] = (before, kind ^ ON_START)


@corruption
def back_edge(draft: Draft, rng: random.Random) -> None:
    """A task waits for what waits for it, or for itself."""
    row = _waiting(draft, rng)
    before = rng.choice(row.waits)[0]
    target = rng.choice((row, row, before))
    before.waits.append((target, rng.choice((0, ON_START))))


@corruption
def add_edge(draft: Draft, rng: random.Random) -> None:
    """Any task waits for any other of its rank, earlier or later."""
    row = pick(rng, draft.rows)
    other = pick(rng, [r for r in draft.rows if r.rank == row.rank and r is not row])
    row.waits.append((other, rng.choice((0, 0, ON_START, INTENT))))


@corruption
def detour(draft: Draft, rng: random.Random) -> None:
    """An edge becomes a token to another rank and back; perhaps a link of it is weak."""
    row = _waiting(draft, rng)
    last = row.waits.pop(rng.randrange(len(row.waits)))
    far = pick(rng, [r for r in draft.rows if r.rank != row.rank])
    tag = 1 + max(r.columns["tag"] for r in draft.rows)
    for here, there in ((row, far), (far, row)):
        send, recv = (
            Row(a.columns | {"op": op, "peer": b.rank, "tag": tag, "stream": -1}, [], [])
            for op, a, b in ((Op.SEND, here, there), (Op.RECV, there, here))
        )
        # Receives wait for nothing: their completion says that the send has started.
        send.waits = [last] if rng.random() < 0.9 else []
        draft.rows += [send, recv]
        last = (recv, ON_START if rng.random() < 0.1 else 0)
    row.waits.append(last)


@corruption
def send_before_recv(draft: Draft, rng: random.Random) -> None:
    """A receive waits for the completion of its rank's own send: fine until rendezvous."""
    recv = pick(rng, draft.having(Op.RECV))
    send = pick(rng, [r for r in draft.having(Op.SEND) if r.rank == recv.rank])
    recv.waits.append((send, 0))


@corruption
def redirect_edge(draft: Draft, rng: random.Random) -> None:
    row = _waiting(draft, rng)
    i = rng.randrange(len(row.waits))
    other = pick(rng, [r for r in draft.rows if r.rank == row.waits[i][0].rank])
    row.waits[i] = (other, row.waits[i][1])


@corruption
def wait_for_stranger(draft: Draft, rng: random.Random) -> None:
    """A task waits for one of another rank, which may be on another node."""
    row = pick(rng, draft.rows)
    other = pick(rng, [r for r in draft.rows if r.rank != row.rank])
    row.waits.append((other, 0))


@corruption
def swap_operands(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, [r for r in draft.having(Op.REDUCE) if len(r.reads) == 2])
    row.reads.reverse()


@corruption
def double_contribution(draft: Draft, rng: random.Random) -> None:
    """A reduction is done again after it is done; who waits for one waits for the other."""
    row = pick(rng, draft.having(Op.REDUCE))
    again = row.twin()
    for other in draft.rows:
        if any(before is row for before, _ in other.waits):
            other.waits.append((again, 0))
    again.waits = [(row, 0)]
    draft.insert_after(row, again)


@corruption
def same_operand_twice(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, [r for r in draft.having(Op.REDUCE) if len(r.reads) == 2])
    row.reads = [rng.choice(row.reads)] * 2


@corruption
def reduce_becomes_copy(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, [r for r in draft.having(Op.REDUCE) if len(r.reads) == 2])
    row.columns["op"] = Op.COPY
    row.reads = [rng.choice(row.reads)]


@corruption
def copy_becomes_reduce(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, draft.having(Op.COPY))
    row.columns["op"] = Op.REDUCE
    row.reads = row.reads + rng.choice((row.reads, row.writes))


@corruption
def local_becomes_compute(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, draft.having(Op.COPY, Op.REDUCE))
    row.columns["op"] = Op.COMPUTE


@corruption
def insert_compute(draft: Draft, rng: random.Random) -> None:
    """A harmless pause, or one that stands where its neighbor's data are."""
    row = pick(rng, draft.rows)
    pause = row.twin()
    pause.columns |= {"op": Op.COMPUTE, "peer": -1, "tag": -1, "stream": -1, "lane": -1,
                      "apart": 0}  # fmt: skip
    pause.writes = []
    pause.waits = rng.choice(([], [(row, 0)], list(row.waits)))
    draft.insert_after(row, pause)


@corruption
def redirect_write(draft: Draft, rng: random.Random) -> None:
    """A result goes to another buffer, or elsewhere in its own."""
    row = pick(rng, [r for r in draft.having(Op.RECV, Op.COPY, Op.REDUCE) if r.writes])
    _redirect(draft, rng, row, row.writes)


@corruption
def redirect_read(draft: Draft, rng: random.Random) -> None:
    row = pick(rng, [r for r in draft.having(Op.SEND, Op.COPY, Op.REDUCE) if r.reads])
    _redirect(draft, rng, row, row.reads)


def _redirect(draft: Draft, rng: random.Random, row: Row, pieces: list[Piece]) -> None:
    i = rng.randrange(len(pieces))
    _, _, count, pattern = pieces[i]
    targets = [b for b in (Buffer.SEND, Buffer.RECV, Buffer.SCRATCH) if draft.size(row, b) >= count]
    if not targets:
        raise NotApplicableError
    buffer = rng.choice(targets)
    offset = rng.randint(0, draft.size(row, buffer) - count)
    pieces[i] = (int(buffer), offset, count, pattern)


@corruption
def swap_contents(draft: Draft, rng: random.Random) -> None:
    """Two tasks of a rank exchange what they read or write."""
    one = pick(rng, [r for r in draft.rows if r.reads or r.writes])
    like = [r for r in draft.rows if (r.op, r.rank) == (one.op, one.rank) and r is not one]
    other = pick(rng, like)
    if one.reads and (not one.writes or rng.random() < 0.5):
        one.reads, other.reads = other.reads, one.reads
    else:
        one.writes, other.writes = other.writes, one.writes


@corruption
def swap_rows(draft: Draft, rng: random.Random) -> None:
    """Two rows of a rank change places; their dependencies stay."""
    one, other = pick_pair(rng, draft.rows)
    i, j = draft.rows.index(one), draft.rows.index(other)
    draft.rows[i], draft.rows[j] = other, one


@corruption
def shuffle_rows(draft: Draft, rng: random.Random) -> None:
    """All rows in another order: harmless where tags tell all messages apart."""
    rng.shuffle(draft.rows)
