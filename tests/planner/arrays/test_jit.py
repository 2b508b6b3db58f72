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

from collplan.planner.arrays import jit as cache
from folders import HELPERS


def write(folder, factor):
    (folder / "inner_kernel.py").write_text(
        "from collplan.planner.arrays.jit import compile_with\n\n@compile_with()\n"
        f"def scaled(x):\n    return {factor} * x\n"
    )
    (folder / "outer_kernel.py").write_text(
        "from collplan.planner.arrays.jit import compile_with\nfrom inner_kernel import scaled\n\n"
        "@compile_with()\n"
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
    cache.compile_with()(test_files_without_kernels_change_nothing)
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


def run_twice(folder, **environment):
    environment = {**os.environ, "XDG_CACHE_HOME": "", "HOME": "/dev/null/none", **environment}
    command = [sys.executable, "-c", TWICE, str(folder)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def read_only_sources(folder):
    """Write kernels into a folder in which not even root can make a cache."""
    write(folder, 3)
    (folder / "__pycache__").write_text("no folder")


def test_a_read_only_installation_caches_in_a_folder_for_temporary_files(tmp_path):
    read_only_sources(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    missed = [run_twice(tmp_path, TMPDIR=str(temporary)) for _ in range(2)]
    assert [run.stdout for run in missed] == ["2\n", "0\n"]
    assert not any(run.stderr for run in missed)
    (folder,) = temporary.iterdir()
    assert folder.name == f"collplan-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_read_only_installation_prefers_the_cache_of_the_user(tmp_path):
    read_only_sources(tmp_path)
    missed = [run_twice(tmp_path, HOME=str(tmp_path)) for _ in range(2)]
    assert [run.stdout for run in missed] == ["2\n", "0\n"]
    assert (tmp_path / ".cache" / "collplan").is_dir()


def test_without_any_folder_to_write_into_one_line_says_that_nothing_is_cached(tmp_path):
    read_only_sources(tmp_path)
    temporary = tmp_path / "temporary"
    # Where others may write, nothing is loaded from.
    (temporary / f"collplan-{os.geteuid()}").mkdir(parents=True)
    (temporary / f"collplan-{os.geteuid()}").chmod(0o777)
    done = run_twice(tmp_path, TMPDIR=str(temporary))
    assert done.stdout == "2\n"
    assert done.stderr.startswith("collplan: warning: no folder for compiled code can be written")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("name a folder in NUMBA_CACHE_DIR\n")


def lock_of(kernel):
    shared = kernel._cache
    shared._impl.locator.ensure_cache_path()
    return Path(shared.cache_path) / f"{shared._impl.filename_base}.lock"


def test_whoever_fails_to_compile_lets_others_try():
    def unknown(x):
        return x.missing

    kernel = cache.compile_with()(unknown)
    with pytest.raises(numba.TypingError):
        kernel(1)
    with lock_of(kernel).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_patience_has_an_end(monkeypatch):
    """A process that was stopped while it compiled stops nobody else."""
    monkeypatch.setattr(cache, "PATIENCE_S", 0.05)

    def tripled(x):
        return 3 * x

    kernel = cache.compile_with()(tripled)
    with lock_of(kernel).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kernel(5) == 15


@pytest.mark.parametrize("case", ["default", "own handler", "ignored", "thread"])
def test_an_interrupt_waits_until_a_kernel_has_returned(case: str) -> None:
    done = subprocess.run(
        [sys.executable, HELPERS / "interrupting.py", case],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr
