"""Lists of hosts in Slurm's short form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice, product
from typing import Final

MOST_NODES: Final = 2**20
"""Greatest number of hosts in a list; a longer list is considered a mistake."""
_RANGES: Final = re.compile(r"\[([^\[\]]*)\]")


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
    # Commas inside brackets separate ranges, all other commas separate hosts.
    parts = re.split(r",(?![^\[]*\])", text)
    found = chain.from_iterable(_expand_one(part.strip()) for part in parts)
    hosts = tuple(islice(found, MOST_NODES + 1))
    if len(hosts) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} hosts")
    return hosts


def _expand_one(part: str) -> Iterator[str]:
    pieces = _RANGES.split(part)  # text, ranges, text, ...
    if not part or any("[" in piece or "]" in piece for piece in pieces):
        raise ValueError(f"{part!r} is no name of hosts")
    choices = [
        list(_expand_ranges(piece)) if position % 2 else [piece]
        for position, piece in enumerate(pieces)
    ]
    return map("".join, product(*choices))


def _expand_ranges(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"{part!r} is no range")
        if int(last) - int(first) > MOST_NODES:
            raise ValueError(f"more than {MOST_NODES} hosts")
        yield from (str(number).zfill(len(first)) for number in range(int(first), int(last) + 1))
