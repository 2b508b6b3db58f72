"""Commands work with damaged caches: a sample of what the script tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from collplan.planner.machine_code.code_folders import cache_folder
from folders import BENCHMARKS, ROOT

sys.path.insert(0, str(BENCHMARKS))

import damaged_caches

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")


@pytest.mark.system
@pytest.mark.long
def test_commands_work_with_damaged_caches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(damaged_caches, "LATE_S", damaged_caches.HANG_S)  # machines may be busy
    # What other tests have compiled need not be compiled again.
    for kept in {path.parent for path in ROOT.glob("[ep]*/**/__pycache__/numba-*")}:
        folder = cache_folder(kept.parent, "")
        if folder is not None:
            shutil.copytree(folder, tmp_path / "cache" / folder.name)
    assert damaged_caches.main(["--sample", "2", "--commands", "exec,run"], tmp_path / "cache") == 0
    assert "2 cases of " in capsys.readouterr().out
