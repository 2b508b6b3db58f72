"""Notebooks: each runs, and gives what it is stored with."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from folders import ROOT

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 120_000
RICH = {
    "compile_draw_verify": "image/svg+xml",
    "compare": "text/html",
    "cost_and_timeline": "image/svg+xml",
    "tuning_table": "text/html",
}
"""Kind of picture or table of the first object of each notebook."""


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shown(notebook: Any) -> list[Any]:
    """Return what cells print and show; of pictures only whether there is one."""
    return [
        [
            output.get("text")
            or {
                kind: bool(text) if "svg" in kind else re.sub(r"\s+", " ", text)
                for kind, text in output["data"].items()
            }
            for output in cell.get("outputs", ())
        ]
        for cell in notebook.cells
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.long
def test_notebooks_give_what_they_are_stored_with(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    stored = nbformat.read(path, as_version=4)
    nbformat.validate(stored)
    assert shown(load_program().execute(path)) == shown(stored)
    assert path.stat().st_size < MOST_BYTES
    first = next(o for cell in stored.cells for o in cell.get("outputs", ()) if "data" in o)
    assert RICH[path.stem] in first["data"]


def test_there_is_one_for_each_main_use() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(RICH)
