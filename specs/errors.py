"""Errors that users cause, and the representation of values in messages."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final


class CollplanError(Exception):
    """An error that the user can correct; its message has subject, problem, and remedy."""


class SpecError(CollplanError):
    """A spec that does not describe a plan; the message has one line per mistake."""


@contextmanager
def naming(before: str) -> Iterator[None]:
    """Put text, as the name of a file, before every line of an error that the block raises."""
    try:
        yield
    except CollplanError as error:
        text = "\n".join(f"{before}{line}" for line in str(error).splitlines())
        raise type(error)(text) from None


MOST_SHOWN: Final = 80
"""Most characters of a value that a message shows."""
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlong = 40
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 6
_LONGEST_LINE: Final = 1000


def show_value(value: Any, *, plain: bool = False) -> str:
    """Return a value as messages show it: its `repr`, with at most `MOST_SHOWN` characters.

    Parameters
    ----------
    value : object
        Anything a document can hold.
    plain : bool
        Whether text is shown without quotes.

    Examples
    --------
    >>> show_value("many"), show_value(range(3)), show_value("a" * 100, plain=True)[-3:]
    ("'many'", 'range(0, 3)', 'aaa')
    """
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python writes no integers of more than 4,300 digits
        return "a number of thousands of digits"
    is_text = isinstance(value, str)
    return cut(printable(text[1:-1] if plain and is_text else text), MOST_SHOWN)


def cut(text: str, most: int) -> str:
    """Return text of at most `most` characters: both ends, if it is longer.

    Examples
    --------
    >>> cut("abcdefghij", 7), cut("abc", 7)
    ('ab...ij', 'abc')
    """
    kept = (most - 3) // 2
    return text if len(text) <= most else f"{text[:kept]}...{text[-kept:]}"


def first_repeated(values: Sequence[Hashable]) -> int:
    """Return the place of the first value that was there before; -1 if there is none.

    Examples
    --------
    >>> first_repeated("abcbac"), first_repeated([1, 2])
    (3, -1)
    """
    seen: set[Hashable] = set()
    for i, value in enumerate(values):
        if value in seen:
            return i
        seen.add(value)
    return -1


def suggest(word: str, valid: Iterable[str]) -> str:
    """Return a hint that names the closest valid word; an empty text if none is close.

    Examples
    --------
    >>> suggest("bcats", ["bcast", "gather"]), suggest("x", ["bcast"])
    ("did you mean 'bcast'? ", '')
    """
    close = difflib.get_close_matches(word, valid, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def printable(text: str) -> str:
    """Return text as one line in which unprintable characters are escaped, as ``\\x1b``.

    Examples
    --------
    >>> printable("a\\tb\\x1b[31m")
    'a b\\\\x1b[31m'
    """
    line = " ".join(text.split())
    line = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    return cut(line, _LONGEST_LINE)  # the remedy is at the end
