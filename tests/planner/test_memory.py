"""Memory: plans that do not fit are refused, and limits of processes and containers count."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.memory import free_bytes
from collplan.specs import PlanSpec

TOO_LARGE = {
    "messages": {"collective": {"kind": "allgather", "count": 1}, "algorithms": "ring"},
    "messages of one round": {
        "collective": {"kind": "alltoall", "count": 1},
        "algorithms": "linear",
    },
    "staged blocks": {
        "collective": {"kind": "alltoall", "count": 1},
        "decomposition": "hierarchical",
        "transport": "shared",
    },
    "segments": {
        "collective": {"kind": "bcast", "count": 2**40},
        "algorithms": "binomial",
        "passes": [{"name": "segment", "max_bytes": 1}],
    },
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_plans_that_do_not_fit_into_memory_are_refused_before_it_is_taken(case, monkeypatch):
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 2**30)
    machine = {"nodes": 2048, "ranks_per_node": 4}
    tracemalloc.start()
    with pytest.raises(
        AlgorithmError, match=r"takes about .* GiB of memory .* 1 GiB are free; use"
    ):
        compile_plan(PlanSpec.model_validate(TOO_LARGE[case] | {"machine": machine}))
    assert tracemalloc.get_traced_memory()[1] < 2**29
    tracemalloc.stop()


def test_free_memory_is_what_limits_leave():
    limited = """
import resource
from collplan.planner.memory import free_bytes
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
print(free_bytes())
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True)
    assert 0 < int(done.stdout) < 4 << 30, done.stderr
    assert 0 < free_bytes() < 2**50
