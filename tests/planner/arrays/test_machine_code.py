"""The cache of compiled functions follows all files that are compiled into them."""

from __future__ import annotations

import fcntl
import importlib
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from collplan.planner.arrays import code_folders, machine_code
from collplan.planner.arrays.code_folders import cache_folder
from damaging import DAMAGES, damaged
from folders import HELPERS
from kernel_files import USE, write_kernels


def test_a_change_in_a_called_kernel_reaches_its_caller(tmp_path, monkeypatch):
    """Numba itself would run the caller's old machine code, with the old callee inside."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python's own cache tells files apart by whole seconds only.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    results = []
    for factor in (3, 5):
        write_kernels(tmp_path, factor)
        cache_folder.cache_clear()
        for name in ("outer_kernel", "inner_kernel"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        results.append(importlib.import_module("outer_kernel").twice(10))
    for name in ("outer_kernel", "inner_kernel"):
        sys.modules.pop(name)
    assert results == [60, 100]
    assert len(list((tmp_path / "__pycache__").glob("numba-*"))) == 2


def test_other_code_keeps_its_own_cache(tmp_path):
    before = numba.config.CACHE_DIR
    machine_code.compile_at_once()(test_other_code_keeps_its_own_cache)
    assert before == numba.config.CACHE_DIR
    chosen = cache_folder.__wrapped__(tmp_path, str(tmp_path / "chosen"))
    assert chosen.parent == tmp_path / "chosen"


@pytest.mark.long
def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    write_kernels(tmp_path, 3)
    command = [sys.executable, "-c", USE, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    missed = [int(process.communicate()[0]) for process in running]
    assert sorted(missed) == [0, 0, 2]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_machine_code_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(machine_code, "cache_folder", lambda *_: tmp_path)

    def plus(x):
        return x + 1

    def misses():
        kernel = machine_code.compile_at_once()(plus)
        assert kernel(41) == 42
        return sum(kernel.stats.cache_misses.values())

    before = os.umask(0)
    try:
        assert [misses(), misses()] == [1, 0]
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".nbi", ".nbc", ".lock"}
    for path in files:
        damaged(path, damage)
        assert misses() == (path.suffix != ".lock")
        assert misses() == 0


def lock_of(kernel):
    shared = kernel._cache
    shared._impl.locator.ensure_cache_path()
    return Path(shared.cache_path) / f"{shared._impl.filename_base}.lock"


def test_whoever_fails_to_compile_lets_others_try():
    def unknown(x):
        return x.missing

    kernel = machine_code.compile_at_once()(unknown)
    with pytest.raises(numba.TypingError):
        kernel(1)
    with lock_of(kernel).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_patience_has_an_end(monkeypatch):
    """A process that was stopped while it compiled stops nobody else."""
    monkeypatch.setattr(code_folders, "PATIENCE_S", 0.05)

    def tripled(x):
        return 3 * x

    kernel = machine_code.compile_at_once()(tripled)
    with lock_of(kernel).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kernel(5) == 15


@pytest.mark.many
@pytest.mark.parametrize("case", ["default", "own handler", "ignored", "thread"])
def test_an_interrupt_waits_until_a_kernel_has_returned(case: str) -> None:
    done = subprocess.run(
        [sys.executable, HELPERS / "interrupting.py", case],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
