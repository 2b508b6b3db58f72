"""States of processes, and lines on their standard error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collplan.watch.watcher import doing_of, state_of, write_to_errors_of
from ending_jobs import wait_until

if sys.platform != "linux":
    pytest.skip("the states of processes are read from Linux's /proc", allow_module_level=True)

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(1000)"]
SPIN = [sys.executable, "-S", "-c", "while True: pass"]


def test_what_processes_do_is_described() -> None:
    with subprocess.Popen(SLEEP) as asleep, subprocess.Popen(SPIN) as spinning:
        assert wait_until(lambda: state_of(asleep.pid).letter == "S", 60)
        with subprocess.Popen(SPIN) as stopped, subprocess.Popen(SLEEP) as killed:
            stopped.send_signal(signal.SIGSTOP)
            killed.kill()
            assert wait_until(lambda: state_of(stopped.pid).letter == "T", 60)
            assert wait_until(lambda: state_of(killed.pid).has_ended, 60)
            found = doing_of([asleep.pid, spinning.pid, stopped.pid, killed.pid])
            stopped.kill()
        assert found == {
            asleep.pid: "sleeps, or waits for input or output",
            spinning.pid: "computes, or is in calls that collplan does not see",
            stopped.pid: "is stopped by a signal or a debugger",
            killed.pid: "was killed by SIGKILL",
        }
        assert doing_of([killed.pid]) == {
            killed.pid: "has ended without MPI_Finalize, or was killed"
        }
        asleep.kill()
        spinning.kill()
    assert doing_of([]) == {}


def test_lines_appear_behind_what_a_process_has_written(tmp_path: Path) -> None:
    path = tmp_path / "errors"
    with path.open("wb") as file, subprocess.Popen(SLEEP, stderr=file) as job:
        file.write(b"before\n")
        file.flush()
        assert write_to_errors_of([2**22, job.pid, os.getpid()], "collplan: report\n")
        file.write(b"after\n")
        job.kill()
    assert sorted(path.read_text().splitlines()) == ["after", "before", "collplan: report"]
    assert not write_to_errors_of([job.pid], "nobody reads this")
