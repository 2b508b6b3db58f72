"""Damage to a file of a cache, as disks, power failures and other users make it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

OTHER_USER: Final = 65534
FEW_BYTES: Final = 100
ROOTS: Final = ("of another user",)
"""Kinds of damage that only root can do."""
DAMAGES: Final = (
    *("empty", "half", "100 bytes", "flipped bytes", "folder", "fifo", "dangling link"),
    *(ROOTS if os.geteuid() == 0 else ()),
)
"""Kinds of damage."""


def damaged(path: Path, damage: str) -> None:
    """Damage a file.

    Parameters
    ----------
    path : Path
    damage : str
        One of `DAMAGES`.
    """
    content = path.read_bytes()
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage == "dangling link":
        path.symlink_to(path.with_name("no-such-file"))
    elif damage == "of another user":
        path.write_bytes(content)
        os.chown(path, OTHER_USER, -1)
    else:
        path.write_bytes(_changed(content, damage))


def _changed(content: bytes, damage: str) -> bytes:
    if damage == "flipped bytes":
        middle = len(content) // 2
        flipped = bytes(byte ^ 0xFF for byte in content[middle : middle + FEW_BYTES])
        return content[:middle] + flipped + content[middle + FEW_BYTES :]
    kept = {"empty": 0, "half": len(content) // 2, "100 bytes": FEW_BYTES}
    return content[: kept[damage]]
