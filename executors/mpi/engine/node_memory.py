"""Shared memory of the ranks of a node for one bound plan: its buffer, and progress counters.

    counters      one word per rank, in separate cache lines: number of completed starts
    flags         one word per awaited task: number of the last start in which it completed
    buffer        the shared buffer of the plan, aligned to a page

Words only increase from start to start, so they are never reset.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import functools
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.engine.progress_thread import stop_all
from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.waiting import Wait
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.stall.timed_collectives import RollCall, freed_on_error
from collplan.executors.mpi.stall.watchdog import end_job, say
from collplan.planner.arrays import Array, Longs, csr
from collplan.planner.plan.plan import Buffer, Plan

LINE_BYTES: Final = 64
WORD_BYTES: Final = 8
_SHARED_FOLDER: Final = "/dev/shm"
"""File system that holds shared memory on Linux."""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE of Linux, which Python does not define."""
_windows: list[MPI.Win] = []
"""Windows that are not freed, in order of creation, which is the same on all ranks of a node."""


class NodeMemory:
    """A window of the ranks of this node, which all ranks create collectively.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or the program of this rank.
    program : Program
        This rank's tasks.
    comm : MPI.Intracomm
        Communicator of all ranks of the plan, which returns errors.
    call : RollCall
        Roll call of all ranks.

    Attributes
    ----------
    counters : int
        Address of the `n_ranks` counters, which are `LINE_BYTES` apart.
    own_counter, own_flags : int
        Addresses of the counter and the flags of this rank.
    waits : ndarray of int64
        Addresses of the flags that the program's `sharing` waits for.
    mirrors : sequence of int
        Offsets in bytes of copies of this rank's send and recv buffer; -1 if there is none.

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
        offsets = plan.mirrors[comm.rank, : Buffer.SCRATCH]
        self.mirrors = [int(x) * plan.itemsize if x >= 0 else -1 for x in offsets]
        with freed_on_error(lambda: self.free(call)):
            ranks = np.flatnonzero(plan.rank_node == own_node)
            mine = comm.rank, MPI.Get_processor_name(), self._count_neighbors(call)
            there: list[tuple[int, str, int]] = call.gather(mine, self._comm)
            seen = call.gather((size, program.sharing.awaited), self._comm)

            def check() -> None:
                _refuse_strangers(there)
                _refuse_misfit(program, comm.rank, ranks, seen)

            call.together(check)
            self._allocate(size, [len(rows) for _, rows in seen], call)
            place = np.searchsorted(ranks, program.sharing.rank)
            self.waits: Longs = self._flags[place] + program.sharing.flag * WORD_BYTES
        self.own_counter = self.counters + self._comm.rank * LINE_BYTES
        self.own_flags = int(self._flags[self._comm.rank])

    def buffer(self, dtype: np.dtype[Any]) -> Array:
        """Return the shared buffer as elements."""
        elements: Array = self._bytes.view(dtype)
        return elements

    def at_mirror(self, which: Buffer, n_elements: int, dtype: np.dtype[Any]) -> Array | None:
        """Return the place of this rank's send or recv buffer, or None if there is none.

        The memory exists as long as the array or any view of it.
        """
        begin = self.mirrors[which]
        if begin < 0:
            return None
        lease = self._lease() if self._lease is not None else None
        if lease is None:
            lease = _Lease(self._bytes)
            self._lease = weakref.ref(lease)
        return np.asarray(lease)[begin : begin + n_elements * dtype.itemsize].view(dtype)

    def wait_for_others(
        self, epoch: int, comm: MPI.Intracomm, timeout_s: float | None = None
    ) -> None:
        """Wait until all ranks of the node have completed start number `epoch`.

        Raises
        ------
        StallError
            If this takes longer than `timeout_s`. The job is then being aborted.
        """
        wait = Wait()
        for rank in range(self.n_ranks):
            while entry("read_word")(self.counters + rank * LINE_BYTES) < epoch:
                # Messages of this rank may need progress.
                comm.Iprobe()
                wait.pause()
                if timeout_s is not None and wait.waited_s >= timeout_s:
                    late = int(MPI.Group.Translate_ranks(self._comm.group, [rank], comm.group)[0])
                    reason = f"waited {wait.waited_s:.3g} s to allocate buffers"
                    say(comm.rank, [f"{reason}; rank {late} has not completed start {epoch}"])
                    raise end_job(comm, reason)

    def free(self, call: RollCall) -> None:
        """Free the window collectively, unless a rank still uses arrays of it."""
        if self._window != MPI.WIN_NULL:
            is_held = self._lease is not None and self._lease() is not None
            if not any(call.gather(is_held, self._comm)):
                _windows.remove(self._window)
                _free(self._window)
            self._window = MPI.WIN_NULL
        self._comm.Free()

    def _count_neighbors(self, call: RollCall) -> int:
        """Return the number of ranks of the plan's node that share memory with this one in MPI."""
        call.before_blocking()
        together: Any = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        n_together: int = together.size
        together.Free()
        return n_together

    def _allocate(self, size: int, awaited: list[int], call: RollCall) -> None:
        """Create the window, and set the addresses of its parts."""
        flags, header = layout_of(awaited)
        n_bytes = header + size
        mine = n_bytes + mmap.PAGESIZE if self._comm.rank == 0 else 0
        call.together(lambda: _require_room(mine))
        call.before_blocking()
        window = call.together(lambda: _make_window(mine, self._comm))
        self._window = window
        window.Lock_all(MPI.MODE_NOCHECK)
        _windows.append(window)
        _free_all_at_end()

        def lay_out() -> None:
            there: Any = window.Shared_query(0)[0]
            # The offset within the first page is the same on all ranks.
            everything = np.frombuffer(there, dtype=np.uint8)
            skip = -everything.ctypes.data % mmap.PAGESIZE
            pages = everything[skip : skip + n_bytes]
            _populate(pages, self._comm.rank, self.n_ranks)
            if self._comm.rank == 0:
                pages[:header] = 0
            window.Sync()
            self._bytes = pages[header:]
            self.counters = pages.ctypes.data
            self._flags = self.counters + flags

        call.together(lay_out)
        window.Sync()


def layout_of(awaited: Sequence[int]) -> tuple[Longs, int]:
    """Return the offsets of the flags of ranks and of the buffer from the first counter, in bytes.

    Parameters
    ----------
    awaited : sequence of int
        Number of awaited tasks of each rank of the node.
    """
    lines = [-(-n * WORD_BYTES // LINE_BYTES) for n in awaited]
    firsts = len(awaited) + csr.running_total(lines)
    header = -(-int(firsts[-1]) * LINE_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
    return firsts[:-1] * LINE_BYTES, header


def _require_room(n_bytes: int) -> None:
    """Raise `BindError` if the system has not enough shared memory.

    MPI allocates more memory than exists, and a process that accesses it is killed.
    """
    try:
        found = os.statvfs(_SHARED_FOLDER)
    except OSError:
        return  # MPI may have its shared memory elsewhere
    room = found.f_bavail * found.f_frsize
    if n_bytes > room:
        raise _no_room(n_bytes, f"{_SHARED_FOLDER} has room for {room}")


def _make_window(n_bytes: int, comm: MPI.Intracomm) -> MPI.Win:
    try:
        return MPI.Win.Allocate_shared(n_bytes, 1, MPI.INFO_NULL, comm)
    except MPI.Exception as error:
        raise _no_room(n_bytes, error.Get_error_string().splitlines()[0]) from None


def _populate(pages: Array, rank: int, n_ranks: int) -> None:
    """Allocate this rank's part of the pages, while the system can still report an error."""
    n_pages = len(pages) // mmap.PAGESIZE
    first, end = (n_pages * part // n_ranks * mmap.PAGESIZE for part in (rank, rank + 1))
    libc = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_void_p(pages.ctypes.data + first)
    if end > first and libc.madvise(where, ctypes.c_size_t(end - first), _POPULATE_WRITE) != 0:
        number = ctypes.get_errno()
        if number != errno.EINVAL:  # the error of systems that do not support this advice
            # If a page cannot be allocated, Linux reports a bad address.
            is_full = number == errno.EFAULT
            raise _no_room(len(pages), "it is full" if is_full else os.strerror(number))


def _no_room(n_bytes: int, reason: str) -> BindError:
    return BindError(
        f"{n_bytes} bytes of memory for the ranks of a node cannot be had ({reason}); make "
        f"{_SHARED_FOLDER} larger (docker run --shm-size), or compile with transport: messages"
    )


class _Lease:
    """Memory of the window that callers use, which exists as long as any array of it."""

    def __init__(self, memory: Array) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory


def _free(window: MPI.Win) -> None:
    """Free a window, collectively on its node."""
    window.Unlock_all()
    window.Free()


@functools.cache
def _free_all_at_end() -> None:
    """Free all windows when MPI or Python ends, as some MPIs abort if windows remain."""
    keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: _free_all())
    MPI.COMM_SELF.Set_attr(keyval, True)
    # When mpi4py finalizes MPI, Python has already ended.
    atexit.register(_free_all)


def _free_all() -> None:
    if not MPI.Is_finalized():
        while stop_all() and _windows:
            _free(_windows.pop(0))


def _refuse_strangers(there: list[tuple[int, str, int]]) -> None:
    """Raise `BindError` for ranks that share a node in the plan, but not in MPI."""
    if all(n == len(there) for _, _, n in there):
        return
    where = ", ".join(f"rank {rank} on {name}" for rank, name, _ in there)
    raise BindError(
        f"the plan shares memory between ranks that have none in common: {where}; "
        "compile for the nodes that ranks run on, or with transport: messages"
    )


def _refuse_misfit(
    program: Program, rank: int, ranks: Longs, seen: list[tuple[int, Longs]]
) -> None:
    """Raise `BindError` for programs that do not fit those of other ranks of the node."""
    sharing = program.sharing
    sizes = {size for size, _ in seen}
    place = np.minimum(np.searchsorted(ranks, sharing.rank), len(ranks) - 1)
    waits = zip((seen[i][1] for i in place), sharing.row, sharing.flag, strict=True)
    is_known = len(sizes) == 1 and np.array_equal(ranks[place], sharing.rank)
    if not is_known or not all(
        0 <= flag < len(awaited) and awaited[flag] == row for awaited, row, flag in waits
    ):
        raise BindError(
            f"what rank {rank} waits for in shared memory other ranks of its node do not "
            "announce; compile the same spec on all ranks"
        )
