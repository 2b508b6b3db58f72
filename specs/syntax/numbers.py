"""Types of numbers, sizes in bytes, rates, and flags in specs, with their ranges."""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from numbers import Integral
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from collplan.specs.errors import show_value

MAX_RANKS: Final = 2**16
"""Greatest number of ranks: ranks fit 16 bits, so that two ranks and a tag fit a 64-bit key."""
MAX_LANES: Final = 2**15 - 1
"""Greatest number of lanes per node: plans store a lane in 16 bits."""
MAX_COUNT: Final = 2**40
"""Greatest count: byte offsets in 2**16 blocks of 2**40 elements of 32 bytes fit 64 bits."""
MAX_TOTAL: Final = 2**56
"""Greatest total of the counts in a table, and greatest displacement."""
MAX_CELLS: Final = 2**26
"""Greatest number of entries in a table: one for every pair of 8,192 ranks."""
MAX_NS: Final = 10**12
"""Greatest time in ns, about 17 minutes: more than any latency, overhead or time per byte."""
MAX_SECONDS: Final = 10**9
"""Greatest time in seconds, about 30 years."""


def read_whole(value: Any) -> Any:
    """Return a whole number as an int; raise `ValueError` for any other value, bool, or text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{show_value(value)} is not a whole number; give one")
    return operator.index(value)


def _read_real(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"{show_value(value)} is not a number; give one")
    return value


WHOLE: Final = BeforeValidator(read_whole)
"""Validator of integer fields, which refuses bool and text, in contrast to pydantic."""
REAL: Final = BeforeValidator(_read_real)
"""Validator of floating-point fields, which refuses bool and text in the same way."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false; 1, 0, and words are refused."""
NumberOfNodes = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
NumberOfRanks = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
NumberOfCores = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
"""Number of cores per node."""
NumberOfDomains = Annotated[int, Field(ge=1, le=1024), WHOLE]
"""Number of NUMA domains per node; the largest nodes have about 100."""
NumberOfLanes = Annotated[int, Field(ge=1, le=MAX_LANES), WHOLE]
Rank = Annotated[int, Field(ge=0, le=MAX_RANKS - 1), WHOLE]
Node = Annotated[int, Field(ge=0, le=MAX_RANKS - 1), WHOLE]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE]
"""Number of things of which there is at least one."""
Natural = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
"""Number of things of which there may be none."""
Nanoseconds = Annotated[float, Field(ge=0, le=MAX_NS), REAL]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS), REAL]


UNITS: Final[dict[str, int]] = {"B": 1} | {
    f"{prefix}{unit}": base**power
    for unit, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", 1)
}
"""Number of bytes per unit; upper and lower case mean the same."""

_FACTORS: Final = {unit.lower(): factor for unit, factor in UNITS.items()}
_SIZE: Final = re.compile(r"\s*([0-9]{1,40}(?:\.[0-9]{1,40})?)\s*([a-zA-Z]*)\s*")
MAX_SIZE: Final = 2**60
"""Largest size in bytes, so that a sum of several sizes still fits 64 bits."""


def parse_bytes(value: object) -> int:
    """Turn ``65536``, ``"64KiB"`` or ``"1.5 MiB"`` into bytes.

    Parameters
    ----------
    value : object
        An integer from 0 to `MAX_SIZE`, or a number with a unit of `UNITS`.

    Returns
    -------
    int
        Size in bytes.

    Raises
    ------
    ValueError
        If `value` is not a size, not a whole number of bytes, or larger than `MAX_SIZE`.

    Examples
    --------
    >>> parse_bytes("64KiB"), parse_bytes("2MB"), parse_bytes(17)
    (65536, 2000000, 17)
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
        if value < 0:
            raise ValueError(f"{show_value(value)} is negative; give 0 or more")
        return _limited(value, value)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[2] or "b").lower() not in _FACTORS:
        unit = "" if match is None else match[2].upper().removesuffix("I")
        hint = f"did you mean {match[1]}{unit}iB? " if match and f"{unit}iB" in UNITS else ""
        raise ValueError(
            f"{show_value(value)} is not a size; {hint}give bytes or a number with a unit of "
            f"{', '.join(UNITS)}"
        )
    size = Fraction(match[1]) * _FACTORS[(match[2] or "b").lower()]
    if size.denominator != 1:
        raise ValueError(
            f"{show_value(value)} is {float(size)} bytes; give a whole number of bytes"
        )
    return _limited(int(size), value)


def is_size(text: str) -> bool:
    """Return whether a text is a size with a unit."""
    match = _SIZE.fullmatch(text)
    return match is not None and match[2].lower() in _FACTORS


def _limited(size: int, given: object) -> int:
    if size > MAX_SIZE:
        raise ValueError(f"{show_value(given)} is too large; give at most {MAX_SIZE} bytes (1 EiB)")
    return size


_PREFIXES: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
}
_RATE: Final = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([kKmMgG]?i?)(bit|Bit|B)(?:/s)?\s*")
MAX_RATE: Final = 2**60
"""Greatest rate of a lane, in bits per second."""


class BitRate(int):
    """A rate in bits per second that was read with its unit."""


def parse_rate(value: object) -> BitRate:
    """Turn ``"100Mbit"`` or ``"12.5MB/s"`` into bits per second.

    Parameters
    ----------
    value : object
        A rate that was parsed before; or a text of a number, an optional prefix (k, M, G, Ki,
        Mi, Gi), and ``bit`` or ``B``, optionally followed by ``/s``.

    Returns
    -------
    BitRate

    Raises
    ------
    ValueError
        If `value` is not a rate, has no unit, is not a whole number of bits per second, or is out
        of range.

    Examples
    --------
    >>> parse_rate("100Mbit"), parse_rate("12.5MB/s"), parse_rate("1 Gbit/s")
    (100000000, 100000000, 1000000000)
    """
    if isinstance(value, BitRate):
        return value
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        problem = "has no unit" if is_number else "is not a rate"
        raise ValueError(
            f"{show_value(value)} {problem}; give bits or bytes per second, as 100Mbit, 1Gbit or "
            "12.5MB/s"
        )
    bits = Fraction(match[1]) * _PREFIXES[match[2].lower()] * (8 if match[3] == "B" else 1)
    if bits.denominator != 1:
        raise ValueError(
            f"{show_value(value)} is {float(bits):g} bit/s; give a whole number of bits per second"
        )
    if not 1 <= bits <= MAX_RATE:
        raise ValueError(f"{show_value(value)} is out of range; give 1 to {MAX_RATE} bit/s")
    return BitRate(bits)


def write_rate(rate: int) -> str:
    """Return a rate in bits per second as a text that `parse_rate` reads.

    Examples
    --------
    >>> write_rate(100 * 10**9), write_rate(1500), write_rate(7)
    ('100Gbit', '1500bit', '7bit')
    """
    prefix = next(p for p in ("G", "M", "k", "") if rate % _PREFIXES[p.lower()] == 0)
    return f"{rate // _PREFIXES[prefix.lower()]}{prefix}bit"


def write_rates(value: Any) -> Any:
    """Return the text of a rate, or the texts of several; other values do not change."""
    if isinstance(value, tuple):
        return [write_rate(rate) for rate in value]
    return write_rate(value) if isinstance(value, BitRate) else value


RATE_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": r"^\s*\d+(\.\d+)?\s*[kKmMgG]?i?(bit|Bit|B)(/s)?\s*$",
    "description": "Bits or bytes per second, as 100Mbit or 12.5MB/s.",
}
"""JSON Schema of a rate."""
Rate = Annotated[
    int, PlainValidator(parse_rate), PlainSerializer(write_rate), WithJsonSchema(RATE_SCHEMA)
]
"""Field of bits per second, which is written as ``"100Mbit"`` or ``"12.5MB/s"``."""


def _schema(least: int) -> WithJsonSchema:
    return WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": least, "maximum": MAX_SIZE},
                {
                    "type": "string",
                    "pattern": r"^\s*\d+(\.\d+)?\s*(([KMGTkmgt][iI]?)?[bB])?\s*$",
                },
            ],
            "description": "Bytes: a number, or a number with a unit such as 64KiB or 2MB.",
        }
    )


Bytes = Annotated[int, BeforeValidator(parse_bytes), _schema(0)]
"""Field of bytes that also accepts ``"64KiB"``, ``"2MB"`` or ``"1.5 MiB"``."""
PositiveBytes = Annotated[int, Field(ge=1), BeforeValidator(parse_bytes), _schema(1)]
"""Field of bytes like `Bytes`, for sizes of at least one byte."""
