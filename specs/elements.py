"""Elements of vectors: datatypes by name, and the operations that combine them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, WithJsonSchema

from collplan.specs.errors import show_value, suggest

if TYPE_CHECKING:
    import numpy as np

from collplan.specs.base import ShortModel, described
from collplan.specs.numbers import Flag

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
        hint = suggest(_OTHER_NAMES.get(word, word), DATATYPES)
        raise ValueError(
            f"{show_value(name)} is not a datatype; {hint}valid: {', '.join(DATATYPES)}"
        )
    return name


Datatype = Annotated[
    str, BeforeValidator(_check_datatype), WithJsonSchema({"enum": list(DATATYPES)})
]
"""A field that names a datatype."""


ARITHMETIC: Final = ("sum", "prod", "min", "max")
LOGICAL: Final = ("land", "lor", "lxor")
BITWISE: Final = ("band", "bor", "bxor")
LOCATING: Final = ("minloc", "maxloc")
"""On pairs: the extreme value and its index, the lowest where several have it."""
BUILTIN: Final = ARITHMETIC + LOGICAL + BITWISE + LOCATING
"""MPI's predefined operations; all of them commute."""


def _operation_schema(fields: dict[str, Any]) -> dict[str, Any]:
    about = "A predefined operation, or {name, commutative} for your own."
    return {"anyOf": [{"enum": list(BUILTIN)}, fields], "description": about}


class Operation(ShortModel):
    """A reduction operation: a predefined name, or any other with `commutative` said.

    Parameters
    ----------
    name : str
        One of `BUILTIN`, or the name of a registered operation.
    commutative : bool
        Whether operands may be combined in another order than that of the
        ranks. True for predefined operations unless said otherwise (False
        asks for rank order, as for reproducible floating-point sums).

    Examples
    --------
    >>> Operation.model_validate("sum").commutative
    True
    >>> Operation(name="affine", commutative=False).is_builtin
    False
    """

    model_config = described(_operation_schema)
    text_is: ClassVar = "name"

    name: str
    commutative: Flag = True

    @property
    def is_builtin(self) -> bool:
        """Return whether MPI predefines the operation."""
        return self.name in BUILTIN

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is given; raise if it is not said of an own operation that it commutes."""
        given = {key: entry for key, entry in fields.items() if entry is not None}
        name = given.get("name")
        if isinstance(name, str) and name not in BUILTIN and "commutative" not in given:
            raise ValueError(
                f"{name!r} is not a predefined operation ({', '.join(BUILTIN)}); "
                f"for your own, say {{name: {name}, commutative: true or false}}"
            )
        return given

    def check_datatype(self, datatype: str) -> None:
        """Raise `ValueError` where MPI does not define the operation on `datatype`."""
        if self.name in LOCATING and datatype not in PAIRS:
            raise ValueError(
                f"op {self.name} needs a pair datatype, not {datatype}; "
                f"use one of {', '.join(PAIRS)} or op {self.name[:3]}"
            )
        if datatype in PAIRS:
            self._check_on_pairs(datatype)
            return
        is_integer = datatype == "bool" or "int" in datatype
        if self.name in LOGICAL + BITWISE and not is_integer:
            raise ValueError(
                f"op {self.name} needs an integer or bool datatype, not {datatype}; "
                f"use one of {', '.join(ARITHMETIC)} or an integer datatype"
            )
        if self.name in ("min", "max") and datatype.startswith("complex"):
            raise ValueError(
                f"op {self.name} needs an ordered datatype, not {datatype}; use sum or prod"
            )
        if self.name in ARITHMETIC and datatype == "bool":
            raise ValueError(
                f"op {self.name} is not defined on bool; use one of {', '.join(LOGICAL)} or uint8"
            )

    def _check_on_pairs(self, datatype: str) -> None:
        if self.is_builtin and self.name not in LOCATING:
            raise ValueError(
                f"op {self.name} is not defined on the pair datatype {datatype}; "
                f"use one of {', '.join(LOCATING)} or another datatype"
            )
