"""Linux system calls for namespaces that the library of Python 3.11 lacks."""

from __future__ import annotations

import ctypes
import errno
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

_WAYS_OUT: Final = {
    errno.EPERM: "run as root (in a container: a privileged one), or let users make namespaces "
    "(sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)",
    errno.ENOSPC: "raise the limits of sysctl user.max_user_namespaces, user.max_net_namespaces "
    "and their like",
}
_WAYS_OUT[errno.EACCES] = _WAYS_OUT[errno.EPERM]


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process into new namespaces; `NEWPID` moves its future children instead.

    Raises
    ------
    OSError
        If the kernel or the rights of this user do not allow it.
    """
    _check(_libc().unshare(flags), "namespaces")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Mount a file system, or change a mount, like mount(2).

    Raises
    ------
    OSError
        If the kernel or the rights of this user do not allow it.
    """
    names = (os.fsencode(source), os.fsencode(target), kind.encode())
    _check(_libc().mount(*names, ctypes.c_ulong(flags), None), target)


def describe(error: OSError) -> str:
    """Return one line that names the request that failed, the error, and a remedy.

    Examples
    --------
    >>> describe(OSError(errno.ENOENT, "No such file or directory", "/etc/hosts"))
    '/etc/hosts: No such file or directory; emulated nodes need it'
    """
    way_out = _WAYS_OUT.get(error.errno or 0, "emulated nodes need it")
    return f"{error.filename or 'emulation'}: {error.strerror}; {way_out}"


def _check(status: int, subject: str) -> None:
    """Raise `OSError` if a system call has failed."""
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), subject)
