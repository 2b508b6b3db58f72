"""The applications of examples/: each finds what numpy finds, and notices where it does not."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collplan.specs import COLLECTIVES
from collplan.tables.sweep import Choice
from collplan.tables.table import parse_table, save_table
from folders import EXAMPLES
from folders import PROGRAMS as FOLDER
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run
from tables_everywhere import planning_table

PROGRAMS = {
    # 1001 unknowns go on 3 ranks with a block that is not full, 5 on 3 ranks with one of 1.
    3: [
        "jacobi --form row --unknowns 5",
        "jacobi --form column-allreduce --unknowns 1001",
        "jacobi --form column-reduce --unknowns 1001",
        "pab --stages 2 --grid 7 --steps 60",
        "pab --stages 5 --grid 7 --steps 60",
        "spmv --unknowns 301 --iterations 20",
        "spmv --unknowns 301 --iterations 20 --planned",
    ],
    4: [
        "fft3d --grid 4x1 --shape 9x10x5",
        "fft3d --grid 2x2 --shape 3x5x7",
        "fft3d --grid 1x4 --shape 2x3x6",
    ],
}
"""Applications and their arguments, by the number of ranks."""


def several(mpi: str, n_ranks: int) -> list[dict[str, Any]]:
    """Run the programs for a number of ranks in one launch, and return what they report."""
    words = json.dumps([program.split() for program in PROGRAMS[n_ranks]])
    done = mpirun(n_ranks, "several.py", words, mpi=mpi)
    assert done.returncode == 0, done.stdout + done.stderr
    return checked_facts(done.stdout, n_ranks)


def checked_facts(text: str, n_ranks: int) -> list[dict[str, Any]]:
    """Return the reports of all programs; fail unless each is right."""
    found: list[dict[str, Any]] = json.loads(text)
    for facts in found:
        assert facts["correct"] is True
        assert facts["ranks"] == n_ranks
        assert 0 < facts["communication_s"] < facts["total_s"]
    return found


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_solvers_find_what_one_process_finds(mpi: str) -> None:
    """Adams methods converge with as many orders as stages; halos have any size."""
    *jacobis, two, five, spmv, planned = several(mpi, 3)
    assert len(jacobis) == 3
    assert all(5 < facts["iterations"] < 40 for facts in jacobis)
    assert abs(two["order"] - 2) < 0.25
    assert abs(five["order"] - 5) < 0.25
    assert 0 < spmv["least halo"] < spmv["greatest halo"] == planned["greatest halo"]


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_fft_transforms_any_extents_on_any_grid(mpi: str) -> None:
    assert len(several(mpi, 4)) == 3


@pytest.mark.system
@pytest.mark.parametrize(
    ("mpi", "kind"), [("mpich", "reduce"), ("openmpi", "allreduce"), ("mpich", "bcast")]
)
def test_sums_hide_behind_computation(mpi: str, kind: str, tmp_path: Path) -> None:
    """Blocks are right natively and by plans, whichever way they are computed meanwhile."""
    table = tmp_path / "table.json"
    save_table(planning_table(2, native_s=1.0), table)
    python = mpi_python(mpi)
    kernel = "python" if kind == "reduce" else "numpy"
    size = ["--bytes", str(1 << 20), "--computation", "0.001", "--rounds", "2"]
    program = [str(EXAMPLES / "overlapped_sums.py"), "--collective", kind, "--kernel", kernel]
    by_table = [str(python), "-m", "collplan", "exec", "--table", str(table), "--force"]
    natively = [str(mpiexec_of(python)), "-n", "2", str(python)]
    for command in (*[natively] * (kind == "reduce"), [*by_table, "-n", "2"]):
        done = run([*command, *program, "--json", *size], COLLPLAN_LOG="1")
        assert done.returncode == 0, done.stdout + done.stderr
        facts = json.loads(done.stdout)
        assert facts["correct"] is True
        assert len(facts["overlap"]) == 2
    # Warm-ups and rounds, alone and beside computation; two are native.
    assert re.search(rf"I{kind} .* 6 +[0-9.]+ [mµ]?s", done.stderr), done.stderr


@pytest.mark.system
def test_a_mistake_in_any_of_them_is_noticed() -> None:
    result = mpirun(2, "broken_applications.py")
    assert_passes(result)
    assert result.stdout.count('"correct": false') == 4


CHOICES: dict[str, dict[str, Any]] = {
    "allgather": {"algorithms": "ring"},
    "allreduce": {"algorithms": "rabenseifner"},
    "alltoall": {
        "decomposition": "hierarchical",
        "transport": "shared",
        "passes": ["coalesce_requests", "double_buffer"],
    },
    "bcast": {
        "algorithms": "chain",
        "passes": [{"name": "segment", "max_bytes": "16KiB"}, "prioritize"],
    },
    "reduce": {"algorithms": "binomial"},
}
"""Choices of a table for the applications."""


def write_table(path: Path) -> None:
    """Write a table that says the same of every size, on 4 ranks and on 2."""
    time = {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "n": 9}
    versions = dict.fromkeys(("cpu", "mpi", "mpi4py", "numpy", "collplan", "mpiexec"), "any")
    sweeps = [
        {
            "collective": kind,
            "op_commutes": True if "reduce" in kind else None,
            "ranks": ranks,
            "placement": {"ranks_per_node": [ranks]},
            "choices": {label: choice},
            "points": [{"bytes": 8, "times": {label: time}, "winner": label}],
            "complete": True,
        }
        for kind, choice in CHOICES.items()
        for label in [Choice.model_validate(choice).label]
        for ranks in (4, 2)
    ]
    fingerprint = {"cores_per_node": 1, **versions}
    save_table(parse_table({"fingerprint": fingerprint, "sweeps": sweeps}), path)


TABLE_PROGRAMS = (
    # One iteration before the clock starts; at last an allreduce of times.
    "jacobi --form column-allreduce --tolerance 0 --iterations 3",
    "pab --stages 2 --grid 6 --steps 40",
    "fft3d --grid 2x2 --shape 5x6x7 --repeats 3",
    # The sweep of alltoall decides; one call tells others which unknowns are needed.
    "spmv --unknowns 301 --iterations 20",
)
TABLE_CALLS = {
    "allreduce": 5 + 1 + 1 + 22,
    "allgather": 4 + 2 * (1 + 39 + 79),
    "alltoall": 2 * 4 + 1,
    "alltoallv": 1 + 1 + 20,
}
"""Calls of these programs, in all."""


@pytest.mark.system
def test_unchanged_applications_run_on_a_table(tmp_path: Path) -> None:
    mpi_python("mpich")
    path = tmp_path / "table.json"
    write_table(path)
    words = json.dumps([program.split() for program in TABLE_PROGRAMS])
    command = [sys.executable, "-m", "collplan", "exec", "--table", str(path), "--force", "-n", "4"]
    done = run([*command, "--", str(FOLDER / "several.py"), words], COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(checked_facts(done.stdout, 4)) == len(TABLE_PROGRAMS)
    ran = [re.split(r"\s{2,}", line) for line in done.stderr.splitlines()]
    for kind, n_calls in TABLE_CALLS.items():
        label = Choice.model_validate(CHOICES[COLLECTIVES[kind].regular or kind]).label
        counts: Counter[str] = Counter()
        for row in ran:
            if row[0] == kind:
                counts[row[1]] += int(row[4])
        # The first calls of a size do without a plan, which takes time to make.
        assert set(counts) == {label, "native"}, done.stderr
        # Collectives of objects call it, too.
        assert sum(counts.values()) >= n_calls, done.stderr
