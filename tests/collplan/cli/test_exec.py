"""``collplan exec``: unchanged programs on a table, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from collplan.cli.exec import find_program
from collplan.cli.main import main
from collplan.tables.table import parse_table, save_table
from folders import EXAMPLES, PROGRAMS, ROOT
from mpi_launching import HANG_S, MPIS, mpi_environment, mpi_python, mpiexec_of, run
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

UNCHANGED = PROGRAMS / "unchanged.py"
RUNNING = "collplan/preload/python_script.py"


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
    words = "unchanged mpi4py __main__ ['--table', '-n', 'x'] 3.0"
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
    found = Counter[tuple[str, str, int]]()
    for one in json.loads(log.read_text())["calls"]:
        found[one["call"].removesuffix("_c"), one["ran"], one["bytes"]] += one["calls"]
    assert found == {
        ("MPI_Allreduce", "native", 24): 1,
        ("MPI_Allreduce", "native", 80): 2,
        ("MPI_Iallreduce", "native", 80): 1,
        ("MPI_Bcast_init", "native", 40): 2,
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
    assert "unchanged mpi4py __main__ ['word'] 3.0" in done.stdout


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_the_example_composes_by_a_plan(mpi: str, table: Path) -> None:
    python = mpi_python(mpi)
    example = str(EXAMPLES / "drop_in.py")
    done = run([str(mpiexec_of(python)), "-n", "2", str(python), example, str(table)])
    assert done.returncode == 0, done.stderr
    ran = {tuple(line.split()[1:5]) for line in done.stdout.splitlines()[1:]}
    assert {name for name, _, _, calls in ran if calls == "3"} == {"reduce_bcast", "ring"}, ran


LOOKS_UP = """
import ctypes
from mpi4py import MPI
barrier = ctypes.CDLL(MPI.__file__).MPI_Barrier
barrier(ctypes.c_void_p(MPI._handleof(MPI.COMM_WORLD)))
if MPI.COMM_WORLD.rank == 0:
    print("passed")
"""


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_program_that_looks_up_collectives_by_itself_is_told_that_they_are_native(
    mpi: str, table: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(LOOKS_UP)
    done = run(exec_line(mpi, table, "-n", "2", "--force", str(program)))
    assert (done.returncode, done.stdout.strip()) == (0, "passed"), done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("collplan: "))
    assert line == (
        "collplan: no collective was seen, but the program looks up MPI_Barrier by itself: calls "
        "of compiled code are native and not counted"
    )
    program.write_text(LOOKS_UP + "MPI.COMM_WORLD.Barrier()\n")
    done = run(exec_line(mpi, table, "-n", "2", "--force", str(program)))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.system
def test_a_program_that_hides_modules_runs_by_plans(table: Path) -> None:
    line = exec_line("mpich", table, "-n", "2", "--force", str(PROGRAMS / "hiding.py"))
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["passed", "passed"]
    assert "collplan: rank 0: 12 collectives by plans, 4 native" in done.stderr, done.stderr


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
@pytest.mark.parametrize(
    ("replaced", "options", "why"),
    [
        (("", ""), (), "fingerprint.cpu: the table was tuned with none, here is "),
        (('"bruck"', '"brukc"'), ("--force",), "names the algorithm 'brukc', which does not exist"),
    ],
)
def test_a_program_is_native_where_the_table_is_not_valid(
    replaced: tuple[str, str], options: tuple[str, ...], why: str, table: Path
) -> None:
    if any(replaced):
        table.write_text(table.read_text().replace(*replaced))
    done = run(exec_line("mpich", table, "-n", "2", *options, str(UNCHANGED)))
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("collplan: "))
    assert why in line
    assert line.endswith("; all collectives are native")
    assert "unchanged" in done.stdout


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
    program.write_text(
        "import os\nfrom mpi4py import MPI\nprint('runs on', os.sched_getaffinity(0))\n"
    )
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
    assert few.returncode == 0
    assert "cores: 1 processors, a node has 2 ranks" in few.stderr


def test_cores_are_a_list(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--table", str(table), "--cores", "x", str(UNCHANGED)]) == 2
    assert "--cores: 'x' is not a list of processors" in capsys.readouterr().err


@pytest.mark.system
@pytest.mark.parametrize("is_drop_in", [False, True])
@pytest.mark.parametrize("mpi", MPIS)
def test_rejected_calls_are_not_counted_and_an_exit_leaves_other_ranks_alone(
    mpi: str, is_drop_in: bool, table: Path
) -> None:
    program, python = str(PROGRAMS / "rejected.py"), mpi_python(mpi)
    line = exec_line(mpi, table, "-n", "2", "--force", program)
    if is_drop_in:
        line = [str(mpiexec_of(python)), "-n", "2", str(python), program, str(table)]
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 3, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "rank 0 passed", "rank 1 passed"]
    assert re.search(r"reduce +binomial +2 +8 +8 ", done.stderr), done.stderr
    assert "a rank has as many communicators with plans" in done.stderr


def test_programs_are_found_behind_the_interpreter(tmp_path: Path) -> None:
    script = str(tmp_path / "app.py")
    Path(script).touch()
    words = ["pack.age", "-m", "x"]
    ours, runs = Path(sys.executable), [sys.executable, str(ROOT / RUNNING)]
    assert find_program([sys.executable, "-m", *words], module=False) == (
        ours,
        [*runs, "-m", *words],
    )
    assert find_program(words, module=True) == (ours, [*runs, "-m", *words])
    for found in ([script, "-m"], [sys.executable, script, "-m"]):
        assert find_program(found, module=False) == (ours, [*runs, script, "-m"])
    assert find_program(["sh", "x"], module=False)[1] == ["sh", "x"]


@pytest.mark.system
def test_another_number_of_ranks_than_was_started_is_an_error(table: Path) -> None:
    inner = exec_line("mpich", table, "--force", "-n", "3", str(UNCHANGED))
    done = run([str(mpiexec_of(mpi_python("mpich"))), "-n", "2", *inner])
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("collplan: "))
    assert line == (
        "collplan: error: -n: 3 ranks are asked for, but the launcher has started 2; leave -n out"
    )


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
