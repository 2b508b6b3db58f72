"""Run a program under MPI, check its buffers, and time it beside its steps one after another."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.measure.native import NativeCollective
from collplan.measure.run import differing
from collplan.measure.timing import Call, Times, library_name, nothing, time_in_turns
from collplan.planner.arrays import Array
from collplan.planner.plan.plan import Plan
from collplan.planner.programs import compile_program
from collplan.planner.programs.reference import (
    Memory,
    allocate_buffers,
    apply_steps,
    buffers_in,
    fill_buffers,
)
from collplan.specs import numpy_dtype
from collplan.specs.programs.buffers import BufferRange
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import ProgramStep


@dataclass(frozen=True, slots=True)
class WrongBuffer:
    """The first element of a buffer that differs from what the steps leave there."""

    rank: int
    buffer: str
    element: int
    got: str
    expected: str

    def __str__(self) -> str:
        """Return text such as ``rank 3, x[7]: got 5, expected 6``."""
        place = f"rank {self.rank}, {self.buffer}[{self.element}]"
        return f"{place}: got {self.got}, expected {self.expected}"


@dataclass(frozen=True, slots=True)
class ProgramRunReport:
    """Results of a run of a program; times are those of the slowest rank, in seconds.

    Parameters
    ----------
    correct : bool or None
        Whether all buffers of all ranks are right; None if they were not checked.
    first_wrong : WrongBuffer or None
        The first wrong element.
    ranks, repetitions : int
        Number of ranks and number of repetitions.
    median_s, min_s, quartiles_s
        Median, minimum, and lower and upper quartile of the times of the program's plan.
    steps_median_s, steps_min_s, steps_quartiles_s
        The same of the steps one after another, each by the best plan for it alone.
    native_median_s, native_min_s, native_quartiles_s
        The same of the steps one after another by native calls.
    ratio_to_steps, ratio : float
        ``median_s`` over ``steps_median_s``, and over ``native_median_s``.
    library : str
        Name and version of the MPI library.
    """

    correct: bool | None
    first_wrong: WrongBuffer | None
    ranks: int
    repetitions: int
    median_s: float
    min_s: float
    quartiles_s: tuple[float, float]
    steps_median_s: float
    steps_min_s: float
    steps_quartiles_s: tuple[float, float]
    native_median_s: float
    native_min_s: float
    native_quartiles_s: tuple[float, float]
    ratio_to_steps: float
    ratio: float
    library: str


def run_program(
    plan: Plan,
    apart: ProgramSpec,
    comm: MPI.Intracomm,
    *,
    repetitions: int = 20,
    check: bool = True,
    timeout_s: float | None = None,
    cores: Sequence[int] | None = None,
    advance: Call = nothing,
) -> ProgramRunReport:
    """Run a program, check the buffers of all ranks, and time it beside its steps; collective.

    Parameters
    ----------
    plan : Plan
        Plan of a program: that of all ranks, or the tasks of this rank.
    apart : ProgramSpec
        The same program as the user states it, with the best method of each step alone.
    comm : MPI.Intracomm
        Communicator with as many ranks as the plan.
    repetitions : int
        Number of repetitions, at least 1. Each runs the program, its steps by plans, and its steps
        by native calls.
    check : bool
        Whether to check all three before the repetitions.
    timeout_s, cores
        As for `bind`.
    advance : callable
        Function called after each repetition.

    Raises
    ------
    BindError
        If the plan does not fit `comm`, or its buffers do not fit into memory.
    """
    program = plan.program
    assert program is not None
    case = RollCall(comm, None, "allocate buffers").together(lambda: ProgramCase(program, comm))
    options: dict[str, Any] = {"timeout_s": timeout_s, "cores": cores}
    with ExitStack() as stack:
        planned = stack.enter_context(bind(plan, comm, None, case.memory, **options))
        single = stack.enter_context(_StepsByPlans(apart, comm, case, options))
        native = stack.enter_context(_StepsByCalls(apart, comm, case))
        calls: list[Call] = [planned, single, native]
        wrong = None
        if check:
            expected = case.expected()
            found = (case.check(call, expected) for call in calls)
            wrong = next((one for one in found if one is not None), None)
        times = time_in_turns(comm, calls, repetitions, prepare=case.fill, advance=advance)
    return _report(times, wrong, comm.size, check=check)


def _report(
    times: Times, wrong: WrongBuffer | None, ranks: int, *, check: bool
) -> ProgramRunReport:
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75), axis=1).tolist()
    figures: dict[str, Any] = {}
    for i, kind in enumerate(("", "steps_", "native_")):
        figures[f"{kind}median_s"] = middle[i]
        figures[f"{kind}min_s"] = float(times[i].min())
        figures[f"{kind}quartiles_s"] = (low[i], high[i])
    return ProgramRunReport(
        correct=wrong is None if check else None,
        first_wrong=wrong,
        ranks=ranks,
        repetitions=times.shape[1],
        ratio_to_steps=middle[0] / middle[1],
        ratio=middle[0] / middle[2],
        library=library_name(),
        **figures,
    )


class ProgramCase:
    """The buffers of one rank, with random contents that are the same in each run.

    Parameters
    ----------
    program : ProgramSpec
    comm : MPI.Intracomm

    Attributes
    ----------
    memory : ndarray
        Memory of all buffers, as the receive buffer of the program's plan.
    """

    def __init__(self, program: ProgramSpec, comm: MPI.Intracomm) -> None:
        self.program, self.comm = program, comm
        if comm.size != program.machine.n_ranks:
            raise BindError(
                f"the program is for {program.machine.n_ranks} ranks, the communicator has "
                f"{comm.size}; start {program.machine.n_ranks} ranks"
            )
        try:
            self.memory = allocate_buffers(program)
            self._filled = allocate_buffers(program)
        except MemoryError:
            raise BindError(
                "the program's buffers do not fit into memory; use smaller counts"
            ) from None
        fill_buffers(program, self._filled, comm.rank)
        self.fill()

    def fill(self) -> None:
        """Restore the contents before the first step."""
        self.memory[:] = self._filled

    def view(self, one: BufferRange | None) -> Array | None:
        """Return the elements of a range; None without one."""
        if one is None:
            return None
        buffer = buffers_in(self.program, self.memory)[one.buffer]
        first, end = one.bounds(len(buffer))
        return buffer[first:end]

    def expected(self) -> Memory:
        """Return what the steps leave in the buffers of this rank; rank 0 computes all."""
        comm, program = self.comm, self.program
        if comm.rank > 0:
            received: Memory = comm.recv(source=0)
            return received
        memory = [allocate_buffers(program) for _ in range(comm.size)]
        for rank, one in enumerate(memory):
            fill_buffers(program, one, rank)
        buffers = [buffers_in(program, one) for one in memory]
        apply_steps(program, buffers)
        for rank in range(1, comm.size):
            comm.send(buffers[rank], dest=rank)
        return buffers[0]

    def check(self, call: Call, expected: Memory) -> WrongBuffer | None:
        """Run a call, and return the first wrong element of the lowest rank that has one."""
        self.fill()
        call()
        own = next(self._wrong(expected), None)
        found = (one for one in self.comm.allgather(own) if one is not None)
        return next(found, None)

    def _wrong(self, expected: Memory) -> Any:
        for name, got in buffers_in(self.program, self.memory).items():
            wanted = expected[name]
            wrong = differing(got, wanted, self.comm.size, len(self.program.steps))
            for place in wrong[:1].tolist():
                yield WrongBuffer(self.comm.rank, name, place, str(got[place]), str(wanted[place]))


class _Steps(ExitStack):
    """The steps of a program one after another."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[Call] = []

    def __call__(self) -> None:
        for call in self._calls:
            call()


class _StepsByPlans(_Steps):
    """Steps that each run by a plan of its own."""

    def __init__(
        self, program: ProgramSpec, comm: MPI.Intracomm, case: ProgramCase, options: dict[str, Any]
    ) -> None:
        super().__init__()
        for number in program.order:
            step = program.steps[number]
            if step.compute is not None:
                self._calls.append(_computing(program, step, number, comm.rank))
                continue
            alone = program.replace(steps=(step.replace(after=()),), passes=())
            plan = compile_program(alone, is_proved=False)
            # The elements of its plan may have another datatype, if it combines nothing.
            memory = case.memory.view(numpy_dtype(alone.datatype))
            self._calls.append(self.enter_context(bind(plan, comm, None, memory, **options)))


class _StepsByCalls(_Steps):
    """Steps that run by the MPI library's own collectives."""

    def __init__(self, program: ProgramSpec, comm: MPI.Intracomm, case: ProgramCase) -> None:
        super().__init__()
        known: dict[tuple[tuple[int, ...], ...], Any] = {}
        for number in program.order:
            step, groups = program.steps[number], program.groups[number]
            if step.collective is None:
                self._calls.append(_computing(program, step, number, comm.rank))
                continue
            if groups not in known:
                known[groups] = self._split(comm, groups)
            if known[groups] == MPI.COMM_NULL:
                continue
            buffers = (case.view(step.send), case.view(step.receive))
            native = NativeCollective(step.collective, known[groups], *buffers)
            self._calls.append(self.enter_context(native))

    def _split(self, comm: MPI.Intracomm, groups: tuple[tuple[int, ...], ...]) -> Any:
        """Return the communicator of this rank's group; COMM_NULL if it is in none."""
        place = {rank: (i, k) for i, ranks in enumerate(groups) for k, rank in enumerate(ranks)}
        color, key = place.get(comm.rank, (MPI.UNDEFINED, 0))
        found: Any = comm.Split(color, key)
        if found != MPI.COMM_NULL:
            self.callback(found.Free)
        return found


def _computing(program: ProgramSpec, step: ProgramStep, number: int, rank: int) -> Call:
    """Return a function that keeps the core busy as long as a step computes on a rank."""
    assert step.compute is not None
    if all(rank not in group for group in program.groups[number]):
        return nothing
    machine = program.machine
    duration_ns = step.compute.durations_ns(machine.n_ranks, machine.network, step.name)[rank]

    def compute() -> None:
        end_ns = perf_counter_ns() + duration_ns
        while perf_counter_ns() < end_ns:
            pass

    return compute
