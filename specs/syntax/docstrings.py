"""Descriptions of fields, read from the "Parameters" sections of docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Final

_SECTION: Final = re.compile(
    r"(?m)^Parameters\n-{3,}\n(?P<body>.*?)(?=^\S[^\n]*\n-{3,}$|\Z)", re.DOTALL
)
_NAMES: Final = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :.*)?$")


def described_parameters(docstring: str | None) -> dict[str, str]:
    """Return the description of each parameter in a numpydoc docstring, as one paragraph.

    Parameters
    ----------
    docstring : str or None
        A docstring; None, and one without such a section, describe nothing.

    Examples
    --------
    >>> described_parameters('''Summary.
    ...
    ... Parameters
    ... ----------
    ... n, m : int
    ...     Two numbers,
    ...     of anything.
    ...
    ... Raises
    ... ------
    ... ValueError
    ...     Never.
    ... ''')
    {'n': 'Two numbers, of anything.', 'm': 'Two numbers, of anything.'}
    """
    section = _SECTION.search(inspect.cleandoc(docstring or ""))
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in section["body"].splitlines() if section else ():
        header = _NAMES.match(line)
        if header:
            current = []
            found |= dict.fromkeys(header[1].replace("*", "").split(", "), current)
        elif line.strip():
            current.append(line.strip())
    return {name: " ".join(lines).replace("``", "`") for name, lines in found.items()}
