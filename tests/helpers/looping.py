"""Tests of many cheap cases: one loop, which names the case that fails."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from tiers import MANY, some

Test = Callable[..., None]

SIZES = (*range(1, 18), 23, 24, 31, 32, 33, 48, 63, 64)
"""Numbers of ranks: all small ones, and larger ones at and between powers of two."""


@contextmanager
def naming(*case: object) -> Iterator[None]:
    """Name the case of a loop in which an error occurs."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {', '.join(map(str, case))}")
        raise


def looped(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Return a decorator of tests as `pytest.mark.parametrize`, but all cases are one test.

    Parameters
    ----------
    names : str
        Names of arguments, with commas between them.
    cases : iterable
        Their values: of several arguments, tuples.
    """
    arguments = names.replace(" ", "").split(",")
    values = [case if len(arguments) > 1 else (case,) for case in cases]
    assert values, "no cases"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def loop(**others: Any) -> None:
            marks = getattr(loop, "pytestmark", ())
            for case in some(values, test.__qualname__, any(one.name == MANY for one in marks)):
                given = dict(zip(arguments, case, strict=True))
                with naming(given):
                    test(**others, **given)

        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in arguments]
        assert len(kept) == len(signature.parameters) - len(arguments), names
        loop.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return loop

    return decorate
