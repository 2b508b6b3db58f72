"""Errors of calls with wrong arguments: one line that names what the function takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from collplan.specs.errors import CollplanError, suggest

Function = TypeVar("Function", bound=Callable[..., Any])


class ArgumentError(CollplanError, TypeError):
    """A call with a missing, an unknown or a surplus argument, or one of a wrong type."""


def explains_calls(
    name: str, *, options: Mapping[str, Any] | None = None
) -> Callable[[Function], Function]:
    """Decorate a function so that calls with wrong arguments raise `ArgumentError`.

    Parameters
    ----------
    name : str
        Name by which users call the function.
    options : mapping of str to object, optional
        Names and types of what the function takes as ``**options``.
    """

    def decorate(function: Function) -> Function:
        signature = _with_options(inspect.signature(function), options or {})

        @wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                if options is not None:  # the function itself takes any name
                    signature.bind(*arguments, **named)
                return function(*arguments, **named)
            except TypeError:
                problem = wrong_call(name, signature, arguments, named)
                if problem is None:
                    raise
            raise ArgumentError(problem)

        called.__signature__ = signature  # type: ignore[attr-defined]
        return cast("Function", called)

    return decorate


def _with_options(signature: inspect.Signature, options: Mapping[str, Any]) -> inspect.Signature:
    """Return a signature with the names of options in place of ``**options``."""
    kinds = inspect.Parameter
    kept = [one for one in signature.parameters.values() if one.kind is not kinds.VAR_KEYWORD]
    added = [
        kinds(option, kinds.KEYWORD_ONLY, default=None, annotation=kind)
        for option, kind in options.items()
    ]
    return signature.replace(parameters=[*kept, *added])


def wrong_call(
    name: str, signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any]
) -> str | None:
    """Return a line on the arguments that a signature does not take; None if it takes them all.

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
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        reason = str(error)
    else:
        return None
    known = signature.parameters
    unknown = [option for option in options if option not in known]
    if unknown:
        hint = suggest(unknown[0], known) or f"valid: {', '.join(known)}; "
        of_spec = "fields of a spec are changed by spec.replace(FIELD=...)"
        return f"{name}: {unknown[0]!r} is not an argument; {hint.rstrip('; ')}; {of_spec}"
    positional = [one for one in known.values() if one.kind is not one.KEYWORD_ONLY]
    if len(arguments) > len(positional):
        named = ", ".join(key for key, one in known.items() if one.kind is one.KEYWORD_ONLY)
        return (
            f"{name}: {len(arguments)} arguments without names, it takes {len(positional)}; "
            f"give the others by name{': ' if named else ''}{named}"
        )
    needed = [one.name for one in positional if one.default is one.empty]
    missing = [one for one in needed[len(arguments) :] if one not in options]
    if not missing:
        return f"{name}: {reason}; give each argument once"
    return f"{name}: {missing[0]} is missing; call {name}({', '.join(needed)})"
