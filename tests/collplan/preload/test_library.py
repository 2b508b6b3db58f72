"""The preloaded library: that of the package, or one that is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collplan.planner.machine_code import object_files
from collplan.preload import library
from collplan.preload.library import PACKAGED, library_with, preload_library
from collplan.specs.errors import CollplanError

BUILDS = """
import sys
from pathlib import Path
from collplan.planner.machine_code.object_files import build_into
from collplan.preload.library import library_with
build_into(Path(sys.argv[1]))
print(library_with(sys.argv[2], sys.argv[3:]))
"""


@pytest.mark.system
@pytest.mark.long
def test_a_package_brings_libraries_that_need_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, newer = PACKAGED[0]
    line = [sys.executable, "-c", BUILDS, str(tmp_path / "built"), family, *newer]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    monkeypatch.setattr(object_files, "BUILT", tmp_path / "built")
    object_files._can_use_built.cache_clear()
    monkeypatch.setenv("CC", "/none")
    try:
        found = library_with(family, newer)
        assert str(found) == done.stdout.strip()
        assert found.is_relative_to(tmp_path)
        monkeypatch.setattr(library, "_glibc", lambda: (2, 28))
        monkeypatch.delenv("CC")
        assert not library_with(family, newer).is_relative_to(tmp_path)
    finally:
        object_files._can_use_built.cache_clear()


def test_a_library_has_the_newer_functions_that_its_mpi_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here the C library stands for an MPI."""
    asked: list[tuple[str, list[str]]] = []

    def found(family: str, newer: list[str]) -> Path:
        asked.append((family, newer))
        return Path("found.so")

    monkeypatch.setattr(library, "library_with", found)
    monkeypatch.setattr(library, "NEWER", {"printf": "A", "no_function": "B", "qsort": "C"})
    family = next(iter(library.FAMILIES))
    assert preload_library(family, "libc.so.6") == Path("found.so")
    assert asked == [(family, ["printf", "qsort"])]
    with pytest.raises(CollplanError, match="programs of some MPI are not known, those of "):
        preload_library("some MPI", "libc.so.6")
