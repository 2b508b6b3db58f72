"""Linux system calls about namespaces that Python 3.11's library does not have."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Final

NEWNS: Final = 0x00020000
NEWUTS: Final = 0x04000000
NEWIPC: Final = 0x08000000
NEWUSER: Final = 0x10000000
NEWPID: Final = 0x20000000
NEWNET: Final = 0x40000000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18

_PR_SET_PDEATHSIG: Final = 1


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process into new namespaces; with `NEWPID` its children instead.

    Raises
    ------
    OSError
        If the kernel or this user's rights do not allow it.
    """
    _check(_libc().unshare(flags))


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Mount a file system, or change a mount, as mount(2) does.

    Raises
    ------
    OSError
        If the kernel or this user's rights do not allow it.
    """
    _check(
        _libc().mount(
            source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None
        )
    )


def die_with_parent(signal: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    _check(_libc().prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal), 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
