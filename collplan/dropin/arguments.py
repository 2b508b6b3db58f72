"""What the caller passes for a buffer, understood as mpi4py understands it."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.dropin.elements import Element, element_of

Array = npt.NDArray[Any]


@dataclass(slots=True)  # not frozen: made at every call
class Message:
    """A buffer of one rank in one collective.

    Parameters
    ----------
    address : int
        Of the first element.
    count : int
        Elements of a block.
    blocks : int
        How many blocks.
    element : Element
        Of what.
    spec : list
        The whole of it for a message of MPI: buffer, count and displacement, datatype.
    is_reachable : bool
        Whether the processor can use the memory.
    """

    address: int
    count: int
    blocks: int
    element: Element
    spec: list[Any]
    is_reachable: bool = True

    @property
    def n_bytes(self) -> int:
        """Return the bytes of a block's signature."""
        return self.count * self.element.size

    def block(self, number: int) -> Message:
        """Return one of the blocks, counted from 0."""
        buffer, _, displ, datatype = self.spec
        skip = number * self.count
        address = self.address + skip * self.element.extent
        spec = [buffer, self.count, displ + skip, datatype]
        return Message(address, self.count, 1, self.element, spec, self.is_reachable)

    def is_plain(self, itemsize: int) -> bool:
        """Return whether a plan of so large elements can use the memory as it is."""
        return self.is_reachable and self.element.is_plain and self.address % itemsize == 0


def read_message(given: Any, blocks: int, *, is_written: bool) -> Message:
    """Return the message that an argument of a collective describes.

    Follows mpi4py's rules for ``buf``, ``[buf, datatype]``, ``[buf, count]``,
    ``[buf, (count, displ)]`` and the longer forms. Raises anything where mpi4py would:
    the caller then lets mpi4py say it.

    Parameters
    ----------
    given : object
        The argument.
    blocks : int
        How many blocks it has; without a count it is divided among them.
    is_written : bool
        Whether the collective writes there.
    """
    buffer, count, displ, datatype = _unpack(given)
    if isinstance(datatype, str):
        datatype = MPI._typedict[datatype]
    address, length, is_reachable = 0, 0, True
    if buffer is None or buffer is MPI.BOTTOM:
        if datatype is None:
            raise TypeError("a message without a buffer needs a datatype")
    else:
        view = _view(buffer, is_written)
        address, length, is_reachable = view.address, view.nbytes, _is_on_host(buffer)
        if datatype is None:
            datatype = _datatype_of(buffer)
    element = element_of(datatype)
    displ = 0 if displ is None else operator.index(displ)
    if displ < 0 or (displ > 0 and displ * element.extent > length):
        raise ValueError("the displacement is out of bounds")
    length -= displ * element.extent
    if count is not None:
        count = operator.index(count)
        if count < 0 or (count > 0 and buffer is None):
            raise ValueError("the count is negative, or there is no buffer")
    else:
        count = _infer(length, element, blocks)
    spec = [buffer, count * blocks, displ, datatype]
    return Message(address + displ * element.extent, count, blocks, element, spec, is_reachable)


def array_at(address: int, n_elements: int, dtype: np.dtype[Any]) -> Array:
    """Return the memory at an address as an array, which keeps nothing alive."""
    there: Any = MPI.buffer.fromaddress(address, n_elements * dtype.itemsize)
    found: Array = np.frombuffer(there, dtype)
    return found


def _unpack(given: Any) -> tuple[Any, Any, Any, Any]:
    """Return buffer, count, displacement and datatype, None where they are not given."""
    count = displ = datatype = None
    if not isinstance(given, list | tuple):
        return given, None, None, None
    if len(given) == 2:
        buffer, count = given
        if isinstance(count, MPI.Datatype | str):
            count, datatype = None, count
        elif isinstance(count, list | tuple):
            count, displ = count
    elif len(given) == 3:
        buffer, count, datatype = given
        if isinstance(count, list | tuple):
            count, displ = count
    elif len(given) == 4:
        buffer, count, displ, datatype = given
    else:
        raise ValueError("a message has 2 to 4 items")
    return buffer, count, displ, datatype


def _view(buffer: Any, is_written: bool) -> Any:
    if isinstance(buffer, np.ndarray) and not buffer.flags.c_contiguous:
        buffer = buffer.T  # of Fortran's order: mpi4py takes these, too
    return MPI.buffer.frombuffer(buffer, not is_written)


def _is_on_host(buffer: Any) -> bool:
    """Return whether memory is surely the processor's; MPI can tell of any."""
    return isinstance(buffer, np.ndarray) or not (
        hasattr(buffer, "__cuda_array_interface__") or hasattr(buffer, "__dlpack__")
    )


def _datatype_of(buffer: Any) -> MPI.Datatype:
    """Return the datatype mpi4py finds for a buffer that comes without one."""
    try:
        code = memoryview(buffer).format
    except TypeError:
        code = _typestr(buffer)
    return MPI._typedict[code[1:] if code[0] in "@<" else code]


def _typestr(buffer: Any) -> str:
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is None:
        return str(np.from_dlpack(buffer).dtype.char)
    return str(np.dtype(interface["typestr"]).char)


def _infer(length: int, element: Element, blocks: int) -> int:
    if length <= 0:
        return 0
    n_elements, rest = divmod(length, element.extent)
    if rest or n_elements % blocks:
        raise ValueError("the buffer is no whole number of elements or blocks")
    return n_elements // blocks
