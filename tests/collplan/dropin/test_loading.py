"""Loading of what plans need: at the start if a table has plans, else before plans are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.tune.table import parse_table, save_table
from mpi_launching import mpi_python, run
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
from collplan.dropin.loading import _loaded
heavy = ("collplan.planner.compiler.compile", "collplan.dropin.making")
print("at the start", *(name in sys.modules for name in heavy), bool(_loaded), flush=True)
comm = MPI.COMM_WORLD
for i in range(60):
    out, part = np.zeros(40), np.zeros(40)
    comm.Allreduce(np.full(40, 1.0 * i), out)
    comm.Iallreduce(np.full(40, 1.0 * i), part).Wait()
    assert (out == 2 * i).all() and (part == out).all()
print("at the end", heavy[0] in sys.modules, bool(_loaded), flush=True)
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("winner", "trials", "is_early", "is_loaded"),
    [("native", "0", False, False), ("native", "1e9", False, True), ("ring", "0", True, True)],
)
def test_plans_load_what_they_need_when_there_may_be_plans(
    winner: str, trials: str, is_early: bool, is_loaded: bool, tmp_path: Path
) -> None:
    document = planning_table(4, ("allreduce",)).model_dump()
    document["sweeps"] = [one for one in document["sweeps"] if one["ranks"] == 4]
    for point in (point for sweep in document["sweeps"] for point in sweep["points"]):
        point["winner"] = "native" if winner == "native" else point["winner"]
    table, program = tmp_path / "table.json", tmp_path / "program.py"
    save_table(parse_table(document), table)
    program.write_text(PROGRAM)
    line = [str(mpi_python("mpich")), "-m", "collplan", "exec", "--table", str(table), "--force"]
    done = run([*line, "-n", "2", "--trials", trials, str(program)], COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("at the start" + 3 * f" {is_early}") == 2, done.stdout
    assert done.stdout.count(f"at the end {is_loaded} {is_loaded}") == 2, done.stdout
    assert ("tried here" in done.stderr) == (trials != "0"), done.stderr
    if winner == "native" and trials == "0":
        assert "native won all sizes of allreduce" in done.stderr
