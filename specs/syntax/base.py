"""Base classes of all specs: immutable models that refuse unknown keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from collplan.specs.errors import no_attribute, public_names, show_value
from collplan.specs.syntax.calling import explains_calls
from collplan.specs.syntax.docstrings import described_parameters

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

_EXPLAINED_IN: Final = "collplan.specs.explaining"
"""Module that explains errors. It imports all models, and is imported when there is an error."""


class ExplainedModel(ModelMetaclass):
    """Class of all models: where Python code makes one with wrong fields, it raises `FieldError`.

    Models inside of others, which pydantic makes, raise pydantic's errors.
    """

    if not TYPE_CHECKING:  # or type checkers would not see the fields

        def __call__(cls, *args, **fields):
            """Return a model with these fields."""
            try:
                return super().__call__(*args, **fields)
            except (ValidationError, TypeError) as error:
                if isinstance(error, TypeError) and not args:
                    raise
                raise import_module(_EXPLAINED_IN).explain_fields(error, cls) from None


class SpecModel(BaseModel, metaclass=ExplainedModel):
    """Base class of all specs, which are immutable, hashable, and compared by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema with descriptions of the fields from docstrings."""
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

    @explains_calls("replace")
    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed fields, which is validated like a new spec.

        pydantic's ``model_copy`` does not validate, and keeps stale cached properties.

        Raises
        ------
        FieldError
            If the changed spec is not valid; it is a `SpecError`.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(values | changes))

    def __repr__(self) -> str:
        """Return the class and the fields that differ from their defaults."""
        fields = type(self).model_fields.items()
        shown = (
            f"{name}={show_value(given)}"
            for name, one in fields
            if (given := getattr(self, name)) != one.get_default(call_default_factory=True)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    __str__ = __repr__
    functions: ClassVar[tuple[str, ...]] = ()
    """Functions of `collplan` that take the spec, for hints."""

    if not TYPE_CHECKING:  # or type checkers would accept any attribute

        def __getattr__(self, name):
            """Raise an error that names what is meant."""
            try:
                return super().__getattr__(name)
            except AttributeError:
                fields = {one: self.__dict__.get(one) for one in type(self).model_fields}
                models = {one: type(of) for one, of in fields.items() if isinstance(of, BaseModel)}
                inner = [f"{one}.{part}" for one, of in models.items() for part in public_names(of)]
                raise no_attribute(self, name, inner, self.functions) from None

    def _check(self) -> None:
        """Raise `ValueError` if fields that are valid alone do not fit together."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        self._check()
        return self


class ShortModel(SpecModel):
    """Base class of specs that have a shorter notation than a mapping of all fields."""

    text_is: ClassVar[str | None] = None
    """Field that a plain text sets; None if no text can stand for the spec."""

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Any:
        """Return the fields that a mapping stands for; raise `ValueError` if it is not valid."""
        return fields

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        fields = {cls.text_is: value} if isinstance(value, str) and cls.text_is else value
        return cls.complete(fields) if isinstance(fields, Mapping) else fields


def described(change: Callable[[dict[str, Any]], dict[str, Any]]) -> ConfigDict:
    """Return a configuration by which `change` replaces the JSON Schema of a model."""

    def exchange(schema: JsonDict) -> None:
        changed = change({**schema})
        schema.clear()
        schema.update(changed)

    return ConfigDict(json_schema_extra=exchange)


def raise_together(problems: Iterable[str]) -> None:
    """Raise one `ValueError` for all problems that the check of a model found, if any.

    `explain` turns each problem into a line of its message.
    """
    lines = list(problems)
    if lines:
        raise ValueError("\n".join(lines))
