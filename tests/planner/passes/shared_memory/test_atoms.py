"""Atoms: as many as values need, however often the memory that holds them is used again."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.passes.shared_memory import rewrite
from collplan.planner.passes.shared_memory.atoms import Atoms, cut
from collplan.planner.passes.shared_memory.program import NodeTasks
from collplan.planner.passes.shared_memory.values import FOREVER, Tasks
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.verify import verify
from handmade import PlanBook
from oracle import make_spec

SEGMENTS = [{"name": "segment", "max_bytes": 1024}, {"name": "share"}]


def count_atoms(count: int, transport: str, passes: list[dict[str, object]]) -> int:
    """Return how many atoms a proved allreduce by Rabenseifner's algorithm is cut into."""
    counts = []

    def count_them(program: NodeTasks, tasks: Tasks) -> Atoms:
        atoms = cut(program, tasks)
        counts.append(len(atoms.size))
        return atoms

    spec = make_spec("allreduce", "rabenseifner", 0, {"nodes": 3, "ranks_per_node": 24},
                     count=count, datatype="float64", passes=passes)  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrite, "cut", count_them)
        plan = compile_plan(spec.replace(transport=transport))
    verify(plan)
    return sum(counts)


@pytest.mark.parametrize("count", [8152, 8155])
def test_uneven_chunks_make_as_many_atoms_as_even_ones(count):
    assert count_atoms(count, "shared", []) == count_atoms(8192, "shared", [])


@pytest.mark.long
def test_uneven_chunks_in_segments_make_few_more_atoms():
    uneven, even = (count_atoms(count, "messages", SEGMENTS) for count in (8155, 8192))
    assert uneven < 2 * even


def atoms_of(book: PlanBook) -> tuple[Atoms, list[list[int]], list[list[int]]]:
    """Return the atoms of a plan without messages, and those that each task reads and writes."""
    plan = book.plan()
    nobody = np.full(plan.n_tasks, -1)
    tasks = Tasks(plan.op.astype(np.int64), plan.round.astype(np.int64), nobody, nobody)
    atoms = cut(NodeTasks.of(plan), tasks)
    reads = [part.tolist() for part in np.split(atoms.reads.atom, atoms.reads.indptr[1:-1])]
    first = atoms.lives.first
    writes = [list(range(*ends)) for ends in pairwise(first)]
    return atoms, reads, writes


def copies(*moves: tuple[tuple[Buffer, int, int], tuple[Buffer, int, int]]) -> PlanBook:
    book = PlanBook([0])
    for source, dest in moves:
        book.add(Op.COPY, 0, [source], [dest])
    return book


def test_what_memory_holds_next_is_cut_apart():
    """Scratch holds two values: the first is read in halves, the other in quarters."""
    scratch, recv = Buffer.SCRATCH, Buffer.RECV
    atoms, reads, writes = atoms_of(copies(
        ((Buffer.SEND, 0, 8), (scratch, 0, 8)),
        ((scratch, 0, 4), (recv, 0, 4)),
        ((Buffer.SEND, 8, 8), (scratch, 0, 8)),
        ((scratch, 2, 2), (recv, 8, 2)),
    ))  # fmt: skip
    assert [atoms.size[own].tolist() for own in writes] == [[4, 4], [4], [2, 2, 4], [2]]
    assert [atoms.size[own].tolist() for own in reads] == [[4, 4], [4], [2, 2, 4], [2]]
    assert (reads[1], reads[3]) == (writes[0][:1], writes[2][1:2])
    assert atoms.lives.origin[writes[3]].tolist() == reads[2][1:2]
    assert atoms.offset[writes[2]].tolist() == [0, 2, 4]
    ends = [atoms.lives.end[own].tolist() for own in writes]
    assert ends == [[2, 2], [FOREVER], [FOREVER] * 3, [FOREVER]]


def test_cuts_go_back_to_the_origin_and_on_to_every_copy():
    """A read of the last copy cuts all of them, and so does a write over the first."""
    scratch, recv = Buffer.SCRATCH, Buffer.RECV
    atoms, reads, writes = atoms_of(copies(
        ((Buffer.SEND, 0, 8), (scratch, 0, 8)),
        ((scratch, 0, 8), (recv, 4, 8)),
        ((recv, 5, 1), (recv, 0, 1)),
        ((Buffer.SEND, 12, 2), (scratch, 6, 2)),
        ((scratch, 4, 4), (recv, 12, 4)),
    ))  # fmt: skip
    assert [atoms.size[own].tolist() for own in writes] == [
        [1, 1, 2, 2, 2], [1, 1, 2, 2, 2], [1], [2], [2, 2]
    ]  # fmt: skip
    assert reads[4] == [writes[0][3], writes[3][0]]
    assert atoms.lives.origin[writes[1]].tolist() == reads[0]
    assert atoms.lives.end[writes[0]].tolist() == [*[FOREVER] * 4, 3]


def test_operands_next_to_each_other_are_told_apart():
    book = PlanBook([0])
    book.add(Op.REDUCE, 0, [(Buffer.SEND, 0, 12)], [(Buffer.RECV, 0, 6)])
    atoms, (read,), (written,) = atoms_of(book)
    assert (atoms.size[read].tolist(), atoms.offset[read].tolist()) == ([6, 6], [0, 6])
    assert atoms.lives.origin[written].tolist() == written


def test_nothing_is_cut_where_nothing_is_accessed():
    book = PlanBook([0])
    book.add(Op.COMPUTE, 0, [], [])
    atoms, reads, writes = atoms_of(book)
    assert (len(atoms.size), reads, writes) == (0, [[]], [[]])
