"""Kernels in Python: the same results as machine code, at once, and only where they are small."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from collplan.planner.machine_code.interpreted import Interpreted
from collplan.planner.machine_code.kernel import Kernel
from folders import HELPERS

ROW = np.dtype([("count", "i2"), ("weight", "f8")])


class Table(NamedTuple):
    rows: Any
    total: Any


def kernel_of(function: Any) -> Kernel:
    return Kernel(function, {}, is_inner=False)


def run(how: str) -> str:
    """Return what a process says of plans that it makes, proves and prices so."""
    script = HELPERS / "interpreting.py"
    done = subprocess.run(
        [sys.executable, script, how, "40"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_plans_and_timelines_are_the_same_in_python() -> None:
    """Columns, their types, and times to the last bit, of examples and random plans."""
    *plans, refused, called = run("python").splitlines()
    assert len(plans) > 50
    assert plans == run("compiled").splitlines()[:-2]
    assert refused == "refused:"
    assert "hazards.derive_hazards" not in called
    assert "kernel.run" not in called


def test_narrow_numbers_compute_with_64_bits() -> None:
    def multiply(small: Any, wide: Any) -> Any:
        wide[0] = small[0] * 1000
        small[1] += 1
        return small[0] * 1000, small

    small, wide = np.array([100, 7], np.int8), np.zeros(1, np.int64)
    number, array = Interpreted(multiply)(small, wide)
    assert (number, type(number)) == (100_000, int)
    assert wide[0] == 100_000
    assert small.tolist() == [100, 8]
    assert array is small


def test_rows_have_their_fields_as_attributes() -> None:
    def fill(table: Any) -> Any:
        row = table.rows[1]
        row.count = 5
        row.weight += 0.5
        table.rows[0] = row
        for other in range(len(table.rows)):
            table.total[0] += table.rows[other].weight
        return table.rows[:1], table.rows.size

    table = Table(np.zeros(2, ROW), np.zeros(1))
    rows, size = Interpreted(fill)(table)
    assert table.rows.tolist() == [(5, 0.5), (5, 0.5)]
    assert table.total[0] == 1
    assert rows.dtype == ROW
    assert size == 2


def test_what_does_not_fit_leaves_no_trace_and_is_compiled() -> None:
    def double(values: Any) -> Any:
        values[0] += 1
        return values[1] * np.int64(2)

    kernel, values = kernel_of(double), np.array([1, 2**62])
    with pytest.raises(ArithmeticError):
        Interpreted(double)(values)
    assert values[0] == 1
    assert kernel(values) == -(2**63)
    assert values[0] == 2


def test_arrays_that_overlap_are_not_copied_apart() -> None:
    def shift(target: Any, source: Any) -> Any:
        for i in range(len(target)):
            target[i] = source[i] + 1
        return target[-1]

    memory = np.zeros(4, np.int64)
    assert kernel_of(shift)(memory[1:], memory[:-1]) == 3
    memory[:] = 0
    assert kernel_of(shift)(memory, memory) == 1


def test_an_error_in_python_is_an_error() -> None:
    def refuse(values: Any) -> Any:
        if values[0] < 0:
            raise ValueError("negative")
        return values[0]

    with pytest.raises(ValueError, match="negative"):
        kernel_of(refuse)(np.array([-1]))
