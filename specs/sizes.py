"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

UNITS: Final[dict[str, int]] = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
"""Bytes in each unit; upper and lower case mean the same."""

_FACTORS: Final = {unit.lower(): factor for unit, factor in UNITS.items()}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(value: object) -> int:
    """Turn ``65536``, ``"64KiB"`` or ``"1.5 MiB"`` into bytes.

    Parameters
    ----------
    value : object
        An integer ≥ 0, or a number with a unit of `UNITS`.

    Returns
    -------
    int
        The size in bytes.

    Raises
    ------
    ValueError
        If `value` is not a size, or not a whole number of bytes.

    Examples
    --------
    >>> parse_bytes("64KiB"), parse_bytes("2MB"), parse_bytes(17)
    (65536, 2000000, 17)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{value} is negative; give 0 or more")
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[2] or "b").lower() not in _FACTORS:
        raise ValueError(
            f"{value!r} is not a size; give bytes or a number with a unit of {', '.join(UNITS)}"
        )
    size = Fraction(match[1]) * _FACTORS[(match[2] or "b").lower()]
    if size.denominator != 1:
        raise ValueError(f"{value!r} is {float(size)} bytes; give a whole number of bytes")
    return int(size)


Bytes = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(parse_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {
                    "type": "string",
                    "pattern": r"^\s*\d+(\.\d+)?\s*([KMGTkmgt][iI]?)?[bB]?\s*$",
                },
            ],
            "description": "Bytes: a number, or a number with a unit such as 64KiB or 2MB.",
        }
    ),
]
"""A field of bytes that also accepts ``"64KiB"``, ``"2MB"`` or ``"1.5 MiB"``."""
