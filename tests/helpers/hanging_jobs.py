"""Jobs that hang on purpose, which are stopped when they have been reported."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import debian_mpi
from ending_jobs import kill_marked
from folders import PROGRAMS
from mpi_launching import DEBIAN, mpi_environment, mpi_python

HANG_AFTER_S = 2.0
"""Time in seconds after which jobs of tests report that they hang."""
PYTHON_PROGRAM = PROGRAMS / "hanging.py"
_MARK = "COLLPLAN_TEST_MARK"


class Planted(NamedTuple):
    """A way to hang, and what its report must say."""

    way: str
    said: tuple[str, ...]
    is_checked: bool = False
    is_wrapped: bool = False


_RANK_2 = r"rank 2 has not called it: it "
_OTHERS = r"ranks 0 and 1 wait in "
PLANTED = (
    Planted("missing_rank", (_OTHERS + "MPI_Barrier", _RANK_2 + "has waited .* MPI_Recv")),
    Planted("endless_computation", (_OTHERS + "MPI_Allreduce of 8", _RANK_2 + "computes")),
    Planted("input_wait", (_OTHERS + "MPI_Allreduce", _RANK_2 + "sleeps, or waits for input")),
    Planted("sleeping_rank", (_OTHERS + "MPI_Alltoall", _RANK_2 + "sleeps")),
    Planted("stopped_rank", (_OTHERS + "MPI_Barrier", _RANK_2 + "is stopped")),
    Planted("child_wait", (_OTHERS + "MPI_Barrier", _RANK_2 + "sleeps")),
    Planted(
        "killed_rank",
        (_OTHERS + "MPI_Barrier", _RANK_2 + "(has ended without|was killed)"),
        is_wrapped=True,
    ),
    Planted("early_end", (_OTHERS + "MPI_Allgather", _RANK_2 + "has called MPI_Finalize")),
    Planted("fewer_turns", ("in call 6 of", _OTHERS + "MPI_Allreduce of 16", _RANK_2 + "computes")),
    Planted(
        "half_of_a_group",
        ("rank 1 waits in MPI_Barrier", "that MPI_Comm_split made", "rank 0 has not called it"),
    ),
    Planted("wrong_root", ("mismatch of the root in call 3 .*root 2 .*root 0",)),
    Planted("wrong_kind", ("mismatch of the function .*MPI_Barrier .*MPI_Allreduce",)),
    Planted("wrong_count", ("mismatch of the size in call 3 .*800 bytes .*8 bytes",), True),
    Planted("wrong_type", ("mismatch of the datatype in call 3 .*float64 .*int64",), True),
    Planted("wrong_operation", ("mismatch of the operation in call 3 .*max .*sum",), True),
    Planted("order_of_two", ("mismatch of the order: .*ranks 1 and 2 must wait for rank 0",)),
    Planted(
        "reduce_in_place_of_bcast", ("mismatch of the function .*MPI_Bcast .*MPI_Reduce",), True
    ),
    Planted("request_wait", (_OTHERS + "MPI_Wait.* after MPI_Iallreduce", _RANK_2 + "computes")),
    Planted("making_of_a_communicator", (_OTHERS + "MPI_Comm_split", _RANK_2 + "computes")),
    Planted("point_to_point_first", ("ranks 1 and 2 wait in MPI_Barrier", "MPI_Ssend with rank 1")),
)
"""Twenty programs in C that hang, or would with other sizes."""
PLANTED_IN_PYTHON = (
    Planted("missing_rank", (_OTHERS + "MPI_Barrier", _RANK_2)),
    Planted("endless_computation", (_OTHERS + "MPI_Allreduce of 8", _RANK_2 + "computes")),
    Planted("sleeping_rank", (_OTHERS + "MPI_Bcast", _RANK_2 + "sleeps")),
    Planted("wrong_root", ("mismatch of the root in call 3 .*root 2 .*root 0",), True),
    Planted("wrong_kind", ("mismatch of the function .*MPI_Barrier .*MPI_Allreduce",), True),
    Planted("wrong_count", ("mismatch of the size in call 3 .*32 bytes .*64 bytes",), True),
    Planted("order_of_two", ("mismatch of the order: .*ranks 1 and 2 must wait for rank 0",)),
    Planted(
        "half_of_a_group",
        ("rank 1 waits in MPI_Barrier", "that MPI_Comm_split made", "rank 0 has not called it"),
    ),
)
"""Programs in Python that hang."""


class Outcome(NamedTuple):
    """Lines of a job on standard error, and the time in seconds to the last line wanted."""

    text: str
    seconds: float
    missing: tuple[str, ...]


def command_of(mpi: str, table: Path, program: Path, planted: Planted) -> list[str]:
    """Return the command line of a job of three ranks."""
    python = mpi_python(mpi)
    line = [str(python), "-m", "collplan", "exec", "--table", str(table), "--force"]
    line += ["--hang-after", str(HANG_AFTER_S), *(["--check"] if planted.is_checked else [])]
    # Launchers end a job when a rank is killed. They do not see it if a shell has started the rank.
    shell = ["/bin/sh", "-c", '"$0" "$1"; sleep 1000'] if planted.is_wrapped else []
    return [*line, "-n", "3", *shell, str(program), planted.way]


def outcome_of(
    line: Sequence[str],
    said: Sequence[str],
    folder: Path,
    timeout_s: float,
) -> Outcome:
    """Run a job until it has said all of some regular expressions, or a time is over.

    Parameters
    ----------
    line : sequence of str
        Command line.
    said : sequence of str
        Regular expressions, which are searched for in standard error.
    folder : Path
        A path that marks the processes of the job, all of which are killed at the end.
    timeout_s : float
        Time limit in seconds.
    """
    begin_s = time.monotonic()
    environment = {**mpi_environment(), _MARK: str(folder)}
    for mpi in DEBIAN:
        if str(debian_mpi.python_of(mpi)) in line:
            environment |= debian_mpi.environment_of(mpi)
    job = subprocess.Popen(
        line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    lines: list[str] = []

    def read() -> None:
        assert job.stderr is not None
        lines.extend(iter(job.stderr.readline, ""))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    end_s = begin_s + timeout_s
    missing = tuple(said)
    while missing and time.monotonic() < end_s:
        is_over = job.poll() is not None
        text = "".join(lines)
        missing = tuple(one for one in said if not re.search(one, text))
        if is_over:
            break
        time.sleep(0.05)
    seconds = time.monotonic() - begin_s
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    kill_marked(str(folder))
    job.wait()
    reader.join(60)
    if job.stderr is not None:
        job.stderr.close()
    text = "".join(lines)
    return Outcome(text, seconds, tuple(one for one in said if not re.search(one, text)))
