"""What every element holds in the end: plans executed on symbols instead of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays.jit import compiled
from collplan.planner.collective.semantics import Contents, postcondition, precondition
from collplan.planner.errors import (
    DuplicateContributionError,
    MissingContributionError,
    OperandOrderError,
    OverwrittenInputError,
    PostconditionError,
    UndefinedReadError,
)
from collplan.planner.plan.pieces import sorted_unique
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.verify.moves import AddressSpace, Moves
from collplan.planner.verify.symbols import DUPLICATE, MIXED, ORDER, UNDEFINED, Symbols, run_symbols

Ints = npt.NDArray[np.integer[Any]]


def check_contents(plan: Plan, space: AddressSpace, moves: Moves) -> None:
    """Raise where the plan does not compute its collective.

    Raises
    ------
    OverwrittenInputError
        If a task writes to a send buffer.
    UndefinedReadError, DuplicateContributionError, MissingContributionError, \
OperandOrderError, PostconditionError
        For the first wrong element: what it holds, and what it should.
    """
    assert plan.spec is not None
    in_send = plan.writes.buffer == Buffer.SEND
    if in_send.any():
        task = plan.task(int(plan.writes.owner()[np.argmax(in_send)]))
        raise OverwrittenInputError(f"{task} writes to the send buffer, which is read-only")
    collective, size = plan.spec.collective, plan.n_ranks
    before = precondition(collective, size)
    after = postcondition(collective, size)
    starts = [space.base[c.rank, c.buffer] + c.offset for c in (before, after)]
    for contents, start in zip((before, after), starts, strict=True):
        _check_sizes(plan, contents, start)
    edges = atom_edges(moves, starts, (before.count, after.count))
    symbols = run_symbols(
        edges, moves, starts[0], before, size, commutative=collective.is_commutative
    )
    wrong = symbols.first_wrong(starts[1], after)
    if wrong is not None:
        _raise_wrong(plan, space, after, symbols, *wrong)


def check_operations(plan: Plan) -> None:
    """Raise `PostconditionError` for a task whose result the collective leaves open.

    That is a reduction where there is no operation, or a computation that
    writes: executors could not perform the one, and ignore what the other writes.
    """
    assert plan.spec is not None
    collective = plan.spec.collective
    if not collective.has_op and (plan.op == Op.REDUCE).any():
        task = plan.task(int(np.argmax(plan.op == Op.REDUCE)))
        raise PostconditionError(f"{task} reduces, but {collective.kind} has no operation")
    writes = (plan.op == Op.COMPUTE) & (np.diff(plan.writes.indptr) > 0)
    if writes.any():
        task = plan.task(int(np.argmax(writes)))
        raise PostconditionError(f"{task} writes what nothing defines; use copy or reduce")


def _check_sizes(plan: Plan, contents: Contents, start: Ints) -> None:
    sizes = plan.buffer_sizes[contents.rank, contents.buffer]
    short = contents.offset + contents.count > sizes
    if short.any():
        i = int(np.argmax(short))
        name = Buffer(int(contents.buffer[i])).name.lower()
        raise PostconditionError(
            f"rank {contents.rank[i]}: the {name} buffer has {sizes[i]} elements, the collective "
            f"needs {contents.offset[i] + contents.count[i]}"
        )


def atom_edges(moves: Moves, starts: Sequence[Ints], counts: tuple[Ints, ...]) -> Ints:
    """Return addresses that cut all buffers so that every move moves whole atoms.

    What a move reads must not change symbol within one atom it writes, so
    what cuts its source cuts its destination, too. Cuts travel in the order
    of execution: those that later moves make say nothing of earlier ones.
    """
    reduces = moves.right >= 0
    sources = (moves.left, moves.right[reduces])
    lengths = (moves.count, moves.count[reduces])
    ends = [side + n for side, n in zip((*sources, *starts), (*lengths, *counts), strict=True)]
    edges = sorted_unique(
        np.concatenate((*sources, moves.dest, moves.dest + moves.count, *starts, *ends))
    )
    places = [np.searchsorted(edges, side) for side in (moves.left, moves.right, moves.dest)]
    cuts: Ints = _carry_cuts(edges, moves.left, moves.right, moves.dest, moves.count, *places)
    return cuts


@compiled
def _carry_cuts(
    edges: Ints, left: Ints, right: Ints, dest: Ints, count: Ints,
    left_place: Ints, right_place: Ints, dest_place: Ints,
) -> Any:  # fmt: skip
    """Carry every cut inside a source to the destination, move by move; return all cuts.

    Cuts are a list linked in order of address. Ends of moves are cuts from the
    beginning, so a walk begins where its move does and ends where it ends.
    """
    n = len(edges)
    address, following = edges.copy(), np.arange(1, n + 1)
    for move in range(len(dest)):
        for operand in range(2):
            source = left[move] if operand == 0 else right[move]
            if source < 0:
                continue
            shift = dest[move] - source
            at = dest_place[move]
            cut = following[left_place[move] if operand == 0 else right_place[move]]
            while address[cut] < source + count[move]:
                wanted = address[cut] + shift
                while address[following[at]] < wanted:
                    at = following[at]
                if address[following[at]] != wanted:
                    if n == len(address):
                        address = np.concatenate((address, np.empty_like(address)))
                        following = np.concatenate((following, np.empty_like(following)))
                    address[n], following[n] = wanted, following[at]
                    following[at] = n
                    n += 1
                at = following[at]
                cut = following[cut]
    cuts = np.empty(n, np.int64)
    at = 0
    for i in range(n):
        cuts[i] = address[at]
        at = following[at]
    return cuts


def _raise_wrong(
    plan: Plan, space: AddressSpace, after: Contents, symbols: Symbols, row: int, atom: int
) -> None:
    """Raise for the first element of `atom`, which contents row `row` covers."""
    rank = int(after.rank[row])
    address = int(symbols.edges[atom])
    first_address = int(space.base[rank, after.buffer[row]] + after.offset[row])
    logical = int(after.logical[row]) + address - first_address
    place = f"rank {rank} recv[{int(after.offset[row]) + address - first_address}]"
    first, last = int(after.first[row]), int(after.last[row])
    wanted = f"element {logical} of rank {first}"
    if last > first + 1:
        wanted = f"elements {logical} of ranks {first} to {last - 1}, combined"
    held = symbols.describe(atom)
    text = f"{place} holds {held}, not {wanted}"
    failure = symbols.failure(atom)
    if failure is not None:
        kind, task = failure
        text += f"; see {plan.task(task)}" if task >= 0 else ""
        errors: dict[int, type[PostconditionError]] = {
            UNDEFINED: UndefinedReadError,
            DUPLICATE: DuplicateContributionError,
            ORDER: OperandOrderError,
            MIXED: PostconditionError,
        }
        raise errors[kind](text)
    held_ranks = symbols.ranks(atom)
    wanted_ranks = set(range(first, last))
    if symbols.logical(atom) == logical and held_ranks < wanted_ranks:
        missing: Any = sorted(wanted_ranks - held_ranks)
        raise MissingContributionError(f"{text}: rank {missing[0]} is missing")
    raise PostconditionError(text)
