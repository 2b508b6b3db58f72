"""Programs that all ranks of a communicator compile together."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.executors.mpi.errors import BindError
from collplan.planner import compile_plan
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Plan
from collplan.programs import compiling_together
from collplan.programs.compiling_together import compile_together
from collplan.select.auto import resolve
from collplan.specs import PlanSpec

SEGMENTS = [{"name": "segment", "max_bytes": 16}, {"name": "prioritize"}]
"""Passes of which the second must see all ranks."""


def spec_of(n_ranks: int, **options: Any) -> PlanSpec:
    given = {"kind": "allreduce", "count": 41, "datatype": "int32"} | options.pop("collective", {})
    machine = {"nodes": n_ranks, "ranks_per_node": 1} | options.pop("machine", {})
    return PlanSpec.model_validate({"machine": machine, "collective": given} | options)


def specs(n_ranks: int) -> Iterator[PlanSpec]:
    """Yield specs whose programs need one rank, its node, or all ranks."""
    one_node = {"machine": {"nodes": 1, "ranks_per_node": n_ranks}}
    yield spec_of(n_ranks)
    yield spec_of(n_ranks, decomposition="auto")
    yield spec_of(n_ranks, decomposition="auto", collective={"kind": "alltoall"}, **one_node)
    yield spec_of(n_ranks, algorithms="ring", transport="shared", **one_node)
    yield spec_of(n_ranks, algorithms="ring", passes=SEGMENTS)
    yield spec_of(n_ranks, algorithms="ring", transport="shared", passes=SEGMENTS, **one_node)
    yield spec_of(n_ranks, collective={"count": 0}, passes=[{"name": "limit_requests"}])
    yield PlanSpec.model_validate(
        {"machine": {"ranks_per_node": n_ranks}, "collective": {"kind": "barrier"}}
    )


def require_same(found: Any, expected: Any, name: str = "plan") -> None:
    """Compare all columns of two programs, with their types."""
    assert type(found) is type(expected), name
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype, name
        np.testing.assert_array_equal(found, expected, name)
    elif hasattr(expected, "__dataclass_fields__"):
        for field in fields(expected):
            require_same(getattr(found, field.name), getattr(expected, field.name), field.name)
    else:
        assert found == expected, name


@contextmanager
def recording() -> Iterator[list[int | None]]:
    """Note the ranks for which this process compiles."""
    compiled: list[int | None] = []

    def compile_and_note(spec: PlanSpec, *, rank: int | None, **options: Any) -> Plan:
        compiled.append(rank)
        return compile_plan(spec, rank=rank, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling_together, "compile_plan", compile_and_note)
        yield compiled


@pytest.mark.ranks(1, 2, 4)
def test_every_rank_gets_its_own_program(comm: MPI.Intracomm) -> None:
    for spec in specs(comm.size):
        found = collplan.compile(spec, comm=comm)
        require_same(found, compile_plan(resolve(spec), rank=comm.rank))


@pytest.mark.ranks(3)
def test_only_rank_0_compiles_what_needs_all_ranks(comm: MPI.Intracomm) -> None:
    spec = spec_of(comm.size, algorithms="ring", passes=SEGMENTS)
    with recording() as compiled:
        compile_together(spec, comm, [])
    assert compiled == ([None] if comm.rank == 0 else [])
    with recording() as compiled:
        compile_together(spec_of(comm.size, algorithms="ring"), comm, [])
    assert compiled == [comm.rank]


@pytest.mark.ranks(2)
def test_only_rank_0_resolves_auto(comm: MPI.Intracomm) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if comm.rank > 0:
            patch.setattr(compiling_together, "resolve", None)
        collplan.compile(spec_of(comm.size, decomposition="auto"), comm=comm)


@pytest.mark.ranks(1, 3)
def test_rank_0_gets_the_whole_plan_on_request(comm: MPI.Intracomm) -> None:
    for passes in ([], SEGMENTS):
        spec = spec_of(comm.size, algorithms="ring", passes=passes)
        found = compile_together(spec, comm, [], is_whole=True)
        own = None if comm.rank == 0 else comm.rank
        require_same(found, compile_plan(spec, rank=own))


@pytest.mark.ranks(1, 4)
def test_more_ranks_than_the_spec_has_begin_again(comm: MPI.Intracomm) -> None:
    for passes in ([], SEGMENTS):
        spec = spec_of(3, algorithms="ring", passes=passes)
        require_same(collplan.compile(spec, comm=comm), compile_plan(spec, rank=comm.rank % 3))


@pytest.mark.ranks(1, 3)
def test_a_spec_that_has_no_plan_has_none_on_all_ranks(comm: MPI.Intracomm) -> None:
    wrong = spec_of(comm.size, algorithms="ringg")
    with pytest.raises(AlgorithmError, match="ringg"):
        collplan.compile(wrong, comm=comm)
    collplan.compile(spec_of(comm.size), comm=comm)


@pytest.mark.ranks(3)
@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize("error", [MemoryError(), KeyError("lost"), AlgorithmError("refused")])
def test_a_rank_that_fails_is_named(comm: MPI.Intracomm, culprit: int, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> Plan:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        if comm.rank == culprit:
            patch.setattr(compiling_together, "compile_plan", fail)
        expected = type(error) if comm.rank == culprit else BindError
        with pytest.raises(expected) as caught:
            compile_together(spec_of(comm.size), comm, [])
    if comm.rank != culprit:
        assert f"rank {culprit} cannot compile the plan: " in str(caught.value)


@pytest.mark.ranks(2)
def test_a_program_that_cannot_be_sent_is_refused_on_all_ranks(comm: MPI.Intracomm) -> None:
    def restrict(plan: Plan, rank: int) -> Plan:
        if rank == 1:
            raise AlgorithmError("not this one")
        return real(plan, rank)

    real = compiling_together.restrict
    spec = spec_of(comm.size, algorithms="ring", passes=SEGMENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling_together, "restrict", restrict)
        with pytest.raises(collplan.CollplanError, match="not this one"):
            compile_together(spec, comm, [])


@pytest.mark.ranks(1, 2)
def test_rank_0_warns_of_passes_that_change_nothing(comm: MPI.Intracomm) -> None:
    for passes in ([{"name": "segment"}], [{"name": "segment"}, {"name": "prioritize"}]):
        spec = spec_of(comm.size, algorithms="ring", passes=passes)
        whole: list[str] = []
        compile_plan(spec, idle=whole)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            collplan.compile(spec, comm=comm)
        assert [str(one.message) for one in said] == (whole if comm.rank == 0 else [])
        told: list[str] = []
        compile_together(spec, comm, told)
        assert told == whole
        assert whole


@pytest.mark.ranks(3)
def test_another_spec_on_one_rank_is_refused_on_all(comm: MPI.Intracomm) -> None:
    spec = spec_of(comm.size, collective={"count": 41 + (comm.rank == 2)})
    words = "not that of rank 0" if comm.rank == 2 else "rank 2 cannot compile the plan"
    with pytest.raises(collplan.CollplanError, match=words):
        collplan.compile(spec, comm=comm)


@pytest.mark.ranks(1)
def test_rank_and_comm_are_alternatives(comm: MPI.Intracomm) -> None:
    with pytest.raises(collplan.CollplanError, match="leave rank out"):
        collplan.compile(spec_of(1), rank=0, comm=comm)


@pytest.mark.ranks(2)
def test_messages_of_the_program_are_left_alone(comm: MPI.Intracomm) -> None:
    received = np.zeros(1)
    request = comm.Irecv(received, MPI.ANY_SOURCE, MPI.ANY_TAG)
    collplan.compile(spec_of(comm.size, algorithms="ring", passes=SEGMENTS), comm=comm)
    assert not request.Test()
    comm.Barrier()
    comm.Send(np.array([comm.rank + 1.0]), 1 - comm.rank)
    request.Wait()
    assert received[0] == 2 - comm.rank
