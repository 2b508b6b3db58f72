"""Programs that start in unusual ways under ``collplan exec``: plans, or one line that says why.

Whatever fails on our side, they run as natively.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from collplan.preload import running
from collplan.preload.running import (
    check_dynamic,
    may_start_plans,
    without_interpreter,
    without_separators,
)
from collplan.specs.errors import CollplanError
from collplan.tables.table import parse_table, save_table
from folders import PROGRAMS
from mpi_launching import DEBIAN, MPIS, mpi_python, run
from native_building import SOURCES, built
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")
if sys.platform != "linux":
    pytest.skip(
        "LD_PRELOAD and /proc are Linux's: native programs run there", allow_module_level=True
    )

NATIVE = "; all collectives are native"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.json"
    save_table(planning_table(3), path)
    return path


def execute(mpi: str, table: Path, *words: object, **env: str) -> tuple[str, str]:
    """Run a program on two ranks, and return what it printed and what collplan said."""
    line = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table), "--force"]
    done = run([*line, "-n", "2", *map(str, words)], COLLPLAN_LOG="1", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def planned(log: str) -> int:
    """Return the number of collectives that ran by plans."""
    found = re.search(r"rank 0: (\d+) collectives by plans", log)
    return 0 if found is None else int(found[1])


@pytest.mark.system
def test_programs_of_another_interface_are_native_and_one_line_names_both_libraries(
    table: Path,
) -> None:
    """Handles of the standard ABI and of another MPI have other values, and may be longer."""
    standard = built("mpich", "calling.c", "-DMPI_ABI", "-l:libmpi_abi.so.1", "-Wl,--as-needed")
    for program, library in (
        (standard, "libmpi_abi.so.1"),
        (built("openmpi", "calling.c"), "libmpi.so.40"),
    ):
        out, log = execute("mpich", table, program, "5")
        assert "total 5000.0" in out or "total 10000.0" in out
        (line,) = [text for text in log.splitlines() if NATIVE in text]
        assert re.fullmatch(
            rf"collplan: the program's MPI is /\S+/{re.escape(library)}, plans here are for that "
            rf"of mpi4py, /\S+/libmpi.so.12{NATIVE}",
            line,
        )


@pytest.mark.system
def test_the_line_names_both_libraries_before_the_program_initializes_mpi(table: Path) -> None:
    """MPICH's MPI_Init ends the job under the mpiexec of Open MPI, as it does natively."""
    line = [str(mpi_python("openmpi")), "-m", "collplan", "exec", "--table", str(table), "--force"]
    # Of several ranks, one that MPI_Init ends first may keep rank 0 from saying anything.
    done = run([*line, "-n", "1", str(built("mpich", "calling.c")), "5"])
    assert done.returncode != 0, done.stdout
    (said,) = [text for text in done.stderr.splitlines() if text.endswith(NATIVE)]
    assert "/libmpi.so.12, plans here are for that of mpi4py, " in said
    assert "/libmpi.so.40;" in said


@pytest.mark.system
@pytest.mark.parametrize("mpi", [*MPIS, *DEBIAN, "intel"])
@pytest.mark.parametrize("without", [0, 1])
def test_all_ranks_are_native_if_one_runs_without_the_library(
    mpi: str, without: int, table: Path, tmp_path: Path
) -> None:
    """A rank without the library makes no calls of ours, so others must not wait for it."""
    script = tmp_path / "start.sh"
    rank = "${PMI_RANK-$PMIX_RANK}"
    script.write_text(
        f"#!/bin/sh\n[ {rank} = {without} ] && unset LD_PRELOAD\n"
        f"exec {built(mpi, 'calling.c')} 10\n"
    )
    script.chmod(0o755)
    out, log = execute(mpi, table, script, COLLPLAN_NATIVE_CALLS="2")
    assert out == "total 20000.0\n"
    line = f"collplan: rank 1 runs without the preloaded library{NATIVE}"
    assert log.splitlines() == [line] * without


@pytest.mark.system
@pytest.mark.parametrize("mpi", [*MPIS, *DEBIAN])
def test_a_tool_sees_all_calls_and_plans_run_them(mpi: str, table: Path) -> None:
    tool = SOURCES / "counting_tool.c"
    linked = built(mpi, "calling.c", str(tool))
    library = built(mpi, "counting_tool.c", "-shared", "-fPIC")
    for program, preloaded in ((linked, ""), (built(mpi, "calling.c"), str(library))):
        out, log = execute(mpi, table, program, "10", LD_PRELOAD=preloaded)
        assert "total 20000.0" in out
        assert "tool: 1 inits, 10 allreduces" in out
        assert planned(log) == 8


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_program_that_loads_mpi_by_itself_is_told_that_no_call_was_seen(
    mpi: str, table: Path
) -> None:
    python = mpi_python(mpi)
    library = next((python.parents[1] / "lib").glob("libmpi.so.*"))
    out, log = execute(mpi, table, built(mpi, "loading.c"), library)
    assert out.count("initialized") == 2
    (line,) = log.splitlines()
    assert line.startswith("collplan: the program has initialized MPI, but not through")
    assert line.endswith(NATIVE)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_python_started_by_other_programs_runs_by_plans(mpi: str, table: Path) -> None:
    """The calls of mpi4py are intercepted in C, also where they have large counts."""
    out, log = execute(mpi, table, "env", mpi_python(mpi), PROGRAMS / "unchanged.py", "word")
    assert "unchanged mpi4py __main__ ['word'] 3.0" in out
    assert planned(log) == 3


@pytest.mark.system
def test_calls_with_large_counts_run_by_plans_or_are_counted(table: Path) -> None:
    out, log = execute("mpich", table, built("mpich", "large_counts.c"))
    assert out == "0 wrong\n"
    assert planned(log) > 6
    assert re.search(r"gatherv_c +native +2 +0 +2 .* large counts are native", log), log


@pytest.mark.system
def test_programs_with_address_sanitizer_or_without_signals_of_children_run_by_plans(
    table: Path,
) -> None:
    program = built("mpich", "calling.c", "-fsanitize=address")
    out, log = execute("mpich", table, program, "10", "ignore", ASAN_OPTIONS="detect_leaks=0")
    assert "total 20000.0" in out
    assert planned(log) == 8


def test_an_interpreter_of_this_environment_is_no_program(tmp_path: Path) -> None:
    ours, other = sys.executable, tmp_path / "python3"
    other.symlink_to(ours)
    assert without_interpreter([ours, "app.py", "-u"]) == ["app.py", "-u"]
    assert without_interpreter([ours, "-m", "app", "x"]) == ["-m", "app", "x"]
    for words in (
        [ours],
        [ours, "-u", "app.py"],
        [str(other), "app.py"],
        ["no-such", "x"],
        ["env"],
    ):
        assert without_interpreter(words) == words


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), CollplanError("no compiler"), MemoryError()]
)
def test_whatever_fails_before_a_program_starts_it_starts_natively(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(running, "preload_environment", fail)
    monkeypatch.setattr(os, "execve", lambda *words: started.append(words))
    monkeypatch.setattr(running.signal, "signal", lambda *_: None)
    running.become(Path("/bin/true"), ["./true", "x"], Path("table.yaml"), force=False)
    assert started == [(Path("/bin/true"), ["./true", "x"], dict(os.environ))]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("collplan: ")
    assert line.endswith(NATIVE)


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_threads_are_asked_for_only_if_non_blocking_calls_were_tuned(
    suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"table{suffix}"
    save_table(planning_table(2, ("bcast",)), path)
    assert not may_start_plans(path)
    planned = planning_table(2, ("bcast",), overlaps=True).model_dump()
    save_table(parse_table(planned), path)
    assert may_start_plans(path)
    for sweep in planned["sweeps"]:
        for point in sweep["points"]:
            point["winner"] = "native"
    save_table(parse_table(planned), path)
    assert not may_start_plans(path)
    assert not may_start_plans(tmp_path / "none.json")


def test_static_programs_are_refused_by_their_headers(tmp_path: Path) -> None:
    check_dynamic(Path(sys.executable).resolve())
    path = tmp_path / "static"
    head = b"\x7fELF\x02" + bytes(27) + struct.pack("Q 14x HH 4x", 64, 56, 1)
    path.write_bytes(head + bytes(64 - len(head)) + struct.pack("I", 1) + bytes(52))
    with pytest.raises(CollplanError, match="is linked statically"):
        check_dynamic(path)
    path.write_bytes(b"#!/bin/sh\n")
    check_dynamic(path)


def test_ld_preload_gets_a_path_without_spaces_and_colons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    plain, spaced = tmp_path / "plain.so", tmp_path / "my ca:che" / "library.so"
    spaced.parent.mkdir()
    spaced.write_text("x")
    assert without_separators(plain) == plain
    for _ in range(2):
        found = without_separators(spaced)
        assert " " not in str(found).removeprefix(str(tmp_path))
        assert ":" not in str(found).removeprefix(str(tmp_path))
        assert found.read_text() == "x"
    monkeypatch.setattr("tempfile.tempdir", str(spaced.parent))
    with pytest.raises(CollplanError, match="LD_PRELOAD cannot contain a path with a space"):
        without_separators(spaced)
