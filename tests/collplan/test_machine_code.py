"""All kernels get machine code in advance."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from collplan import machine_code
from collplan.planner.algorithms.building_blocks.block_schedule import block_schedule
from collplan.planner.arrays.recent import Recent
from collplan.planner.lowering import batches
from collplan.planner.lowering.recent_steps import RecentSteps
from collplan.planner.machine_code.kernel import Kernel
from collplan.planner.packing import schedule
from collplan.planner.packing.bounds import cut_bound
from interpreting import kernels, name_of

UNUSUAL = {"collplan.planner.verify.order._execute"}
"""Called only for plans whose rows are in no order of execution, as no compiler makes them."""


@pytest.mark.long
def test_the_specs_call_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    called, call = set(), Kernel.__call__

    def noted(kernel: Kernel, *arguments: object) -> object:
        called.add(name_of(kernel))
        return call(kernel, *arguments)

    monkeypatch.setattr(machine_code.interpreted, "SHARE", 0.5)  # is restored at the end
    monkeypatch.setattr(Kernel, "__call__", noted)
    # Earlier tests may have left steps, schedules and bounds that are not made again.
    monkeypatch.setattr(batches, "_recent", RecentSteps())
    monkeypatch.setattr(schedule, "_recent", Recent(0))
    cut_bound.cache_clear()
    block_schedule.cache_clear()
    for job in machine_code.jobs(into=False):
        if isinstance(job, partial) and job.func is machine_code.use_kernels:
            job()
    assert kernels() - called == UNUSUAL


@pytest.mark.long
def test_a_process_compiles_what_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from functools import partial\n"
        "from collplan import machine_code\n"
        "from collplan.executors.mpi.loop.entries import entry\n"
        "machine_code.jobs = lambda *, into: [partial(entry, 'read_word')]\n"
        "if __name__ == '__main__':\n    machine_code.main(sys.argv[1:])\n"
    )
    script = tmp_path / "ahead.py"
    script.write_text(program)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "CC": "/none"}
    subprocess.run([sys.executable, str(script)], env=env, check=True)
    assert list(tmp_path.rglob("collplan_read_word-*.o"))
