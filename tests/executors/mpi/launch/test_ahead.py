"""The engine is compiled while ranks start, by a process that never outlives the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

COMPILED = """
import time
from collplan.executors.mpi.launch import jobs
from collplan.executors.mpi.launch.jobs import compiling_ahead

# What is compiled in a moment stands for the loop.
of, entry, is_kept = {"run_loop": "read_word"}, jobs.entry, jobs.is_kept
jobs.entry, jobs.is_kept = (lambda name: entry(of[name])), (lambda name: is_kept(of[name]))
assert not is_kept("read_word")
with compiling_ahead():
    end = time.monotonic() + 120
    while not is_kept("read_word") and time.monotonic() < end:
        time.sleep(0.05)
assert is_kept("read_word")
with compiling_ahead():
    assert not children()
"""
STOPPED = """
import time
from collplan.executors.mpi.launch import jobs

jobs.entry = lambda name: time.sleep(1000)
try:
    with jobs.compiling_ahead():
        assert len(children()) == 1
        raise KeyError("ranks")
except KeyError:
    pass
assert not children()
"""
CHILDREN = """
import os
from pathlib import Path

def children():
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="children are counted in /proc, as of Linux")
@pytest.mark.parametrize("program", [COMPILED, STOPPED], ids=["compiled", "stopped"])
def test_the_loop_is_compiled_beside_the_block(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN + program],
        env={"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
