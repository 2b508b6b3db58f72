"""Numbers and switches in specs: every one has a range, and none is guessed from another type."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from collplan.specs.showing import show_value

MAX_RANKS: Final = 2**16
"""A rank fits 16 bits, so that a pair of ranks and a tag fit one 64-bit key."""
MAX_LANES: Final = 2**15 - 1
"""A lane fits the 16 bits that plans have for it."""
MAX_NS: Final = 10**12
"""About 17 minutes: more than any latency, overhead or time per byte."""
MAX_SECONDS: Final = 10**9
"""About 30 years."""


def _read_whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError(f"{show_value(value)} is not a whole number; give one")
    return operator.index(value)


def _read_real(value: Any) -> Any:
    if isinstance(value, bool | str):
        raise ValueError(f"{show_value(value)} is not a number; give one")
    return value


WHOLE: Final = BeforeValidator(_read_whole)
"""Marks a field as an integer: neither a bool nor text, as pydantic would take by itself."""
REAL: Final = BeforeValidator(_read_real)
"""Marks a field as a number in the same way."""

Flag = Annotated[bool, Field(strict=True)]
"""True or false; not 1, 0 or a word."""
NumberOfNodes = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
NumberOfRanks = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
NumberOfCores = Annotated[int, Field(ge=1, le=MAX_RANKS), WHOLE]
"""Of one node."""
NumberOfDomains = Annotated[int, Field(ge=1, le=1024), WHOLE]
"""NUMA domains of one node; the largest nodes have about 100."""
NumberOfLanes = Annotated[int, Field(ge=1, le=MAX_LANES), WHOLE]
Rank = Annotated[int, Field(ge=0, le=MAX_RANKS - 1), WHOLE]
Node = Annotated[int, Field(ge=0, le=MAX_RANKS - 1), WHOLE]
Positive = Annotated[int, Field(ge=1, le=2**31 - 1), WHOLE]
"""A number of things of which there is at least one."""
Natural = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
"""A number of things of which there may be none."""
Nanoseconds = Annotated[float, Field(ge=0, le=MAX_NS), REAL]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS), REAL]
