"""The memory that ranks of a node share for one bound plan: its buffer, and who has come how far.

    counters      a word a rank, each on a cache line of its own: starts completed
    flags         a word for every task that others wait for: the last start it completed in
    buffer        the plan's shared buffer, from a page's beginning

All words only grow, from start to start, so nothing is ever reset.
"""

from __future__ import annotations

import atexit
import functools
import mmap
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from executors.mpi.binding.meeting import raise_first
from executors.mpi.compiled.atomics import read_word
from executors.mpi.compiled.threads import stop_all
from executors.mpi.errors import BindError
from executors.mpi.watching.watchdog import end_job, say
from planner.plan import Buffer

if TYPE_CHECKING:
    from executors.mpi.engine.program import Program
    from executors.mpi.watching.roll_call import RollCall
    from planner.plan import Plan

Array = npt.NDArray[Any]
Index = npt.NDArray[np.int64]

LINE_BYTES: Final = 64
WORD_BYTES: Final = 8
_WAITING_SLEEP_S: Final = 100e-6
_windows: list[MPI.Win] = []
"""All that are not freed, in the order in which they were made, the same on all ranks of a node."""


class NodeMemory:
    """One window over the ranks of this node; made collectively by all ranks.

    Parameters
    ----------
    plan : Plan
        The whole plan or this rank's program.
    program : Program
        This rank's tasks.
    comm : MPI.Intracomm
        All ranks of the plan, with errors returned.
    call : RollCall
        Of all of them.

    Attributes
    ----------
    counters : int
        Where the counters lie, `LINE_BYTES` apart; there are `n_ranks`.
    own_counter, own_flags : int
        Where this rank's counter and flags lie.
    waits : ndarray of int64
        Where the flags lie that the program's `sharing` waits for.
    mirrors : sequence of int
        Where this rank's send and recv buffer may lie in the buffer, in bytes; -1 if nowhere.

    Raises
    ------
    BindError
        On all ranks, if ranks of a node share no memory, or their programs do not fit.
    """

    def __init__(self, plan: Plan, program: Program, comm: MPI.Intracomm, call: RollCall) -> None:
        own_node = plan.rank_node[comm.rank]
        call.before_blocking()
        self._comm: Any = comm.Split(int(own_node), comm.rank)
        self._comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.n_ranks = self._comm.size
        self._window: MPI.Win = MPI.WIN_NULL
        self._lease: weakref.ref[_Lease] | None = None
        size = int(plan.shared_sizes[own_node]) * plan.itemsize
        try:
            _raise_together(comm, call, self._find_strangers(comm.rank, call))
            seen = call.gather((size, program.sharing.awaited), self._comm)
            ranks = np.flatnonzero(plan.rank_node == own_node)
            _raise_together(comm, call, _find_misfit(program, comm.rank, ranks, seen))
            awaited = [len(rows) for _, rows in seen]
            _raise_together(comm, call, self._allocate(size, awaited, call))
        except BindError:
            self.free(call)
            raise
        place = np.searchsorted(ranks, program.sharing.rank)
        self.waits: Index = self._flags[place] + program.sharing.flag * WORD_BYTES
        self.own_counter = self.counters + self._comm.rank * LINE_BYTES
        self.own_flags = int(self._flags[self._comm.rank])
        offsets = plan.mirrors[comm.rank, : Buffer.SCRATCH]
        self.mirrors = [int(x) * plan.itemsize if x >= 0 else -1 for x in offsets]

    @property
    def has_mirrors(self) -> bool:
        """Return whether any buffer of this rank may lie in the shared buffer."""
        return max(self.mirrors) >= 0

    def buffer(self, dtype: np.dtype[Any]) -> Array:
        """Return the shared buffer as elements."""
        elements: Array = self._bytes.view(dtype)
        return elements

    def at_mirror(self, which: Buffer, n_elements: int, dtype: np.dtype[Any]) -> Array | None:
        """Return the place of this rank's send or recv buffer, or None if there is none.

        The memory lives as long as the array or anything that looks at it.
        """
        begin = self.mirrors[which]
        if begin < 0:
            return None
        lease = self._lease() if self._lease is not None else None
        if lease is None:
            lease = _Lease(self._bytes)
            self._lease = weakref.ref(lease)
        return np.asarray(lease)[begin : begin + n_elements * dtype.itemsize].view(dtype)

    def any_is_past(self, epoch: int) -> bool:
        """Return whether a rank of the node has completed a start after number `epoch`."""
        lines = range(self.counters, self.counters + self.n_ranks * LINE_BYTES, LINE_BYTES)
        return any(read_word(line) > epoch for line in lines)

    def wait_for_others(
        self, epoch: int, comm: MPI.Intracomm, timeout_s: float | None = None
    ) -> None:
        """Return when all ranks of the node have completed start number `epoch`.

        Raises
        ------
        StallError
            If that takes longer than `timeout_s`: the job has been told to end.
        """
        begin_s = time.monotonic()
        for rank in range(self.n_ranks):
            while read_word(self.counters + rank * LINE_BYTES) < epoch:
                # What this rank has sent may have to be pushed on.
                comm.Iprobe()
                time.sleep(_WAITING_SLEEP_S)
                waited_s = time.monotonic() - begin_s
                if timeout_s is not None and waited_s >= timeout_s:
                    late = int(MPI.Group.Translate_ranks(self._comm.group, [rank], comm.group)[0])
                    reason = f"waited {waited_s:.3g} s to allocate buffers"
                    say(comm.rank, [f"{reason}; rank {late} has not completed start {epoch}"])
                    raise end_job(comm, reason)

    def free(self, call: RollCall) -> None:
        """Free the window, collectively; it stays where a rank still holds arrays in it."""
        if self._window != MPI.WIN_NULL:
            is_held = self._lease is not None and self._lease() is not None
            if not any(call.gather(is_held, self._comm)):
                _windows.remove(self._window)
                _free(self._window)
            self._window = MPI.WIN_NULL
        self._comm.Free()

    def _find_strangers(self, rank: int, call: RollCall) -> BindError | None:
        """Return the error of ranks that a plan has on one node and MPI does not."""
        call.before_blocking()
        together: Any = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        n_together = together.size
        together.Free()
        mine = rank, MPI.Get_processor_name(), n_together
        seen: list[tuple[int, str, int]] = call.gather(mine, self._comm)
        if all(n == self.n_ranks for _, _, n in seen):
            return None
        where = ", ".join(f"rank {other} on {name}" for other, name, _ in seen)
        return BindError(
            f"the plan shares memory between ranks that have none in common: {where}; "
            "compile for the nodes that ranks run on, or with transport: messages"
        )

    def _allocate(self, size: int, awaited: list[int], call: RollCall) -> BindError | None:
        """Make the window and say where things lie in it."""
        lines = [-(-n * WORD_BYTES // LINE_BYTES) for n in awaited]
        firsts = self.n_ranks + np.concatenate(([0], np.cumsum(lines, dtype=np.int64)))
        header = -(-int(firsts[-1]) * LINE_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        n_bytes = header + size
        mine = n_bytes + mmap.PAGESIZE if self._comm.rank == 0 else 0
        call.before_blocking()
        try:
            self._window = MPI.Win.Allocate_shared(mine, 1, MPI.INFO_NULL, self._comm)
        except MPI.Exception as error:
            return BindError(
                f"{n_bytes} bytes of memory for the ranks of a node cannot be had "
                f"({error.Get_error_string().splitlines()[0]}); compile with transport: messages"
            )
        self._window.Lock_all(MPI.MODE_NOCHECK)
        _windows.append(self._window)
        _free_all_at_end()
        there: Any = self._window.Shared_query(0)[0]
        # Pages are the same for all ranks, and so is what is left of the first.
        everything = np.frombuffer(there, dtype=np.uint8)
        skip = -everything.ctypes.data % mmap.PAGESIZE
        if self._comm.rank == 0:
            everything[skip : skip + header] = 0
        self._window.Sync()
        call.meet(self._comm)
        self._window.Sync()
        self._bytes = everything[skip + header : skip + n_bytes]
        self.counters = everything.ctypes.data + skip
        self._flags = self.counters + firsts[:-1] * LINE_BYTES
        return None


class _Lease:
    """Memory of the window in callers' hands: lives as long as any array on it."""

    def __init__(self, memory: Array) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory


def _free(window: MPI.Win) -> None:
    """Free a window; collective on its node."""
    window.Unlock_all()
    window.Free()


@functools.cache
def _free_all_at_end() -> None:
    """When MPI or Python ends, free what nobody did: some MPIs abort over what is left."""
    keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: _free_all())
    MPI.COMM_SELF.Set_attr(keyval, True)
    # When mpi4py ends MPI, at last, there is no Python any more.
    atexit.register(_free_all)


def _free_all() -> None:
    if not MPI.Is_finalized():
        stop_all()
        while _windows:
            _free(_windows.pop(0))


def _find_misfit(
    program: Program, rank: int, ranks: Index, seen: list[tuple[int, Index]]
) -> BindError | None:
    """Return the error of programs that do not fit those of other ranks of the node."""
    sharing = program.sharing
    sizes = {size for size, _ in seen}
    place = np.minimum(np.searchsorted(ranks, sharing.rank), len(ranks) - 1)
    fits = len(sizes) == 1 and np.array_equal(ranks[place], sharing.rank)
    if fits:
        for other, row, flag in zip(place, sharing.row, sharing.flag, strict=True):
            awaited = seen[other][1]
            fits &= bool(0 <= flag < len(awaited)) and bool(awaited[flag] == row)
    if fits:
        return None
    return BindError(
        f"what rank {rank} waits for in shared memory other ranks of its node do not announce; "
        "compile the same spec on all ranks"
    )


def _raise_together(comm: MPI.Intracomm, call: RollCall, error: BindError | None) -> None:
    """Raise on all ranks if one has an error."""
    culprit = call.least(comm.size if error is None else comm.rank)
    if culprit < comm.size:
        raise_first(call, culprit, error)
