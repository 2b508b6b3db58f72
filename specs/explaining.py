"""Explanations of failed validations: one line per mistake, with its field and a remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, get_args

from pydantic import BaseModel, ValidationError

from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.collectives.counts import DISTRIBUTION_TAG, TABLE_TAG
from collplan.specs.collectives.graphs import EDGES_TAG, GRID_TAG, CartesianGrid
from collplan.specs.errors import (
    CollplanError,
    FieldError,
    SpecError,
    closest,
    printable,
    show_value,
    suggest,
)
from collplan.specs.methods.named_option import CHOICE_TAG, ROLES_TAG, AlgorithmChoice
from collplan.specs.request import PlanSpec
from collplan.specs.syntax.base import ShortModel
from collplan.specs.topology import TOPOLOGIES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Where = tuple[int | str, ...]

MOST_LINES: Final = 20
"""Greatest number of mistakes that are listed; further ones are only counted."""
_MOST_DETAILS: Final = 10_000
"""Most mistakes that are explained, as details of more take seconds and gigabytes."""


def explain(
    error: ValidationError, model: type[BaseModel] = PlanSpec, *, before: str = "", after: str = ""
) -> str:
    """Return a message with one line per mistake of a failed validation.

    Parameters
    ----------
    error : pydantic.ValidationError
        Error that the validation raised.
    model : type of BaseModel
        Model that was validated; suggestions come from its fields.
    before, after : str
        Text that is put before and after every line.

    Returns
    -------
    str
        Lines of the form ``before field: problem; remedy after``. If there are several, each
        ends with its number, as ``(1 of 3)``. At most `MOST_LINES` lines are listed.
    """
    if error.error_count() > _MOST_DETAILS:
        text = f"{error.error_count():,} mistakes; begin again from an example"
        return f"{before}{text}{after}"
    details = _without_followers(error.errors(include_url=False), model)
    return number_lines(
        f"{before}{text}{after}" for detail in details for text in _explain_one(detail, model)
    )


@contextmanager
def explaining(
    model: type[BaseModel] = PlanSpec,
    *,
    error: type[CollplanError] = SpecError,
    before: str = "",
    after: str = "",
) -> Iterator[None]:
    """Raise `error` with the message of `explain` if a validation in the block fails."""
    try:
        yield
    except ValidationError as failure:
        raise error(explain(failure, model, before=before, after=after)) from None
    except FieldError as failure:
        lines = str(failure).splitlines()
        raise error("\n".join(f"{before}{line}{after}" for line in lines)) from None


def explain_fields(error: ValidationError | TypeError, model: type[BaseModel]) -> FieldError:
    """Return the error for a model that was made with wrong fields, as by ``Machine(ppn=4)``."""
    if isinstance(error, ValidationError):
        return FieldError(explain(error, model))
    fields = ", ".join(_keys_of(model))
    return FieldError(f"{model.__name__}: takes fields by name; give NAME=VALUE, of {fields}")


def number_lines(mistakes: Iterable[str]) -> str:
    """Return mistakes as printable lines, numbered if there are several."""
    lines = list(dict.fromkeys(map(printable, mistakes)))
    if len(lines) == 1:
        return lines[0]
    numbered = (f"{line} ({i} of {len(lines)})" for i, line in enumerate(lines[:MOST_LINES], 1))
    return "\n".join(numbered)


def _without_followers(details: list[ErrorDetails], model: type[BaseModel]) -> list[ErrorDetails]:
    """Return the mistakes, unknown keys first, without missing keys that are only misspelled."""
    details = sorted(details, key=lambda detail: detail["type"] != "extra_forbidden")
    meant: set[Where] = set()
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *parents, key = detail["loc"]
            name = closest(str(key), _nested_keys(_model_at(parents, model)))
            meant.update([(*parents, name.partition(".")[0])] if name else [])
    return [
        detail for detail in details if detail["type"] != "missing" or detail["loc"] not in meant
    ]


def _explain_one(detail: ErrorDetails, model: type[BaseModel]) -> Iterable[str]:
    """Return the lines of one failed check; the check of a model can find several mistakes."""
    where, kind = detail["loc"], detail["type"]
    context = detail.get("ctx", {})
    shown = ".".join(show_value(str(part), plain=True) for part in _without_tags(where))
    if kind == "value_error":
        messages = str(context["error"]).split("\n")
    elif kind == "extra_forbidden":
        return _explain_unknown_key(where, shown, detail["input"], model)
    elif kind == "union_tag_not_found":
        shown, messages = f"{shown}.kind", [f"is missing; valid: {', '.join(_kinds(where)[1])}"]
    elif kind == "union_tag_invalid":
        shown, messages = f"{shown}.kind", [_explain_unknown_kind(where, str(context["tag"]))]
    elif kind in ("model_type", "model_attributes_type") and _is_named(where, model):
        messages = [_NO_NAME.format(given=show_value(detail["input"]))]
    else:
        messages = [_explain_value(kind, detail["input"], context, detail["msg"])]
    return [f"{shown}: {message}" if shown else message for message in messages]


_NOT_A_MAPPING: Final = "{given} is not a mapping; give its fields as 'key: value'"
_NO_NAME: Final = "{given} is no name and no mapping; give a name, or fields as 'key: value'"
_PLAIN_WORDS: Final = {
    "missing": "is missing; give it a value",
    "greater_than": "{given} is too small; give more than {gt}",
    "less_than_equal": "{given} is too large; give {le} or less",
    "tuple_type": "{given} is not a list; give one, as in [{given}]",
    "too_long": "has more than {max_length} entries; give fewer",
    "bool_type": "{given} is not true or false; give one of them",
    "int_type": "{given} is not a whole number; give one",
    "string_type": "{given} is not text; give a word, or put it in quotes",
    "float_type": "{given} is not a number; give one",
    "invalid_key": "a key is not text; give the name of a field",
    "finite_number": "{given} is not finite; give a finite number",
    "model_type": _NOT_A_MAPPING,
    "model_attributes_type": _NOT_A_MAPPING,
    "dict_type": _NOT_A_MAPPING,
}
"""Explanations by pydantic's type of error; its context and the value given are filled in."""


def _is_named(where: Where, model: type[BaseModel]) -> bool:
    """Return whether a name can stand for the mapping of a field."""
    found = AlgorithmChoice if where[-1:] == (CHOICE_TAG,) else _model_at(where, model)
    return issubclass(found, ShortModel) and found.text_is is not None


def _explain_value(kind: str, value: Any, context: dict[str, Any], text: str) -> str:
    given = show_value(value)
    if kind in _PLAIN_WORDS:
        limits = {name: _plain(limit) for name, limit in context.items()}
        return _PLAIN_WORDS[kind].format(given=given, **limits)
    if kind == "greater_than_equal":
        problem = "is negative" if context["ge"] == 0 else "is too small"
        return f"{given} {problem}; give {_plain(context['ge'])} or more"
    if kind == "literal_error":
        return f"{given} is not valid; use {context['expected'].replace(chr(39), '')}"
    return f"{given} does not fit; {text[0].lower()}{text[1:]}"


def _plain(limit: object) -> str:
    return f"{limit:g}" if isinstance(limit, float) else str(limit)


def _without_tags(where: Where) -> Where:
    """Drop the tags of unions, which pydantic puts after ``collective`` and ``algorithms``."""
    found: list[int | str] = []
    for i, part in enumerate(where):
        before = where[:i]
        is_kind = before[-1:] == ("collective",) and part in COLLECTIVES
        is_kind |= before[-1:] == ("topology",) and part in TOPOLOGIES
        is_tag = before[-1:] == ("algorithms",) and part in (CHOICE_TAG, ROLES_TAG)
        is_field = before[-2:] == ("algorithms", ROLES_TAG) and part == ROLES_TAG
        is_counts = before[-1:] == ("counts",) and part in (TABLE_TAG, DISTRIBUTION_TAG)
        is_counts |= before[-1:] == ("graph",) and part in (EDGES_TAG, GRID_TAG)
        is_options = part == "options" and {"algorithms", "passes"} & set(before)
        if not (is_kind or is_tag or is_field or is_counts or is_options):
            found.append(part)
    return tuple(found)


def _kinds(where: Where) -> tuple[str, Mapping[str, type[BaseModel]]]:
    """Return the noun for a field that has a `kind`, and the models of all kinds."""
    if where[-1:] == ("topology",):
        return "topology", TOPOLOGIES
    return "collective", COLLECTIVES


def _explain_unknown_kind(where: Where, kind: str) -> str:
    name, kinds = _kinds(where)
    hint = suggest(kind, kinds)
    return f"{show_value(kind)} is not a {name}; {hint}valid: {', '.join(kinds)}"


def _explain_unknown_key(
    where: Where, shown: str, value: object, model: type[BaseModel]
) -> list[str]:
    """Return the line of an unknown key, or those of the keys in it if they belong elsewhere."""
    found, key = _model_at(where[:-1], model), str(where[-1])
    names = _nested_keys(found)
    parents = [str(part) for part in _without_tags(where)[:-1]]
    if any(isinstance(part, int) for part in where):
        parents = []  # An entry of a list has no name.
    meant = closest(key, names)
    inside = list(value)[:MOST_LINES] if isinstance(value, Mapping) else []
    meanings = {str(one): closest(str(one), names) or "" for one in inside}
    moved = [one for one, what in meanings.items() if "." in what and what != meant]
    if moved and (meant is None or "." in meant):
        hints = {f"{shown}.{one}": suggest(one, names, parents).strip() for one in moved}
    else:
        hint = suggest(key, names, parents).strip()
        hints = {shown: hint or f"valid: {', '.join(_keys_of(found))}"}
    return [f"{place}: unknown key; {hint}" for place, hint in hints.items()]


def _model_at(where: Iterable[int | str], model: type[BaseModel]) -> type[BaseModel]:
    """Return the model of a field of a field of `model`."""
    for part in where:
        if part in COLLECTIVES:
            model = COLLECTIVES[str(part)]
        elif part in TOPOLOGIES:
            model = TOPOLOGIES[str(part)]
        elif part == GRID_TAG:
            model = CartesianGrid
        else:
            model = _models_of(model).get(str(part), model)
    return model


def _models_of(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    """Return the models of a model's fields; of a list or a mapping, the model of its entries."""
    found = {}
    for name, field in model.model_fields.items():
        for annotation in (field.annotation, *get_args(field.annotation)):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                found[name] = annotation
    return found


def _keys_of(model: type[BaseModel]) -> list[str]:
    extra = ["preset"] if model.__name__ == "Machine" else []
    return [*extra, *model.model_fields]


def _nested_keys(model: type[BaseModel], depth: int = 4) -> list[str]:
    """Return a model's keys, and with dots between them those of the models of its fields."""
    keys = _keys_of(model)
    for name, inner in _models_of(model).items() if depth > 1 else ():
        keys += [f"{name}.{key}" for key in _nested_keys(inner, depth - 1)]
    if model is PlanSpec:
        fields = {key: None for one in COLLECTIVES.values() for key in one.model_fields}
        keys += [f"collective.{key}" for key in fields]
    return keys
