"""Checks of a plan and of options that a rank makes alone, before it communicates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Final, Literal, get_args

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.binding.agreement import Claim
from collplan.executors.mpi.binding.buffers import Buffers
from collplan.executors.mpi.engine.computations import Computations, Functions
from collplan.executors.mpi.engine.loop_memory import Recorder
from collplan.executors.mpi.engine.reduction import Reduction, name_of
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.calls import check_counts
from collplan.executors.mpi.program.elements import Applies, combines
from collplan.executors.mpi.program.program import Program, rank_program, shares_memory
from collplan.executors.mpi.stall.watchdog import largest_tag
from collplan.planner.arrays import Array
from collplan.planner.collective.operations import get_operation
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.format_check import check_format, require_range
from collplan.planner.plan.plan import COLUMNS, Buffer, Op, Plan, Stage
from collplan.planner.rewrite.fold import require_unfolded
from collplan.specs.errors import show_value

Given = tuple[Array | None, Array | None]
"""Send and receive buffer of the caller; None for a buffer that is missing."""
Progress = Literal["auto", "caller", "thread"]
CHOICES: Final = get_args(Progress)
MOST_PROCESSORS: Final = 1 << 15
"""Upper bound of processor numbers, which is higher than the limit of Linux."""
LARGEST_ELEMENT: Final = 2**14
"""Maximum element size in bytes. A buffer of 2**48 such elements has a size below 2**63 bytes."""
FARTHEST: Final = 2**48
"""Limit in elements of buffer sizes, and of the distance between repeats of an extent."""


_WAYS_OUT: Final = {
    "operation": "leave it out, or give what collplan.register_operation returns",
    "recorder": "give a Recorder",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of one rank for binding a plan.

    Parameters
    ----------
    progress : {"auto", "caller", "thread"}
        Runner of background tasks on communication cores: the caller, or a thread on their
        processors. "auto" uses a thread if possible.
    cores : sequence of int, optional
        Processor number of each core of this rank's node.
    operation : object with ``apply(left, right, out)``, optional
        The reduction. The default is the operation of the plan's spec.
    recorder : Recorder, optional
        Recorder of the times at which this rank's tasks start and end.
    timeout_s : float, optional
        Time limit for other ranks in seconds, above 0. By default, there is none.
    computations : mapping of str to callable or int, optional
        Functions of a program's computations, see `Computations`.
    """

    progress: Progress
    cores: Sequence[int] | None = None
    operation: Applies | None = None
    recorder: Recorder | None = None
    timeout_s: float | None = None
    computations: Functions | None = None

    def check(self, plan: Plan, rank: int) -> None:
        """Check `progress`, `cores`, `operation` and `recorder`.

        Parameters
        ----------
        plan : Plan
        rank : int
            This rank.

        Raises
        ------
        BindError
            If `progress` is unknown, if an operation or a recorder is none, if an item of `cores`
            is not a processor number, or if `cores` has fewer items than the rank's node has cores.
        PlanFormatError
            If a task is on a core that the machine of the plan's spec does not have.
        """
        if self.progress not in CHOICES:
            raise BindError(f"progress is {self.progress!r}; use one of {', '.join(CHOICES)}")
        for name, value, method in (
            ("operation", self.operation, "apply"),
            ("recorder", self.recorder, "prepare"),
        ):
            if value is not None and not hasattr(value, method):
                raise BindError(f"{name} is {show_value(value)}; {_WAYS_OUT[name]}")
        if self.cores is None:
            return
        if isinstance(self.cores, str) or not isinstance(self.cores, Sequence | np.ndarray):
            raise BindError(f"cores is {show_value(self.cores)}; give a list of processors")
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
    """Return the number of cores of a rank's node.

    Parameters
    ----------
    plan : Plan
    rank : int

    Returns
    -------
    int
        Number of cores per node of the spec's machine. For a plan without a spec, it is the
        highest number of a core that the plan uses on the node, plus 1.

    Raises
    ------
    PlanFormatError
        If a task is on a core that the machine of the spec does not have.
    """
    if plan.machine is not None:
        n_cores = plan.machine.cores_per_node
        require_range("core", plan.core, 0, n_cores)
        return n_cores
    is_here = plan.rank_node == plan.rank_node[rank]
    used = plan.core[is_here[plan.rank]].max(initial=0), plan.rank_core[is_here].max()
    return 1 + int(max(used))


def check_plan(plan: Plan) -> None:
    """Check that a plan, which may come from any source, is safe to execute.

    Every extent must be inside its buffer, and sizes and strides must be small enough that their
    products do not overflow.

    Parameters
    ----------
    plan : Plan

    Raises
    ------
    PlanFormatError
        If an entry is malformed or too large.
    """
    check_format(plan)
    if not 0 < plan.itemsize <= LARGEST_ELEMENT:
        raise PlanFormatError(
            f"itemsize is {plan.itemsize} bytes, must be 1 to {LARGEST_ELEMENT} to be executed"
        )
    # Strides of extents without repeats are checked, too, because engines multiply them.
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
    """A rank's checked program, buffers and reduction of a plan; not collective.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or this rank's program.
    comm : MPI.Intracomm
        Communicator of the plan's ranks, which is not used for messages here.
    given : tuple of (ndarray or None)
        Send and receive buffer. If both are None, buffers are provided later, if the plan uses any.
    wish : Wish
        Options of this rank.

    Attributes
    ----------
    rank : int
        This rank.
    buffers : Buffers
        Requirements of the buffers.
    arrays : list of ndarray or None
        Checked buffers, as engines use them; None if they are provided later.
    dtype : dtype
        Type of the elements: that of `arrays`, or that of the plan's spec without arrays.
    computations : Computations
        Functions that COMPUTE tasks call.
    program : Program
        Tasks of this rank.
    operation : object with ``apply`` or None
        Operation of reductions; None if `wish` has none and the plan reduces nothing.
    reduction : Reduction
        The reduction as the compiled loop calls it.

    Raises
    ------
    BindError
        If communicator, buffers or options do not fit the plan, if this MPI has too few tags, or if
        the plan reduces but names no operation.
    PlanFormatError
        If the plan is malformed.
    UnsupportedPlanError
        If this rank's program waits for tasks of other ranks without shared memory, or calls MPI
        with a larger count than MPI takes.
    """

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
        wish.check(plan, comm.rank)
        self.buffers = Buffers(plan, comm.rank)
        self.arrays: list[Array] | None = None
        self.dtype = self.buffers.spec_dtype
        if any(one is not None for one in given) or not self.buffers.is_any_needed:
            self.arrays = self.buffers.check(*given)
            self.dtype = self.arrays[0].dtype
        self.computations = Computations(plan, wish.computations or {})
        self.program = self.computations.set_in(rank_program(plan, comm.rank), plan)
        _check_tags(self.program, comm)
        check_counts(self.program)
        self.operation = _resolve_operation(plan, self.program, wish.operation)
        self.reduction = Reduction.of(self.program, self.dtype, self.operation)

    @property
    def is_placed(self) -> bool:
        """Return whether a background task is on a communication core, which has no rank."""
        plan, program = self.plan, self.program
        core = plan.core[program.row[program.stage == Stage.BACKGROUND]]
        held = plan.rank_core[plan.rank_node == plan.rank_node[self.rank]]
        return not bool(np.isin(core, held).all())


def _check_tags(program: Program, comm: MPI.Intracomm) -> None:
    largest = int(program.tag.max(initial=0))
    # The watchdog uses the largest tag.
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
    """Make all checks of `bind` that need no other rank; not collective.

    Parameters
    ----------
    plan, comm, given, wish
        See `Prepared`.

    Returns
    -------
    claim : Claim
        Values of this rank for the agreement. If a check fails, it has the error, which `agree`
        then raises on all ranks.
    prepared : Prepared or None
        Checked program, buffers and reduction; None if a check fails.

    Raises
    ------
    BindError
        If `comm` is an intercommunicator, on which ranks cannot agree.
    """
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
    # All ranks learn of any error on one rank, so that none waits for it.
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
    """Return a digest of the properties common to all ranks' programs, and one of the whole plan.

    The second digest is None if the plan is the program of one rank.
    """
    # The program of one rank may lack the scratch sizes of other ranks.
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
        # A constant column is stored once. Its length and value define it.
        stored = array[:1] if array.strides == (0,) else array
        digest.update(f"{array.shape}{array.dtype.str}{len(stored)}".encode())
        digest.update(np.ascontiguousarray(stored).data)
    return int.from_bytes(digest.digest(), "little")
