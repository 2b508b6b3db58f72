"""Run a plan under MPI: is it right, and how long does it take beside the native call?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import ProgressBy, bind
from collplan.executors.mpi.errors import BindError, one_line
from collplan.executors.mpi.together import together
from collplan.measure.native import NativeCollective
from collplan.measure.timing import Call, Times, library_name, nothing, time_in_turns
from collplan.planner.collective.reference import expected, make_input, make_inputs
from collplan.planner.collective.semantics import (
    contribution_counts,
    precondition,
    promised_places,
)
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import numpy_dtype
from collplan.specs.collective import Collective
from collplan.specs.errors import CollplanError

T = TypeVar("T")
By = TypeVar("By", bound=str)
Array = npt.NDArray[Any]
Oracle = Literal["numpy", "native"]

ORACLE_BYTES: Final = 256 * 2**20
"""Up to how much work one rank computes all results by numpy; above, native MPI's are taken."""
PADDING: Final = 5
"""Elements behind each receive buffer that no plan may touch."""
_SENTINEL: Final = 0xA5


@dataclass(frozen=True, slots=True)
class WrongElement:
    """The first element that is not what the collective promises."""

    rank: int
    element: int
    got: str
    expected: str
    n_wrong: int
    """Wrong elements on all ranks."""

    def __str__(self) -> str:
        """Read like ``rank 3, element 7: got 5, expected 6 (12 wrong in all)``."""
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
        Whether all ranks' results are right; None if not checked.
    checked_against : str or None
        "numpy", or "native" where all inputs together are too large for it.
    first_wrong : WrongElement or None
        Where it went wrong.
    ranks, repetitions : int
        How many of each.
    bytes : int
        Bytes of the collective's count.
    median_s, min_s, quartiles_s
        The plan's times.
    native_median_s, native_min_s, native_quartiles_s
        The native call's, interleaved with the plan's.
    ratio : float
        ``median_s / native_median_s``.
    ratio_quartiles : tuple of float
        Quartiles of the ratio within a repetition.
    library : str
        Which MPI.
    progress : {"thread", "caller"}
        Who runs background tasks: threads on communication cores, or the ranks' own.
    why_caller : str or None
        Why threads that the plan has communication cores for are not there, on the
        lowest of those ranks; None where none is missing.
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
    """Execute a compiled plan, check every rank's result, and time it beside the native call.

    Collective over `comm`. Each repetition runs both, as of `time_in_turns`.

    Parameters
    ----------
    plan : Plan
        Compiled from a spec: the whole plan, or this rank's program.
    comm : MPI.Intracomm
        As many ranks as the plan has.
    repetitions : int
        At least 1.
    check : bool
        Whether to compare results, those of the first start and of one after all others.
    timeout_s : float, optional
        How long the plan may stand still, as for `bind`.
    cores : sequence of int, optional
        The processor of each core of this rank's node, as for `bind`.
    advance : callable
        Called after each repetition, as for `time_in_turns`.

    Returns
    -------
    RunReport
        The same on every rank.

    Raises
    ------
    BindError
        If the plan has no spec or does not fit `comm`.
    """
    case = allocate_case(plan, comm)
    oracle, wrong = None, None
    with (
        bind(plan, comm, case.sendbuf, case.recvbuf, timeout_s=timeout_s, cores=cores) as planned,
        NativeCollective(case.collective, comm, case.sendbuf, case.native_recvbuf) as native,
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


def make_or_refuse(
    comm: MPI.Intracomm,
    make: Callable[[], T],
    errors: tuple[type[Exception], ...] = (CollplanError,),
) -> T | str:
    """Return what `make` makes, or in one line why it can't be made; the same on all ranks.

    Where `make` raises one of `errors` on one rank, it must do so on all.
    """
    try:
        return make()
    except errors as error:
        return str(comm.bcast(one_line(error)))


def find_truth(case: Case, native: NativeCollective) -> tuple[Oracle, Array | None]:
    """Return this rank's right result, None where nothing is promised, and whose it is.

    It is numpy's unless that took too long; then that of the MPI library, cut to what is promised.
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

    def in_buffer(self, result: Array | None) -> Array | None:
        """Return this rank's result as it lies in the receive buffer, gaps left untouched.

        Parameters
        ----------
        result : ndarray or None
            One after another what `expected` says; None where nothing is promised.
        """
        size, rank = self.comm.size, self.comm.rank
        if result is None or self.collective.regular is None:
            return result
        self.fill()
        placed = self.recvbuf[: self.collective.result_count(rank, size)].copy()
        placed[promised_places(self.collective, size, rank)] = result
        return placed

    def fill(self) -> None:
        """Put the input where it belongs and a sentinel everywhere else."""
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
        """Restore the input where the collective has overwritten it."""
        if self._place is not None and self._place[0] == Buffer.RECV:
            self.fill()

    def check(self, call: Call, truth: Array | None) -> WrongElement | None:
        """Make a call on the input, and return the first wrong element of all ranks."""
        self.fill()
        call()
        return self.compare(truth)

    def compare(self, truth: Array | None) -> WrongElement | None:
        """Return the first wrong element of all ranks; the same on all."""
        wrong, own = self.own_wrong(truth), None
        if len(wrong):
            i = int(wrong[0])
            promised = "no change"
            if truth is not None and i < len(truth) and not _is_untouched(truth[i : i + 1]):
                promised = str(truth[i])
            own = WrongElement(self.comm.rank, i, str(self.recvbuf[i]), promised, len(wrong))
        found = [one for one in self.comm.allgather(own) if one is not None]
        return replace(found[0], n_wrong=sum(one.n_wrong for one in found)) if found else None

    def own_wrong(self, truth: Array | None) -> npt.NDArray[np.int64]:
        """Return indices of wrong elements of the receive buffer, its padding included."""
        padding = self.recvbuf[self.n_received :].view(np.uint8).reshape(PADDING, -1)
        touched = np.flatnonzero((padding != _SENTINEL).any(axis=1)) + self.n_received
        if truth is None:
            return touched
        got = self.recvbuf[: len(truth)]
        if got.dtype.kind in "fc":
            # Another order of the same additions: an error of eps per rank.
            tolerance = 4 * self.comm.size * float(np.finfo(got.dtype).eps)
            equal = np.isclose(got, truth, rtol=tolerance, atol=0, equal_nan=True)
        else:
            equal = got == truth
        return np.concatenate((np.flatnonzero(~equal), touched))


def allocate_case(plan: Plan, comm: MPI.Intracomm) -> Case:
    """Return this rank's buffers; where one rank has no memory for its own, all raise.

    Raises
    ------
    BindError
        If a rank has no memory, or the plan has no spec or does not fit `comm`.
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
                f"rank {comm.rank}: the plan's buffers of {n_bytes} bytes do not fit into memory; "
                f"use a smaller count"
            ) from None

    return together(comm, allocate, BindError)


def numpy_truth(case: Case) -> Array | None:
    """Return this rank's result by numpy: rank 0 computes all, so memory is needed once."""
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
    """Return who runs background tasks on any rank, and why a thread is missing on one.

    Ranks whose tasks are all their own have no thread, and lack none.
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
