"""Memory: plans that do not fit are refused, and limits of processes and containers count."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc

import pytest

from collplan.cli.main import main
from collplan.executors.mpi.launch import jobs
from collplan.planner import compile_plan, memory
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AlgorithmError, MemoryLimitError
from collplan.planner.lowering import collect_relative
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


def test_a_folded_plan_that_does_not_fit_is_refused_before_its_messages_are_placed(monkeypatch):
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 2**28)
    monkeypatch.setattr(collect_relative, "_instances", lambda *_: pytest.fail("it is placed"))
    machine = {"nodes": 128, "ranks_per_node": 128}
    fields = {"collective": {"kind": "alltoall", "count": 1}, "algorithms": "pairwise"}
    with pytest.raises(AlgorithmError, match=r"takes about .* GiB of memory .* 0\.25 GiB are free"):
        compile_folded(PlanSpec.model_validate(fields | {"machine": machine}))


def test_free_memory_is_what_limits_leave():
    limited = """
import re, resource
from pathlib import Path
from collplan.planner.memory import free_bytes
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
mapped = re.search(r"VmSize:\\s*(\\d+) kB", Path("/proc/self/status").read_text())
print(int(mapped[1]) << 10, free_bytes())
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True)
    mapped, free = map(int, done.stdout.split())
    # Some memory may have been unmapped in the meantime.
    assert 0 < free <= (4 << 30) - mapped // 2
    assert 0 < free_bytes() < 2**50


V1 = "7:cpu:/x\n6:memory:{}\n"
V2 = "0::{}\n"
MOUNTS = {
    V1: "35 31 0:32 {} {} rw,relatime shared:9 - cgroup cgroup rw,memory\n",
    V2: "41 31 0:38 {} {} rw - cgroup2 cgroup2 rw,nsdelegate\n",
}
FILES = {
    V1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    V2: ("memory.max", "memory.current", "inactive_file"),
}


@pytest.mark.quick
@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(
    ("own", "root", "limits", "free"),
    [
        ("/", "/", {"": 5120}, 4096),  # a container
        ("/slurm/job_7/step_0", "/", {"": None, "slurm/job_7": 3072}, 2048),
        ("/slurm/job_7/step_0", "/", {"slurm": 9000, "slurm/job_7/step_0": 4096}, 3072),
        ("/user.slice/a.scope", "/", {"user.slice/a.scope": None, "user.slice": 2048}, 1024),
        ("/docker/17/job", "/docker/17", {"job": 3072}, 2048),
        ("/elsewhere", "/docker/17", {"": 3072}, 2048),
        ("/alone", "/", {}, 8192),
    ],
)
def test_the_own_control_group_and_all_above_it_set_the_limit(
    version, own, root, limits, free, tmp_path, monkeypatch
):
    top, proc = tmp_path / "cgroup", tmp_path / "proc" / "self"
    proc.mkdir(parents=True)
    (proc.parent / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    8 kB\n")
    (proc / "cgroup").write_text(version.format(own))
    other = "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    (proc / "mountinfo").write_text(other + MOUNTS[version].format(root, top))
    limit_file, use_file, cached = FILES[version]
    for folder, limit in limits.items():
        (top / folder).mkdir(parents=True, exist_ok=True)
        (top / folder / limit_file).write_text("max\n" if limit is None else f"{limit}\n")
        (top / folder / use_file).write_text("1536\n")
        (top / folder / "memory.stat").write_text(f"anon 5\n{cached} 512\n")
    monkeypatch.setattr(memory, "_PROC", proc.parent)
    assert memory.free_machine_bytes() == free


def test_without_the_system_s_word_memory_has_no_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_PROC", tmp_path)
    assert memory.free_machine_bytes() == sys.maxsize
    jobs.check_room(1, 10**18)


LARGE_SPEC = """
machine: {nodes: 2048, ranks_per_node: 8, lanes: 4}
collective: {kind: KIND, count: 1048579}
algorithms: METHOD
"""


@pytest.mark.many
@pytest.mark.long
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
