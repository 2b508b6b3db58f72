"""Checks of a plan, and of what is asked for, that one rank makes before it meets the others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.agreement import Claim
from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.executors.mpi.engine.reduction import Reduction, name_of
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.elements import Applies, combines
from collplan.executors.mpi.program.program import Program, rank_program, shares_memory
from collplan.executors.mpi.stall.watchdog import largest_tag
from collplan.planner.collective.operations import get_operation
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.fold import require_unfolded
from collplan.planner.plan.format_check import check_format, require_range
from collplan.planner.plan.plan import COLUMNS, Buffer, Op, Plan, Stage

Array = npt.NDArray[Any]

Given = tuple[Array | None, Array | None]
"""The caller's send and receive buffer."""
Progress = Literal["auto", "caller", "thread"]
CHOICES: Final = get_args(Progress)
MOST_PROCESSORS: Final = 1 << 15
"""More than Linux knows."""
LARGEST_ELEMENT: Final = 2**14
"""Bytes of an element; times 2**48 elements they are a number of 64 bits."""
FARTHEST: Final = 2**48
"""Elements a buffer has at most, and between two repeats of an extent."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A rank's requests, beside a plan and buffers; `bind` says what they mean.

    Parameters
    ----------
    progress : {"auto", "caller", "thread"}
    cores : sequence of int or None
    operation : object with ``apply`` or None
    recorder : Recorder or None
    timeout_s : float or None
    """

    progress: Progress
    cores: Sequence[int] | None = None
    operation: Applies | None = None
    recorder: Recorder | None = None
    timeout_s: float | None = None

    def check(self, plan: Plan, rank: int) -> None:
        """Raise `BindError` where progress or cores cannot be meant."""
        if self.progress not in CHOICES:
            raise BindError(f"progress is {self.progress!r}; use one of {', '.join(CHOICES)}")
        if self.cores is None:
            return
        for i, processor in enumerate(self.cores):
            is_whole = isinstance(processor, int | np.integer) and not isinstance(processor, bool)
            if not (is_whole and 0 <= processor < MOST_PROCESSORS):
                raise BindError(f"cores[{i}] is {processor!r}; use the number of a processor")
        n_cores = cores_of_node(plan, rank)
        if len(self.cores) < n_cores:
            raise BindError(
                f"cores names {len(self.cores)} processors, the plan's node has {n_cores} cores; "
                "name one for each, the same for several if need be"
            )


def cores_of_node(plan: Plan, rank: int) -> int:
    """Return how many cores a rank's node has, as far as its plan or program shows.

    Raises
    ------
    PlanFormatError
        If a task is on another core than those of the spec's machine.
    """
    if plan.spec is not None:
        n_cores = plan.spec.machine.cores_per_node
        require_range("core", plan.core, 0, n_cores)
        return n_cores
    is_here = plan.rank_node == plan.rank_node[rank]
    used = plan.core[is_here[plan.rank]].max(initial=0), plan.rank_core[is_here].max()
    return 1 + int(max(used))


def check_plan(plan: Plan) -> None:
    """Check that no extent of a plan, from any source, leads outside of its buffers.

    Raises
    ------
    PlanFormatError
        If an entry is malformed, or products of sizes could overflow.
    """
    check_format(plan)
    if not 0 < plan.itemsize <= LARGEST_ELEMENT:
        raise PlanFormatError(
            f"itemsize is {plan.itemsize} bytes, must be 1 to {LARGEST_ELEMENT} to be executed"
        )
    # Strides of extents without repeats count, too, because engines multiply them.
    for name, values in (
        ("patterns", plan.patterns),
        ("buffer_sizes", plan.buffer_sizes),
        ("shared_sizes", plan.shared_sizes),
    ):
        far = np.flatnonzero((values <= -FARTHEST) | (values >= FARTHEST))
        if len(far):
            raise PlanFormatError(
                f"{name} has an entry of {values.flat[far[0]]} elements, must be below 2**48 to be "
                "executed"
            )


class Prepared:
    """A plan's program, buffers and reduction on one rank, checked without the others."""

    def __init__(self, plan: Plan, comm: MPI.Intracomm, given: Given, wish: Wish) -> None:
        require_unfolded(plan, "bound")
        self.plan, self.rank, self.wish = plan, comm.rank, wish
        if comm.size != plan.n_ranks:
            raise BindError(
                f"the plan is for {plan.n_ranks} ranks, the communicator has {comm.size}; "
                f"start {plan.n_ranks} ranks or compile for {comm.size}"
            )
        if plan.only_rank not in (None, comm.rank):
            raise BindError(
                f"the plan holds the program of rank {plan.only_rank}, this is rank {comm.rank}; "
                f"compile with rank={comm.rank}"
            )
        check_plan(plan)
        self.buffers = Buffers(plan, comm.rank)
        self.arrays: list[Array] | None = None
        self.dtype = self.buffers.spec_dtype
        if any(one is not None for one in given) or not self.buffers.is_any_needed:
            self.arrays = self.buffers.check(*given)
            self.dtype = self.arrays[0].dtype
        self.program = rank_program(plan, comm.rank)
        _check_tags(self.program, comm)
        self.operation = _resolve_operation(plan, self.program, wish.operation)
        self.reduction = Reduction.of(self.program, self.dtype, self.operation)
        wish.check(plan, comm.rank)

    @property
    def is_placed(self) -> bool:
        """Return whether background tasks are on communication cores, which hold no rank."""
        plan, program = self.plan, self.program
        core = plan.core[program.row[program.stage == Stage.BACKGROUND]]
        held = plan.rank_core[plan.rank_node == plan.rank_node[self.rank]]
        return not bool(np.isin(core, held).all())


def _check_tags(program: Program, comm: MPI.Intracomm) -> None:
    largest = int(program.tag.max(initial=0))
    # The largest of all is the watchdog's.
    limit = largest_tag(comm) - 1
    if largest > limit:
        raise BindError(
            f"the plan uses tag {largest}, this MPI allows it up to {limit}; "
            "compile with fewer or larger segments"
        )


def _resolve_operation(plan: Plan, program: Program, operation: Applies | None) -> Applies | None:
    if operation is not None or not (np.any(program.op == Op.REDUCE) or combines(plan)):
        return operation
    name = plan.origin.operation if plan.origin else None
    if name is None:
        raise BindError("the plan reduces but names no operation; pass operation=")
    return get_operation(name)


def prepare(
    plan: Plan, comm: MPI.Intracomm, given: Given, wish: Wish
) -> tuple[Claim, Prepared | None]:
    """Check all that one rank can check alone; what fails becomes its claim."""
    if comm.Is_inter():
        raise BindError(
            "comm is an intercommunicator, plans run among the ranks of one group; "
            "pass an intracommunicator, such as comm.Merge() returns"
        )
    timeout_s = wish.timeout_s
    is_limit = (
        isinstance(timeout_s, Real) and not isinstance(timeout_s, bool) and float(timeout_s) > 0
    )
    limit_s = timeout_s if is_limit else None
    # What fails on one rank, for whatever reason, all ranks learn: none waits for another.
    try:
        if limit_s != timeout_s:
            raise BindError(
                f"timeout_s is {timeout_s!r}, must be above 0 s; leave it out for no limit"
            )
        prepared = Prepared(plan, comm, given, wish)
        dtype = prepared.dtype
        dtype_name = str(dtype.fields if dtype.names else dtype)
        brought = (
            *_digests(plan),
            None if prepared.arrays is None else dtype_name,
            None if prepared.operation is None else name_of(prepared.operation),
        )
        is_loaded, shares = prepared.reduction.is_loaded, shares_memory(plan)
        has_background = wish.progress == "thread" or prepared.is_placed
        return Claim(limit_s, None, brought, is_loaded, shares, has_background), prepared
    except Exception as error:
        return Claim(limit_s, error), None


def _digests(plan: Plan) -> tuple[int, int | None]:
    """Return digests of what any two ranks' programs share, and of the whole plan if it is one."""
    # A rank's own program need not know the scratch of others.
    callers = plan.buffer_sizes[:, : Buffer.SCRATCH]
    shared = [np.array([plan.itemsize, plan.n_ranks]), callers, plan.rank_node]
    text = plan.origin.to_json() if plan.origin is not None else ""
    shape = _digest(shared, text)
    if plan.only_rank is not None:
        return shape, None
    columns = [getattr(plan, name) for name in COLUMNS] + [plan.patterns, plan.buffer_sizes]
    columns += [plan.shared_sizes, plan.mirrors]
    for part in (plan.reads, plan.writes, plan.deps):
        columns += [getattr(part, field.name) for field in fields(part)]
    return shape, _digest(columns, text)


def _digest(arrays: Sequence[Array], text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8)
    for array in arrays:
        # A constant column is stored once; its length and value say all.
        stored = array[:1] if array.strides == (0,) else array
        digest.update(f"{array.shape}{array.dtype.str}{len(stored)}".encode())
        digest.update(np.ascontiguousarray(stored).data)
    return int.from_bytes(digest.digest(), "little")
