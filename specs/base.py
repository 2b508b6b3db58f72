"""The base of all specs: frozen, without unknown keys, changed only by checked copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_validator
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from collplan.specs.docstrings import described_parameters


class SpecModel(BaseModel):
    """The base of all specs: immutable, hashable, compared by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema with the descriptions of fields that docstrings give."""
        texts: dict[str, str] = {}
        for parent in reversed(cls.__mro__):
            texts |= described_parameters(parent.__doc__)
        reference = handler(core_schema)
        schema = handler.resolve_ref_schema(reference)
        for form in (schema, *schema.get("anyOf", ())):
            for name, field in form.get("properties", {}).items():
                if name in texts:
                    field["description"] = texts[name]
                elif "const" in field:
                    field.setdefault("description", "The name of this kind.")
        return reference

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields exchanged, checked like a new one.

        pydantic's own ``model_copy`` neither checks nor forgets cached properties.

        Raises
        ------
        pydantic.ValidationError
            If the changed spec is not valid.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(values | changes))

    def _check(self) -> None:
        """Raise `ValueError` where fields that are valid alone do not fit together."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._check()
        return self


class ShortModel(SpecModel):
    """The base of specs that users may write shorter than by all their fields."""

    text_is: ClassVar[str | None] = None
    """The key that a text alone is the value of, if it can stand for the whole."""

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Any:
        """Return the fields of what was written as a mapping; raise `ValueError` if it has none."""
        return fields

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        fields = {cls.text_is: value} if isinstance(value, str) and cls.text_is else value
        return cls.complete(fields) if isinstance(fields, Mapping) else fields


def described(change: Callable[[dict[str, Any]], dict[str, Any]]) -> ConfigDict:
    """Return a configuration that gives a model the JSON Schema that `change` makes of its own."""

    def exchange(schema: JsonDict) -> None:
        changed = change({**schema})
        schema.clear()
        schema.update(changed)

    return ConfigDict(json_schema_extra=exchange)


def raise_together(problems: Iterable[str]) -> None:
    """Raise one `ValueError` for all problems that a model's own check has found, if any.

    `explain` makes a line of each.
    """
    lines = list(problems)
    if lines:
        raise ValueError("\n".join(lines))
