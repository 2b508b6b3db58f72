"""Errors of calls with wrong arguments: one line that names what the function takes."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from typing import Any, Final, NamedTuple, TypeVar, cast

from collplan.specs.errors import CollplanError, show_value, suggest

Function = TypeVar("Function", bound=Callable[..., Any])


class ArgumentError(CollplanError, TypeError):
    """A call with a missing, an unknown or a surplus argument, or one of a wrong type."""


class _Type(NamedTuple):
    """Type that an annotation names, with its words in messages, and the conversion to it."""

    words: str
    fits: Callable[[Any], bool]
    convert: Callable[[Any], Any] = lambda value: value


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")  # or numpy's


def _is_list_of(value: Any, kind: type) -> bool:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return is_list and all(isinstance(one, kind) for one in value)


def _is_named(value: Any, name: str) -> bool:
    """Return whether a class of a value has a name; this layer cannot import the class."""
    return any(one.__name__ == name for one in type(value).__mro__)


_TYPES: Final = {
    "int": _Type(
        "a whole number",
        lambda value: isinstance(value, Integral) and not isinstance(value, bool),
        operator.index,
    ),
    "float": _Type(
        "a number",
        lambda value: isinstance(value, Real) and not isinstance(value, bool) and value == value,
    ),
    "bool": _Type("True or False", _is_truth, bool),
    "str": _Type("a text", lambda value: isinstance(value, str)),
    "Path": _Type("a path", lambda value: isinstance(value, PathLike)),
    "Plan": _Type("a plan, as collplan.compile returns", lambda value: _is_named(value, "Plan")),
    "PlanSpec": _Type("a spec", lambda value: _is_named(value, "PlanSpec")),
    "ReductionOperation": _Type(
        "what collplan.register_operation returns", lambda value: hasattr(value, "apply")
    ),
    "random.Random": _Type("a random.Random", lambda value: hasattr(value, "randrange")),
    "Sequence[str]": _Type("a list of texts", lambda value: _is_list_of(value, str)),
    "list[str]": _Type("a list of texts", lambda value: isinstance(value, list)),
    "None": _Type("None", lambda value: value is None),
}
"""Types by the parts of annotations; arguments with other annotations are not checked here."""


def explains_calls(
    name: str, *, options: Mapping[str, Any] | None = None, checks_types: bool = True
) -> Callable[[Function], Function]:
    """Decorate a function so that calls with wrong arguments raise `ArgumentError`.

    Arguments must have the types of their annotations, where these are numbers, truth values,
    texts, paths and plans. Numbers of numpy are converted into those of Python.

    Parameters
    ----------
    name : str
        Name by which users call the function.
    options : mapping of str to object, optional
        Names and types of what the function takes as ``**options``.
    checks_types : bool
        Whether types are checked here. A collective function checks them itself, so that all ranks
        raise if one of them gives a wrong type.
    """

    def decorate(function: Function) -> Function:
        signature = _with_options(inspect.signature(function), options)
        types = _checked_types(signature) if checks_types else {}

        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                given = signature.bind(*arguments, **named)
            except TypeError:
                raise ArgumentError(wrong_call(name, signature, arguments, named)) from None
            for argument, accepted in types.items():
                if argument in given.arguments:
                    value = given.arguments[argument]
                    given.arguments[argument] = _converted(argument, value, accepted)
            return function(*given.args, **given.kwargs)

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast("Function", called)

    return decorate


def _with_options(
    signature: inspect.Signature, options: Mapping[str, Any] | None
) -> inspect.Signature:
    """Return a signature with the names of options in place of ``**options``."""
    if options is None:
        return signature
    kinds = inspect.Parameter
    kept = [one for one in signature.parameters.values() if one.kind is not kinds.VAR_KEYWORD]
    added = [
        kinds(option, kinds.KEYWORD_ONLY, default=..., annotation=_text_of(annotation))
        for option, annotation in options.items()
    ]
    return signature.replace(parameters=[*kept, *added])


def _text_of(annotation: Any) -> Any:
    """Return the text of an annotation, which a `TypedDict` wraps."""
    return getattr(annotation, "__forward_arg__", annotation)


def _checked_types(signature: inspect.Signature) -> dict[str, list[_Type]]:
    """Return the types that are checked, by argument; options are checked by the function."""
    found = {}
    for name, one in signature.parameters.items():
        is_list = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        parts = one.annotation.split(" | ") if isinstance(one.annotation, str) else []
        if parts and not is_list and all(part in _TYPES for part in parts):
            found[name] = [_TYPES[part] for part in parts]
    return found


def _converted(name: str, value: Any, accepted: Sequence[_Type]) -> Any:
    """Return an argument as the function takes it; raise `ArgumentError` if it is of no type."""
    for one in accepted:
        if one.fits(value):
            return one.convert(value)
    words = [one.words for one in accepted if one is not _TYPES["None"]]
    if _TYPES["Path"] in accepted:
        words = ["the path of a file"]
    raise wrong_type(name, value, " or ".join(words))


def wrong_type(name: str, value: Any, words: str) -> ArgumentError:
    """Return the error for an argument of a wrong type; `words` say what to give."""
    kind = type(value).__name__
    return ArgumentError(f"{name}: {show_value(value)} is of type {kind}; give {words}")


def require_comm(comm: Any, *, may_be_null: bool = False) -> None:
    """Raise `ArgumentError` if an argument is no communicator of mpi4py, or the null one."""
    if not hasattr(comm, "Get_group"):
        raise ArgumentError(f"comm: {show_value(comm)} is no communicator; give MPI.COMM_WORLD")
    if not comm and not may_be_null:
        raise ArgumentError(
            "comm: is MPI.COMM_NULL, which has no ranks; call it only on members of a communicator"
        )


def wrong_call(
    name: str, signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any]
) -> str:
    """Return a line on the arguments that a signature does not take.

    Parameters
    ----------
    name : str
        Name of the function.
    signature : inspect.Signature
    arguments : sequence of object
        Arguments without names.
    options : mapping of str to object
        Arguments by name.
    """
    known = {key: one for key, one in signature.parameters.items() if key != "self"}
    n_given = len(arguments) - (len(signature.parameters) - len(known))
    takes_any = any(one.kind is one.VAR_KEYWORD for one in known.values())
    unknown = [] if takes_any else [option for option in options if option not in known]
    if unknown:
        hint = suggest(unknown[0], known) or f"valid: {', '.join(known)}; "
        of_spec = "; fields of a spec are changed by spec.replace(FIELD=...)"
        of_spec = of_spec if next(iter(known)) == "source" else ""
        return f"{name}: {unknown[0]!r} is not an argument; {hint.rstrip('; ')}{of_spec}"
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [one for one in known.values() if one.kind in by_place]
    if n_given and not positional:
        return f"{name}: takes arguments by name; give NAME=VALUE"
    if n_given > len(positional):
        named = ", ".join(key for key, one in known.items() if one.kind is one.KEYWORD_ONLY)
        way_out = f"give the others by name: {named}" if named else "leave out the others"
        counted = f"{n_given} arguments without names, it takes {len(positional)}"
        return f"{name}: {counted}; {way_out}"
    is_list = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [one for one in known.values() if one.default is one.empty and one.kind not in is_list]
    missing = [one for one in needed if one.name not in options and one not in positional[:n_given]]
    if not missing:
        return f"{name}: an argument is given twice; give each argument once"
    shown = (f"{one.name}=..." if one.kind is one.KEYWORD_ONLY else one.name for one in needed)
    return f"{name}: {missing[0].name} is missing; call {name}({', '.join(shown)})"
