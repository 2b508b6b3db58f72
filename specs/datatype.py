"""Datatypes by name: numpy's own, and MPI's pairs of a value and an index."""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from collplan.specs.showing import show_value

if TYPE_CHECKING:
    import numpy as np

SCALARS: Final = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
"""Datatypes by numpy's names."""
_VALUES: Final = {
    "float_int": "single",
    "double_int": "double",
    "long_int": "long",
    "int_int": "intc",
    "short_int": "short",
    "long_double_int": "longdouble",
}
PAIRS: Final = tuple(_VALUES)
"""MPI's pairs of a value and an int, the index, by mpi4py's names in lower case."""
DATATYPES: Final = SCALARS + PAIRS
"""All datatypes."""

_OTHER_NAMES: Final = {
    "2int": "int_int",
    "twoint": "int_int",
    "char": "int8",
    "signed_char": "int8",
    "unsigned_char": "uint8",
    "byte": "uint8",
    "short": "int16",
    "unsigned_short": "uint16",
    "int": "int32",
    "integer": "int32",
    "unsigned": "uint32",
    "unsigned_int": "uint32",
    "uint": "uint32",
    "long": "int64",
    "long_long": "int64",
    "unsigned_long": "uint64",
    "half": "float16",
    "float": "float32",
    "single": "float32",
    "real": "float32",
    "double": "float64",
    "double_precision": "float64",
    "complex": "complex64",
    "double_complex": "complex128",
    "c_bool": "bool",
    "logical": "bool",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "f2": "float16",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
"""Names of the same datatypes in C, Fortran, MPI and numpy, to suggest ours."""


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy dtype of a datatype, to make buffers with.

    A pair is a struct of the fields ``value`` and ``index``, padded as C pads
    it: its size is the extent of MPI's datatype. Sizes of C's types, such as
    long double, are those of the machine at hand.

    Parameters
    ----------
    name : str
        One of `DATATYPES`.

    Raises
    ------
    ValueError
        If there is no such datatype; the message lists those there are.

    Examples
    --------
    >>> numpy_dtype("float32").itemsize
    4
    >>> numpy_dtype("double_int").names, numpy_dtype("double_int").itemsize
    (('value', 'index'), 16)
    """
    import numpy as np  # slow to import, and much of the command line does without

    _check_datatype(name)
    if name not in PAIRS:
        return np.dtype(name)
    # MPI's pairs are structs of C: aligned, they have the padding and so the extent of MPI's.
    return np.dtype([("value", _VALUES[name]), ("index", "intc")], align=True)


def _check_datatype(name: Any) -> str:
    if not isinstance(name, str) or name not in DATATYPES:
        text = str(name)
        word = text.lower().removeprefix("mpi_").removesuffix("_t").replace(" ", "_")
        close = difflib.get_close_matches(_OTHER_NAMES.get(word, word), DATATYPES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{show_value(name)} is no datatype; {hint}valid: {', '.join(DATATYPES)}")
    return name


Datatype = Annotated[
    str, BeforeValidator(_check_datatype), WithJsonSchema({"enum": list(DATATYPES)})
]
"""A field that names a datatype."""
