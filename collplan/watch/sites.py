"""Call sites of native programs: from a return address to the function, the file and the line."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from collplan.watch.elf import elf_file

_PATIENCE_S = 10.0


class MappedFile(NamedTuple):
    """A part of a file in the memory of a process: its addresses, and its place in the file."""

    begin: int
    end: int
    offset: int
    path: str


class Sites:
    """Call sites of the ranks of a node.

    Mappings of a process are kept, so that sites of a process that has ended can be found, too.
    """

    def __init__(self) -> None:
        self._mappings: dict[int, list[MappedFile]] = {}
        self._named: dict[tuple[int, int], str] = {}

    def learn(self, pid: int) -> None:
        """Read the mappings of a process, if it is still there."""
        with suppress(OSError):
            found = mappings_in(Path(f"/proc/{pid}/maps").read_text(errors="replace"))
            if found:
                self._mappings[pid] = found

    def add(self, pid: int, mappings: list[MappedFile]) -> None:
        """Use mappings of a process that were written before it ended."""
        self._mappings[pid] = mappings

    def name(self, pid: int, address: int) -> str:
        """Return a call site as text, such as ``main (solve.c:42)``.

        Parameters
        ----------
        pid : int
            Process.
        address : int
            Return address of the call in the memory of the process.
        """
        key = pid, address
        if key not in self._named:
            self._named[key] = self._look_up(pid, address)
        return self._named[key]

    def _look_up(self, pid: int, address: int) -> str:
        at = address - 1  # in the instruction that calls, not in the next one
        for again in (False, True):
            if again:
                self.learn(pid)
            for one in self._mappings.get(pid, []):
                if one.begin <= at < one.end:
                    return name_in_file(one.path, at - one.begin + one.offset)
        return f"address {address:#x}"


def mappings_in(text: str) -> list[MappedFile]:
    """Return the mappings of files that ``/proc/<pid>/maps`` lists."""
    found = []
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            begin, end = (int(one, 16) for one in words[0].split("-"))
            found.append(MappedFile(begin, end, int(words[2], 16), words[5]))
    return found


def name_in_file(path: str, offset: int) -> str:
    """Return the call site at a place of a file: function, file and line, as far as known.

    Parameters
    ----------
    path : str
        Program or shared library.
    offset : int
        Place in the file in bytes.
    """
    file, name = elf_file(path), os.path.basename(path)
    if file is None:
        return f"{name}+{offset:#x}"
    address = file.address_of(offset)
    function, line = _by_debug_information(path, address)
    function = function or file.function_at(address)
    where = line or f"{name}+{address:#x}"
    return f"{function} ({where})" if function else where


def _by_debug_information(path: str, address: int) -> tuple[str, str]:
    """Return the function, and the file and line, by ``addr2line``; empty texts if unknown."""
    program = shutil.which("addr2line")
    if program is None:
        return "", ""
    try:
        done = subprocess.run(
            [program, "-f", "-C", "-e", path, hex(address)],
            capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) < 2:
        return "", ""
    function = "" if lines[0] == "??" else lines[0]
    file, _, number = lines[1].partition(" ")[0].rpartition(":")
    is_known = file not in ("", "??") and number.isdecimal() and number != "0"
    return function, f"{os.path.basename(file)}:{number}" if is_known else ""
