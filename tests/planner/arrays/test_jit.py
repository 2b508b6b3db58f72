"""Kernels run in Python as long as that takes less time than getting their machine code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.planner.arrays import interpreted, machine_code
from collplan.planner.arrays.jit import Kernel, inner
from collplan.planner.plan.hazards import Accesses, derive_hazards

UNLOADED = """
import sys
import numpy as np
from collplan.planner.arrays import interpreted
from collplan.planner.arrays.jit import compiled

@compiled
def added(values):
    return values + 1

assert added(np.arange(3)).tolist() == [1, 2, 3]
print("numba" in sys.modules)
if sys.argv[1] == "large":
    added._interpreted.element_s = interpreted.IMPORT_S / 10
    assert added(np.arange(10))[-1] == 10
else:
    interpreted.Interpreted.all_s = interpreted.IMPORT_S
    assert added(np.arange(3)).tolist() == [1, 2, 3]
print("numba" in sys.modules)
"""


@inner
def half(value: Any) -> Any:
    return value / 2


@pytest.fixture(autouse=True)
def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no kernel of these tests find or leave machine code."""
    monkeypatch.setattr(machine_code, "_cache_of", lambda _: None)


def kernel_of(function: Any) -> Kernel:
    return Kernel(function, {}, is_inner=False)


def is_compiled(kernel: Kernel) -> bool:
    return bool(kernel.dispatcher.overloads)


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
    monkeypatch.setattr(machine_code, "cache_folder", lambda *_: tmp_path)

    def first_of(values: Any) -> Any:
        return values[0]

    # As in two processes one after another, the kernels share no more than the cache.
    earlier, later = kernel_of(first_of), kernel_of(first_of)
    values = np.arange(3)
    assert earlier(values) == 0
    assert not is_compiled(earlier)
    earlier._interpreted._note(earlier._interpreted._compile_s)
    assert later(values) == 0
    assert is_compiled(later)


def test_machine_code_that_is_kept_is_loaded_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(machine_code, "cache_folder", lambda *_: tmp_path)

    def negated(values: Any) -> Any:
        for i in range(len(values)):
            values[i] = -values[i]
        return values

    values = np.arange(10)
    first, second = kernel_of(negated), kernel_of(negated)
    for kernel in (first, second):
        kernel._interpreted.element_s = interpreted.LOAD_S / 10
        kernel._interpreted._compile_s = 60.0
    assert first(values)[1] == -1
    assert not is_compiled(first)
    assert not first.has_code
    first.dispatcher(values)
    assert second.has_code
    assert second(values)[1] == -1
    assert is_compiled(second)


def test_only_kernels_call_inner_ones() -> None:
    def halves(values: Any) -> Any:
        return half(values[0]) + half(values[1])

    kernel = kernel_of(halves)
    with pytest.raises(TypeError, match="only kernels can call half"):
        half(3.0)
    assert kernel(np.array([3, 4])) == 3.5
    assert kernel.dispatcher(np.array([3, 4])) == 3.5


def test_a_kernel_may_state_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accesses that overlap visit many atoms, which the lengths of arrays do not show."""
    stated: list[int | None] = []

    def has_time_for(_self: object, _arguments: object, _kernel: object, n_steps: int) -> bool:
        stated.append(n_steps)
        return True

    monkeypatch.setattr(interpreted.Interpreted, "has_time_for", has_time_for)
    monkeypatch.setattr(derive_hazards, "_compiled", None)  # other tests may have compiled it
    n = 300
    nothing = Accesses(np.zeros(n + 1, int), np.zeros(0, int), np.zeros(0, int))
    writes = Accesses(np.arange(n + 1), np.arange(n), np.full(n, n))
    indptr, before = derive_hazards(nothing, writes, n)
    assert len(before) == n - 1
    assert indptr[-1] == n - 1
    assert stated[0] is not None
    assert stated[0] > n * n // 2
