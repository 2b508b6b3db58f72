"""The cache of compiled functions follows all files that are compiled into them."""

from __future__ import annotations

import importlib
import sys

import numba

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
