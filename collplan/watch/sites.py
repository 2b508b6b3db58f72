"""Call sites of native programs: from a return address to the function, the file and the line."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_MAGIC: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<16x H H I Q Q Q I H H H H H H")
_SEGMENT: Final = struct.Struct("<I I Q Q Q Q Q Q")
_SECTION: Final = struct.Struct("<I I Q Q Q Q I I Q Q")
_SYMBOL: Final = struct.Struct("<I B B H Q Q")
_LOADED, _SYMBOLS, _DYNAMIC_SYMBOLS, _FUNCTION = 1, 2, 11, 2


class Function(NamedTuple):
    """A function of an ELF file: its first address and its size in bytes, and its name."""

    begin: int
    n_bytes: int
    name: str


class ElfFile:
    """A program or a shared library.

    Parameters
    ----------
    content : bytes
        Content of the file.

    Raises
    ------
    ValueError
        If it is no ELF file of 64 bits in the byte order of x86 and ARM, or is cut.
    """

    def __init__(self, content: bytes) -> None:
        if not content.startswith(_MAGIC):
            raise ValueError("it is no ELF file of 64 bits")
        try:
            self._read(content)
        except (struct.error, IndexError) as error:
            raise ValueError(f"it is damaged: {error}") from None

    def _read(self, content: bytes) -> None:
        header = _HEADER.unpack_from(content)
        segments_at, sections_at = header[4], header[5]
        n_segments, n_sections = header[9], header[11]
        segments = [
            _SEGMENT.unpack_from(content, segments_at + i * _SEGMENT.size)
            for i in range(n_segments)
        ]
        self._loaded = [one for one in segments if one[0] == _LOADED]
        sections = [
            _SECTION.unpack_from(content, sections_at + i * _SECTION.size)
            for i in range(n_sections if sections_at else 0)
        ]
        found: dict[int, Function] = {}
        for section in sections:
            if section[1] in (_SYMBOLS, _DYNAMIC_SYMBOLS):
                for one in _functions(content, section, sections[section[6]]):
                    found[one.begin] = min(found.get(one.begin, one), one, key=_preference)
        self._functions = sorted(found.values())
        self._begins = [one.begin for one in self._functions]

    def address_of(self, offset: int) -> int:
        """Return the address of a place in the file, as the file and its debug information count.

        Parameters
        ----------
        offset : int
            Place in the file in bytes.
        """
        for _, _, file_at, address, _, file_bytes, _, _ in self._loaded:
            if file_at <= offset < file_at + file_bytes:
                return int(address + offset - file_at)
        return offset

    def function_at(self, address: int) -> str:
        """Return the name of the function at an address; empty if the file names none."""
        at = bisect_right(self._begins, address) - 1
        while at >= 0 and address - self._begins[at] < 1 << 20:
            one = self._functions[at]
            if one.begin <= address < one.begin + one.n_bytes:
                return one.name
            at -= 1
        return ""


def _preference(one: Function) -> tuple[bool, int, str]:
    """Return a key by which the best known of several names of a function comes first."""
    return one.name.startswith("_"), len(one.name), one.name


@cache
def elf_file(path: str) -> ElfFile | None:
    """Return a program or a library; None if it cannot be read."""
    try:
        return ElfFile(Path(path).read_bytes())
    except (OSError, ValueError):
        return None


def _functions(
    content: bytes, section: tuple[int, ...], names: tuple[int, ...]
) -> Iterator[Function]:
    names_at, begin, n_bytes = names[4], section[4], section[5]
    for at in range(begin, begin + n_bytes, _SYMBOL.size):
        name, info, _, place, value, size = _SYMBOL.unpack_from(content, at)
        if info & 15 == _FUNCTION and place and size:
            text_at = names_at + name
            text = content[text_at : content.index(b"\0", text_at)]
            yield Function(value, size, text.decode(errors="replace"))


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
