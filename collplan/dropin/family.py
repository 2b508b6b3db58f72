"""Families of communicators that follow a table, by the library that intercepts calls of MPI."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Iterable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int64, c_void_p
from functools import cache
from typing import Any, Final

from mpi4py import MPI

from collplan.deciding.options import CallOptions
from collplan.deciding.statistics import Statistics, deliver, is_logged, log_file, new_statistics
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.launch.launcher import family_of
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.preload.helper import Helper
from collplan.preload.library import preload_library, vendor_and_library
from collplan.specs import CollplanError
from collplan.tables.table import TuningTable

_TEXT_BYTES: Final = 512


class _Reply(Structure):
    """Answer to a request of the library."""

    _fields_ = (("status", c_int64), ("n_bytes", c_int64), ("bytes", c_void_p))


_Answer = CFUNCTYPE(None, c_int64, c_void_p, c_int64, c_void_p)


class Family:
    """Communicators that follow a table, with common statistics; creating one is collective.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of all ranks of the family.
    table : TuningTable or None
        Table, the same on all ranks; None if all calls are native.
    options : CallOptions
    operations : iterable of (MPI.Op, str)
        User-defined operations, with the names under which they are registered.

    Raises
    ------
    CollplanError
        On all ranks, if the calls cannot follow the table.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        table: TuningTable | None,
        options: CallOptions,
        operations: Iterable[tuple[MPI.Op, str]],
    ) -> None:
        self._handle: int | None = None
        self._is_closed = False
        self._last = new_statistics()
        if table is None:
            return
        self._helper = helper = Helper(table, options)

        def answer(request: int, message: int, n_bytes: int, reply: int) -> None:
            status, text = helper.answer(request, ctypes.string_at(message, n_bytes))
            library.collplan_reply(reply, status, text, len(text))

        self._answer = _Answer(answer)
        library = load_library(comm)
        for op, name in operations:
            library.collplan_name_operation(MPI._addressof(op), name.encode())
        why = ctypes.create_string_buffer(_TEXT_BYTES)
        self._handle = library.collplan_found(MPI._addressof(comm), self._answer, why, _TEXT_BYTES)
        if self._handle is None:
            raise CollplanError(why.value.decode(errors="replace"))
        # The library does not ask a Python that has ended.
        atexit.register(self.close)

    def join(self, comm: MPI.Comm) -> None:
        """Let a communicator follow the table, and free its plans if it has any; collective."""
        if self._handle is not None and comm != MPI.COMM_NULL:
            _library().collplan_join(MPI._addressof(comm), self._handle)

    def prepare(self, comm: MPI.Comm) -> None:
        """Make what non-blocking calls have requested; collective."""
        if self._handle is not None:
            _library().collplan_prepare(MPI._addressof(comm))

    def statistics(self) -> Statistics:
        """Return the statistics of this rank's calls.

        Raises
        ------
        CollplanError
            If memory is not sufficient.
        """
        if self._handle is None or self._is_closed:
            return self._last
        reply = _Reply()
        _library().collplan_rows(self._handle, ctypes.byref(reply))
        if reply.status != 0:
            raise CollplanError("the statistics do not fit into memory")
        text = ctypes.string_at(reply.bytes, reply.n_bytes).decode()
        ctypes.CDLL(None).free(c_void_p(reply.bytes))
        return self._helper.statistics(text)

    def log_at_exit(self, comm: MPI.Intracomm) -> None:
        """Have rank 0 report the statistics at program exit, if the environment requests them.

        Rank 0 of the world writes a file, and rank 0 of the communicator prints a table.
        """
        speaker = comm if log_file() is None else MPI.COMM_WORLD
        if is_logged() and speaker.Get_rank() == 0:
            if not _logged:
                atexit.register(_deliver_all)
            _logged.append(self)

    def close(self) -> None:
        """Answer no more requests, so that calls that need a new plan run natively."""
        if self._handle is not None and not self._is_closed:
            _library().collplan_close(self._handle)
            self._last, self._is_closed = self.statistics(), True
            atexit.unregister(self.close)


_logged: list[Family] = []
"""Families whose statistics this process delivers when it ends."""


def _deliver_all() -> None:
    deliver(family.statistics() for family in _logged)


def load_library(comm: MPI.Intracomm) -> Any:
    """Return the library on all ranks, to which mpi4py's calls of MPI are directed; collective.

    Raises
    ------
    CollplanError
        On all ranks, if the library cannot be built or loaded on one of them.
    """
    return RollCall(comm, None, "load the library").together(_library)


@cache
def _library() -> Any:
    """Return the library, after mpi4py's calls of MPI were directed to it.

    Raises
    ------
    CollplanError
        If the library cannot be built or loaded, or calls cannot be directed to it.
    """
    vendor, mpi = vendor_and_library()
    path = preload_library(family_of(vendor), mpi)
    try:
        # A preloaded library is the same file.
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise CollplanError(one_line(error)) from None
    library.collplan_serve.restype = c_char_p
    library.collplan_found.restype = c_void_p
    library.collplan_found.argtypes = (c_void_p, _Answer, c_char_p, c_int64)
    library.collplan_reply.argtypes = (c_void_p, c_int64, c_char_p, c_int64)
    for name in ("close", "prepare"):
        getattr(library, f"collplan_{name}").argtypes = (c_void_p,)
    library.collplan_join.argtypes = (c_void_p, c_void_p)
    library.collplan_name_operation.argtypes = (c_void_p, c_char_p)
    library.collplan_rows.argtypes = (c_void_p, POINTER(_Reply))
    for name in ("close", "prepare", "reply", "join", "rows", "name_operation"):
        getattr(library, f"collplan_{name}").restype = None
    why = library.collplan_serve(str(MPI.__file__).encode())
    if why is not None:
        raise CollplanError(why.decode(errors="replace"))
    return library
