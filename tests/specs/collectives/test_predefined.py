"""Predefined names, and what `collplan.specs` imports for them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import numpy as np
import pytest

from collplan import specs
from collplan.specs.collectives.predefined import DATATYPES, PAIRS, numpy_dtype

LIGHT = """
import sys
from collplan.specs import CollplanError, SpecError, numpy_dtype
from collplan.specs.collectives.predefined import BUILTIN

assert numpy_dtype("int32").itemsize == 4
print(sorted({"pydantic", "yaml", "collplan.specs.collectives.elements"} & set(sys.modules)))
"""


def test_scalars_have_the_dtype_of_their_name() -> None:
    for name in DATATYPES:
        if name not in PAIRS:
            assert numpy_dtype(name) == np.dtype(name)
    with pytest.raises(ValueError, match="'double' is not a datatype; did you mean 'float64'"):
        numpy_dtype("double")


def test_errors_and_names_of_datatypes_need_no_pydantic() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_names_for_type_checkers_are_those_at_run_time() -> None:
    (checked,) = (
        node
        for node in ast.parse(inspect.getsource(specs)).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]
    names = [(node.module, alias.name) for node in imports for alias in node.names]
    homes = specs._HOMES
    assert names == [(f"collplan.specs.{module}", name) for name, module in homes.items()]
    for module, name in names:
        assert getattr(specs, name) is getattr(sys.modules[str(module)], name)
    with pytest.raises(AttributeError, match=r"module 'collplan\.specs' has no attribute 'Machin'"):
        specs.Machin  # noqa: B018
