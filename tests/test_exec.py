"""``collplan exec``: unchanged programs on a table, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.__main__ import main
from mpi_launching import MPIS, PROGRAMS, REPO, mpi_python, mpiexec_of, run
from specs.tuning import save_table
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

UNCHANGED = PROGRAMS / "unchanged.py"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    save_table(planning_table(3), path)
    return path


def exec_line(mpi: str, table: Path, *args: str) -> list[str]:
    return [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table), *args]


@pytest.mark.parametrize("mpi", MPIS)
def test_an_unchanged_program_runs_by_plans_and_the_log_says_so(mpi: str, table: Path) -> None:
    line = exec_line(mpi, table, "-n", "3", "--force", str(UNCHANGED), "--table", "-n", "x")
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    words = "unchanged executors __main__ ['--table', '-n', 'x'] 6.0"
    assert words in done.stdout
    assert "collplan: rank 0: 3 collectives by plans, 6 native" in done.stderr
    assert "allreduce" in done.stderr
    assert "won at 64 bytes on 1 node of 3 ranks" in done.stderr


def test_under_mpiexec_it_just_runs_a_module_too(table: Path) -> None:
    python = mpi_python("mpich")
    inner = exec_line("mpich", table, "--force", "-m", "mpi_programs.unchanged", "word")
    done = run([str(mpiexec_of(python)), "-n", "2", *inner])
    assert done.returncode == 0, done.stderr
    assert "unchanged executors __main__ ['word'] 3.0" in done.stdout


@pytest.mark.parametrize("mpi", MPIS)
def test_the_example_composes_by_a_plan(mpi: str, table: Path) -> None:
    python = mpi_python(mpi)
    example = str(REPO / "examples" / "drop_in.py")
    done = run([str(mpiexec_of(python)), "-n", "2", str(python), example, str(table)])
    assert done.returncode == 0, done.stderr
    ran = {tuple(line.split()[1:5]) for line in done.stdout.splitlines()[1:]}
    assert {name for name, _, _, calls in ran if calls == "3"} == {"reduce_bcast", "ring"}, ran


def test_how_a_program_ends_is_how_it_ended(table: Path) -> None:
    line = exec_line("mpich", table, "-n", "2", "--force", str(UNCHANGED))
    failed = run([*line, "fail"])
    assert failed.returncode != 0
    assert "RuntimeError: as asked" in failed.stderr
    assert run([*line, "three"]).returncode == 3


def test_a_table_from_elsewhere_is_refused_once_with_the_way_out(table: Path) -> None:
    done = run(exec_line("mpich", table, "-n", "2", str(UNCHANGED)))
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("collplan: error:")]
    assert len(errors) == 1, done.stderr
    assert "fingerprint.cpu: the table was tuned with none, here is " in errors[0]
    assert "--force" in errors[0]
    assert "unchanged" not in done.stdout


def test_an_unknown_algorithm_is_refused_where_it_could_win(table: Path) -> None:
    table.write_text(table.read_text().replace('"bruck"', '"brukc"'))
    done = run(exec_line("mpich", table, "--force", str(UNCHANGED)))
    assert done.returncode == 2
    assert "names the algorithm 'brukc', which does not exist; valid: " in done.stderr


def test_bad_input_is_said_before_ranks_are_started(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = ["exec", "--table", str(tmp_path / "none.yaml"), "-n", "2", str(UNCHANGED)]
    assert main(missing) == 2
    assert "none.yaml: no such file" in capsys.readouterr().err
    assert main(["exec", "--table", str(table), "-n", "2", "no.py"]) == 2
    assert "no.py: no such file; give a Python program" in capsys.readouterr().err
    table.write_text(table.read_text()[:500])
    assert main(["exec", "--table", str(table), "-n", "2", str(UNCHANGED)]) == 2
    assert "mend the JSON" in capsys.readouterr().err
