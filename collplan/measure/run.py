"""Run a plan under MPI, check its results, and time it together with the native call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, ProgressBy, bind
from collplan.executors.mpi.errors import BindError, one_line
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.measure.native import NativeCollective
from collplan.measure.timing import Call, Times, library_name, nothing, time_in_turns
from collplan.planner import compile_plan
from collplan.planner.arrays import Array, Longs
from collplan.planner.collective.reference import expected, make_input, make_inputs
from collplan.planner.collective.semantics import (
    contribution_counts,
    precondition,
    promised_places,
)
from collplan.planner.plan.plan import Buffer, Plan
from collplan.programs.compiling_together import compile_together
from collplan.specs import Method, PlanSpec, numpy_dtype
from collplan.specs.collectives.collective import Collective
from collplan.specs.errors import CollplanError

Bound = TypeVar("Bound")
By = TypeVar("By", bound=str)
Oracle = Literal["numpy", "native"]

ORACLE_BYTES: Final = 256 * 2**20
"""Largest work in bytes for which numpy computes the right results, all of them on one rank."""
PADDING: Final = 5
"""Number of elements after each receive buffer that no plan may modify."""
_SENTINEL: Final = 0xA5


@dataclass(frozen=True, slots=True)
class WrongElement:
    """The first element that differs from the value that the collective defines."""

    rank: int
    element: int
    got: str
    expected: str
    n_wrong: int
    """Number of wrong elements on all ranks."""

    def __str__(self) -> str:
        """Return text such as ``rank 3, element 7: got 5, expected 6 (12 wrong in all)``."""
        return (
            f"rank {self.rank}, element {self.element}: got {self.got}, expected {self.expected} "
            f"({self.n_wrong} wrong in all)"
        )


@dataclass(frozen=True, slots=True)
class RunReport:
    """Results of a run; times are those of the slowest rank of each repetition, in s.

    Parameters
    ----------
    correct : bool or None
        Whether the results of all ranks are right; None if they were not checked.
    checked_against : str or None
        "numpy", or "native" if all inputs together are too large for numpy; None if the
        results were not checked.
    first_wrong : WrongElement or None
        First wrong element; None if there is none.
    ranks, repetitions : int
        Number of ranks and number of repetitions.
    bytes : int
        Bytes of the collective's count.
    median_s, min_s, quartiles_s
        Median, minimum, and lower and upper quartile of the plan's times.
    native_median_s, native_min_s, native_quartiles_s
        The same of the native call, whose repetitions alternate with the plan's.
    ratio : float
        ``median_s / native_median_s``.
    ratio_quartiles : tuple of float
        Lower and upper quartile of the ratio within a repetition.
    library : str
        Name and version of the MPI library.
    progress : {"thread", "caller"}
        Runner of background tasks: threads on communication cores, or the callers' threads.
    why_caller : str or None
        Reason why a thread for the plan's communication cores is missing, from the lowest
        rank that lacks one; None if no thread is missing.
    """

    correct: bool | None
    checked_against: Oracle | None
    first_wrong: WrongElement | None
    ranks: int
    repetitions: int
    bytes: int
    median_s: float
    min_s: float
    quartiles_s: tuple[float, float]
    native_median_s: float
    native_min_s: float
    native_quartiles_s: tuple[float, float]
    ratio: float
    ratio_quartiles: tuple[float, float]
    library: str
    progress: ProgressBy
    why_caller: str | None


def run_plan(
    plan: Plan,
    comm: MPI.Intracomm,
    *,
    repetitions: int = 20,
    check: bool = True,
    timeout_s: float | None = None,
    cores: Sequence[int] | None = None,
    advance: Call = nothing,
) -> RunReport:
    """Run a compiled plan, check every rank's result, and time it together with the native call.

    Collective over `comm`. Each repetition runs both, as `time_in_turns` describes.

    Parameters
    ----------
    plan : Plan
        Plan compiled from a spec: the whole plan, or the program of this rank.
    comm : MPI.Intracomm
        Communicator with as many ranks as the plan.
    repetitions : int
        Number of repetitions, at least 1.
    check : bool
        Whether to check the results of a run before the repetitions and of one after them.
    timeout_s : float, optional
        Time limit in s for other ranks and for waits without progress, as for `bind`.
    cores : sequence of int, optional
        Processor of each core of this rank's node, as for `bind`.
    advance : callable
        Function called after each repetition, as for `time_in_turns`.

    Returns
    -------
    RunReport
        Results, the same on every rank.

    Raises
    ------
    BindError
        If the plan has no spec or does not fit `comm`.
    """
    case = allocate_case(plan, comm)
    oracle, wrong = None, None
    with (
        bind(plan, comm, case.sendbuf, case.recvbuf, timeout_s=timeout_s, cores=cores) as planned,
        case.natively() as native,
    ):
        if check:
            oracle, truth = find_truth(case, native)
            wrong = case.check(planned, truth)
        calls: list[Call] = [planned, native]
        times = time_in_turns(comm, calls, repetitions, prepare=case.refill, advance=advance)
        if check and wrong is None:
            wrong = case.check(planned, truth)
        why = f"rank {comm.rank}: {planned.why_caller}" if planned.lacks_thread else None
        progress = common_progress(comm, planned.progress, why)
    return _report(case, times, wrong, oracle, progress)


def case_for_spec(spec: PlanSpec, comm: MPI.Intracomm) -> Case:
    """Return this rank's buffers for a spec's collective, as `allocate_case` does.

    Their sizes are the same for all plans of the collective, and a flat plan always exists.
    """
    return allocate_case(compile_plan(spec.with_method(Method()), rank=comm.rank), comm)


def try_to_bind(
    spec: PlanSpec, case: Case, bind_plan: Callable[[Plan], Bound]
) -> tuple[Plan, Bound] | str:
    """Compile and bind a candidate; return the reason in one line if that fails; collective.

    Parameters
    ----------
    spec : PlanSpec
        Spec of the candidate.
    case : Case
        Buffers of the collective.
    bind_plan : callable
        Function that binds the plan of this rank. If it fails on a rank, it fails on all.

    Returns
    -------
    tuple or str
        Plan of this rank and its bound form, or the reason of rank 0.
    """
    try:
        plan = compile_together(spec, case.comm, [])
        return plan, bind_plan(plan)
    except (CollplanError, MemoryError) as error:
        return str(case.comm.bcast(one_line(error)))


def find_truth(case: Case, native: NativeCollective) -> tuple[Oracle, Array | None]:
    """Return the source of the right result, and this rank's result or None if it has none.

    Numpy computes the result if the work is at most `ORACLE_BYTES`. Otherwise the native
    call does, and its receive buffer is cut to the length of the result.
    """
    collective, rank, size = case.collective, case.comm.rank, case.comm.size
    total_bytes = int(contribution_counts(collective, size).sum()) * collective.itemsize
    # The reference computes each rank's prefix from its beginning.
    if total_bytes * (size if collective.is_prefix else 1) <= ORACLE_BYTES:
        return "numpy", numpy_truth(case)
    case.fill()
    native()
    length = collective.result_count(rank, size)
    return "native", None if length is None else case.native_recvbuf[:length].copy()


class Case:
    """One rank's buffers for one collective: input, two receive buffers, and their padding."""

    def __init__(
        self, plan: Plan, collective: Collective, comm: MPI.Intracomm, seed: int = 0
    ) -> None:
        self.collective, self.comm, self.seed = collective, comm, seed
        if comm.size != plan.n_ranks:
            raise BindError(
                f"the plan is for {plan.n_ranks} ranks, the communicator has {comm.size}; "
                f"start {plan.n_ranks} ranks or compile for {comm.size}"
            )
        sizes = plan.buffer_sizes[comm.rank]
        self.n_received = int(sizes[Buffer.RECV])
        dtype = numpy_dtype(collective.datatype)
        self.sendbuf = np.empty(int(sizes[Buffer.SEND]), dtype)
        self.recvbuf = np.empty(self.n_received + PADDING, dtype)
        self.native_recvbuf = np.empty_like(self.recvbuf)
        self._input = make_input(collective, comm.size, comm.rank, seed)
        before = precondition(collective, comm.size)
        (row,) = np.flatnonzero(before.rank == comm.rank)[:1] if len(self._input) else (None,)
        self._place = None if row is None else (int(before.buffer[row]), int(before.offset[row]))
        self.fill()

    def bind(self, plan: Plan) -> BoundPlan:
        """Bind a plan to the buffers of this case; collective."""
        return bind(plan, self.comm, self.sendbuf, self.recvbuf)

    def natively(self) -> NativeCollective:
        """Return the native call on the buffers of this case."""
        return NativeCollective(self.collective, self.comm, self.sendbuf, self.native_recvbuf)

    def in_buffer(self, result: Array | None) -> Array | None:
        """Return this rank's result as the receive buffer must hold it, with unchanged gaps.

        Parameters
        ----------
        result : ndarray or None
            Elements of the result without gaps, as `expected` returns them; None if this
            rank has no result.
        """
        size, rank = self.comm.size, self.comm.rank
        if result is None or self.collective.regular is None:
            return result
        self.fill()
        placed = self.recvbuf[: self.collective.result_count(rank, size)].copy()
        placed[promised_places(self.collective, size, rank)] = result
        return placed

    def fill(self) -> None:
        """Write the input into its place, and a sentinel everywhere else."""
        for array in (self.sendbuf, self.recvbuf, self.native_recvbuf):
            array.view(np.uint8)[:] = _SENTINEL
        if self._place is None:
            return
        buffer, offset = self._place
        place = slice(offset, offset + len(self._input))
        received = (self.recvbuf, self.native_recvbuf)
        for array in (self.sendbuf,) if buffer == Buffer.SEND else received:
            array[place] = self._input

    def refill(self) -> None:
        """Restore the input if it lies in the receive buffer, which the collective overwrites."""
        if self._place is not None and self._place[0] == Buffer.RECV:
            self.fill()

    def check(self, call: Call, truth: Array | None) -> WrongElement | None:
        """Run a call on the input, and return the first wrong element of all ranks."""
        self.fill()
        call()
        return self.compare(truth)

    def compare(self, truth: Array | None) -> WrongElement | None:
        """Return the first wrong element of the lowest rank that has one, the same on all ranks."""
        wrong, own = self.own_wrong(truth), None
        if len(wrong):
            i = int(wrong[0])
            promised = "no change"
            if truth is not None and i < len(truth) and not _is_untouched(truth[i : i + 1]):
                promised = str(truth[i])
            own = WrongElement(self.comm.rank, i, str(self.recvbuf[i]), promised, len(wrong))
        found = [one for one in self.comm.allgather(own) if one is not None]
        return replace(found[0], n_wrong=sum(one.n_wrong for one in found)) if found else None

    def own_wrong(self, truth: Array | None) -> Longs:
        """Return the indices of wrong elements of the receive buffer and its padding."""
        padding = self.recvbuf[self.n_received :].view(np.uint8).reshape(PADDING, -1)
        touched = np.flatnonzero((padding != _SENTINEL).any(axis=1)) + self.n_received
        if truth is None:
            return touched
        wrong = differing(self.recvbuf[: len(truth)], truth, self.comm.size)
        return np.concatenate((wrong, touched))


def differing(got: Array, expected: Array, n_ranks: int, n_steps: int = 1) -> Longs:
    """Return the indices of elements that differ by more than the order of additions explains."""
    if got.dtype.kind not in "fc":
        return np.flatnonzero(got != expected)
    # The order of the additions may differ, which allows an error of eps per rank and step.
    tolerance = 4 * n_ranks * n_steps * float(np.finfo(got.dtype).eps)
    return np.flatnonzero(~np.isclose(got, expected, rtol=tolerance, atol=0, equal_nan=True))


def allocate_case(plan: Plan, comm: MPI.Intracomm) -> Case:
    """Return this rank's buffers; raise on all ranks if one rank lacks the memory.

    Raises
    ------
    BindError
        If a rank lacks memory, or the plan has no spec or does not fit `comm`.
    """
    if plan.spec is None:
        raise BindError("the plan was imported and names no collective; compile it from a spec")
    collective = plan.spec.collective

    def allocate() -> Case:
        try:
            return Case(plan, collective, comm)
        except MemoryError:
            n_bytes = int(plan.buffer_sizes[comm.rank].sum()) * plan.itemsize
            raise BindError(
                f"the plan's buffers of {n_bytes} bytes do not fit into memory; use a smaller count"
            ) from None

    return RollCall(comm, None, "allocate buffers").together(allocate)


def numpy_truth(case: Case) -> Array | None:
    """Return this rank's result by numpy; rank 0 computes all, so only it needs the memory."""
    comm = case.comm
    if comm.rank > 0:
        received: Array | None = comm.recv(source=0)
        return case.in_buffer(received)
    results = expected(case.collective, make_inputs(case.collective, comm.size, case.seed))
    for rank, result in enumerate(results[1:], start=1):
        comm.send(result, dest=rank)
    return case.in_buffer(results[0])


def _is_untouched(elements: Array) -> bool:
    return bool((elements.view(np.uint8) == _SENTINEL).all())


def common_progress(comm: MPI.Intracomm, own: By, why_caller: str | None) -> tuple[By, str | None]:
    """Return the runner of background tasks, and the first reason for a missing thread or None.

    The runner is "thread" if any rank has a thread, and this rank's own otherwise. Ranks
    without tasks on communication cores need no thread.
    """
    everyone: list[tuple[By, str | None]] = comm.allgather((own, why_caller))
    reasons = [why for _, why in everyone if why is not None]
    threads = [progress for progress, _ in everyone if progress == "thread"]
    return next(iter(threads), own), next(iter(reasons), None)


def _report(
    case: Case,
    times: Times,
    wrong: WrongElement | None,
    oracle: Oracle | None,
    progress: tuple[ProgressBy, str | None],
) -> RunReport:
    compared = [*times, times[0] / times[1]]
    low, middle, high = np.quantile(compared, (0.25, 0.5, 0.75), axis=1).tolist()
    return RunReport(
        correct=None if oracle is None else wrong is None,
        checked_against=oracle,
        first_wrong=wrong,
        ranks=case.comm.size,
        repetitions=times.shape[1],
        bytes=case.collective.count * case.collective.itemsize,
        median_s=middle[0],
        min_s=float(times[0].min()),
        quartiles_s=(low[0], high[0]),
        native_median_s=middle[1],
        native_min_s=float(times[1].min()),
        native_quartiles_s=(low[1], high[1]),
        ratio=middle[0] / middle[1],
        ratio_quartiles=(low[2], high[2]),
        library=library_name(),
        progress=progress[0],
        why_caller=progress[1],
    )
