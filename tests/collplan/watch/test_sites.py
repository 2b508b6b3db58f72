"""Call sites of native code, found in this process."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from collplan.watch import sites
from collplan.watch.sites import ElfFile, Sites, elf_file, mappings_in, name_in_file

if sys.platform != "linux":
    pytest.skip("the mappings of a process are Linux's", allow_module_level=True)


def address_of(function: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value or 0


def test_a_function_of_a_library_is_named() -> None:
    name = Sites().name(os.getpid(), address_of("qsort") + 8)
    assert "qsort" in name
    assert "libc" in name or ".c:" in name


def test_without_addr2line_the_symbols_of_the_file_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sites.shutil, "which", lambda _name: None)
    name = Sites().name(os.getpid(), address_of("qsort") + 8)
    assert "qsort" in name
    assert "libc" in name
    assert "+0x" in name


def test_sites_of_a_process_that_has_ended_are_known_if_they_were_learnt() -> None:
    found, address = Sites(), address_of("qsort") + 8
    found._mappings[10**9] = mappings_in(Path("/proc/self/maps").read_text())
    assert "qsort" in found.name(10**9, address)
    assert found.name(10**9 + 1, 0x1234) == "address 0x1234"


def test_mappings_are_read_from_lines() -> None:
    text = (
        "7f00-7f80 r-xp 00001000 08:01 42   /usr/lib/a b.so\n"
        "7f80-7f90 rw-p 00000000 00:00 0 \n"
        "7f90-7fa0 r-xp 00000000 00:00 0    [vdso]\n"
    )
    ((begin, end, offset, path),) = mappings_in(text)
    assert (begin, end, offset, path) == (0x7F00, 0x7F80, 0x1000, "/usr/lib/a b.so")


def test_files_that_are_no_elf_files_are_named_with_the_offset(tmp_path: Path) -> None:
    path = tmp_path / "text.so"
    path.write_text("no code")
    assert elf_file(str(path)) is None
    assert name_in_file(str(path), 0x40) == "text.so+0x40"
    with pytest.raises(ValueError, match="no ELF file"):
        ElfFile(b"\x7fELF\x01\x01")
    with pytest.raises(ValueError, match="damaged"):
        ElfFile(b"\x7fELF\x02\x01" + bytes(20))
