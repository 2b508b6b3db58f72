"""Programs on ranks: bound, started again, and checked against numpy."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int, c_int64, c_void_p, cast
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.measure.program_run import ProgramCase, WrongBuffer, _report, run_program
from collplan.planner.programs import compile_program
from collplan.planner.programs.reference import buffers_in, fill_buffers
from collplan.specs import ProgramSpec
from random_programs import random_program


def sums(comm: MPI.Intracomm, **fields: Any) -> ProgramSpec:
    return ProgramSpec.model_validate(
        {
            "machine": {"ranks_per_node": comm.size},
            "buffers": {"x": {"count": 12}, "y": {"count": 6}},
            "steps": [
                {"compute": {"seconds": 1e-5}, "writes": "x"},
                {"collective": "allreduce", "receive": "x[0:6]", "decomposition": "auto"},
                {"collective": "allreduce", "send": "x[0:6]", "receive": "y"},
            ],
            **fields,
        }
    )


@pytest.mark.ranks(1, 2, 3)
def test_a_program_is_bound_with_its_buffers(comm: MPI.Intracomm) -> None:
    with collplan.bind(sums(comm), comm) as bound:
        for turn in range(3):
            bound.buffers["x"][:] = comm.rank + turn
            bound.start()
            bound.wait()
            total = sum(range(comm.size)) + comm.size * turn
            assert bound.buffers["x"].tolist() == [total] * 6 + [comm.rank + turn] * 6
            assert bound.buffers["y"].tolist() == [total * comm.size] * 6
        assert bound.test()


@pytest.mark.ranks(1, 2, 4)
def test_random_programs_on_ranks(comm: MPI.Intracomm) -> None:
    seeds = (seed for seed in range(1000) if random_program(seed).machine.n_ranks == comm.size)
    for seed, _ in zip(seeds, range(6), strict=False):
        program = random_program(seed)
        case = ProgramCase(program, comm)
        with collplan.bind(compile_program(program), comm, None, case.memory) as bound:
            expected = case.expected()
            for _ in range(2):
                assert case.check(bound, expected) is None, seed


@pytest.mark.ranks(1, 4)
def test_steps_may_be_calls_of_mpi(comm: MPI.Intracomm) -> None:
    columns = 2 if comm.size > 1 else 1
    grid = [comm.size // columns, columns]
    natively = {"algorithms": "native"}
    program = ProgramSpec.model_validate(
        {
            "machine": {"ranks_per_node": comm.size},
            "buffers": {name: {"count": 16, "datatype": "int32"} for name in "xy"},
            "steps": [
                {"collective": "allreduce", "receive": "x", **natively},
                {
                    "collective": "allgather",
                    "send": "x[0:4]",
                    "receive": f"y[0:{4 * columns}]",
                    "group": {"rows": grid},
                    **natively,
                },
                {"collective": "bcast", "receive": "x", "group": {"columns": grid}, **natively},
                {"collective": "allreduce", "receive": "y"},
            ],
        }
    )
    case = ProgramCase(program, comm)
    with collplan.bind(compile_program(program), comm, None, case.memory) as bound:
        expected = case.expected()
        assert case.check(bound, expected) is None
        assert case.check(bound, expected) is None


@pytest.mark.ranks(1, 3)
def test_computations_call_functions_between_collectives(comm: MPI.Intracomm) -> None:
    buffers: dict[str, Any] = {}

    def fill() -> None:
        buffers["x"][:] = comm.rank + 1

    with collplan.bind(sums(comm), comm, computations={"compute 1": fill}) as bound:
        buffers |= bound.buffers
        for _ in range(2):
            bound()
            total = sum(range(comm.size + 1))
            assert bound.buffers["x"].tolist() == [total] * 6 + [comm.rank + 1] * 6


@pytest.mark.ranks(1)
def test_an_error_of_a_function_is_raised(comm: MPI.Intracomm) -> None:
    def fail() -> None:
        raise ArithmeticError("no")

    with (
        collplan.bind(sums(comm), comm, computations={"compute 1": fail}) as bound,
        pytest.raises(ArithmeticError, match="no"),
    ):
        bound()
    with pytest.raises(collplan.CollplanError, match="did you mean 'compute 1'"):
        collplan.bind(sums(comm), comm, computations={"compute 2": fail})
    wrong: Any = "fail"
    with pytest.raises(collplan.CollplanError, match="give a function"):
        collplan.bind(sums(comm), comm, computations={"compute 1": wrong})


@pytest.mark.ranks(1)
def test_computations_call_c_functions(comm: MPI.Intracomm) -> None:
    n_calls = []

    def count(_: int) -> int:
        n_calls.append(1)
        return 0

    function = CFUNCTYPE(c_int, c_int64)(count)
    address = cast(function, c_void_p).value
    assert address is not None
    with collplan.bind(sums(comm), comm, computations={"compute 1": address}) as bound:
        bound()
        bound()
    assert len(n_calls) == 2


@pytest.mark.ranks(1, 3)
def test_a_run_reports_the_program_beside_its_steps(comm: MPI.Intracomm) -> None:
    program = sums(comm)
    plan = collplan.compile(program)
    apart = program.replace(
        steps=tuple(step.replace(decomposition={"name": "flat"}) for step in program.steps)
    )
    report = run_program(plan, apart, comm, repetitions=3)
    assert (report.correct, report.first_wrong, report.ranks) == (True, None, comm.size)
    assert 0 < report.min_s <= report.median_s
    assert report.ratio == report.median_s / report.native_median_s
    assert report.ratio_to_steps == report.median_s / report.steps_median_s
    assert run_program(plan, apart, comm, repetitions=1, check=False).correct is None


@pytest.mark.ranks(2)
def test_steps_alone_may_have_elements_of_another_kind(comm: MPI.Intracomm) -> None:
    """A step that combines nothing has elements without meaning, at the same places."""
    program = ProgramSpec.model_validate(
        {
            "machine": {"ranks_per_node": comm.size},
            "buffers": {
                "pairs": {"count": 5, "datatype": "float_int"},
                "all": {"count": 5 * comm.size, "datatype": "float_int"},
                "x": {"count": 3, "datatype": "complex128"},
            },
            "steps": [
                {"collective": {"kind": "allreduce", "op": "maxloc"}, "receive": "pairs"},
                {"collective": "allgather", "send": "pairs", "receive": "all"},
                {"collective": {"kind": "bcast", "root": 1}, "receive": "x"},
            ],
        }
    )
    report = run_program(collplan.compile(program), program, comm, repetitions=1)
    assert report.first_wrong is None
    assert report.correct is True


@pytest.mark.ranks(2)
def test_a_wrong_buffer_is_found(comm: MPI.Intracomm) -> None:
    case = ProgramCase(sums(comm), comm)
    expected = case.expected()

    def run() -> None:
        """Leave what a plan leaves that forgets the last element of y on rank 1."""
        for name, values in buffers_in(case.program, case.memory).items():
            values[:] = expected[name]
        if comm.rank == 1:
            buffers_in(case.program, case.memory)["y"][5] = 0

    found = case.check(run, expected)
    assert found is not None
    assert str(found).startswith("rank 1, y[5]: got 0.0, expected ")
    fill_buffers(case.program, case.memory, comm.rank)
    assert np.array_equal(case.memory, case._filled)


def test_figures_of_a_programs_run_are_those_of_its_three_calls() -> None:
    times = np.array(
        [[5.0, 1.0, 3.0, 2.0, 4.0], [6.0, 6.0, 6.0, 6.0, 6.0], [9.0, 12.0, 15.0, 18.0, 21.0]]
    )
    report = _report(times, None, 4, check=True)
    assert (report.ranks, report.repetitions, report.correct) == (4, 5, True)
    assert (report.min_s, report.quartiles_s, report.median_s) == (1, (2, 4), 3)
    assert (report.steps_min_s, report.steps_quartiles_s, report.steps_median_s) == (6, (6, 6), 6)
    native = (report.native_min_s, report.native_quartiles_s, report.native_median_s)
    assert native == (9, (12, 18), 15)
    assert (report.ratio_to_steps, report.ratio) == (0.5, 0.2)
    assert _report(times, None, 4, check=False).correct is None
    wrong = WrongBuffer(1, "x", 4, "5", "6")
    assert _report(times, wrong, 4, check=True).correct is False
