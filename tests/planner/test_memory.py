"""Memory: plans that do not fit are refused, and limits of processes and containers count."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc

import pytest

from collplan.cli.main import main
from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError, MemoryLimitError
from collplan.planner.memory import free_bytes, raise_for_memory
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


LARGE_SPEC = """
machine: {nodes: 2048, ranks_per_node: 8, lanes: 4}
collective: {kind: KIND, count: 1048579}
algorithms: METHOD
"""


@pytest.mark.parametrize(
    ("command", "kind", "method"),
    [("compile", "allreduce", "ring"), ("cost", "allreduce", "ring"),
     ("verify", "reduce_scatter_block", "linear"), ("draw", "reduce_scatter_block", "pairwise"),
     ("show", "allreduce", "linear")],
)  # fmt: skip
def test_a_command_takes_no_more_memory_than_it_may(command, kind, method, tmp_path):
    spec = tmp_path / "large.yaml"
    spec.write_text(LARGE_SPEC.replace("KIND", kind).replace("METHOD", method))
    words = [sys.executable, "-m", "collplan", "--max-memory", "1GiB", command, str(spec)]
    if command in ("compile", "draw"):
        words += ["-o", str(tmp_path / ("out.plan" if command == "compile" else "out.svg"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"collplan: error: .*memory.*\n", done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("size", "why"), [("2x", "'2x' is not a size"), ("1MiB", "512MiB or more")]
)
def test_a_limit_that_is_none_is_refused(size, why, capsys):
    assert main(["--max-memory", size, "cost", "x.yaml"]) == 2
    assert why in capsys.readouterr().err


def test_a_library_that_lacks_memory_says_how_much_it_takes(monkeypatch):
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 2**28)
    with pytest.raises(MemoryLimitError, match=r"numba takes about 0\.5 GiB .* 0\.25 GiB are free"):
        raise_for_memory(2**29, "numba", OSError())
    raise_for_memory(2**27, "numba", OSError())
