"""Execute all notebooks of this folder, and keep their results in them: python execute.py."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

FOLDER = Path(__file__).parent


def execute(path: Path) -> Any:
    """Return a notebook with the results of its cells."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:
        # Not over TCP: another process may take a port after it is chosen and before it is used.
        ways = {"transport": "ipc", "ip": f"{sockets}/kernel"}
        client = NotebookClient(
            notebook,
            timeout=300,
            resources={"metadata": {"path": str(FOLDER)}},
            config=Config({"KernelManager": ways}),
        )
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
    notebook.metadata.pop("widgets", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(execute(path), path)
        print(path.name, path.stat().st_size)
