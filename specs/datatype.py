"""Datatypes by name: numpy's own, and MPI's pairs of a value and an index."""

from __future__ import annotations

import difflib
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

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

_MPI_NAMES: Final = {"2int": "int_int", "twoint": "int_int"}


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
        close = difflib.get_close_matches(_MPI_NAMES.get(text.lower(), text), DATATYPES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"{name!r} is no datatype; {hint}valid: {', '.join(DATATYPES)}")
    return name


Datatype = Annotated[
    str, BeforeValidator(_check_datatype), WithJsonSchema({"enum": list(DATATYPES)})
]
"""A field that names a datatype."""
