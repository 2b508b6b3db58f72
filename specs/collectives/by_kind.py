"""Registries of functions by kind of collective, which do not import the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from collplan.specs.errors import SpecError

Function = TypeVar("Function", bound=Callable[..., Any])


class ByKind(dict[str, Function]):
    """Functions by kind of collective; a call with a kind returns a registering decorator.

    Parameters
    ----------
    missing : str
        Error message for a kind that has no function; the kind replaces ``{}``.
    """

    def __init__(self, missing: str) -> None:
        super().__init__()
        self._missing = missing

    def __call__(self, kind: str) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            self[kind] = function
            return function

        return register

    def __missing__(self, kind: str) -> Function:
        raise SpecError(f"collective.kind: {self._missing.format(kind)}")
