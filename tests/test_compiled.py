"""The cache of compiled functions follows all files that are compiled into them."""

from __future__ import annotations

import fcntl
import importlib
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from planner import compiled as cache


def write(folder, factor):
    (folder / "inner_kernel.py").write_text(
        "from planner.compiled import compiled\n\n@compiled\n"
        f"def scaled(x):\n    return {factor} * x\n"
    )
    (folder / "outer_kernel.py").write_text(
        "from planner.compiled import compiled\nfrom inner_kernel import scaled\n\n@compiled\n"
        "def twice(x):\n    return scaled(x) + scaled(x)\n"
    )


def test_a_change_in_a_called_kernel_reaches_its_caller(tmp_path, monkeypatch):
    """Numba itself would run the caller's old machine code, with the old callee inside."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Python's own cache tells files apart by whole seconds only.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    results = []
    for factor in (3, 5):
        write(tmp_path, factor)
        cache._cache_folder.cache_clear()
        for name in ("outer_kernel", "inner_kernel"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        results.append(importlib.import_module("outer_kernel").twice(10))
    for name in ("outer_kernel", "inner_kernel"):
        sys.modules.pop(name)
    assert results == [60, 100]
    assert len(list((tmp_path / "__pycache__").glob("numba-*"))) == 2


def test_files_without_kernels_change_nothing(tmp_path):
    write(tmp_path, 3)
    before = cache._cache_folder.__wrapped__(tmp_path, "")
    (tmp_path / "report.py").write_text("TITLE = 'a'\n")
    assert cache._cache_folder.__wrapped__(tmp_path, "") == before


def test_other_code_keeps_its_own_cache(tmp_path):
    before = numba.config.CACHE_DIR
    cache.compiled(test_files_without_kernels_change_nothing)
    assert before == numba.config.CACHE_DIR
    chosen = cache._cache_folder.__wrapped__(tmp_path, str(tmp_path / "chosen"))
    assert chosen.parent == tmp_path / "chosen"


TWICE = """
import sys
sys.path.insert(0, sys.argv[1])
from outer_kernel import twice
from inner_kernel import scaled
twice(10)
print(sum(sum(kernel.stats.cache_misses.values()) for kernel in (twice, scaled)))
"""


def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    write(tmp_path, 3)
    command = [sys.executable, "-c", TWICE, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    missed = [int(process.communicate()[0]) for process in running]
    assert sorted(missed) == [0, 0, 2]


def lock_of(kernel):
    shared = kernel._cache
    shared._impl.locator.ensure_cache_path()
    return Path(shared.cache_path) / f"{shared._impl.filename_base}.lock"


def test_whoever_fails_to_compile_lets_others_try():
    def unknown(x):
        return x.missing

    kernel = cache.compiled(unknown)
    with pytest.raises(numba.TypingError):
        kernel(1)
    with lock_of(kernel).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_patience_has_an_end(monkeypatch):
    """A process that was stopped while it compiled stops nobody else."""
    monkeypatch.setattr(cache, "PATIENCE_S", 0.05)

    def tripled(x):
        return 3 * x

    kernel = cache.compiled(tripled)
    with lock_of(kernel).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kernel(5) == 15
