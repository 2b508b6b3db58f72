"""The engine is compiled while ranks start, by a process that never outlives the command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

COMPILED = """
import time
from collplan.executors.mpi.launch.jobs import compiling_ahead
from collplan.executors.mpi.loop.object_files import is_kept

assert not is_kept("run_loop")
with compiling_ahead():
    end = time.monotonic() + 120
    while not is_kept("run_loop") and time.monotonic() < end:
        time.sleep(0.05)
assert is_kept("run_loop")
with compiling_ahead():
    assert not children()
"""
STOPPED = """
import time
from collplan.executors.mpi.launch.jobs import compiling_ahead

begin = time.monotonic()
try:
    with compiling_ahead():
        assert len(children()) == 1
        raise KeyError("ranks")
except KeyError:
    assert time.monotonic() - begin < 1
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
