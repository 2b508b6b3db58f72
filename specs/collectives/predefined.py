"""MPI's predefined datatypes and operations by name; this module needs no pydantic."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from collplan.specs.errors import FieldError, show_value, suggest
from collplan.specs.syntax.calling import explains_calls

if TYPE_CHECKING:
    import numpy as np

SCALARS: Final = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
)
"""Scalar datatypes by numpy's names."""
_VALUES: Final = {
    "float_int": "single",
    "double_int": "double",
    "long_int": "long",
    "int_int": "intc",
    "short_int": "short",
    "long_double_int": "longdouble",
}
PAIRS: Final = tuple(_VALUES)
"""MPI's pairs of a value and an int index, by mpi4py's names in lower case."""
DATATYPES: Final = SCALARS + PAIRS
"""All datatypes."""
NO_DATATYPE: Final = "uint8"
"""Datatype of collectives that do not have one."""

_OTHER_NAMES: Final = {
    other: ours
    for ours, others in {
        "int_int": ("2int", "twoint"),
        "int8": ("char", "signed_char", "i1"),
        "uint8": ("unsigned_char", "byte", "u1"),
        "int16": ("short", "i2"),
        "uint16": ("unsigned_short", "u2"),
        "int32": ("int", "integer", "i4"),
        "uint32": ("unsigned", "unsigned_int", "uint", "u4"),
        "int64": ("long", "long_long", "i8"),
        "uint64": ("unsigned_long", "u8"),
        "float16": ("half", "f2"),
        "float32": ("float", "single", "real", "f4"),
        "float64": ("double", "double_precision", "f8"),
        "complex64": ("complex", "c8"),
        "complex128": ("double_complex", "c16"),
        "bool": ("c_bool", "logical"),
    }.items()
    for other in others
}
"""Names of the datatypes in C, Fortran, MPI and numpy, used to suggest those of this module."""


@explains_calls("numpy_dtype")
def numpy_dtype(name: Any) -> np.dtype[Any]:
    """Return the numpy dtype of a datatype, for the allocation of buffers.

    A pair is a struct of the fields ``value`` and ``index``, with the padding
    of C. Its size is the extent of MPI's datatype. Types of C, such as
    long double, have the sizes of the current machine.

    Parameters
    ----------
    name : str, type or dtype
        One of `DATATYPES`, or numpy's or Python's type for it.

    Raises
    ------
    FieldError
        If the datatype does not exist. The message lists all datatypes.

    Examples
    --------
    >>> numpy_dtype("float32").itemsize
    4
    >>> numpy_dtype("double_int").names, numpy_dtype("double_int").itemsize
    (('value', 'index'), 16)
    """
    return _dtype_of(check_datatype(name))


@cache
def _dtype_of(name: str) -> np.dtype[Any]:
    import numpy as np  # slow to import, and much of the command line does without

    if name not in PAIRS:
        return np.dtype(name)
    # MPI's pairs are C structs. With alignment, numpy's structs have the same extent.
    return np.dtype([("value", _VALUES[name]), ("index", "intc")], align=True)


def check_datatype(name: Any) -> str:
    """Return the name of a datatype; raise `FieldError` with a hint if there is no such type.

    Types of numpy and Python, as ``numpy.float32`` and ``float``, stand for their names.
    """
    name = _name_of_type(name)
    if not isinstance(name, str) or name not in DATATYPES:
        text = name.Get_name() if hasattr(name, "Get_name") else str(name)  # of mpi4py
        word = text.lower().removeprefix("mpi_").removesuffix("_t").replace(" ", "_")
        hint = suggest(_OTHER_NAMES.get(word, word), DATATYPES)
        raise FieldError(
            f"{show_value(name)} is not a datatype; {hint}valid: {', '.join(DATATYPES)}"
        )
    return name


def _name_of_type(given: Any) -> Any:
    """Return the name of a type of numpy or Python; other values as they are."""
    is_type = isinstance(given, type) or hasattr(given, "newbyteorder")
    if isinstance(given, str) or not is_type:
        return given
    import numpy as np

    dtype = np.dtype(given)
    return dtype.name if dtype.isnative and dtype.name in DATATYPES else given


ARITHMETIC: Final = ("sum", "prod", "min", "max")
LOGICAL: Final = ("land", "lor", "lxor")
BITWISE: Final = ("band", "bor", "bxor")
LOCATING: Final = ("minloc", "maxloc")
"""Operations on pairs: extreme value and its index, the lowest index if values are equal."""
BUILTIN: Final = ARITHMETIC + LOGICAL + BITWISE + LOCATING
"""MPI's predefined operations; all of them commute."""


def check_operation(name: str, datatype: str) -> None:
    """Raise `ValueError` if a predefined operation `name` is not defined on a datatype.

    Examples
    --------
    >>> check_operation("min", "complex64")
    Traceback (most recent call last):
    ValueError: op min needs an ordered datatype, not complex64; use sum or prod
    """
    if name in LOCATING and datatype not in PAIRS:
        raise ValueError(
            f"op {name} needs a pair datatype, not {datatype}; "
            f"use one of {', '.join(PAIRS)} or op {name[:3]}"
        )
    if datatype in PAIRS:
        _check_on_pairs(name, datatype)
        return
    is_integer = datatype == "bool" or "int" in datatype
    if name in LOGICAL + BITWISE and not is_integer:
        raise ValueError(
            f"op {name} needs an integer or bool datatype, not {datatype}; "
            f"use one of {', '.join(ARITHMETIC)} or an integer datatype"
        )
    if name in ("min", "max") and datatype.startswith("complex"):
        raise ValueError(f"op {name} needs an ordered datatype, not {datatype}; use sum or prod")
    if name in ARITHMETIC and datatype == "bool":
        raise ValueError(
            f"op {name} is not defined on bool; use one of {', '.join(LOGICAL)} or uint8"
        )


def _check_on_pairs(name: str, datatype: str) -> None:
    if name in BUILTIN and name not in LOCATING:
        raise ValueError(
            f"op {name} is not defined on the pair datatype {datatype}; "
            f"use one of {', '.join(LOCATING)} or another datatype"
        )
