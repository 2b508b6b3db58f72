"""Compiling: the same bytes always, one rank's program, clear refusals, remaining counts."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import AlgorithmError, PlanError
from collplan.planner.passes import Pass, pass_registry
from collplan.planner.plan.plan import COLUMNS
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import make_spec
from structures import legal_specs
from tiers import briefly

MACHINE = {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2}


@pytest.mark.parametrize("passes", [(), ({"name": "segment", "max_bytes": 16},)])
def test_one_ranks_program_is_the_plans_restriction(passes):
    """Ranks and calls in place in turns."""
    for in_place in (False, True):
        specs = list(legal_specs(6, MACHINE, count=5, root=4, in_place=in_place, passes=passes))
        for turn, spec in briefly(list(enumerate(specs))[in_place::2], f"{passes}{in_place}"):
            plan = compile_plan(spec, is_proved=False)
            for rank in range(turn // 2 % 3, 6, 3):
                own = compile_plan(spec, rank=rank)
                rows = np.flatnonzero(plan.rank == rank)
                assert own.only_rank == rank
                for name in COLUMNS:
                    column = getattr(plan, name)[rows]
                    assert np.array_equal(getattr(own, name), column), (spec, name)
                assert np.array_equal(own.buffer_sizes[rank], plan.buffer_sizes[rank])
                for mine, row in zip(own.tasks(), rows, strict=True):
                    whole = plan.task(int(row))
                    assert mine.reads == whole.reads
                    assert mine.writes == whole.writes
                    assert [int(rows[before]) for before in mine.after] == list(whole.after)


@pytest.mark.long
def test_the_same_spec_gives_the_same_bytes_under_any_hash_seed(tmp_path):
    program = (
        "import collplan, sys\n"
        "from collplan.planner import compile_plan\n"
        "from collplan.specs import PlanSpec\n"
        "spec = PlanSpec.model_validate_json(sys.argv[1])\n"
        "collplan.save_plan(compile_plan(spec), sys.argv[2])\n"
    )
    spec = make_spec(
        "alltoall", "bruck", 6, MACHINE, count=3, passes=[{"name": "segment", "max_bytes": 16}]
    )
    files = []
    for seed in ("0", "1", "4242"):
        files.append(tmp_path / f"{seed}.plan")
        subprocess.run(
            [sys.executable, "-c", program, spec.to_json(), str(files[-1])],
            env={"PYTHONHASHSEED": seed}, check=True, timeout=120,
        )  # fmt: skip
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.quick
@pytest.mark.parametrize(
    ("kind", "algorithm", "n_ranks", "fields", "message"),
    [
        ("allreduce", "rang", 4, {}, "has no 'rang'; did you mean 'ring'. use one of .*ring"),
        ("allgather", "recursive_doubling", 6, {},
         "6 ranks is not a power of two; use .*'bruck' or .*'ring'"),
        ("allgather", "neighbor_exchange", 5, {}, "5 ranks is odd; use"),
        ("allreduce", "ring", 4, {"op": {"name": "sum", "commutative": False}},
         "not commutative; use .*'linear'"),
        ("bcast", {"name": "knomial", "radix": "x"}, 4, {}, "radix: 'x' is not an integer of at"),
        ("bcast", {"name": "knomial", "radix": 1}, 4, {}, "radix: 1 is not an integer of at least"),
        ("bcast", {"name": "knomial", "width": 3}, 4, {}, "no such option; its options are radix"),
        ("bcast", {"name": "linear", "radix": 3}, 4, {}, "no such option; it has none"),
        ("bcast", "chain", 4, {"passes": ["segmant"]},
         "no 'segmant'; did you mean 'segment'. use one of .*segment"),
        ("bcast", "chain", 4, {"passes": [{"name": "segment", "size": 1}]},
         "segment.size: no such option; use max_bytes"),
        ("bcast", "chain", 4, {"passes": [{"name": "segment", "max_bytes": 0}]},
         "max_bytes: 0 is not at least 1 byte"),
    ],
)  # fmt: skip
def test_refusals_name_the_field_and_the_way_out(kind, algorithm, n_ranks, fields, message):
    with pytest.raises(AlgorithmError, match=message) as raised:
        compile_plan(make_spec(kind, algorithm, n_ranks, count=4, **fields))
    assert "\n" not in str(raised.value)


def test_a_rank_outside_the_machine_is_refused():
    with pytest.raises(AlgorithmError, match="4 is not one of the machine's 4 ranks"):
        compile_plan(make_spec("bcast", "chain", 4, count=1), rank=4)


@pytest.mark.quick
@pytest.mark.parametrize("kind", registry.kinds())
@pytest.mark.parametrize("count", [1, 100_000])
def test_auto_is_always_legal(kind, count):
    for n_ranks in (1, 5, 8):
        ops = ("sum", {"name": "sum", "commutative": False})
        for op in ops if COLLECTIVES[kind].has_op else (None,):
            compile_plan(make_spec(kind, "auto", n_ranks, count=count, op=op))


def test_one_rank_of_many_is_cut_into_atoms_of_its_own():
    """With many ranks and few rows the dense table of atoms gives way to sorted keys."""
    spec = make_spec("allreduce", "ring", 200, count=2000)
    own, whole = compile_plan(spec, rank=199), compile_plan(spec)
    rows = np.flatnonzero(whole.rank == 199)
    assert own.n_tasks == len(rows) == 5 * 199
    n_deps = np.diff(whole.deps.indptr)[rows]
    assert np.array_equal(np.diff(own.deps.indptr), n_deps)


def test_one_rank_proves_for_all_what_a_pass_made(monkeypatch):
    """A pass that sees all ranks and loses dependencies: rank 0 sees it, the others need not."""

    def forget(plan):
        nothing = np.zeros(plan.n_tasks + 1, plan.deps.indptr.dtype)
        deps = Dependencies(nothing, plan.deps.task[:0], plan.deps.kind[:0])
        return plan.replace(deps=deps)

    monkeypatch.setitem(pass_registry, "forget", Pass("forget", forget, "plan", "global"))
    spec = PlanSpec.model_validate(
        {
            "machine": {"ranks_per_node": 4},
            "collective": {"kind": "allreduce", "count": 8},
            "algorithms": "ring",
            "passes": ["forget"],
        }
    )
    for rank in (None, 0):
        with pytest.raises(PlanError):
            compile_plan(spec, rank=rank)
    assert compile_plan(spec, rank=1).only_rank == 1


def test_vectors_longer_than_the_room_of_a_scratch_space_are_refused():
    spec = make_spec("scan", "auto", 8, count=2**34, datatype="uint8")
    verify(compile_plan(spec, is_proved=False))
    with pytest.raises(AlgorithmError, match=r"^collective.count: .* vector of 34,359,738,368"):
        compile_plan(spec.with_count(2**35))


def test_offsets_that_fit_no_key_beside_round_and_rank_do_not_matter():
    spec = make_spec("alltoall", "pairwise", 256, count=2**20, datatype="uint8")
    few, many = compile_plan(spec), compile_plan(spec.with_count(2**40))
    assert np.array_equal(few.peer, many.peer)
    assert np.array_equal(few.deps.task, many.deps.task)
    assert np.array_equal(few.writes.offset << 20, many.writes.offset)
