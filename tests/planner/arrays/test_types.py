"""Types of arrays are imported when they are first used."""

from __future__ import annotations

import pytest

from collplan.planner import arrays
from collplan.planner.arrays import types


def test_types_are_those_of_their_module() -> None:
    assert (arrays.Ints, arrays.Bools, arrays.Floats) == (types.Ints, types.Bools, types.Floats)
    with pytest.raises(AttributeError, match="no attribute 'Words'"):
        _ = arrays.Words
