"""Overlap on ranks: where threads are, what is timed and checked, what cores are said to do."""

from __future__ import annotations

import os

import numpy as np
from mpi4py import MPI

from collplan.executors.cost.traces.states import CoreState
from collplan.executors.mpi.errors import LaunchError
from collplan.measure.overlap import runs as overlap_runs
from collplan.measure.overlap import timing as overlap
from collplan.measure.overlap.overlapped import Computation
from collplan.measure.overlap.runs import CollectivePair, Pinned
from collplan.measure.overlap.sweep import NATIVE, OverlapMethod, OverlapSweep, plan_sweep
from collplan.measure.overlap.timing import measure_blocking, measure_overlap
from collplan.specs import Machine
from mpi_plans import refuses

comm = MPI.COMM_WORLD
rank, p = comm.rank, comm.size
SPLIT = OverlapMethod("plan", levels=0)


def sweep_of(kind: str, n_bytes: int = 4096) -> OverlapSweep:
    return plan_sweep(kind, n_bytes, Machine(cores=p + 1), ranks=[p])


def ranks_are_kept_on_processors_of_their_cores() -> None:
    pinned = Pinned.at(comm, sweep_of("reduce"))
    assert len(pinned.cores) == p + 1
    assert set(pinned.cores) <= set(pinned.processors)
    assert os.sched_getaffinity(0) == {pinned.cores[pinned.core]}
    # The core that is free is the last one.
    assert comm.allgather(pinned.core) == list(range(p))
    if len(pinned.processors) > 1:
        assert pinned.cores[p] not in comm.allgather(pinned.cores[pinned.core])


def ranks_on_several_nodes_are_refused() -> None:
    real = overlap_runs.node_of_ranks
    overlap_runs.node_of_ranks = lambda comm: list(range(p))
    refuses(LaunchError, f"ranks are on {p} nodes", lambda: Pinned.at(comm, sweep_of("reduce")))
    overlap_runs.node_of_ranks = real


def wrong_results_are_found_by_method() -> None:
    sweep = sweep_of("bcast")
    with CollectivePair(comm, sweep, Pinned.at(comm, sweep)) as collectives:
        names = []
        for method in [*sweep.methods(p), *NATIVE]:
            collectives.ready(method).both()
            names.append(method.name)
        assert collectives.find_wrong() == {}
        received = collectives._received
        assert list(received) == names[: -len(NATIVE)]
        if rank == p - 1:
            received["S=1"][7] += 1
        wrong = collectives.find_wrong()
        assert list(wrong) == ["S=1"]
        assert (wrong["S=1"].rank, wrong["S=1"].element) == (p - 1, 7)
        # Freeing is collective: none goes while another looks.
        comm.Barrier()


def runs_are_stamped_in_order_and_threads_are_clocked() -> None:
    sweep = sweep_of("reduce", 1 << 20)
    compute = Computation(0.002)
    with CollectivePair(comm, sweep, Pinned.at(comm, sweep)) as collectives:
        timed = collectives.ready(SPLIT, compute)
        assert (timed.progress, timed.why_caller) == ("thread", None)
        for _ in range(3):
            timed.both()
        assert len(timed.stamps) == 3
        for stamps in timed.stamps:
            assert list(stamps[:4]) == sorted(stamps[:4])
            assert stamps.thread_ns > 0
        timed.run.alone()
        assert len(timed.stamps) == 3
        blocking = collectives.ready(OverlapMethod("plan", blocking=True), compute)
        blocking.both()
        assert blocking.stamps[0].thread_ns == 0


def communication_cores_are_busy_for_all_their_threads_time() -> None:
    shares = [(4, 100, 900, 50), (4, 120, 950, 30), (5, 100, 150, 500)]
    found = overlap._thread_intervals(shares)
    busy = CoreState.COMMUNICATION
    # Not beyond when the last of them was seen to have ended.
    assert found == [(4, busy, 100, 180), (5, busy, 100, 150)]
    assert overlap._thread_intervals([]) == []


def all_ranks_know_the_rows_and_rank_0_the_states() -> None:
    sweep = sweep_of("allreduce")
    blocking_s = measure_blocking(comm, sweep, 2)
    assert blocking_s > 0
    assert len(set(comm.allgather(blocking_s))) == 1
    methods = [SPLIT, NATIVE[1]]
    found = measure_overlap(comm, sweep, methods, on_all_cores_s=1e-4, repetitions=2)
    assert all(rows == found["rows"] for rows in comm.allgather(found["rows"]))
    assert [row["method"] for row in found["rows"]] == ["S=0", "native, non-blocking"]
    assert found["wrong"] == []
    assert len(found["states"]) == (2 if rank == 0 else 0)
    if rank > 0:
        return
    for states in found["states"]:
        assert states.begin_ns.min() == 0
        assert (states.end_ns >= states.begin_ns).all()
        computing = states.core[states.state == CoreState.COMPUTATION]
        assert sorted(computing.tolist()) == list(range(p))
    communicating = [np.unique(s.core[s.state == CoreState.COMMUNICATION]) for s in found["states"]]
    assert p in communicating[0]
    assert p not in communicating[1]


ranks_on_several_nodes_are_refused()
ranks_are_kept_on_processors_of_their_cores()
wrong_results_are_found_by_method()
runs_are_stamped_in_order_and_threads_are_clocked()
communication_cores_are_busy_for_all_their_threads_time()
all_ranks_know_the_rows_and_rank_0_the_states()
comm.Barrier()
if rank == 0:
    print("passed")
