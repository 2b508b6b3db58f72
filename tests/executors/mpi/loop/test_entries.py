"""Entry points are loaded from object files by processes that do not import numba."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collplan.executors.mpi import loop
from collplan.executors.mpi.loop.entries import entry, is_kept, kept_code
from collplan.planner.machine_code import code_folders, kept_files, linking, object_files
from collplan.planner.machine_code.object_files import ObjectFile
from damaging import DAMAGES, damaged

LOAD = """
import sys
import numpy as np
from collplan.executors.mpi.loop.entries import entry
from collplan.executors.mpi.loop.reductions import load

for name in ("run_loop", "repeat", "read_word", "write_word"):
    entry(name)
assert load(("sum", np.dtype(np.float32)))
word = np.zeros(1, np.int64)
entry("write_word")(word.ctypes.data, -(2**40))
assert entry("read_word")(word.ctypes.data) == word[0] == -(2**40)
"""
NAMES = """
import sys
print(" ".join(name for name in ("numba", "llvmlite") if name in sys.modules))
"""
READ = "from collplan.executors.mpi.loop.entries import entry; entry('read_word'); "


def loads(program: str, env: dict[str, str]) -> list[tuple[str, str]]:
    """Run a program twice; return what it prints, and its errors."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | env, capture_output=True, text=True
        )
        for _ in range(2)
    ]
    return [(run.stdout, run.stderr) for run in runs]


@pytest.mark.system
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_what_is_kept_is_loaded_without_numba(tmp_path: Path) -> None:
    compiler = {"CC": str(shutil.which("cc"))}
    compiled = loads(f"{READ}{NAMES}", {"NUMBA_CACHE_DIR": str(tmp_path), **compiler})
    assert compiled == [("numba llvmlite\n", ""), ("\n", "")]
    # The whole engine, which other tests compile, too.
    assert loads(LOAD + NAMES, compiler)[1] == ("\n", "")


@pytest.mark.long
def test_without_a_c_compiler_llvm_loads_what_is_kept(tmp_path: Path) -> None:
    """There are no shared libraries then, but object files."""
    found = loads(f"{READ}{NAMES}", {"NUMBA_CACHE_DIR": str(tmp_path), "CC": "/none"})
    assert found == [("numba llvmlite\n", ""), ("llvmlite\n", "")]


@pytest.mark.system
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_code_is_made_again(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(linking, "compiler", lambda: ["cc"])
    name, compiled = f"made_{damage.replace(' ', '_')}", []

    def file() -> ObjectFile:
        def function() -> Any:
            compiled.append(name)
            return lambda: 7

        return kept_code(name, function, "int64()")

    first = file().link()
    for suffix in (".o", ".so", ".o.lock"):
        path = first.parent / (first.name.removesuffix(".so") + suffix)
        damaged(path, damage)
        made = file()
        assert ctypes.CFUNCTYPE(ctypes.c_int64)(made.load())() == 7
        assert made.link().is_file()
    assert compiled == [name, name]  # the library is made of the object file


@pytest.mark.long
def test_processes_that_need_an_entry_at_once_compile_it_once(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "/none")
    command = [sys.executable, "-c", f"{READ}import sys; print('numba' in sys.modules)"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert sorted(one.communicate()[0] for one in running) == ["False\n", "False\n", "True\n"]


def test_names_of_files_tell_what_is_kept(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "/none")
    assert not is_kept("read_word")
    subprocess.run([sys.executable, "-c", READ], check=True)
    assert is_kept("read_word")
    assert not is_kept("read_wor")


@pytest.mark.quick
@pytest.mark.parametrize("name", ["records.py", "codes.py", "moves.py"])
def test_all_that_is_compiled_into_code_names_its_folder(tmp_path: Path, name: str) -> None:
    for path in Path(loop.__path__[0]).glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    before = code_folders.cache_folder.__wrapped__(tmp_path, "")
    with (tmp_path / name).open("a") as file:
        file.write("OTHER = 1\n")
    code_folders.digest_of.cache_clear()
    assert code_folders.cache_folder.__wrapped__(tmp_path, "") != before


def test_without_a_folder_code_is_compiled_and_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(object_files, "cache_folder", lambda *_: None)
    monkeypatch.setenv("COLLPLAN_UNCACHED", "")  # is deleted again at the end
    monkeypatch.delenv("COLLPLAN_UNCACHED")
    code_folders._say_once.cache_clear()
    assert is_kept("read_word"), "there is nothing to compile in advance"
    word = np.array([7])
    assert entry.__wrapped__("read_word")(word.ctypes.data) == 7
    assert "no folder for compiled code can be written" in capsys.readouterr().err


def test_a_full_disk_loses_the_file_and_no_result(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept_files.Path, "replace", _fill_disk)
    code_folders._say_once.cache_clear()
    word = np.array([8])
    assert entry.__wrapped__("read_word")(word.ctypes.data) == 8
    line = capsys.readouterr().err
    assert line.startswith("collplan: warning: machine code cannot be kept in ")
    assert line.endswith(": No space left on device; let NUMBA_CACHE_DIR name a folder with room\n")
    assert not [*tmp_path.rglob("*.o"), *tmp_path.rglob("*.so")]
    assert not is_kept("read_word")


def _fill_disk(self: object, target: object) -> None:
    raise OSError(28, "No space left on device")
