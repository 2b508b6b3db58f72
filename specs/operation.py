"""Reduction operations: their names and whether operands may change places."""

from __future__ import annotations

from typing import Any, Final

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from collplan.specs.base import SpecModel
from collplan.specs.datatype import PAIRS
from collplan.specs.numbers import Flag

ARITHMETIC: Final = ("sum", "prod", "min", "max")
LOGICAL: Final = ("land", "lor", "lxor")
BITWISE: Final = ("band", "bor", "bxor")
LOCATING: Final = ("minloc", "maxloc")
"""On pairs: the extreme value and its index, the lowest where several have it."""
BUILTIN: Final = ARITHMETIC + LOGICAL + BITWISE + LOCATING
"""MPI's predefined operations; all of them commute."""


class Operation(SpecModel):
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

    name: str
    commutative: Flag = True

    @property
    def is_builtin(self) -> bool:
        """Return whether MPI predefines the operation."""
        return self.name in BUILTIN

    @model_validator(mode="before")
    @classmethod
    def _accept_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict):
            return value
        value = {key: entry for key, entry in value.items() if entry is not None}
        name = value.get("name")
        if isinstance(name, str) and name not in BUILTIN and "commutative" not in value:
            raise ValueError(
                f"{name!r} is no predefined operation ({', '.join(BUILTIN)}); "
                f"for your own, say {{name: {name}, commutative: true or false}}"
            )
        return value

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

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        return {
            "anyOf": [{"enum": list(BUILTIN)}, schema],
            "description": "A predefined operation, or {name, commutative} for your own.",
        }
