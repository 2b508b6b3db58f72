"""Standard output that is full, closed, abandoned by its reader, or not in Unicode."""

from __future__ import annotations

import errno
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.main import BROKEN_PIPE, main
from collplan.cli.ranks import own_command
from collplan.reports.output import print_json, print_table
from command_line import CommandLine

each_command = pytest.mark.parametrize(
    "words",
    [["algorithms"], ["schema"], ["show", "SPEC"], ["show", "SPEC", "--json"], ["--help"]],
    ids=" ".join,
)


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def run(collplan: CommandLine, words: list[str]) -> int:
    """Run a command without capturing what it prints."""
    spec = collplan.write_spec(collective={"kind": "allreduce", "count": 5000})
    return main([str(spec) if word == "SPEC" else word for word in words])


@each_command
@pytest.mark.parametrize("target", ["/dev/full", None])
def test_output_that_cannot_be_written_is_one_line(
    collplan: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    target: str | None,
) -> None:
    monkeypatch.setattr(sys, "stdout", target and os.fdopen(os.open(target, os.O_WRONLY), "w"))
    assert run(collplan, words) == 1
    sys.stdout.close()
    problem = "Bad file descriptor" if target is None else "No space left on device"
    line = f"standard output: cannot be written: {problem}; redirect it elsewhere"
    assert capsys.readouterr().err == f"collplan: error: {line}\n"


@pytest.mark.parametrize("target", ["/dev/full", None])
def test_a_closed_standard_error_changes_no_status(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, target: str | None
) -> None:
    monkeypatch.setattr(sys, "stderr", target and os.fdopen(os.open(target, os.O_WRONLY), "w"))
    assert run(collplan, ["show", "none.yaml"]) == 2
    sys.stderr.close()


@each_command
def test_a_pipe_without_reader_ends_a_command_as_it_ends_others(
    collplan: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(sys, "stdout", os.fdopen(write, "w"))
    assert run(collplan, words) == BROKEN_PIPE == 141
    sys.stdout.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "words", [["cost", "SPEC"], ["algorithms", "allgather"], ["run", "--help"]]
)
def test_output_without_unicode_is_plain_text(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, words: list[str], encoding: str
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding))
    assert run(collplan, words) == 0
    text = written.getvalue().decode(encoding)
    assert len(text) > 100
    assert "\\u" not in text


def test_a_process_without_standard_output_ends_in_one_line() -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *own_command("--version")],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    line = "standard output: cannot be written: Bad file descriptor; redirect it elsewhere"
    assert (done.returncode, done.stderr) == (1, f"collplan: error: {line}\n")


def test_what_ascii_lacks_is_spelled(monkeypatch: pytest.MonkeyPatch) -> None:
    from collplan.reports.output import prepare_streams

    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    prepare_streams()
    print("3 µs, log₂p·⌈n/p⌉, Pajé, ──┼│━╸, κ, 語, \udcff", flush=True)
    assert (
        written.getvalue() == rb"3 us, log2p*ceil(n/p), Paje, --+|--, kappa, \u8a9e, " + b"\xff\n"
    )


def test_a_full_disk_loses_machine_code_and_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from collplan.planner.machine_code import object_files
    from collplan.planner.machine_code.code_folders import _say_once
    from collplan.planner.machine_code.kernel import compile_at_once

    def fill_disk(path: Any, content: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(object_files, "write_kept", fill_disk)
    _say_once.cache_clear()

    def adding(one: int) -> Any:
        return compile_at_once()(lambda x: x + one)

    kernels = [adding(i) for i in range(2)]
    assert [kernel(3) for kernel in kernels] == [3, 4]
    line = capsys.readouterr().err
    assert line.startswith("collplan: warning: machine code cannot be kept in ")
    assert line.endswith(": No space left on device; let NUMBA_CACHE_DIR name a folder with room\n")
    assert line.count("\n") == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_no_output(
    value: float, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"seconds": value})
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


COLUMNS = ["candidate", *(f"{2**i} KiB" for i in range(8)), "why"]
ROWS = [["ring", *8 * ["123.4 µs"], "a long reason that may be wrapped over several lines"]]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_fit_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    for name, value in {"COLUMNS": str(width), "NO_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    print_table(COLUMNS, ROWS)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    assert text.count("123.4 µs") == 8  # none is cut
    assert all(name in text for name in COLUMNS)
    assert (text.count("candidate") > 1) == (width < 120)


def test_tables_in_a_pipe_have_no_blanks_at_ends(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert "a long reason that may be wrapped over several lines" in lines[3]
    print_table(COLUMNS, ROWS, is_tight=True)
    assert capsys.readouterr().out.splitlines() == lines[1:-1]
