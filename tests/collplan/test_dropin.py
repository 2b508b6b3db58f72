"""The drop-in communicator under both MPIs: results, buffers, families, what it counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from check_names import checks_of
from folders import PROGRAMS
from mpi_launching import MPIS, assert_passes, mpi_python, mpiexec_of, mpirun, run

MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed: pip install '.[mpich]'")
run_check = pytest.importorskip("drop_in_calls").run_check

ONCE = "check_that_there_is_no_table_is_said_once"
"""A check of what a process says once in its life, and so has processes of its own."""
SUITE = "COLLPLAN_MPI4PY_TESTS"
"""Environment variable: the folder ``test`` of mpi4py's source distribution."""


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("drop_in.py"))
def test_drop_in_leaves_what_native_mpi_leaves(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "drop_in.py", check)


@pytest.mark.ranks(1, 3)
@pytest.mark.parametrize("check", checks_of("untuned.py"))
def test_plans_are_tried_on_ranks_that_no_sweep_speaks_for(comm: MPI.Intracomm, check: str) -> None:
    run_check(comm, "untuned.py", check)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_trials_on_five_ranks_and_on_three_of_them(mpi: str) -> None:
    assert_passes(mpirun(5, "untuned.py", "check_families", mpi=mpi))


@pytest.mark.ranks(3)
@pytest.mark.parametrize("check", sorted({*checks_of("drop_in_failures.py")} - {ONCE}))
def test_a_plan_that_fails_on_one_rank_leaves_all_ranks_native(
    comm: MPI.Intracomm, check: str
) -> None:
    run_check(comm, "drop_in_failures.py", check)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_that_there_is_no_table_is_said_once(mpi: str) -> None:
    assert_passes(mpirun(3, "drop_in_failures.py", ONCE, mpi=mpi))


def test_the_package_can_be_imported_without_mpi() -> None:
    code = "import sys, collplan.dropin; print('mpi4py' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.system
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("mpi", MPIS)
def test_mpi4py_own_tests_pass_that_pass_natively(mpi: str, n_ranks: int) -> None:
    folder = os.environ.get(SUITE)
    if folder is None:
        # They are not in its wheels, and take minutes; all else here runs without them.
        pytest.skip(
            f"{SUITE} names no folder with mpi4py's own tests; unpack what 'pip download "
            "--no-deps --no-binary :all: mpi4py' brings, and name its folder test"
        )
    python = mpi_python(mpi)
    program = str(PROGRAMS / "mpi4py_suite.py")
    found = {}
    for mode in ("native", "drop-in"):
        command = [str(mpiexec_of(python)), "-n", str(n_ranks), str(python), program, folder, mode]
        done = run(command, timeout_s=1800)
        assert done.returncode == 0, done.stderr
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    assert found["drop-in"]["run"] == found["native"]["run"]
    assert found["drop-in"]["planned_calls"] > 1000
    assert found["drop-in"]["planned_vector_calls"] > 100
    assert set(found["drop-in"]["bad"]) <= set(found["native"]["bad"])
