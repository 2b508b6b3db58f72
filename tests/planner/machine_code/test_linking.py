"""The C compiler: how it is chosen, and what is said if it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.planner.machine_code.linking import compiler, link
from collplan.specs.errors import CollplanError


def test_a_command_that_cannot_be_read_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "ccache cc")
    assert compiler() == ["ccache", "cc"]
    monkeypatch.setenv("CC", "cc 'x")
    with pytest.raises(CollplanError, match=r'^CC: "cc \'x" is no command: No closing quotation'):
        compiler()


def test_the_reason_of_the_linker_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "cc"
    script.write_text(
        "#!/bin/sh\necho 'ld: final link failed: No space left' >&2\n"
        "echo 'collect2: error: ld returned 1 exit status' >&2\nexit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(CollplanError, match="does not work: ld: final link failed: No space left"):
        link(tmp_path / "library.so", {"a.c": b""}, "a;")
