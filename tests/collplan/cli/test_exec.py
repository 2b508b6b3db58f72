"""``collplan exec``: unchanged programs on a table, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collplan.cli.exec import _status_of, find_program
from collplan.cli.main import main
from collplan.tune.table import parse_table, save_table
from folders import EXAMPLES, PROGRAMS
from mpi_launching import HANG_S, MPIS, mpi_environment, mpi_python, mpiexec_of, run
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

UNCHANGED = PROGRAMS / "unchanged.py"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    save_table(planning_table(2), path)
    return path


def exec_line(mpi: str, table: Path, *args: str) -> list[str]:
    return [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table), *args]


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_an_unchanged_program_runs_by_plans_and_the_log_says_so(mpi: str, table: Path) -> None:
    line = exec_line(mpi, table, "-n", "2", "--force", str(UNCHANGED), "--table", "-n", "x")
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    words = "unchanged collplan __main__ ['--table', '-n', 'x'] 3.0"
    assert words in done.stdout
    assert "collplan: rank 0: 3 collectives by plans, 6 native" in done.stderr
    assert "allreduce" in done.stderr
    assert "won at 64 bytes on 1 node of 2 ranks" in done.stderr


STARTED_CALLS = """
import sys
import numpy as np
from mpi4py import MPI
comm, sent, received = MPI.COMM_WORLD, np.ones(10), np.ones(10)
for size in (3, 10, 10):
    comm.Allreduce(sent[:size], received[:size])
comm.Iallreduce(sent, received).Wait()
request = comm.Bcast_init(sent[:5])
request.Start()
request.Wait()
MPI.Prequest.Startall([request])
request.Wait()
request.Free()
sys.exit(5)
"""


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_log_for_programs_has_the_calls_of_the_job(mpi: str, table: Path, tmp_path: Path) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log.json"
    program.write_text(STARTED_CALLS)
    line = exec_line(mpi, table, "-n", "2", "--force", str(program))
    done = run(line, COLLPLAN_LOG=str(log))
    assert done.returncode == 5
    assert "collplan:" not in done.stderr
    found = {
        (one["call"], one["ran"], one["bytes"], one["calls"])
        for one in json.loads(log.read_text())["calls"]
    }
    assert found == {
        ("MPI_Allreduce", "native", 24, 1),
        ("MPI_Allreduce", "native", 80, 2),
        ("MPI_Iallreduce", "native", 80, 1),
        ("MPI_Bcast_init", "native", 40, 2),
    }
    done = run(line, COLLPLAN_LOG=str(tmp_path / "nowhere" / "log.json"))
    assert done.returncode == 5
    (said,) = (line for line in done.stderr.splitlines() if "collplan" in line)
    assert said.startswith("collplan: COLLPLAN_LOG: ")


MANY_CALLS = """
import sys
sys.modules["numba"] = None  # as programs may that do without it
import numpy as np
from mpi4py import MPI
for _ in range(60):
    out = np.zeros(40)
    MPI.COMM_WORLD.Allreduce(np.ones(40), out)
    assert (out == 2.0).all()
print("passed")
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("mpi", "share", "is_tried"),
    [("mpich", "1e9", True), ("openmpi", "1e-9", False), ("mpich", "0", False)],
)
def test_plans_are_tried_on_untuned_ranks_if_the_option_allows_it(
    mpi: str, share: str, is_tried: bool, tmp_path: Path
) -> None:
    document = planning_table(3, ("allreduce",)).model_dump()
    document["sweeps"] = [one for one in document["sweeps"] if one["ranks"] == 3]
    table, program = tmp_path / "table.json", tmp_path / "program.py"
    save_table(parse_table(document), table)
    program.write_text(MANY_CALLS)
    line = exec_line(mpi, table, "-n", "2", "--force", "--trials", share, str(program))
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout
    assert ("tried here beside others" in done.stderr) == is_tried, done.stderr
    waits = "a trial of plans has not paid so far" in done.stderr
    assert waits == (share != "0"), done.stderr


@pytest.mark.system
def test_under_mpiexec_it_just_runs_a_module_too(table: Path) -> None:
    python = mpi_python("mpich")
    inner = exec_line("mpich", table, "--force", "-m", "mpi_programs.unchanged", "word")
    done = run([str(mpiexec_of(python)), "-n", "2", *inner])
    assert done.returncode == 0, done.stderr
    assert "unchanged collplan __main__ ['word'] 3.0" in done.stdout


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_the_example_composes_by_a_plan(mpi: str, table: Path) -> None:
    python = mpi_python(mpi)
    example = str(EXAMPLES / "drop_in.py")
    done = run([str(mpiexec_of(python)), "-n", "2", str(python), example, str(table)])
    assert done.returncode == 0, done.stderr
    ran = {tuple(line.split()[1:5]) for line in done.stdout.splitlines()[1:]}
    assert {name for name, _, _, calls in ran if calls == "3"} == {"reduce_bcast", "ring"}, ran


@pytest.mark.system
@pytest.mark.parametrize(
    ("imports", "early"), [("hidden", ""), ("hidden", "import numba\n"), ("forbidden", "")]
)
def test_a_program_that_hides_numba_or_forbids_imports_runs_by_plans(
    table: Path, imports: str, early: str, tmp_path: Path
) -> None:
    line = exec_line("mpich", table, "-n", "2", "--force", str(PROGRAMS / "hiding.py"), imports)
    own = tmp_path / "early.py"
    own.write_text(early)  # numba is imported early where a kernel must be compiled
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_IMPORT=str(own))
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout
    # Two calls of each kind run natively before a plan is made.
    assert "collplan: rank 0: 8 collectives by plans, 8 native" in done.stderr, done.stderr


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "how"), [("mpich", "thread"), ("openmpi", "once")])
def test_a_program_may_initialize_mpi_by_itself(mpi: str, how: str, table: Path) -> None:
    program = str(PROGRAMS / "initializing.py")
    done = run(exec_line(mpi, table, "--force", "-n", "2", program, how))
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout


@pytest.mark.system
def test_a_program_that_initializes_mpi_twice_fails_as_it_does_natively(table: Path) -> None:
    program = str(PROGRAMS / "initializing.py")
    done = run(exec_line("mpich", table, "--force", "-n", "1", program, "twice"))
    assert done.returncode != 0
    assert "MPI_INIT" in done.stderr


@pytest.mark.system
def test_under_mpiexec_a_module_in_the_working_folder_is_found(table: Path, tmp_path: Path) -> None:
    python = mpi_python("mpich")
    command = tmp_path / "bin" / "collplan"  # as pip writes it
    command.parent.mkdir()
    command.write_text("import sys\nfrom collplan.cli.main import main\nsys.exit(main())\n")
    here = tmp_path / "here"
    here.mkdir()
    (here / "app.py").write_text("import sys, sibling\nprint(sys.argv[1], sibling.NAME)\n")
    (here / "sibling.py").write_text("NAME = 'found'\n")
    inner = [str(python), str(command), "exec", "--table", str(table), "--force", "-m", "app", "x"]
    done = run(["env", "-C", str(here), str(mpiexec_of(python)), "-n", "1", *inner])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["x", "found"]


def with_small_shared_memory(command: list[str]) -> list[str]:
    """Return a command that runs another where /dev/shm has 24 MB, or skip the test."""
    mount = 'mount -t tmpfs -o size=24m tmpfs /dev/shm && exec "$@"'
    namespace = ["unshare", "-m", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*namespace, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"this user may not mount a small /dev/shm, which takes root: {error}")
    return [*namespace, *command]


@pytest.fixture
def sharing_table(tmp_path: Path) -> Path:
    path = tmp_path / "sharing.json"
    save_table(planning_table(2, ("allreduce",), "shared"), path)
    return path


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_where_dev_shm_has_no_room_a_program_runs_natively(mpi: str, sharing_table: Path) -> None:
    line = exec_line(mpi, sharing_table, "--force", "-n", "2", str(PROGRAMS / "large_sums.py"))
    done = run(with_small_shared_memory(line), COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout
    assert "collplan: rank 0: 2 collectives by plans, 6 native" in done.stderr
    assert " bytes of memory for the ranks of a node cannot be had (/dev/shm has" in done.stderr


@pytest.mark.system
def test_where_dev_shm_has_no_room_run_refuses_in_one_line(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "machine: {ranks_per_node: 2}\ncollective: {kind: allreduce, count: 2000000}\n"
        "transport: shared\n"
    )
    line = [str(mpi_python("mpich")), "-m", "collplan", "run", str(spec), "-n", "2"]
    done = run(with_small_shared_memory(line))
    assert done.returncode == 2
    (text,) = done.stderr.splitlines()
    assert "cannot be had (/dev/shm has room for " in text
    assert text.endswith("or compile with transport: messages")


@pytest.mark.system
def test_room_that_others_take_before_it_is_used_is_missed_in_time() -> None:
    # MPICH promises memory that is not there; Open MPI looks at the room itself.
    python = mpi_python("mpich")
    line = [str(mpiexec_of(python)), "-n", "2", str(python), str(PROGRAMS / "without_room.py")]
    done = run(with_small_shared_memory(line))
    assert done.stdout.split() == ["passed", "passed"], done.stdout + done.stderr


@pytest.mark.system
def test_how_a_program_ends_is_how_it_ended(table: Path) -> None:
    line = exec_line("mpich", table, "-n", "2", "--force", str(UNCHANGED))
    failed = run([*line, "fail"])
    assert failed.returncode != 0
    assert "RuntimeError: as asked" in failed.stderr
    assert run([*line, "three"]).returncode == 3


@pytest.mark.system
def test_a_table_from_elsewhere_is_refused_once_with_the_way_out(table: Path) -> None:
    done = run(exec_line("mpich", table, "-n", "2", str(UNCHANGED)))
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("collplan: error:")]
    assert len(errors) == 1, done.stderr
    assert "fingerprint.cpu: the table was tuned with none, here is " in errors[0]
    assert "--force" in errors[0]
    assert "unchanged" not in done.stdout


@pytest.mark.system
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
    assert "no.py: no such file; give a program" in capsys.readouterr().err
    table.write_text(table.read_text()[:500])
    assert main(["exec", "--table", str(table), "-n", "2", str(UNCHANGED)]) == 2
    assert "mend the JSON" in capsys.readouterr().err


READS = """
import sys
from mpi4py import MPI
words = sys.stdin.read().split()
print("rank", MPI.COMM_WORLD.rank, "read", len(words), *words[:2], flush=True)
"""


@pytest.mark.system
@pytest.mark.parametrize(("mpi", "source"), [("mpich", "file"), ("openmpi", "pipe")])
def test_rank_0_reads_the_standard_input_of_exec(
    mpi: str, source: str, table: Path, tmp_path: Path
) -> None:
    """All of it and its end: more than launchers keep, from where a file has been read to."""
    program, text = tmp_path / "reads.py", tmp_path / "text"
    program.write_text(READS)
    text.write_text("0\n" + "word\n" * 50_000)
    line = exec_line(mpi, table, "-n", "2", "--force", str(program))
    with text.open("rb", buffering=0) as file:
        file.read(2)
        done = subprocess.run(
            line,
            env=mpi_environment(),
            stdin=file if source == "file" else None,
            input=file.read() if source == "pipe" else None,
            capture_output=True,
            timeout=HANG_S,
            check=True,
        )
    assert sorted(done.stdout.decode().splitlines()) == [
        "rank 0 read 50000 word word",
        "rank 1 read 0",
    ]


@pytest.mark.system
def test_run_leaves_standard_input_to_others(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("for the next command\n")
    line = [str(mpi_python("mpich")), str(PROGRAMS / "relaunching.py"), "worlds.py", "0", "2"]
    with text.open("rb", buffering=0) as file:
        subprocess.run(line, env=mpi_environment(), stdin=file, timeout=HANG_S, check=True)
        assert file.read() == text.read_bytes()


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_and_their_progress_are_bound_to_processors(
    tmp_path: Path, table: Path, mpi: str
) -> None:
    program = tmp_path / "where.py"
    program.write_text("import os\nprint('runs on', os.sched_getaffinity(0))\n")
    usable = sorted(os.sched_getaffinity(0))
    first, last = usable[0], usable[-1]
    cores = ("--cores", f"{first},{first},{last}")
    line = exec_line(mpi, table, "-n", "2", "--force", *cores, str(program))
    done = run(line)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"runs on {{{first}}}") == 2
    if mpi == "openmpi":
        return
    few = run(exec_line(mpi, table, "-n", "2", "--force", "--cores", "0", str(program)))
    assert few.returncode == 2
    assert "cores: 1 processors, a node has 2 ranks" in few.stderr


def test_cores_are_a_list(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--table", str(table), "--cores", "x", str(UNCHANGED)]) == 2
    assert "--cores: 'x' is not a list of processors" in capsys.readouterr().err


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_rejected_calls_are_not_counted_and_an_exit_leaves_other_ranks_alone(
    mpi: str, table: Path
) -> None:
    line = exec_line(mpi, table, "-n", "2", "--force", str(PROGRAMS / "rejected.py"))
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 passed", "rank 1 passed"]
    assert re.search(r"reduce +binomial +2 +8 +8 ", done.stderr), done.stderr
    assert "plans cannot have a communicator: a rank has 64 with plans" in done.stderr


@pytest.mark.parametrize(
    ("code", "status", "said"), [(None, 0, ""), (0, 0, ""), (3, 3, ""), ("no", 1, "no\n")]
)
def test_the_status_of_a_program_is_what_python_makes_of_its_exit(
    code: object, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _status_of(SystemExit(code)) == status
    assert capsys.readouterr().err == said


def test_programs_are_found_behind_the_interpreter(tmp_path: Path) -> None:
    script = str(tmp_path / "app.py")
    Path(script).touch()
    words = ["pack.age", "-m", "x"]
    assert find_program([sys.executable, "-m", *words], module=False) == (None, words, True)
    assert find_program(words, module=True) == (None, words, True)
    assert find_program([script, "-m"], module=False) == (None, [script, "-m"], False)
    assert find_program([sys.executable, script, "y"], module=False)[1:] == ([script, "y"], False)


@pytest.mark.parametrize("command", ["exec", "profile"])
def test_source_code_is_no_program(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "app.c"
    source.write_text("int main(void) { return 0; }")
    table = ["--table", "table.yaml"] if command == "exec" else []
    assert main([command, "-n", "2", *table, str(source)]) == 2
    assert capsys.readouterr().err == (
        f"collplan: error: {source}: is source code; compile it with mpicc or mpifort, and give "
        "the program\n"
    )
