"""Run the command in this process, and write specs to run it on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.main import main

RING = {
    "machine": {"ranks_per_node": 4},
    "collective": {"kind": "allreduce", "count": 16, "datatype": "int32"},
    "algorithms": "ring",
}


@dataclass(frozen=True)
class Outcome:
    """Output and exit status of a command."""

    status: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """Return the one JSON object on standard output."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document

    def error(self) -> str:
        """Return the one line of a refusal, without its prefix."""
        prefix = "collplan: error: "
        assert self.status == 2, self
        assert self.out == ""
        assert self.err.startswith(prefix), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix(prefix).rstrip("\n")


class CommandLine:
    """The command, with what it prints captured, in a folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Outcome:
        """Run ``collplan ARGUMENTS``."""
        self._capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return Outcome(status, out, err)

    def write_spec(self, name: str = "spec.yaml", **changes: Any) -> Path:
        """Write a ring allreduce of 16 elements on 4 ranks, with fields exchanged."""
        path = self.folder / name
        path.write_text(json.dumps({**RING, **changes}))
        return path

    def compile(self, name: str = "ring.plan", **changes: Any) -> Path:
        """Write a compiled plan."""
        path = self.folder / name
        outcome = self("compile", self.write_spec(**changes), "-o", path)
        assert outcome.status == 0, outcome
        return path
