"""A named thing with options: an algorithm or a pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from specs.base import SpecModel


def _freeze_option(value: Any) -> Any:
    """Turn lists into tuples, so that specs stay immutable and compare after a round trip."""
    if isinstance(value, list | tuple):
        return tuple(_freeze_option(entry) for entry in value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{value!r} is not an option's value; give a number, a text or a list")


Option = Annotated[Any, BeforeValidator(_freeze_option)]


class Choice(SpecModel):
    """A name with options; written ``name`` or ``{name: ..., option: value}``.

    Option values stay as they were written: what the name stands for
    interprets them.

    Parameters
    ----------
    name : str
        What is chosen.
    options : dict
        Its options by name.

    Examples
    --------
    >>> Choice.model_validate({"name": "knomial", "radix": 4}).options
    {'radix': 4}
    """

    name: str
    options: dict[str, Option] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _collect_options(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, Mapping):
            return value
        if "name" not in value:
            keys = ", ".join(map(str, value)) or "nothing"
            raise ValueError(
                f"a mapping needs a name, got {keys}; give {{name: NAME, OPTION: VALUE}}"
            )
        options = value.get("options", {})
        if not isinstance(options, Mapping):
            raise ValueError(f"options is {options!r}; give a mapping of option names to values")
        loose = {key: entry for key, entry in value.items() if key not in ("name", "options")}
        return {"name": value["name"], "options": {**options, **loose}}

    @model_serializer
    def _write_flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def __hash__(self) -> int:
        return hash((type(self), self.name, tuple(sorted(self.options.items()))))

    def __str__(self) -> str:
        """Write the choice in one line, like ``knomial(radix=4)``."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            ],
            "description": "A name, or {name: ..., option: value}.",
        }


class AlgorithmChoice(Choice):
    """An algorithm by name, with its options; ``auto`` leaves the choice to the planner."""


class PassChoice(Choice):
    """A pass by name, with its options."""
