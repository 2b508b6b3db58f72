"""The reduction of a program, in machine code or, for other operations, in Python."""

from __future__ import annotations

import ctypes
import traceback
from contextlib import suppress
from ctypes import c_int, c_int64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.host.cores import host
from collplan.executors.mpi.loop import reductions
from collplan.executors.mpi.loop.reductions import Predefined
from collplan.executors.mpi.program.elements import Applies
from collplan.executors.mpi.program.program import Program
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.arrays import Array
from collplan.planner.plan.plan import Op

COMPILING_S: Final = 600.0
"""Time limit in seconds for a rank that compiles, which is many times the usual duration."""


def name_of(operation: Applies) -> str:
    """Return the name of an operation in messages."""
    return str(getattr(operation, "name", type(operation).__name__))


class Callback:
    """An operation in Python as a C function, which the compiled loop calls.

    Parameters
    ----------
    operation : object with ``apply``
    dtype : dtype
        Type of the operands.

    Attributes
    ----------
    address : int
        Address of the C function, whose parameters are those of
        `collplan.executors.mpi.loop.reductions.reduction_address`.
    prints_errors : bool
        Whether errors are printed, as the caller of the loop is not Python and cannot raise them.
    """

    prints_errors = False

    def __init__(self, operation: Applies, dtype: np.dtype[Any]) -> None:
        self._apply, self._dtype = operation.apply, dtype
        self._error: BaseException | None = None
        self._function = ctypes.CFUNCTYPE(c_int, *(c_int64,) * 8)(self._reduce)
        self.address = int(ctypes.cast(self._function, ctypes.c_void_p).value or 0)

    @property
    def has_error(self) -> bool:
        """Return whether the operation has raised an error."""
        return self._error is not None

    def take_error(self) -> BaseException:
        """Return and clear the error that the operation has raised."""
        error, self._error = self._error, None
        assert error is not None
        return error

    def _reduce(self, left: int, right: int, out: int, n: int, n_rows: int, *strides: int) -> int:
        places = zip((left, right, out), strides, strict=True)
        # An exception cannot pass through the loop, so it is raised after the loop.
        try:
            self._apply(*(self._rows(address, n, n_rows, stride) for address, stride in places))
        except BaseException as error:
            self._error = error
            if self.prints_errors:
                traceback.print_exc()
            return 1
        return 0

    def _rows(self, address: int, n: int, n_rows: int, stride: int) -> Array:
        """Return a view of rows of n elements; a single row is returned as a vector."""
        itemsize, reach = self._dtype.itemsize, (n_rows - 1) * stride
        low = min(0, reach)
        memory: Any = (ctypes.c_char * (abs(reach) + n * itemsize)).from_address(address + low)
        rows = np.ndarray((n_rows, n), self._dtype, memory, -low, (stride, itemsize))
        return rows[0] if n_rows == 1 else rows


@dataclass(frozen=True, slots=True)
class Reduction:
    """The reduction of a program, if it has one.

    Parameters
    ----------
    predefined : (str, dtype) or None
        Predefined operation that has machine code, and the type of its operands.
    callback : Callback or None
        Other operation, which runs in Python.
    why_callback : str or None
        Reason why there is no machine code.
    """

    predefined: Predefined | None = None
    callback: Callback | None = None
    why_callback: str | None = None

    @classmethod
    def of(cls, program: Program, dtype: np.dtype[Any], operation: Applies | None) -> Reduction:
        """Return the reduction of a program by an operation on elements of `dtype`."""
        if operation is None or not np.any(program.op == Op.REDUCE):
            return cls()
        name = name_of(operation)
        if reductions.is_compiled(operation, dtype):
            return cls((name, dtype))
        reason = f"operation {name} on {dtype} has no compiled form"
        return cls(None, Callback(operation, dtype), reason)

    @property
    def is_loaded(self) -> bool:
        """Return whether `load` takes no time."""
        return reductions.is_loaded(self.predefined)

    def load(self) -> int:
        """Load compiled code; return the address of the reduction."""
        address = reductions.load(self.predefined)
        return address if self.callback is None else self.callback.address


def load_by_turns(comm: MPI.Intracomm, reduction: Reduction, call: RollCall) -> None:
    """Load compiled code, on the first rank of each host before all other ranks; collective.

    Raises
    ------
    Exception
        On all ranks, if one rank fails.
    """
    # Each host may have its own cache, which emulated nodes of the host share.
    hosts: list[str] = call.gather(host())
    if hosts.index(hosts[comm.rank]) == comm.rank:
        with suppress(Exception):  # raised again below, on all ranks
            reduction.load()
    # A compiling rank is not missing, even with a small time limit.
    patience_s = max(call.timeout_s or 0.0, COMPILING_S)
    patient = RollCall(comm, patience_s, "load machine code")
    patient.before_blocking()
    call.together(reduction.load)
