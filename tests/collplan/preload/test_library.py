"""The preloaded library: that of the package, or one that is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from collplan.planner.machine_code import object_files
from collplan.preload import library
from collplan.preload.library import PACKAGED, library_with

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
