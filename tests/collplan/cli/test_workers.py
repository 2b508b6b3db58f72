"""Commands on the workers of dask.distributed: the same answers, and mistakes in a line."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.workers import WORTH_A_POOL, _are_worth_a_pool
from collplan.own_algorithms import FILES
from collplan.planner.machine_code.kernel import Kernel
from command_line import CommandLine

OWN = """
import os, pathlib

pathlib.Path({folder!r}, str(os.getpid())).touch()
"""


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.long
def test_compare_gives_what_it_gives_here(collplan: CommandLine, dask_client: Any) -> None:
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    command = ["compare", str(spec), "--sizes", "64B,64KiB", "--candidates", "flat", "--json"]
    here = collplan(*command).json()
    assert collplan(*command, "--dask", dask_client.scheduler.address).json() == here


@pytest.mark.long
def test_workers_import_own_algorithms(
    collplan: CommandLine,
    dask_client: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files of ``--import``, which workers that ran before do not inherit."""
    own, seen = collplan.folder / "own.py", collplan.folder / "seen"
    seen.mkdir()
    own.write_text(OWN.format(folder=str(seen)))
    monkeypatch.setenv(FILES, str(own))
    spec = collplan.write_spec()
    done = collplan(
        "compare", spec, "--candidates", "ring", "--dask", dask_client.scheduler.address
    )
    assert done.status == 0, done
    pids = {str(pid) for pid in dask_client.run(os.getpid).values()}
    assert len(pids) == 2
    assert pids <= {path.name for path in seen.iterdir()}


@pytest.mark.long
def test_tune_lists_what_it_lists_here(collplan: CommandLine, dask_client: Any) -> None:
    """By the scheduler's file."""
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    command = ["tune", str(spec), "--list", "--collectives", "all", "--json"]
    here = collplan(*command).json()
    file = collplan.folder / "scheduler.json"
    file.write_text(json.dumps({"address": dask_client.scheduler.address}))
    assert collplan(*command, "--dask", str(file)).json() == here


@pytest.mark.long
def test_mistakes(collplan: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collplan.cli.workers.CONNECT_S", 1)
    spec = str(collplan.write_spec(machine={"nodes": 2}))
    for address in ("tcp://127.0.0.1:1", "frob://x", "not an address"):
        error = collplan("compare", spec, "--dask", address).error()
        assert f"--dask: no scheduler of dask.distributed at '{address}'" in error
    broken = collplan.folder / "scheduler.json"
    for text, words in (
        ("{}", f"--dask: {broken} is no file that 'dask scheduler"),
        ('{"address": 3}', f"--dask: {broken} is no file that 'dask scheduler"),
        ("[" * 100_000, f"{broken}: nested too deeply; use at most 32 levels"),
        ("\ufeff", f"{broken}: line 1: Expecting value"),
        (" " * (1 << 25) + "{}", f"{broken}: is larger than 32 MiB; a file of a scheduler is"),
    ):
        broken.write_text(text)
        assert words in collplan("compare", spec, "--dask", str(broken)).error()
    error = collplan("tune", spec, "-o", str(collplan.folder / "t"), "--dask", "x").error()
    assert "--dask: measures nothing; give it with --list" in error
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'collplan[dask]'" in collplan("compare", spec, "--dask", "x").error()


def test_a_scheduler_without_workers_is_said(collplan: CommandLine) -> None:
    from distributed import LocalCluster

    spec = str(collplan.write_spec(machine={"nodes": 2}))
    with LocalCluster(n_workers=0, dashboard_address=":0") as cluster:
        error = collplan("compare", spec, "--dask", cluster.scheduler_address).error()
    assert "has no workers; start some, as with 'dask worker tcp://" in error


@pytest.mark.parametrize(("n_plans", "expected"), [(0, False), (WORTH_A_POOL, True)])
def test_numba_is_not_imported_to_see_that_processes_pay(
    n_plans: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only in between does it matter whether the simulator has to be compiled."""
    monkeypatch.setattr(Kernel, "has_code", property(lambda _: pytest.fail("imports numba")))
    assert _are_worth_a_pool(n_plans) is expected
    for has_code in (False, True):
        monkeypatch.setattr(Kernel, "has_code", property(lambda _, found=has_code: found))
        assert _are_worth_a_pool(WORTH_A_POOL // 2) is not has_code
