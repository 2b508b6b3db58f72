"""Levels of trees on the ranks' own cores: chosen by the model, and nobody waits for them."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.planner import compile_plan
from collplan.planner.passes.progress.tree_model import overlapped_time, shapes_of
from collplan.planner.plan.plan import Stage
from collplan.programs.splitting import split_for, split_levels, with_split
from collplan.specs import PlanSpec, parse_spec
from collplan.tables.table import parse_table
from tables_everywhere import NOWHERE, sweep, table_of_one

COUNT = 1 << 16
OBSERVED = 6


def spec_of(kind: str, ranks: int, **more: Any) -> PlanSpec:
    algorithm = "reduce_bcast" if kind == "allreduce" else "binomial"
    return parse_spec(
        {
            "machine": {"ranks_per_node": ranks, **more.pop("machine", {})},
            "collective": {"kind": kind, "count": COUNT},
            "algorithms": algorithm,
            **more,
        }
    )


def levels_for(spec: PlanSpec, n_spare: int, computation_s: float) -> int:
    split = split_for(compile_plan(spec, rank=0), spec, n_spare, computation_s)
    return 0 if split is None else split_levels(split)


@pytest.mark.parametrize("kind", ["reduce", "bcast", "allreduce"])
def test_short_computations_hide_few_levels(kind: str) -> None:
    """The levels are those of the least time by the model, beside the time that was observed."""
    spec = spec_of(kind, 13)
    network = spec.machine.network
    per_byte = network.numa.G_ns_per_byte + network.reduce_ns_per_byte * (kind != "bcast")
    transfer_s = 1e-9 * (network.numa.L_ns + 2 * network.numa.o_ns + 8 * COUNT * per_byte)
    found = set()
    for computing in (0.5, 2.0, 4.0, 7.0, 40.0):
        levels = levels_for(spec, 2, computing * transfer_s)
        times = overlapped_time(13, 15, np.arange(5), *shapes_of(kind), computing=computing)
        assert levels == times.argmin(), (computing, times)
        found.add(levels)
    assert 0 in found
    assert len(found) > 1


def test_nothing_is_split_without_a_tree_a_core_or_a_computation() -> None:
    tree = spec_of("reduce", 8)
    assert levels_for(tree, 1, 1e-6) > 0
    assert levels_for(tree, 0, 1e-6) == 0
    assert levels_for(tree, 1, -1.0) == 0
    assert levels_for(spec_of("reduce", 2, machine={"nodes": 4}), 1, 1e-6) == 0
    ring = parse_spec(
        {
            "machine": {"ranks_per_node": 8},
            "collective": {"kind": "allreduce", "count": COUNT},
            "algorithms": "ring",
        }
    )
    assert levels_for(ring, 1, 1e-6) == 0


def test_messages_are_the_same_however_many_levels_are_split_off() -> None:
    """Ranks may learn at different calls that they are to split."""
    spec = spec_of("allreduce", 6)
    for rank in range(6):
        whole = compile_plan(spec, rank=rank)
        split = compile_plan(with_split(spec, 1, 2), rank=rank)
        for name in ("op", "peer", "tag", "round"):
            assert np.array_equal(getattr(whole, name), getattr(split, name)), (rank, name)
        assert set(whole.stage.tolist()) == {Stage.BACKGROUND}
        assert {int(Stage.START), int(Stage.WAIT)} & set(split.stage.tolist())


def following(comm: Any, kind: str, computation_s: float) -> Any:
    """Return a communicator whose calls follow a plan with levels that were split off."""
    spec = with_split(spec_of(kind, comm.size), 1, 2)
    table = table_of_one(spec, computation_s)
    return collplan.Comm(comm.Dup(), table=table, force=True, native_calls=0)


@pytest.mark.ranks(2)
def test_a_start_does_not_wait_for_those_who_are_late(comm: Any) -> None:
    drop_in = following(comm, "reduce", computation_s=1e-3)
    sent, received = np.full(COUNT, 1.0), np.zeros(COUNT)
    drop_in.Ireduce(sent, received).Wait()
    if comm.rank == 1:
        comm.recv(source=0)  # which has started
    request = drop_in.Ireduce(sent, received)
    if comm.rank == 0:
        comm.send(None, dest=1)
    request.Wait()
    assert comm.rank or (received == 2.0).all()
    assert drop_in.stats().as_dict()["planned_calls"] == 2
    drop_in.Free()


@pytest.mark.ranks(2)
def test_a_rank_that_does_not_wait_keeps_nobody_waiting(comm: Any) -> None:
    """Tasks of a wait are held for it, but not for ever: a rank may wait elsewhere."""
    drop_in = following(comm, "bcast", computation_s=0.2)
    received = np.full(COUNT, 1.0 - comm.rank)
    drop_in.Ibcast(received).Wait()
    comm.Barrier()
    begin = time.perf_counter()
    request = drop_in.Ibcast(received)
    if comm.rank == 0:
        comm.recv(source=1)
        assert time.perf_counter() - begin > 0.15
        request.Wait()
    else:
        request.Wait()
        comm.send(None, dest=0)
    assert (received == 1.0).all()
    assert drop_in.stats().as_dict()["planned_calls"] == 2
    drop_in.Free()


@pytest.mark.ranks(4)
@pytest.mark.parametrize("kind", ["reduce", "bcast", "allreduce"])
def test_a_program_that_computes_little_gets_split_trees(comm: Any, kind: str) -> None:
    usable = sorted(os.sched_getaffinity(0))
    first, last = usable[0], usable[-1]
    found = sweep(kind, comm.size, None if kind == "bcast" else True)
    found["points"] = found["points"][:1]  # trees only
    table = parse_table({"fingerprint": NOWHERE.model_dump(), "sweeps": [found]})
    options: dict[str, Any] = {"force": True, "native_calls": 0, "nonblocking_from": 0}
    cores = [first] * comm.size + [last]
    drop_in = collplan.Comm(comm.Dup(), table=table, cores=cores, **options)
    sums = {"reduce": comm.rank == 0, "allreduce": True, "bcast": False}
    whys: list[str] = []
    for turn in range(OBSERVED + 8):
        sent, received = np.full(COUNT, 1.0 + turn), np.zeros(COUNT)
        if kind == "bcast":
            received[:] = sent if comm.rank == 0 else 0.0
            drop_in.Ibcast(received).Wait()
            assert (received == 1.0 + turn).all()
        else:
            getattr(drop_in, f"I{kind}")(sent, received).Wait()
            assert not sums[kind] or (received == comm.size * (1.0 + turn)).all()
        whys = [row["why"] for row in drop_in.stats().as_dict()["rows"]]
        # Ranks may learn the agreed time in different calls.
        is_split = any("levels on ranks' cores" in why for why in whys)
        if comm.allreduce(is_split, MPI.LAND):
            break
    assert is_split, whys
    drop_in.Free()
