"""Proof of contents: after a plan, every buffer holds what its collective promises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.collective.semantics import Contents, postcondition, precondition
from collplan.planner.errors import (
    IrreproducibleError,
    MissingContributionError,
    OverwrittenInputError,
    PostconditionError,
    UnequalBitsError,
)
from collplan.planner.plan.address_space import AddressSpace
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.verify.association import Association, Difference, shared_results
from collplan.planner.verify.moves import Moves
from collplan.planner.verify.symbols import FAILURES, Symbols, atom_edges, run_symbols
from collplan.planner.verify.travel import rules_of, turning_points
from collplan.specs.collectives.collective import traits_of


@dataclass(frozen=True, eq=False)
class Results:
    """The results of a plan, which are proved, and how their contributions are combined.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
    start : ndarray of int64
        Addresses of the expected contents.
    after : Contents
        Expected contents of all ranks of the plan.
    trees : Association or None
        Trees of combinations; None if they change no bit, or were not asked for.
    """

    plan: Plan
    space: AddressSpace
    start: Ints
    after: Contents
    trees: Association | None

    def beside_rank_tree(self) -> str | None:
        """Return words for the first element that is not combined in the rank tree, or None."""
        assert self.trees is not None
        found = self.trees.beside_rank_tree(self.start, self.after)
        return None if found is None else self._words(found, "the rank tree is")

    def beside(self, other: Results) -> str | None:
        """Return words for the first element that another plan combines in another tree, or None.

        Both plans compute the same collective on the same number of ranks.
        """
        assert self.trees is not None
        assert other.trees is not None
        found = self.trees.beside(other.trees, (self.start, other.start), self.after)
        return None if found is None else self._words(found, "the uncut plan as")

    def _words(self, found: Difference, what: str) -> str:
        rank, buffer = (int(of[found.rows[0]]) for of in (self.after.rank, self.after.buffer))
        element = found.address - int(self.space.base[rank, buffer])
        return (
            f"rank {rank} recv[{element}] holds the ranks combined as {found.trees[0]}, {what} "
            f"{found.trees[1]}"
        )


def check_contents(
    plan: Plan, space: AddressSpace, moves: Moves, *, has_trees: bool = False
) -> Results:
    """Raise `PostconditionError` where the plan does not compute its collective.

    Parameters
    ----------
    plan : Plan
    space : AddressSpace
    moves : Moves
    has_trees : bool
        Whether to return the trees of combinations of all results of an operation that rounds.

    Raises
    ------
    OverwrittenInputError
        If a task writes to a send buffer.
    UndefinedReadError, DuplicateContributionError, MissingContributionError, \
OperandOrderError, PostconditionError
        For the first wrong element, with its actual and its expected contents.
    """
    assert plan.spec is not None
    in_send = plan.writes.buffer == Buffer.SEND
    if (i := csr.first_true(in_send)) >= 0:
        task = plan.task(int(plan.writes.owner()[i]))
        raise OverwrittenInputError(f"{task} writes to the send buffer, which is read-only")
    collective = plan.spec.collective
    n_ranks = plan.n_ranks * plan.n_copies
    before = precondition(collective, n_ranks).of_first(plan.n_ranks)
    n_first = None if plan.folding is None else plan.n_ranks
    after = postcondition(collective, n_ranks, n_first)
    is_shared = shared_results(collective, n_ranks, after)
    rules = rules_of(plan, collective, collective.rounds and bool(is_shared.any() or has_trees))
    starts = [space.base[c.rank, c.buffer] + c.offset for c in (before, after)]
    for contents, start in zip((before, after), starts, strict=True):
        _check_sizes(plan, contents, start)
    cuts = turning_points(plan, before, starts[0])
    edges = atom_edges(moves, starts, (before.count, after.count), cuts)
    symbols = run_symbols(edges, moves, starts[0], before, rules)
    wrong = symbols.first_wrong(starts[1], after)
    if wrong is not None:
        _raise_wrong(plan, space, after, symbols, moves, *wrong)
    if not rules.rounds:
        return Results(plan, space, starts[1], after, None)
    generators = [] if plan.folding is None else plan.folding.motion.generators
    trees = Association(symbols.edges, symbols.tree, symbols.pairs, rules, generators)
    ends, shared = starts[1][is_shared], after.take(is_shared)
    found = trees.first_difference(ends, shared)
    if found is not None:
        _raise_unequal(plan, space, shared, found)
    return Results(plan, space, starts[1], after, trees)


def leaves_order_open(plan: Plan) -> bool:
    """Return whether MPI's own collectives combine contributions, in an order of their own."""
    return any(phase.is_native and traits_of(phase.kind).has_op for phase in plan.phases)


def require_own_order(plan: Plan) -> None:
    """Raise `IrreproducibleError` if the level of a plan does not allow its calls of MPI's own."""
    level = None if plan.spec is None else plan.spec.collective.level
    if level not in (None, "ranks") and leaves_order_open(plan):
        raise IrreproducibleError(
            f"collective.reproducible is {level}, but the MPI library decides in which order its "
            "own collectives combine operands; use other algorithms than native, or ask for ranks"
        )


def require_rank_tree(results: Results) -> None:
    """Raise `IrreproducibleError` for the first result that is not combined in the rank tree."""
    if (words := results.beside_rank_tree()) is not None:
        raise IrreproducibleError(
            f"{words}: collective.reproducible is placements; use algorithms that combine in the "
            "rank tree, as rank_tree, or ask for runs"
        )


def _raise_unequal(plan: Plan, space: AddressSpace, after: Contents, found: Difference) -> None:
    """Raise for an element that two ranks get from different combinations."""
    assert plan.spec is not None
    collective = plan.spec.collective
    assert collective.op is not None
    row, other = found.rows
    rank = int(after.rank[row])
    element = found.address - int(space.base[rank, after.buffer[row]])
    beside = f"rank {after.rank[other]}" if row != other else "its copy on another node"
    raise UnequalBitsError(
        f"rank {rank} recv[{element}] holds the ranks combined as {found.trees[0]}, {beside} as "
        f"{found.trees[1]}: {collective.op.name} of {collective.datatype} rounds, so that they may "
        "differ in bits; combine in one order on all ranks, or use an operation that does not round"
    )


def check_operations(plan: Plan) -> None:
    """Raise `PostconditionError` for a task whose result is undefined.

    This is a reduction in a collective without an operation, which executors cannot perform, or
    a computation that writes, whose writes executors ignore.
    """
    assert plan.spec is not None
    collective = plan.spec.collective
    if not collective.has_op and (i := csr.first_true(plan.op == Op.REDUCE)) >= 0:
        problem = f"reduces, but {collective.kind} has no operation; use a copy"
        raise PostconditionError(f"{plan.task(i)} {problem}, {plan.round_of(i)}")
    writes = (plan.op == Op.COMPUTE) & (csr.lengths_of(plan.writes.indptr) > 0)
    if (i := csr.first_true(writes)) >= 0:
        raise PostconditionError(f"{plan.task(i)} writes what nothing defines; use copy or reduce")


def _check_sizes(plan: Plan, contents: Contents, start: Ints) -> None:
    sizes = plan.buffer_sizes[contents.rank, contents.buffer]
    short = contents.offset + contents.count > sizes
    if (i := csr.first_true(short)) >= 0:
        name = Buffer(int(contents.buffer[i])).name.lower()
        raise PostconditionError(
            f"rank {contents.rank[i]}: the {name} buffer has {sizes[i]} elements, the collective "
            f"needs {contents.offset[i] + contents.count[i]}"
        )


def _raise_wrong(
    plan: Plan,
    space: AddressSpace,
    after: Contents,
    symbols: Symbols,
    moves: Moves,
    row: int,
    atom: int,
) -> None:
    """Raise for the first element of an atom, which lies in row `row` of the expected contents."""
    rank, first, last = (int(column[row]) for column in (after.rank, after.first, after.last))
    element = int(symbols.edges[atom] - space.base[rank, after.buffer[row]])
    logical = int(after.logical[row] - after.offset[row]) + element
    wanted = f"element {logical} of rank {first}"
    if last > first + 1:
        wanted = f"elements {logical} of ranks {first} to {last - 1}, combined"
    text = f"rank {rank} recv[{element}] holds {symbols.describe(atom)}, not {wanted}"
    term, task = int(symbols.term[atom]), int(symbols.culprit[atom])
    if term < 0 and task >= 0:
        raise FAILURES[term][1](f"{text}; see {plan.task(task)}, {plan.round_of(task)}")
    writer = _last_writer(plan, moves, int(symbols.edges[atom]))
    if term < 0:
        raise FAILURES[term][1](text + writer)
    held, promised = symbols.ranks(atom), set(range(first, last))
    if symbols.index[atom] == logical and held < promised:
        raise MissingContributionError(f"{text}: rank {min(promised - held)} is missing{writer}")
    raise PostconditionError(text + writer)


def _last_writer(plan: Plan, moves: Moves, address: int) -> str:
    """Return words for the task that wrote an element last, and for its round."""
    writes = np.flatnonzero((moves.dest <= address) & (address < moves.dest + moves.length))
    if not len(writes):
        if len(plan.phases) != 1:
            return ", as nothing writes it"
        n_rounds = int(plan.round.max(initial=-1)) + 1
        if not n_rounds:
            return f", as {plan.phases[0].name} does nothing"
        rounds = "round" if n_rounds == 1 else f"{n_rounds} rounds"
        return f", as nothing writes it in the {rounds} of {plan.phases[0].name}"
    task = int(moves.task[writes[-1]])
    return f"; {plan.task(task)} wrote it last, {plan.round_of(task)}"
