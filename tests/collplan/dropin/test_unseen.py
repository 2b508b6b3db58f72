"""Calls of MPI in compiled code of a Python program: the drop-in says that it sees none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.dropin.unseen import callers_among, mapped_libraries
from collplan.tune.table import save_table
from mpi_launching import mpi_python, run
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

PROGRAM = """
import ctypes, sys
from mpi4py import MPI
library = next(line.split()[-1] for line in open("/proc/self/maps") if "libmpi.so" in line)
barrier = ctypes.CDLL(library).MPI_Barrier
barrier(0x44000000)
if len(sys.argv) > 1:
    MPI.COMM_WORLD.Barrier()
"""


@pytest.mark.system
def test_one_line_says_that_compiled_code_may_have_called_mpi(tmp_path: Path) -> None:
    table, program = tmp_path / "table.json", tmp_path / "app.py"
    save_table(planning_table(2), table)
    program.write_text(PROGRAM)
    line = [str(mpi_python("mpich")), "-m", "collplan", "exec", "--table", str(table), "--force"]
    silent = run([*line, "-n", "2", str(program), "calls"])
    said = run([*line, "-n", "2", str(program)])
    assert silent.returncode == said.returncode == 0
    assert "calls of compiled code" not in silent.stderr
    (text,) = said.stderr.splitlines()
    assert text == (
        "collplan: mpi4py has called no collective, but the program uses MPI_Barrier by ctypes: "
        "calls of compiled code are native and not counted"
    )


def test_libraries_that_call_collectives_are_found(tmp_path: Path) -> None:
    texts = {"calling.so": b"x\0MPI_Allreduce\0y", "other.so": b"x\0MPI_Allreduces\0MPI_Send\0"}
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in (*texts, "missing.so")]
    assert callers_among(paths) == [str(tmp_path / "calling.so")]
    assert any("libc" in name for name in mapped_libraries())
