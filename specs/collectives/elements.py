"""Fields that describe elements: datatypes, and operations that combine elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, WithJsonSchema

from collplan.specs.collectives.predefined import BUILTIN, DATATYPES, check_datatype
from collplan.specs.errors import show_value, suggest
from collplan.specs.syntax.base import ShortModel, described
from collplan.specs.syntax.numbers import Flag

Datatype = Annotated[
    str, BeforeValidator(check_datatype), WithJsonSchema({"enum": list(DATATYPES)})
]
"""Field with the name of a datatype."""


def _operation_schema(fields: dict[str, Any]) -> dict[str, Any]:
    about = "A predefined operation, or {name, commutative} for your own."
    return {"anyOf": [{"enum": list(BUILTIN)}, fields], "description": about}


class Operation(ShortModel):
    """A reduction operation: a predefined one, or another one with `commutative` stated.

    Parameters
    ----------
    name : str
        Name of a predefined operation or of a registered one.
    commutative : bool
        Whether operands may be combined in another order than that of the
        ranks. Predefined operations have True by default; False requires
        rank order, for example for reproducible floating-point sums.

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

    @property
    def is_usual(self) -> bool:
        """Return whether MPI predefines the operation and may exchange its operands."""
        return self.is_builtin and self.commutative

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields; raise `ValueError` if `commutative` is missing and required."""
        given = {key: entry for key, entry in fields.items() if entry is not None}
        name = given.get("name")
        if isinstance(name, str) and name not in BUILTIN and "commutative" not in given:
            raise ValueError(
                f"{show_value(name)} is not a predefined operation ({', '.join(BUILTIN)}); "
                f"{suggest(name, BUILTIN)}for your own, say "
                f"{{name: {name}, commutative: true or false}}"
            )
        return given
