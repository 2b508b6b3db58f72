"""Types of arrays are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from collplan.planner import arrays
from collplan.planner.arrays import types


def test_types_are_those_of_their_module() -> None:
    assert (arrays.Ints, arrays.Bools, arrays.Floats) == (types.Ints, types.Bools, types.Floats)
    with pytest.raises(AttributeError, match="no attribute 'Words'"):
        _ = arrays.Words


def test_asking_for_machine_code_needs_no_numpy() -> None:
    code = "import sys, collplan.planner.arrays.object_files; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
