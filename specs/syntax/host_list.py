"""Lists of hosts in Slurm's short form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, product
from math import prod
from typing import Final

from collplan.specs.errors import show_value

MOST_NODES: Final = 2**20
"""Greatest number of hosts in a list; a longer list is considered a mistake."""
LONGEST_NAME: Final = 255
"""Most characters of the name of a host, as in the domain name system."""
_PART: Final = re.compile(r"(?:[^\[\],]|\[[^\[\]]*\])*")
"""Pattern of the hosts up to a comma; commas inside brackets separate ranges."""
_RANGES: Final = re.compile(r"\[([^\[\]]*)\]")
_MOST_DIGITS: Final = 18


def expand_hosts(text: str) -> tuple[str, ...]:
    """Return the names of all hosts that a list in Slurm's short form stands for.

    Raises
    ------
    ValueError
        If the text does not have this form, or names more than `MOST_NODES` hosts.

    Examples
    --------
    >>> expand_hosts("n[08-10,12],login"), expand_hosts("r[1-2]c[0-1]")
    (('n08', 'n09', 'n10', 'n12', 'login'), ('r1c0', 'r1c1', 'r2c0', 'r2c1'))
    """
    parts, n_hosts = [], 0
    for part in _split(text):
        pieces = _read_part(part)
        # Hosts are counted before any name is made.
        n_hosts += prod(
            sum(len(numbers) for _, numbers in piece) for piece in pieces if isinstance(piece, list)
        )
        if n_hosts > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} hosts")
        parts.append(pieces)
    return tuple(chain.from_iterable(map(_names, parts)))


def _split(text: str) -> Iterator[str]:
    """Generate the parts between commas."""
    begin = 0
    while True:
        match = _PART.match(text, begin)
        assert match is not None, "the pattern matches an empty text"
        end = match.end()
        part = match[0].strip()
        if not part or text[end : end + 1] not in ("", ","):
            raise ValueError(f"{show_value(part or text[begin:])} is no name of hosts")
        yield part
        if end == len(text):
            return
        begin = end + 1


Piece = str | list[tuple[int, range]]
"""Text, or the ranges of a bracket with the number of digits of each."""


def _read_part(part: str) -> list[Piece]:
    pieces = _RANGES.split(part)  # text, ranges, text, ...
    if sum(map(len, pieces[::2])) > LONGEST_NAME:
        raise ValueError(f"{show_value(part)} is longer than {LONGEST_NAME} characters")
    return [
        list(_read_ranges(piece)) if position % 2 else piece
        for position, piece in enumerate(pieces)
    ]


def _read_ranges(text: str) -> Iterator[tuple[int, range]]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        is_range = all(
            end.isdecimal() and end.isascii() and len(end) <= _MOST_DIGITS for end in (first, last)
        )
        if not is_range or int(first) > int(last):
            raise ValueError(f"{show_value(part)} is no range")
        yield len(first), range(int(first), int(last) + 1)


def _names(pieces: list[Piece]) -> Iterator[str]:
    choices = (
        [piece]
        if isinstance(piece, str)
        else [str(number).zfill(width) for width, numbers in piece for number in numbers]
        for piece in pieces
    )
    return map("".join, product(*choices))
