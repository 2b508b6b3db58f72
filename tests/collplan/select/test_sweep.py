"""Sweeps: every executor gives the same prices, in order; refusals are results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.compiler import compile as compiling
from collplan.planner.memory import free_machine_bytes
from collplan.select.sweep import executor_on, number_of_workers, processes, run_jobs, sweep
from collplan.specs import PlanSpec
from command_line import CommandLine
from mpi_launching import mpi_python, mpiexec_of, run

ALGORITHMS = ("ring", "recursive_doubling", "neighbor_exchange", "bruck", "linear")


def specs() -> list[PlanSpec]:
    return [
        PlanSpec.model_validate(
            {
                "machine": {"nodes": 5, "lanes": 2},
                "collective": {"kind": "allgather", "count": count},
                "algorithms": name,
            }
        )
        for name in ALGORITHMS
        for count in (1, 5000)
    ]


def test_prices_are_those_of_the_plans() -> None:
    some = [spec for spec in specs() if spec.algorithms.name == "ring"]
    for spec, price in zip(some, sweep(some), strict=True):
        plan = compile_plan(spec)
        assert price.n_tasks == plan.n_tasks
        assert price.makespan_s == simulate(plan).makespan_s > 0


def test_one_node_of_a_large_machine_is_priced_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 130, "ranks_per_node": 4, "lanes": 2},
            "collective": {"kind": "allreduce", "count": 1040},
            "decomposition": "full_lane",
            "algorithms": {"lane": "circulant"},
        }
    )
    plan = compile_plan(spec)
    symmetric, tree = spec, spec.replace(algorithms={"lane": "reduce_bcast"})
    whole = []
    monkeypatch.setattr(compiling, "compile_plan", lambda *a, **k: whole.append(a) or plan)
    price, _ = sweep([symmetric, tree])
    assert (price.n_tasks, price.makespan_s) == (plan.n_tasks, simulate(plan).makespan_s)
    assert [one.algorithms.roles["lane/allreduce"].name for (one,) in whole] == ["reduce_bcast"]


def test_refusals_are_results() -> None:
    refused = [price for price in sweep(specs()) if price.makespan_s is None]
    assert len(refused) == 4  # two algorithms, for 5 ranks neither
    assert all("5 ranks" in (price.refusal or "") and price.n_tasks == 0 for price in refused)


def check_same_as_serial(executor: Executor | None) -> None:
    seen: dict[int, object] = {}
    some = specs()
    found = sweep(some, executor, on_done=seen.__setitem__)
    assert found == sweep(some)
    assert seen == dict(enumerate(found))


def test_threads_give_what_one_gives() -> None:
    with ThreadPoolExecutor(3) as pool:
        check_same_as_serial(pool)


def test_processes_give_what_one_gives() -> None:
    with processes(2) as pool:
        assert pool is not None
        check_same_as_serial(pool)


def bytes_allocated(n_bytes: int) -> int:
    """Allocate memory in the process that runs this; return 0 where there is not enough."""
    try:
        return len(bytearray(n_bytes))
    except MemoryError:
        return 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")
def test_a_process_that_wants_too_much_memory_is_told_so_and_not_killed() -> None:
    too_much = free_machine_bytes() * 3 // 4  # a process of two may have half of it
    with processes(2) as executor:
        assert run_jobs(bytes_allocated, [too_much, 1000], executor) == (0, 1000)


def test_a_plan_that_memory_cannot_hold_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: object) -> None:
        raise MemoryError

    monkeypatch.setattr("collplan.executors.cost.simulator.simulate", fail)
    (price,) = sweep(specs()[:1])
    assert (price.makespan_s, price.lacks_memory) == (None, True)


def test_one_process_is_this_one() -> None:
    with processes(1) as pool:
        assert pool is None


def test_a_job_that_fails_stops_the_others() -> None:
    def job(item: int) -> int:
        if item == 1:
            raise ZeroDivisionError
        started.append(item)
        return item

    started: list[int] = []
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        run_jobs(job, range(1, 1000), pool)
    assert len(started) < 999


def test_no_more_items_are_taken_than_there_is_room_for() -> None:
    def items() -> Iterator[int]:
        for item in range(20):
            taken.append(item)
            yield item

    def most_ahead(item: int) -> int:
        return len(taken) - item

    taken: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        ahead = run_jobs(most_ahead, items(), pool, n_at_once=2)
    assert len(ahead) == 20
    assert max(ahead) <= 2


@pytest.mark.system
def test_ranks_give_what_one_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = mpi_python("mpich")
    collplan = CommandLine(tmp_path, capsys)
    spec = collplan.write_spec(machine={"nodes": 2, "ranks_per_node": 4})
    options = ["compare", str(spec), "--sizes", "64B,64KiB", "--candidates", "flat", "--json"]
    here = collplan(*options).json()
    mpiexec, futures = str(mpiexec_of(python)), [str(python), "-m", "mpi4py.futures"]
    done = run([mpiexec, "-n", "3", *futures, "-m", "collplan", *options])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == here
    wrong = run(
        [
            mpiexec,
            "-n",
            "2",
            *futures,
            "-m",
            "collplan",
            "compare",
            str(spec),
            "--candidates",
            "frob",
        ]
    )
    assert wrong.returncode == 2
    assert "'frob' fits none" in wrong.stderr


@pytest.mark.long
def test_workers_of_dask_give_what_one_gives(dask_client: Any) -> None:
    """A dask_client itself, or its executor."""
    check_same_as_serial(dask_client)
    check_same_as_serial(dask_client.get_executor())
    assert number_of_workers(executor_on(dask_client)) == 2


def fail_on_two(item: int) -> int:
    """Fail for one item."""
    if item == 2:
        raise ZeroDivisionError
    return item


@pytest.mark.long
def test_a_job_that_fails_on_a_worker_of_dask_fails_here(dask_client: Any) -> None:
    assert run_jobs(fail_on_two, [0, 1], dask_client) == (0, 1)
    with pytest.raises(ZeroDivisionError):
        run_jobs(fail_on_two, range(5), dask_client)


def test_numbers_of_workers() -> None:
    assert number_of_workers(None) == 1
    with ThreadPoolExecutor(3) as pool:
        assert number_of_workers(pool) == 3
