"""Golden dumps of four ranks: read them. ``python test_text.py`` writes them anew."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.formats.text import headline, to_text
from collplan.planner.plan.plan import Buffer, Op
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.specs import parse_spec
from handmade import PlanBook, binomial_bcast, ring_allreduce

GOLDEN = Path(__file__).parent / "golden"
SPECS = {
    "ring_allreduce": {
        "machine": {"ranks_per_node": 4},
        "collective": {"kind": "allreduce", "count": 8, "datatype": "int32", "op": "sum"},
        "algorithms": "ring",
    },
    "binomial_bcast": {
        "machine": {"nodes": 2, "ranks_per_node": 2},
        "collective": {"kind": "bcast", "count": 3, "datatype": "float64", "root": 1},
        "algorithms": "binomial",
    },
}


def compiled(name, **extra):
    return compile_plan(parse_spec(SPECS[name]), **extra)


@pytest.mark.parametrize("name", SPECS)
def test_golden(name):
    assert to_text(compiled(name)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_every_task_has_a_line():
    plan = ring_allreduce([0, 0, 1, 1])
    rows = [line.split()[0] for line in to_text(plan).splitlines() if line.startswith("  #")]
    assert sorted(rows, key=lambda row: int(row[1:])) == [f"#{row}" for row in range(60)]


def test_kinds_of_dependencies_are_told_apart():
    lines = to_text(binomial_bcast([0] * 4)).splitlines()
    assert any(line.endswith("after start of #0 (intent)") for line in lines)
    assert any(line.endswith("after #1") for line in lines)


def test_what_is_out_of_the_ordinary_is_said():
    book = PlanBook([0, 1])
    piece = (Buffer.RECV, 0, 4)
    first = book.add(Op.COMPUTE, 0, [], [], duration_ns=70, core=3)
    after = [(first, ON_START), (first, INTENT)]
    book.add(Op.SEND, 0, [piece, piece], [], after, peer=1, tag=5, stream=2, stage=2)
    book.add(Op.RECV, 1, [], [piece], peer=0, tag=5, phase=1)
    text = to_text(book.plan(phases=("out", "in")))
    assert "compute 70 ns" in text
    assert "core 3" in text
    send = next(line for line in text.splitlines() if "send to 1 tag 5" in line)
    assert "recv[0:4] + recv[0:4]" in send
    assert "lane 0  stream 2  stage wait  after start of #0, #0 (intent)" in send
    assert "  phase 0 out\n" in text
    assert "  phase 1 in\n" in text


def test_one_rank_has_its_own_tasks_only():
    text = to_text(compiled("ring_allreduce", rank=2))
    assert text.startswith("ring allreduce of 8 int32, sum, 4 ranks, rank 2 only\n")
    assert "rank 2 (" in text
    assert "rank 1 (" not in text


def test_headline_without_a_spec():
    assert headline(PlanBook([0]).plan()) == "a plan of 1 rank"


def test_headline_of_a_barrier():
    barrier = {"machine": {"ranks_per_node": 2}, "collective": {"kind": "barrier"}}
    plan = compile_plan(parse_spec(barrier | {"algorithms": "dissemination"}))
    assert headline(plan) == "dissemination barrier, 2 ranks"


@pytest.mark.parametrize("count", [0, 5])
def test_a_plan_in_which_nothing_moves_has_no_phases_and_is_shown(count):
    moved = {"machine": {"ranks_per_node": 1 if count else 4}}
    plan = compile_plan(parse_spec(moved | {"collective": {"kind": "bcast", "count": count}}))
    assert plan.phases == ()
    first, second, *_ = to_text(plan).splitlines()
    assert first == f"bcast of {count} float64, root 0, {plan.n_ranks} rank{'s' * (not count)}"
    assert second == "0 tasks, 0 sends, 0 rounds, 8 bytes per element"


def test_a_dump_takes_linear_time():
    """Every dependency is read once."""
    ring = {"collective": {"kind": "allreduce", "count": 8}, "algorithms": "ring"}
    plan = compile_plan(parse_spec(ring | {"machine": {"ranks_per_node": 120}}))
    n_read = 0

    class Counted(np.ndarray):
        def tolist(self):
            nonlocal n_read
            n_read += self.size
            return super().tolist()

    deps = replace(plan.deps)
    object.__setattr__(deps, "kind", np.array(deps.kind).view(Counted))
    counted = plan.replace(deps=plan.deps)
    object.__setattr__(counted, "deps", deps)
    assert to_text(counted) == to_text(plan)
    assert n_read == len(plan.deps)


if __name__ == "__main__":
    for golden in SPECS:
        (GOLDEN / f"{golden}.txt").write_text(to_text(compiled(golden)), encoding="utf-8")
