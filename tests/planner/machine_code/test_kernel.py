"""Kernels without machine code run in Python as long as that takes less time than compiling."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.planner.machine_code import interpreted, object_files
from collplan.planner.machine_code.kernel import Kernel, _kind, inner
from collplan.planner.machine_code.object_files import ObjectFile
from collplan.planner.plan.hazards import Accesses, derive_hazards

UNLOADED = """
import sys
import numpy as np
from collplan.planner.machine_code.kernel import compiled

@compiled
def added(values):
    return values + 1

assert added(np.arange(3)).tolist() == [1, 2, 3]
print("numba" in sys.modules)
if sys.argv[1] == "large":
    added._interpreted.element_s = added._interpreted._compile_s / 10
    assert added(np.arange(10))[-1] == 10
else:
    added._interpreted._spent_s = added._interpreted._compile_s
    assert added(np.arange(3)).tolist() == [1, 2, 3]
print("numba" in sys.modules)
"""


@inner
def half(value: Any) -> Any:
    return value / 2


@pytest.fixture(autouse=True)
def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no kernel of these tests find or leave machine code."""
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: None)


def kernel_of(function: Any) -> Kernel:
    return Kernel(function, {}, is_inner=False)


def is_compiled(kernel: Kernel) -> bool:
    return bool(kernel._codes)


@pytest.mark.long
@pytest.mark.parametrize("reason", ["large", "often"])
def test_numba_is_imported_when_a_process_needs_it(reason: str, tmp_path: Path) -> None:
    script = tmp_path / "unloaded.py"
    script.write_text(UNLOADED)
    command = [sys.executable, str(script), reason]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_small_call_is_not_compiled() -> None:
    def add_one(values: Any) -> Any:
        return values + 1

    kernel = kernel_of(add_one)
    assert kernel(np.arange(3)).tolist() == [1, 2, 3]
    assert not is_compiled(kernel)


def test_a_large_call_is_compiled() -> None:
    def first_of(values: Any) -> Any:
        return values[0]

    kernel = kernel_of(first_of)
    kernel._interpreted.element_s = kernel._interpreted._compile_s / 10
    assert kernel(np.arange(10)) == 0
    assert is_compiled(kernel)


def test_a_kernel_with_more_code_takes_longer_per_element() -> None:
    def called(values: Any) -> Any:
        return half(values[0]) + half(values[1])

    def longer(values: Any) -> Any:
        return half(values[0]) + half(values[1]) + values[2] * values[3] + values[4]

    short, long = kernel_of(called)._interpreted, kernel_of(longer)._interpreted
    assert 0 < short.element_s < long.element_s < 1e-6
    assert kernel_of(half.py_func)._interpreted.element_s < short.element_s


def test_a_kernel_is_compiled_when_that_would_have_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_of(values: Any) -> Any:
        return values[-1]

    kernel = kernel_of(last_of)
    values = np.arange(3)
    assert kernel(values) == 2
    assert not is_compiled(kernel)
    kernel._interpreted._spent_s = kernel._interpreted._compile_s
    assert kernel(values) == 2
    assert is_compiled(kernel)


def test_processes_with_the_same_cache_compile_what_they_interpreted_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: tmp_path)

    def first_of(values: Any) -> Any:
        return values[0]

    # As in two processes one after another, the kernels share no more than the cache.
    earlier, later = kernel_of(first_of), kernel_of(first_of)
    values = np.arange(3)
    assert earlier(values) == 0
    assert not is_compiled(earlier)
    name = earlier._name((_kind(values),))
    ObjectFile(name, tmp_path).spend(earlier._interpreted._compile_s)
    assert later(values) == 0
    assert is_compiled(later)


def test_machine_code_that_is_kept_is_loaded_for_the_smallest_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: tmp_path)

    def negated(values: Any) -> Any:
        for i in range(len(values)):
            values[i] = -values[i]
        return values

    values = np.arange(10)
    first, second = kernel_of(negated), kernel_of(negated)
    assert first(values)[1] == -1
    assert not is_compiled(first)
    assert not first.has_code
    assert first.call_compiled(values)[1] == 1
    assert second.has_code
    assert second(values)[1] == -1
    assert is_compiled(second)


def test_results_are_those_of_numpy_and_live_as_long_as_they_are_used() -> None:
    def parts(matrix: Any, pair: Any) -> Any:
        made = np.arange(10.0)
        flags = np.zeros(len(matrix), np.bool_)
        return made[3:], made[::-2], (matrix[1], pair[0] > 2), flags, pair[1].astype(np.int16)

    matrix, pair = np.arange(6).reshape(2, 3), (3.5, np.array([1, 2**15]))
    found = kernel_of(parts).call_compiled(matrix, pair)
    tail, back, (row, is_more), flags, narrow = found
    del found
    assert tail.tolist() == [3, 4, 5, 6, 7, 8, 9]
    assert back.tolist() == [9, 7, 5, 3, 1]
    assert (row.tolist(), is_more, flags.tolist()) == ([3, 4, 5], True, [False, False])
    assert (narrow.dtype, narrow.tolist()) == (np.int16, [1, -(2**15)])
    row[0] = 30
    assert matrix[1, 0] == 30, "a part of an argument is no copy"
    tail[0] = 7
    assert back[3] == 7, "two parts of one array share its memory"


def test_arrays_of_other_kinds_get_machine_code_of_their_own() -> None:
    def total(values: Any) -> Any:
        found = values[0] - values[0]
        for value in values:
            found += value
        return found

    kernel = kernel_of(total)
    wide = np.arange(6, dtype=np.int64)
    frozen = wide.copy()
    frozen.flags.writeable = False
    odd = np.frombuffer(b"." + wide.tobytes(), np.int64, offset=1)
    for values in (wide, wide[::2], wide.astype(np.int32), wide / 2, odd, frozen):
        assert kernel.call_compiled(values) == values.sum()
    assert len(kernel._codes) == 5, "a read-only array is as good as another"


def test_what_does_not_fit_raises() -> None:
    def divided(one: Any, other: Any) -> Any:
        return one // other

    kernel = kernel_of(divided)
    with pytest.raises(OverflowError):
        kernel.call_compiled(2**70, 1)
    with pytest.raises(ArithmeticError, match="divided"):
        kernel.call_compiled(1, 0)
    assert kernel.call_compiled(7, 2) == 3


def test_memory_that_is_not_there_is_an_error() -> None:
    def zeros(n: int) -> Any:
        return np.zeros(n)

    kernel = kernel_of(zeros)
    assert kernel.call_compiled(2).tolist() == [0, 0]
    with pytest.raises(MemoryError):
        kernel.call_compiled(1 << 55)


def test_only_kernels_call_inner_ones() -> None:
    def halves(values: Any) -> Any:
        return half(values[0]) + half(values[1])

    kernel = kernel_of(halves)
    with pytest.raises(TypeError, match="only kernels can call half"):
        half(3.0)
    assert kernel(np.array([3, 4])) == 3.5
    assert kernel.call_compiled(np.array([3, 4])) == 3.5


def test_a_kernel_may_state_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses that overlap visit many atoms, which the lengths of arrays do not show."""
    stated: list[int | None] = []

    def has_time_for(_self: object, _arguments: object, _kernel: object, n_steps: int) -> bool:
        stated.append(n_steps)
        return True

    monkeypatch.setattr(interpreted.Interpreted, "has_time_for", has_time_for)
    monkeypatch.setattr(derive_hazards, "_codes", {})  # other tests may have compiled it
    n = 300
    nothing = Accesses(np.zeros(n + 1, int), np.zeros(0, int), np.zeros(0, int))
    writes = Accesses(np.arange(n + 1), np.arange(n), np.full(n, n))
    indptr, before = derive_hazards(nothing, writes, n)
    assert len(before) == n - 1
    assert indptr[-1] == n - 1
    assert stated[0] is not None
    assert stated[0] > n * n // 2
