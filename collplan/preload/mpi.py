"""MPI library that mpi4py loads, found without initializing MPI."""

from __future__ import annotations

import os
from ctypes import CDLL, Structure, byref, c_char_p, c_void_p, cast

import mpi4py


def vendor_and_library() -> tuple[str, str]:
    """Return the MPI library that mpi4py loads.

    Returns
    -------
    vendor : str
        Name of the vendor in mpi4py.
    path : str
        File of the library; empty if it is unknown.
    """
    mpi4py.rc.initialize = False
    from mpi4py import MPI

    # A file of mpi4py's has the functions of the library that it has loaded.
    functions, found = CDLL(str(MPI.__file__)), _LibraryOfAddress()
    CDLL(None).dladdr(cast(functions.PMPI_Init, c_void_p), byref(found))
    return str(MPI.get_vendor()[0]), os.fsdecode(found.file or b"")


class _LibraryOfAddress(Structure):
    """Library of an address, as dladdr describes it."""

    _fields_ = (("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("address", c_void_p))
