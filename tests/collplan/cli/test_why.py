"""``collplan why``: programs with a planted cause, and what it says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from command_line import CommandLine
from mpi_launching import MPIS, mpi_python, run
from native_building import built

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

PROGRAM = """
import time
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
out = np.zeros(100)
for _ in range(10):
    time.sleep(0.2 if comm.rank == 0 else 0.02)
    comm.Allreduce(np.ones(100), out)
print("passed", flush=True)
"""


def why(mpi: str, *words: object) -> tuple[int, list[str], str]:
    line = [str(mpi_python(mpi)), "-m", "collplan", "why", "-n", "2", *map(str, words)]
    done = run(line)
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("cause", ["many_small", "serialized"])
@pytest.mark.parametrize("mpi", MPIS)
def test_the_planted_cause_is_the_costliest(mpi: str, cause: str) -> None:
    status, lines, errors = why(mpi, "--json", built(mpi, "costly.c", "-g"), cause)
    assert status == 0, errors
    document = json.loads(lines[-1])
    assert set(document) == {"causes"}
    first = document["causes"][0]
    assert set(first) == {"kind", "site", "seconds", "remedy", "gain_s"}
    assert (first["kind"], first["site"].split()[0]) == (cause, cause), document
    assert "costly.c:" in first["site"]
    seconds = [one["seconds"] for one in document["causes"]]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.system
@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="this machine has one processor, which ranks share"
)
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_on_one_processor_of_two_are_placed_badly(mpi: str, tmp_path: Path) -> None:
    path = tmp_path / "crowded.py"
    first = min(os.sched_getaffinity(0))
    path.write_text(f"import os\nos.sched_setaffinity(0, [{first}])\n{PROGRAM}")
    status, lines, errors = why(mpi, "--json", path)
    assert status == 0, errors
    causes = {one["kind"]: one for one in json.loads(lines[-1])["causes"]}
    assert causes["placement"]["site"] == "the whole program"
    assert causes["placement"]["remedy"].startswith(f"ranks 0, 1 share processors {first}, and ")


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_a_late_rank_of_a_python_program_is_named(mpi: str, tmp_path: Path) -> None:
    path = tmp_path / "late.py"
    path.write_text(PROGRAM)
    status, lines, errors = why(mpi, path)
    assert status == 0, errors
    assert lines[:2] == ["passed", "passed"]
    text = "\n".join(lines)
    assert "the other ranks wait for rank 0" in text
    assert "the program (late.py:9)" in text
    assert "2 ranks: 10 blocking collectives" in text


@pytest.mark.system
def test_a_program_without_calls_of_mpi_is_refused() -> None:
    status, _, errors = why("mpich", "/bin/true")
    assert status == 2
    assert "called no collective that could be counted; does it use MPI?" in errors


def test_bad_input_is_refused_before_ranks_are_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = CommandLine(tmp_path, capsys)
    assert "nowhere.py: no such file" in command("why", "-n", "2", "nowhere.py").error()
    program = tmp_path / "app.py"
    program.write_text(PROGRAM)
    assert "-n: 1 rank has nobody to wait for" in command("why", "-n", "1", str(program)).error()
