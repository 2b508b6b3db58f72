"""Programs in C and Fortran on a table, with a library preloaded: results, and what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from math import ceil
from pathlib import Path

import numpy as np
import pytest

from collplan.deciding.decisions import MAKING_S
from collplan.deciding.options import MAX_PLANS, CallOptions
from collplan.deciding.trial_share import TRIALS
from collplan.executors.mpi.launch import standard_input
from collplan.preload import rank_script, running
from collplan.preload.running import native_program
from collplan.tables.table import load_table, save_table
from collplan.watch.options import WatchOptions
from ending_jobs import helper_of, launcher_of, marked_processes, wait_until
from folders import ROOT
from mpi_launching import (
    ALL,
    DEBIAN,
    HANG_S,
    MPIS,
    mpi_environment,
    mpi_python,
    mpiexec_of,
    run,
)
from native_building import built, exec_line, run_losing_helper
from native_cases import KINDS, VECTORS, write_cases
from tables_everywhere import planning_table, reproducing_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")
if sys.platform != "linux":
    pytest.skip(
        "LD_PRELOAD and /proc are Linux's: native programs run there", allow_module_level=True
    )

OVERLAP = "send and receive buffers overlap"
SHIM = ROOT / "collplan" / "preload" / "shim"
TRANSPORTS = {"mpich": "shared", "openmpi": "messages", "debian-mpich": "messages"}
FORTRAN = ("conformance_mpif.f90", "conformance_mpi.f90", "conformance_f08.f90")


def table_of(folder: Path, transport: str = "messages", *, overlaps: bool = False) -> Path:
    path = folder / f"{transport}.json"
    save_table(planning_table(4, transport=transport, overlaps=overlaps), path)
    return path


def planned_kinds(log: str) -> set[str]:
    """Return the collectives that plans ran."""
    return set(re.findall(r"^(\w+) +(?!native)\S.* won at", log, re.MULTILINE))


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", ALL)
def test_c_programs_have_mpis_own_results(mpi: str, tmp_path: Path) -> None:
    program = built(mpi, "conformance.c")
    table = table_of(tmp_path, TRANSPORTS.get(mpi, "shared"), overlaps=True)
    n_cases = write_cases(tmp_path / "cases", mpi)
    logged = {"COLLPLAN_LOG": "1", "COLLPLAN_NATIVE_CALLS": "1"}
    done = run(exec_line(mpi, table, 3, program, tmp_path / "cases"), **logged)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{n_cases} cases, 0 wrong" in done.stdout
    planned = re.search(r"(\d+) collectives by plans", done.stderr)
    assert planned is not None
    assert int(planned[1]) > n_cases
    assert planned_kinds(done.stderr) >= {*KINDS, "barrier"}


@pytest.mark.system
@pytest.mark.parametrize("source", FORTRAN)
@pytest.mark.parametrize("mpi", DEBIAN)
def test_fortran_programs_have_mpis_own_results(mpi: str, source: str, tmp_path: Path) -> None:
    program = built(mpi, source)
    launched = [str(mpiexec_of(mpi_python(mpi))), "-n", "3", str(program)]
    native = run(launched)
    table = table_of(tmp_path, overlaps=True)
    done = run(exec_line(mpi, table, 3, program), COLLPLAN_LOG="1")
    assert native.returncode == done.returncode == 0, done.stdout + done.stderr
    assert re.fullmatch(r"checksum +[\d.]+\n\d+ cases, 0 wrong\n", native.stdout)
    # Open MPI 5 may put the end of what it has read of a long standard error before other output.
    assert done.stdout.endswith(native.stdout)
    planned = re.search(r"(\d+) collectives by plans", done.stderr)
    assert planned is not None
    assert int(planned[1]) >= 30
    assert planned_kinds(done.stderr) >= {*VECTORS}
    assert re.search(r"Iallreduce +ring +3 +96 +8 .* won at 64 bytes", done.stderr)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_first_calls_are_reproducible_if_the_table_says_so(mpi: str, tmp_path: Path) -> None:
    """Neither a native winner nor a plan in another order runs, nor any native call before it."""
    table = tmp_path / "table.json"
    for is_native in (True, False):
        save_table(reproducing_table(4, "placements", is_native=is_native), table)
        done = run(exec_line(mpi, table, 4, built(mpi, "reproducing.c")), COLLPLAN_LOG="1")
        assert done.returncode == 0, done.stderr
        assert "0 wrong" in done.stdout, done.stdout + done.stderr
        assert "rank 0: 5 collectives by plans, 0 native" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_statistics_say_what_ran_and_why(mpi: str, tmp_path: Path) -> None:
    line = exec_line(mpi, table_of(tmp_path), 2, built(mpi, "calling.c"), "10")
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stderr
    assert "total 20000.0" in done.stdout
    assert "collplan: rank 0: 8 collectives by plans, 2 native" in done.stderr
    assert re.search(
        r"allreduce +ring +2 +8000 +8 .* won at 64 bytes .*, extrapolated", done.stderr
    )
    assert "a plan takes time to make: ring from call 3 on" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_plans_are_made_when_they_would_have_paid(mpi: str, tmp_path: Path) -> None:
    saved_s = 3e-3  # per call, according to the table
    n_calls = ceil(MAKING_S / saved_s)
    line = exec_line(mpi, table_of(tmp_path), 2, built(mpi, "calling.c"), n_calls + 5)
    done = run(["env", "-u", "COLLPLAN_NATIVE_CALLS", *line], COLLPLAN_LOG="1")
    assert f"rank 0: 5 collectives by plans, {n_calls} native; making plans took" in done.stderr
    assert f"ring from call {n_calls + 1} on" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_the_plans_least_recently_used_make_room_for_others(mpi: str, tmp_path: Path) -> None:
    program = built(mpi, "replacing.c"), MAX_PLANS + 2, 3
    line = exec_line(mpi, table_of(tmp_path), 2, *program)
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
    assert done.stdout == "0 wrong\n", done.stdout + done.stderr
    why = "other plans replaced its plan: reduce_bcast again after 16 calls"
    assert re.search(rf"allreduce +native +2 +4 to 8 +2 .* {why}", done.stderr), done.stderr


@pytest.mark.system
@pytest.mark.parametrize(("native_calls", "n_readings"), [("100000", 0), ("2", 1)])
def test_calls_read_the_clock_once_by_a_plan_and_never_before(
    native_calls: str, n_readings: int, tmp_path: Path
) -> None:
    """Reading the clock takes as long as a small call."""
    line = exec_line("mpich", table_of(tmp_path), 1, built("mpich", "clocks.c"))
    done = run(line, COLLPLAN_NATIVE_CALLS=native_calls)
    assert done.stdout == f"{n_readings}\n", done.stderr


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("mpi", [*MPIS, "debian-mpich"])
def test_persistent_collectives_are_counted_at_their_starts(
    mpi: str, overlaps: bool, tmp_path: Path
) -> None:
    """They run by plans, or natively where a plan gains less than a start costs."""
    log = tmp_path / "log.json"
    program = built(mpi, "persistent.c"), *([] if overlaps else ["plain"])
    line = exec_line(mpi, table_of(tmp_path, overlaps=overlaps), 3, *program)
    done = run(line, COLLPLAN_LOG=str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 starts, 0 wrong" in done.stdout
    names = ("ring", "scatter_allgather", "ring") if overlaps else ("native",) * 3
    assert {key: n_calls for key, n_calls in calls_of(log).items() if key[0].endswith("_init")} == {
        ("MPI_Allreduce_init", names[0], 800): 5,
        ("MPI_Bcast_init", names[1], 800): 5,
        ("MPI_Allgather_init", names[2], 200): 5,
    }


def calls_of(log: Path) -> dict[tuple[str, str, int], int]:
    """Return the numbers of calls in a log for programs, by function, what ran, and size."""
    rows = json.loads(log.read_text())["calls"]
    found = {(one["call"], one["ran"], one["bytes"]): 0 for one in rows}
    for one in rows:
        found[one["call"], one["ran"], one["bytes"]] += one["calls"]
    return found


@pytest.mark.system
def test_a_log_that_cannot_be_written_gives_one_line(tmp_path: Path) -> None:
    line = exec_line("mpich", table_of(tmp_path), 2, built("mpich", "calling.c"), "10")
    done = run(line, COLLPLAN_LOG=str(tmp_path / "nowhere" / "log.json"))
    assert (done.returncode, done.stdout) == (0, "total 20000.0\n")
    (said,) = done.stderr.splitlines()
    assert said.startswith(
        f"collplan: COLLPLAN_LOG: {tmp_path}/nowhere/log.json: cannot be written"
    )


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("ended", ["", "unended"])
@pytest.mark.parametrize("mpi", [*MPIS, *DEBIAN])
def test_nonblocking_calls_run_by_plans_beside_all_else(
    mpi: str, ended: str, tmp_path: Path
) -> None:
    program, log = built(mpi, "starting.c"), tmp_path / "log.json"
    line = exec_line(mpi, table_of(tmp_path, overlaps=True), 3, program, ended)
    done = run(line, COLLPLAN_LOG=str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    calls = calls_of(log)
    assert calls["MPI_Iallreduce", "ring", 4000] > 500
    assert calls["MPI_Iallgather", "ring", 2000] == 3
    assert calls["MPI_Iallgather", "native", 2000] == 2
    assert calls["MPI_Ibcast", "binomial", 4] == 18


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nonblocking_calls_go_on_natively_without_the_helper(
    mpi: str, number: signal.Signals, tmp_path: Path
) -> None:
    program = built(mpi, "starting.c")
    line = exec_line(mpi, table_of(tmp_path, overlaps=True), 2, program, "wait")
    status, out, err = run_losing_helper(line, tmp_path, number)
    assert (status, out) == (0, "0 wrong\n"), err
    (said,) = err.splitlines()
    assert said.endswith("calls without a plan are native from now on")
    assert wait_until(lambda: not marked_processes(str(tmp_path)), 60)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_threads_call_at_the_same_time(mpi: str, tmp_path: Path) -> None:
    line = exec_line(mpi, table_of(tmp_path), 2, built(mpi, "threads.c"))
    done = run(line, COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout
    planned = re.search(r"(\d+) collectives by plans", done.stderr)
    assert "threads 0" in done.stdout or (planned is not None and int(planned[1]) > 1000)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_what_mpi_rejects_is_rejected_in_all_calls_and_not_counted(
    mpi: str, tmp_path: Path
) -> None:
    done = run(exec_line(mpi, table_of(tmp_path), 2, built(mpi, "rejected.c")), COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong" in done.stdout, done.stderr
    # The 12 right calls; the first two equal ones are native.
    assert re.search(r"reduce +binomial +2 +8 +10 ", done.stderr), done.stderr
    assert re.search(r"allreduce +\w+ +2 +4 +126 ", done.stderr), done.stderr
    for kind, why in (("allgatherv", "another rank has .* buffers"), ("alltoallv", OVERLAP)):
        assert re.search(rf"{kind} +native +2 .*{why}", done.stderr), done.stderr
        assert not re.search(rf"^{kind} +(?!native| )", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"reduce_scatter +linear +2 +8 +10 ", done.stderr), done.stderr
    assert "a rank has as many communicators with plans as it may have" in done.stderr
    # 40 signatures in turn: 8 plans are replaced after a call, and their next 9 calls are native.
    assert re.search(r"bcast +scatter_allgather +2 +408 to 564 +328 ", done.stderr), done.stderr
    assert "other plans replaced its plan: scatter_allgather again after 16 calls" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_calls_with_processes_of_another_world_are_native(mpi: str, tmp_path: Path) -> None:
    done = run(exec_line(mpi, table_of(tmp_path), 1, built(mpi, "spawning.c")), COLLPLAN_LOG="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 of 6 right" in done.stdout
    assert "processes of another MPI_COMM_WORLD take part" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_that_a_grid_leaves_out_are_not_waited_for(mpi: str, tmp_path: Path) -> None:
    table = table_of(tmp_path, overlaps=True)
    line = exec_line(mpi, table, 3, built(mpi, "left_out.c"))
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["6 of 6 right"] * 2
    assert "rank 0: 11 collectives by plans, 1 native" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_threads_that_make_communicators_do_not_wait_for_those_of_plans(
    mpi: str, tmp_path: Path
) -> None:
    """Open MPI may let two threads that make communicators wait forever."""
    line = exec_line(mpi, table_of(tmp_path), 3, built(mpi, "making.c", "-pthread"))
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "45 of 45 right\n"
    is_planned = "rank 0: 45 collectives by plans" in done.stderr
    assert is_planned != ("threads make their own in Open MPI" in done.stderr)
    assert is_planned == (mpi == "mpich")


@pytest.mark.system
def test_another_table_leaves_all_native_and_says_so_once(tmp_path: Path) -> None:
    line = exec_line("mpich", table_of(tmp_path), 2, built("mpich", "calling.c"), "10")
    line.remove("--force")
    done = run(line)
    assert done.returncode == 0, done.stderr
    assert "total 20000.0" in done.stdout
    (said,) = done.stderr.splitlines()
    assert said.startswith("collplan: fingerprint.")
    assert said.endswith("all collectives are native")


@pytest.mark.system
def test_without_a_compiler_all_is_native(tmp_path: Path) -> None:
    line = exec_line("mpich", table_of(tmp_path), 2, built("mpich", "calling.c"), "10")
    done = run(line, CC="/nowhere/cc", NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "total 20000.0" in done.stdout
    said = [text for text in done.stderr.splitlines() if "native" in text]
    assert said == [
        "collplan: the C compiler /nowhere/cc does not work: [Errno 2] No such file or directory: "
        "'/nowhere/cc'; all collectives are native"
    ]


@pytest.mark.system
@pytest.mark.parametrize(
    ("mpi", "how"),
    [
        *(("mpich", how) for how in ("abort", "leave", "mpiexec")),
        *(("openmpi", how) for how in ("kill", "exec", "mpiexec")),
    ],
)
def test_a_job_that_is_ended_leaves_nothing_behind(mpi: str, how: str, tmp_path: Path) -> None:
    program = built(mpi, "calling.c")
    word = "spin" if how == "mpiexec" else how
    line = exec_line(mpi, table_of(tmp_path, "shared"), 2, program, word)
    marked = {**mpi_environment(), "COLLPLAN_TEST_MARK": str(tmp_path)}
    if how in ("exec", "mpiexec"):
        job = subprocess.Popen(line, env=marked, stdout=subprocess.DEVNULL, start_new_session=True)
        assert wait_until(lambda: helper_of(marked_processes(str(tmp_path))) is not None, 60)
        launcher = launcher_of(marked_processes(str(tmp_path)))
        assert launcher is not None
        os.kill(job.pid if how == "exec" else launcher, signal.SIGKILL)
        job.wait()
    else:
        done = run(line, COLLPLAN_TEST_MARK=str(tmp_path))
        assert done.returncode != 0
    assert wait_until(lambda: not marked_processes(str(tmp_path)), 60)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_a_program_goes_on_without_its_helper_and_says_so(
    mpi: str, number: signal.Signals, tmp_path: Path
) -> None:
    program = built(mpi, "calling.c")
    line = exec_line(mpi, table_of(tmp_path), 2, program, "wait")
    marked = {**mpi_environment(), "COLLPLAN_TEST_MARK": str(tmp_path), "COLLPLAN_LOG": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, env=marked, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline().startswith("running")
        helper = helper_of(marked_processes(str(tmp_path)))
        assert helper is not None
        os.kill(helper, number)
        out, err = job.communicate("go on\n", timeout=HANG_S)
    assert job.returncode == 0, out + err
    assert "total 160000.0" in out
    is_stopped = number == signal.SIGSTOP
    why = f"the helper process has {'not answered for 2 s' if is_stopped else 'ended'}"
    assert err.splitlines() == [
        f"collplan: rank 0: {why}; calls without a plan are native from now on",
        f"collplan: rank 0: 58 collectives by plans, 13 native; further statistics are lost: {why}",
    ]
    assert wait_until(lambda: not marked_processes(str(tmp_path)), 60)


STOPPED_HELPER = """
import os, signal, sys
if any(word.endswith("preload/__main__.py") for word in sys.orig_argv):
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_helper_that_is_stopped_at_its_start_leaves_all_native(mpi: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STOPPED_HELPER)
    line = exec_line(mpi, table_of(tmp_path), 2, built(mpi, "calling.c"), "10")
    path = f"{mpi_environment()['PYTHONPATH']}{os.pathsep}{tmp_path}"
    try:
        done = run(line, PYTHONPATH=path, COLLPLAN_TEST_MARK=str(tmp_path))
    finally:
        for pid in marked_processes(str(tmp_path)):
            os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0, done.stderr
    assert "total 20000.0" in done.stdout
    assert done.stderr == (
        "collplan: the helper process has not answered for 2 s; all collectives are native\n"
    )


@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", [*MPIS, *DEBIAN])
def test_numbers_and_names_are_those_of_mpi_h(mpi: str) -> None:
    header = header_of(mpi)
    text = (SHIM / "mpi_abi.h").read_text()
    is_openmpi = "openmpi" in mpi
    rows = re.findall(r"X\((\w+), (?:\w+|'.'), (0x\w+), (\w+)\)", text)
    assert len(rows) > 60
    upper = dict(re.findall(r"X\((\w+), ([A-Z]+), 0x", text))
    missing = set()
    for name, number, symbol in rows:
        name = f"MPI_{upper.get(name, name)}"
        pattern = rf"#\s*define\s+{name}\s+(.*)"
        found = re.search(pattern, header)
        if found is None:
            missing.add(name)
        elif is_openmpi:
            assert f"{symbol})" in found[1].replace(" ", ""), name
        else:
            assert number in found[1], name
    # MPI has no standard name for float16.
    assert missing <= {"MPI_LONG_LONG_INT", "MPI_C_FLOAT_COMPLEX", "MPI_FLOAT16"}


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", [*MPIS, *DEBIAN])
def test_constants_are_those_of_mpi_h(mpi: str, tmp_path: Path) -> None:
    """Compile a comparison of all constants, and of the sizes of statuses."""
    text = (SHIM / "mpi_abi.h").read_text()
    common, other = text.partition("#ifdef COLLPLAN_OPENMPI")[::2]
    ours, theirs = other.partition("#else")[::2]
    part = ours if "openmpi" in mpi else theirs.partition("#endif")[0]
    constants = re.findall(r"#define (MPI_\w+) (.*)", common + part)
    assert len(constants) > 10
    lines = ["#include <mpi.h>"]
    lines += [
        f'_Static_assert((long)({name}) == (long)({value}), "{name}");' for name, value in constants
    ]
    (size,) = re.findall(r"#define CP_STATUS_BYTES (\d+)", part)
    lines.append(f'_Static_assert(sizeof(MPI_Status) == {size}, "status");')
    source = tmp_path / "constants.c"
    source.write_text("\n".join([*lines, "int main(void) { return 0; }"]))
    built(mpi, str(source))


def header_of(mpi: str) -> str:
    python = mpi_python(mpi)
    if mpi in DEBIAN:
        family = mpi.removeprefix("debian-")
        found = list(Path("/usr").glob(f"*/*-linux-gnu/{family}/**/mpi.h"))
    else:
        found = list((python.parents[1] / "include").glob("mpi.h"))
    if not found:
        pytest.skip(f"{mpi} has no mpi.h here to compare ours with")
    return found[0].read_text()


def test_programs_are_told_apart(tmp_path: Path) -> None:
    script, other, module = (tmp_path / name for name in ("a", "b", "c.py"))
    script.write_text("#!/usr/bin/env python3\n")
    other.write_text("#!/bin/sh\ntrue\n")
    module.write_text("print()\n")
    for path in (script, other):
        path.chmod(0o755)
    assert native_program(str(script)) is None
    assert native_program(str(module)) is None
    assert native_program("no-such-program-anywhere") is None
    assert native_program(str(other)) == other
    found = native_program("sh")
    assert found is not None
    assert found.is_absolute()


@pytest.mark.system
def test_a_helper_decides_and_plans_as_the_table_says(tmp_path: Path) -> None:
    from collplan.deciding.calls import CollectiveCall
    from collplan.preload.teams import MASK_AT, N_FACTS, Planner, Team

    table = load_table(table_of(tmp_path, "shared"))
    facts = np.ones((3, N_FACTS), np.uint64)
    team, planner = Team(facts), Planner(table, CallOptions())
    assert MASK_AT < N_FACTS
    assert team.crowding.ranks_per_core == 3 / (N_FACTS - MASK_AT)
    call = CollectiveCall("allreduce", 800, 0, "sum", "float64")
    decision, digest, _ = planner.decide(team, call)
    assert decision.label == "ring"
    assert planner.decide(team, CollectiveCall("bcast", 800)).digest != digest
    programs = [planner.program(team, rank, call) for rank in range(3)]
    path, symbol, _ = programs[0].split(b"\0", 2)
    assert Path(path.decode()).exists()
    assert symbol == b"collplan_reduce_sum_float64"
    assert len({len(program) for program in programs}) <= 3


def test_the_script_of_a_rank_forces_a_table_only_if_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = []
    monkeypatch.setattr(standard_input, "take_input", lambda: None)
    monkeypatch.setattr(running, "become", lambda *words, **options: told.append((words, options)))
    monkeypatch.setenv(TRIALS, "0.5")
    for forced, trials in ((rank_script.FORCED, "0.2"), ("", "")):
        rank_script.main("t.yaml", forced, "", "30.0", "1", trials, "4,5", "/bin/app", "app", "-x")
        assert os.environ[TRIALS] == "0.2"
    words = Path("/bin/app"), ["app", "-x"], Path("t.yaml")
    options = {"watch": WatchOptions(30.0, is_checking=True), "cores": "4,5"}
    assert told == [(words, {"force": force, **options}) for force in (True, False)]
