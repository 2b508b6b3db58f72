"""Named buffers of a program, and ranges of their elements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, model_serializer

from collplan.specs.collectives.collective_base import Count
from collplan.specs.collectives.elements import Datatype
from collplan.specs.collectives.predefined import numpy_dtype
from collplan.specs.errors import show_value
from collplan.specs.syntax.base import ShortModel, SpecModel, described
from collplan.specs.syntax.numbers import MAX_COUNT, WHOLE

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGE: Final = re.compile(
    rf"\s*({NAME.pattern})\s*(?:\[\s*(?:(\d*)\s*:\s*(\d*)|(\d+)\s*/\s*(\d+))\s*\])?\s*"
)
_FORMS: Final = "give NAME, NAME[FIRST:END], or NAME[PART/PARTS] with parts from 0"


class NamedBuffer(SpecModel):
    """A buffer that every rank has.

    Parameters
    ----------
    count : int
        Number of elements on each rank.
    datatype : str
        Type of the elements, by numpy's name.
    """

    count: Count
    datatype: Datatype = "float64"

    @property
    def itemsize(self) -> int:
        """Return the size of an element in bytes."""
        return numpy_dtype(self.datatype).itemsize


def _check_name(value: Any) -> Any:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ValueError(
            f"{show_value(value)} is not a name of a buffer; use letters, digits and _"
        )
    return value


BufferName = Annotated[str, BeforeValidator(_check_name)]
_Place = Annotated[int, Field(ge=0, le=MAX_COUNT), WHOLE]


def _range_schema(_: object) -> dict[str, Any]:
    about = "Elements of a buffer: NAME, NAME[FIRST:END], or NAME[PART/PARTS]."
    return {"type": "string", "description": about}


class BufferRange(ShortModel):
    """Consecutive elements of a buffer, written as a text.

    ``x`` is the whole buffer, ``x[10:20]`` has the elements 10 to 19, and ``x[3/16]`` is the
    fourth of 16 parts, whose sizes differ by at most one element.

    Parameters
    ----------
    buffer : str
        Name of the buffer.
    first, end : int
        First element, and the one past the last; None for the end of the buffer.
    part, parts : int
        Part of the buffer, counted from 0, and the number of its parts.

    Examples
    --------
    >>> BufferRange.model_validate("x[3/4]").bounds(10)
    (7, 10)
    >>> BufferRange.model_validate("x[2:]").bounds(10)
    (2, 10)
    """

    model_config = described(_range_schema)
    text_is: ClassVar = "buffer"

    buffer: BufferName
    first: _Place = 0
    end: _Place | None = None
    part: _Place = 0
    parts: Annotated[int, Field(ge=1, le=MAX_COUNT), WHOLE] = 1

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields that a text stands for."""
        text = fields.get("buffer")
        if len(fields) > 1 or not isinstance(text, str):
            return fields
        found = _RANGE.fullmatch(text)
        if found is None:
            raise ValueError(f"{show_value(text)} is not a range of a buffer; {_FORMS}")
        name, first, end, part, parts = found.groups()
        known = {"first": first, "end": end, "part": part, "parts": parts}
        return {"buffer": name} | {key: int(word) for key, word in known.items() if word}

    def _check(self) -> None:
        if self.end is not None and self.end < self.first:
            raise ValueError(f"{self} ends before it begins; {_FORMS}")
        if self.part >= self.parts:
            raise ValueError(
                f"{self} is none of the parts 0 to {self.parts - 1}; count parts from 0"
            )

    def bounds(self, count: int) -> tuple[int, int]:
        """Return the first element, and the one past the last, in a buffer of `count` elements."""
        if self.parts > 1:
            return self.part * count // self.parts, (self.part + 1) * count // self.parts
        return self.first, count if self.end is None else self.end

    @model_serializer
    def _write_text(self) -> str:
        return str(self)

    def __str__(self) -> str:
        """Write the range as users do."""
        if self.parts > 1 or self.part:
            return f"{self.buffer}[{self.part}/{self.parts}]"
        if self.end is None:
            return f"{self.buffer}[{self.first}:]" if self.first else self.buffer
        return f"{self.buffer}[{self.first}:{self.end}]"
