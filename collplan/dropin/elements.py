"""Elements of MPI datatypes: their sizes, extents, and names in reductions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Final

import numpy as np
from mpi4py import MPI

from collplan.specs.collectives.predefined import DATATYPES, PAIRS, numpy_dtype

_BY_KIND: Final = {
    "int": "SIGNED_CHAR SHORT INT LONG LONG_LONG INT8_T INT16_T INT32_T INT64_T AINT OFFSET COUNT "
    "INTEGER INTEGER1 INTEGER2 INTEGER4 INTEGER8",
    "uint": "UNSIGNED_CHAR UNSIGNED_SHORT UNSIGNED UNSIGNED_LONG UNSIGNED_LONG_LONG UINT8_T "
    "UINT16_T UINT32_T UINT64_T",
    "float": "FLOAT DOUBLE FLOAT16_T REAL DOUBLE_PRECISION REAL2 REAL4 REAL8",
    "complex": "C_COMPLEX C_FLOAT_COMPLEX C_DOUBLE_COMPLEX CXX_FLOAT_COMPLEX CXX_DOUBLE_COMPLEX "
    "COMPLEX DOUBLE_COMPLEX COMPLEX8 COMPLEX16",
    "bool": "C_BOOL CXX_BOOL",
}
_REPEATING: Final = (MPI.COMBINER_DUP, MPI.COMBINER_CONTIGUOUS)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of an MPI datatype.

    Parameters
    ----------
    size : int
        Size of the type signature in bytes.
    extent : int
        Distance in bytes between consecutive elements in memory.
    is_plain : bool
        Whether elements are stored in the order of their type signature and without gaps.
    name : str or None
        Name of the type in reductions, see `collplan.specs.numpy_dtype`; None if plans cannot
        reduce elements of this type.
    number : int
        Unique number of the element. Handles are not unique over time, because MPI reuses them.
    """

    size: int
    extent: int
    is_plain: bool
    name: str | None = None
    number: int = field(default_factory=count().__next__, compare=False)


def element_of(datatype: MPI.Datatype) -> Element:
    """Return the element of a datatype.

    The element of a derived datatype is cached until the datatype is freed, because MPI may
    then reuse its handle.
    """
    element = _known().get(datatype.handle)
    if element is None:
        extent = datatype.Get_extent()[1]
        datatype.Pack(b"", bytearray(1), 0, MPI.COMM_SELF)  # an error if it is not committed
        element = Element(datatype.Get_size(), extent, _repeats_plain(datatype))
        datatype.Set_attr(_keyval(), None)
        KNOWN[datatype.handle] = element
    return element


@cache
def _keyval() -> int:
    """Return the key of an attribute whose deletion callback reports freed datatypes."""
    return MPI.Datatype.Create_keyval(delete_fn=_forget)


def _forget(datatype: MPI.Datatype, _keyval: int, _value: object) -> None:
    KNOWN.pop(datatype.handle, None)


def _repeats_plain(datatype: MPI.Datatype) -> bool:
    """Return whether a datatype consists of contiguous repetitions of a plain datatype."""
    known = _known().get(datatype.handle)
    if known is not None:
        return known.is_plain
    combiner = datatype.Get_envelope()[-1]
    if combiner not in _REPEATING:
        return False
    (inner,) = datatype.Get_contents()[-1]
    try:
        return _repeats_plain(inner)
    finally:
        if not inner.is_predefined:
            inner.Free()


KNOWN: Final[dict[int, Element]] = {}
"""Elements of predefined and cached datatypes by handle; empty until the first lookup."""


def _known() -> dict[int, Element]:
    """Return `KNOWN`; the first call adds the predefined datatypes of MPI."""
    if not KNOWN:
        KNOWN.update(_predefined())
    return KNOWN


def _predefined() -> dict[int, Element]:
    found: dict[int, Element] = {}
    for datatype in vars(MPI).values():
        if not isinstance(datatype, MPI.Datatype) or datatype == MPI.DATATYPE_NULL:
            continue
        size, extent = datatype.Get_size(), datatype.Get_extent()[1]
        found[datatype.handle] = Element(size, extent, size == extent)
    for kind, names in _BY_KIND.items():
        for name in names.split():
            datatype = getattr(MPI, name)
            if datatype.handle in found:
                size = found[datatype.handle].size
                dtype = kind if kind == "bool" and size == 1 else f"{kind}{8 * size}"
                if dtype in DATATYPES:
                    found[datatype.handle] = Element(size, size, True, dtype)
    for name in PAIRS:
        handle = getattr(MPI, name.upper()).handle
        plain = found.get(handle)
        if plain is not None and plain.extent == numpy_dtype(name).itemsize:
            found[handle] = Element(plain.size, plain.extent, plain.is_plain, name)
    found[MPI.DATATYPE_NULL.handle] = Element(0, 0, False)
    return found


def unit_of(n_bytes: int) -> np.dtype[np.generic]:
    """Return the largest integer dtype whose size divides a number of bytes.

    Plans of collectives that only move data use these elements, which are the same on all
    ranks even if ranks pass different datatypes.

    Examples
    --------
    >>> unit_of(800), unit_of(12), unit_of(7)
    (dtype('int64'), dtype('int32'), dtype('int8'))
    """
    return np.dtype(f"int{8 * math.gcd(n_bytes, 8)}")
