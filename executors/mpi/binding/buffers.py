"""Buffers of the caller: checks that they fit a plan, and allocation."""

from __future__ import annotations

import mmap
from typing import Any, Final

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.engine.node_memory import NodeMemory
from collplan.executors.mpi.errors import BindError
from collplan.planner.arrays import Array
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs.collectives.predefined import numpy_dtype

_ON_HOST: Final = (1, 3, 13)
"""Device types of DLPack for memory that the processor can use: own, pinned and managed."""


class Buffers:
    """Requirements of a plan on a rank's buffers.

    Parameters
    ----------
    plan : Plan
        The plan of all ranks, or this rank's program.
    rank : int
        This rank.
    """

    def __init__(self, plan: Plan, rank: int) -> None:
        self._n_sent, self._n_received, self._n_scratch = plan.buffer_sizes[rank].tolist()
        self._itemsize = plan.itemsize
        self._datatype = plan.origin.datatype if plan.origin else None
        self._scratch: Array | None = None

    @property
    def is_any_needed(self) -> bool:
        """Return whether the caller must provide memory on this rank."""
        return bool(self._n_sent or self._n_received)

    @property
    def spec_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the plan's spec, or bytes of the element size."""
        if self._datatype is None:
            return np.dtype(f"V{self._itemsize}")
        return numpy_dtype(self._datatype)

    def check(self, sendbuf: object, recvbuf: object) -> list[Array]:
        """Return send, receive and scratch buffer as flat arrays of one dtype.

        Raises
        ------
        BindError
            If a buffer is missing, too small or of another type, or if both overlap.
        """
        sent = self._checked("sendbuf", sendbuf, self._n_sent)
        received = self._checked("recvbuf", recvbuf, self._n_received)
        if received is not None and not received.flags.writeable:
            raise BindError("recvbuf is read-only; pass a writable array")
        self._require_apart(sent, received)
        dtype = self._common_dtype(sent, received)
        nothing = np.empty(0, dtype)
        if self._scratch is None or self._scratch.dtype != dtype:
            self._scratch = _in_memory(self._n_scratch, dtype, "scratch")
        return [
            nothing if sent is None else sent,
            nothing if received is None else received,
            self._scratch,
        ]

    def allocate(self, node: NodeMemory | None) -> tuple[Array, Array]:
        """Allocate a send and a receive buffer, in shared memory or on separate pages.

        Raises
        ------
        BindError
            If the buffers do not fit into memory.
        """
        dtype = self.spec_dtype
        found = []
        for which, n in ((Buffer.SEND, self._n_sent), (Buffer.RECV, self._n_received)):
            there = node.at_mirror(which, n, dtype) if node is not None else None
            name = f"{which.name.lower()}buf"
            found.append(_on_page(n, dtype, name) if there is None else there)
        return found[0], found[1]

    def _checked(self, name: str, array: object, n_elements: int) -> Array | None:
        """Return a buffer as a flat array, or None if the plan does not use it."""
        if n_elements == 0:
            return None
        if array is MPI.IN_PLACE:
            raise BindError(
                f"{name} is MPI.IN_PLACE, the plan uses {n_elements} elements of it; pass an "
                "array, or compile the collective with in_place: true"
            )
        if array is None:
            raise BindError(
                f"{name} is missing: the plan uses {n_elements} elements of it; pass one"
            )
        if _is_on_device(array):
            raise BindError(
                f"{name} lies in a device's memory, plans run in the host's; "
                "pass a numpy array and copy from and to it"
            )
        if not isinstance(array, np.ndarray):
            kind = type(array).__name__
            raise BindError(f"{name} is a {kind}, must be a numpy array; pass numpy.array of it")
        if array.dtype.hasobject or array.itemsize != self._itemsize:
            raise BindError(
                f"{name} has dtype {array.dtype} of {array.itemsize} bytes per element, the plan's "
                f"elements have {self._itemsize}; use the datatype the plan was compiled for"
            )
        if not array.flags.c_contiguous:
            raise BindError(f"{name} is not C-contiguous; pass numpy.ascontiguousarray of it")
        if array.size < n_elements:
            raise BindError(
                f"{name} has {array.size} elements, the plan needs {n_elements} on this rank; "
                "pass a larger array or compile for a smaller count"
            )
        return array.reshape(-1)

    def _require_apart(self, sent: Array | None, received: Array | None) -> None:
        """Raise `BindError` if buffers overlap, which MPI forbids."""
        if sent is None or received is None:
            return
        # Both are contiguous, so a comparison of their bounds is sufficient.
        if np.may_share_memory(sent[: self._n_sent], received[: self._n_received]):
            raise BindError(
                "sendbuf and recvbuf overlap; pass separate arrays, or compile the collective "
                "with in_place: true where it has that"
            )

    def _common_dtype(self, sent: Array | None, received: Array | None) -> np.dtype[Any]:
        """Return the dtype of scratch: that of the buffers or, without any, of the spec."""
        known = [array.dtype for array in (sent, received) if array is not None]
        if len(known) == 2 and known[0] != known[1]:
            raise BindError(
                f"sendbuf has dtype {known[0]}, recvbuf {known[1]}; a collective has one datatype"
            )
        if known and self._datatype is not None and known[0] != self.spec_dtype:
            name = "sendbuf" if sent is not None else "recvbuf"
            raise BindError(
                f"{name} has dtype {known[0]}, the plan was compiled for {self._datatype}; "
                "convert the array or compile for its datatype"
            )
        return known[0] if known else self.spec_dtype


def _is_on_device(array: object) -> bool:
    if isinstance(array, np.ndarray):
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and int(device()[0]) not in _ON_HOST


def _in_memory(n_elements: int, dtype: np.dtype[Any], name: str) -> Array:
    try:
        return np.empty(n_elements, dtype)
    except MemoryError:
        raise BindError(
            f"the plan's {name} of {n_elements * dtype.itemsize} bytes does not fit into memory; "
            "use a smaller count or another algorithm"
        ) from None


def _on_page(n_elements: int, dtype: np.dtype[Any], name: str) -> Array:
    n_bytes = n_elements * dtype.itemsize
    raw = _in_memory(n_bytes + mmap.PAGESIZE, np.dtype(np.uint8), name)
    skip = -raw.ctypes.data % mmap.PAGESIZE
    return raw[skip : skip + n_bytes].view(dtype)
