"""Reports of programs that hang, in C and in Python, and the memory that C and Python share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collplan.tables.table import save_table
from collplan.watch import area
from collplan.watch.sentences import call_name, ranks_text
from folders import ROOT
from hanging_jobs import PLANTED, PLANTED_IN_PYTHON, PYTHON_PROGRAM, command_of, outcome_of
from mpi_launching import DEBIAN, HANG_S, MPIS, mpi_python, run
from native_building import built
from tables_everywhere import planning_table
from watched_ranks import Crew

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")
if sys.platform != "linux":
    pytest.skip("the memory of ranks is shared through Linux's /proc", allow_module_level=True)

BY_WAY = {one.way: one for one in PLANTED}
IN_PYTHON = {one.way: one for one in PLANTED_IN_PYTHON}
SIZES = """
#include <stddef.h>
#include <stdio.h>
#include "watch.h"
int main(void) {
    printf("%zu %zu %zu %zu %zu %zu %zu %d %d %d\\n", sizeof(struct cp_watched),
           sizeof(struct cp_seen), sizeof(struct cp_seen_comm), sizeof(struct cp_waiting),
           offsetof(struct cp_watched, waiting), offsetof(struct cp_watched, seen),
           offsetof(struct cp_watched, comms), CP_N_SEEN, CP_N_SEEN_COMMS, CP_NAME_BYTES);
    return 0;
}
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    save_table(planning_table(3, transport="messages"), path)
    return path


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize(
    "way",
    [
        *("endless_computation", "killed_rank", "wrong_count", "order_of_two"),
        *("request_wait", "half_of_a_group", "point_to_point_first"),
    ],
)
@pytest.mark.parametrize("mpi", MPIS)
def test_native_programs_that_hang_are_reported(
    mpi: str, way: str, table: Path, tmp_path: Path
) -> None:
    planted = BY_WAY[way]
    line = command_of(mpi, table, built(mpi, "hanging.c", "-g"), planted)
    found = outcome_of(line, planted.said, tmp_path, HANG_S)
    assert not found.missing, found.text
    if way != "killed_rank":
        assert "hanging.c:" in found.text  # the line, where there is debug information


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("way", ["sleeping_rank", "wrong_root", "order_of_two", "half_of_a_group"])
@pytest.mark.parametrize("mpi", MPIS)
def test_python_programs_that_hang_are_reported(
    mpi: str, way: str, table: Path, tmp_path: Path
) -> None:
    planted = IN_PYTHON[way]
    line = command_of(mpi, table, PYTHON_PROGRAM, planted)
    found = outcome_of(line, planted.said, tmp_path, HANG_S)
    assert not found.missing, found.text
    assert "hanging.py:" in found.text


@pytest.mark.system
@pytest.mark.parametrize("mpi", DEBIAN)
def test_fortran_programs_that_hang_are_reported(mpi: str, table: Path, tmp_path: Path) -> None:
    line = command_of(mpi, table, built(mpi, "hanging_mpif.f90", "-g"), BY_WAY["input_wait"])
    waiting = "ranks 1 and 2 wait in MPI_Bcast of 8 bytes from root 0"
    said = (waiting, "rank 0 has not called it: it sleeps")
    found = outcome_of(line, said, tmp_path, HANG_S)
    assert not found.missing, found.text


@pytest.mark.system
@pytest.mark.parametrize("program", ["native", "python"])
def test_a_late_rank_is_reported_and_the_program_ends_well(
    program: str, table: Path, tmp_path: Path
) -> None:
    line = [str(mpi_python("mpich")), "-m", "collplan", "exec", "--table", str(table), "--force"]
    late = built("mpich", "hanging.c", "-g") if program == "native" else PYTHON_PROGRAM
    done = run([*line, "--hang-after", "2", "-n", "3", str(late), "late_rank"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ended") == 3
    assert done.stderr.count("ranks of MPI_COMM_WORLD have waited") == 1
    assert "rank 2 has not called it" in done.stderr
    silent = run([*line, "--hang-after", "0", "-n", "3", str(late), "late_rank"])
    assert (silent.returncode, silent.stderr) == (0, "")


@pytest.mark.system
def test_c_and_python_have_the_same_records(tmp_path: Path) -> None:
    source, program = tmp_path / "sizes.c", tmp_path / "sizes"
    source.write_text(SIZES)
    shim = ROOT / "collplan" / "preload" / "shim"
    subprocess.run(["cc", f"-I{shim}", str(source), "-o", str(program)], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert [int(one) for one in done.stdout.split()] == [
        *(area.RANK_BYTES, area.CALL.size, area.COMM.size, area.WAIT.size),
        *(area.WAIT_AT, area.CALLS_AT, area.COMMS_AT),
        *(area.N_CALLS, area.N_COMMS, area.NAME_BYTES),
    ]


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([3], "rank 3"), ([0, 1], "ranks 0 and 1"), ([0, 1, 2, 5, 7, 8], "ranks 0 to 2, 5, 7 and 8")],
)
def test_ranks_are_listed_in_runs(numbers: list[int], text: str) -> None:
    ranks = Crew(9).ranks()
    assert ranks_text([ranks[number] for number in numbers]) == text


def test_functions_have_mpis_names() -> None:
    assert call_name("Ireduce_scatter_block") == "MPI_Ireduce_scatter_block"
    assert call_name("dist_graph_create_adj") == "MPI_Dist_graph_create_adjacent"
