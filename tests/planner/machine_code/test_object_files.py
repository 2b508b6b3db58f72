"""The cache of compiled functions follows all files that are compiled into them."""

from __future__ import annotations

import fcntl
import importlib
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numba
import pytest

from collplan.planner.machine_code import code_folders, object_files
from collplan.planner.machine_code.code_folders import cache_folder, digest_of
from collplan.planner.machine_code.kernel import compile_at_once
from collplan.planner.machine_code.object_files import ObjectFile
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
        digest_of.cache_clear()
        for name in ("outer_kernel", "inner_kernel"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        results.append(importlib.import_module("outer_kernel").twice(10))
    for name in ("outer_kernel", "inner_kernel"):
        sys.modules.pop(name)
    assert results == [60, 100]
    assert len(list((tmp_path / "__pycache__").glob("numba-*"))) == 2


def test_the_user_may_choose_where_caches_are(tmp_path):
    chosen = cache_folder.__wrapped__(tmp_path, str(tmp_path / "chosen"))
    assert chosen.parent == tmp_path / "chosen"


ENDING = """
import gc, sys
sys.path.insert(0, sys.argv[1])
from outer_kernel import twice
from collplan.planner.machine_code import object_files
assert twice(10) == 60
(function,) = twice._codes.values()
name = function.__name__
object_files._loaded.clear()
gc.collect()
others = [bytes(n) for n in range(200) for _ in range(20)]
assert function.__name__ == name
"""
"""Python clears modules when it ends, and looks at the functions of kernels afterwards."""


def test_functions_of_kernels_outlive_the_module_that_loaded_them(tmp_path):
    write_kernels(tmp_path, 3)
    subprocess.run([sys.executable, "-c", ENDING, str(tmp_path)], check=True)


@pytest.mark.long
def test_processes_that_need_a_kernel_at_once_compile_it_once(tmp_path):
    write_kernels(tmp_path, 3)
    command = [sys.executable, "-c", USE, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    missed = [int(process.communicate()[0]) for process in running]
    assert sum(missed) == 2


def kernel_of(function):
    return compile_at_once()(function)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_machine_code_is_made_again(damage, tmp_path, monkeypatch):
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: tmp_path)
    n_compiled = Counter()

    def plus(x):
        return x + 1

    def misses():
        before = n_compiled.total()
        kernel = kernel_of(plus)
        make = kernel._compile
        kernel._compile = lambda *given: (n_compiled.update([1]), make(*given))[1]
        assert kernel(41) == 42
        return n_compiled.total() - before

    before = os.umask(0)
    try:
        assert [misses(), misses()] == [1, 0]
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".o", ".so", ".lock"}
    for path in files:
        damaged(path, damage)
        assert misses() == (path.suffix == ".o")
        assert misses() == 0


def lock_in(folder):
    (lock,) = folder.rglob("*.lock")
    return lock


def test_whoever_fails_to_compile_lets_others_try(tmp_path, monkeypatch):
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: tmp_path)

    def unknown(x):
        return x.missing

    with pytest.raises(numba.TypingError):
        kernel_of(unknown)(1)
    with lock_in(tmp_path).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_patience_has_an_end(tmp_path, monkeypatch):
    """A process that was stopped while it compiled stops nobody else."""
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: tmp_path)
    monkeypatch.setattr(code_folders, "PATIENCE_S", 0.05)

    def tripled(x):
        return 3 * x

    kernel = kernel_of(tripled)
    with Path(f"{tmp_path / ObjectFile(kernel._name((int,)), tmp_path)._path.name}.lock").open(
        "wb"
    ) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert kernel(5) == 15


@pytest.mark.many
@pytest.mark.parametrize("case", ["default", "own handler", "ignored", "thread"])
def test_an_interrupt_is_handled_when_a_kernel_has_returned(case: str) -> None:
    done = subprocess.run(
        [sys.executable, HELPERS / "interrupting.py", case],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "passed\n"), done.stderr


def test_asking_for_machine_code_needs_no_numpy() -> None:
    code = "import sys, collplan.planner.machine_code.object_files; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


BUILD = """
import sys
from pathlib import Path
from collplan.executors.mpi.loop.entries import entry, is_kept
from collplan.planner.machine_code import object_files

if sys.argv[1] == "build":
    object_files.build_into(Path(sys.argv[2]))
else:
    object_files.BUILT = Path(sys.argv[2])
    object_files.PORTABLE = {object_files.platform.machine(): ("", set(sys.argv[3:]))}
    print(is_kept("read_word"))
entry("read_word")
print("numba" in sys.modules)
"""


@pytest.mark.system
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_machine_code_of_a_package_is_used_where_the_processor_suits(tmp_path: Path) -> None:
    built, cache = tmp_path / "built", tmp_path / "cache"
    env = os.environ | {"NUMBA_CACHE_DIR": str(cache), "CC": str(shutil.which("cc"))}

    def says(*words: str) -> list[str]:
        command = [sys.executable, "-c", BUILD, words[0], str(built), *words[1:]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert says("build") == ["True"]
    assert {path.suffix for path in built.iterdir()} == {".o", ".so", ".lock"}
    assert not [*cache.rglob("*.o")]
    assert says("use") == ["True", "False"]
    assert not [*cache.rglob("*.o")]
    assert says("use", "a flag that no processor has") == ["False", "True"]
    assert [*cache.rglob("*.o")]
