"""Memory that planning takes, estimated before it is allocated."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from collplan.planner.errors import MemoryLimitError

if sys.platform != "win32":
    import resource

TOO_LARGE: Final = "the plan does not fit into memory; use fewer ranks or a smaller count"
"""Text of the error if an allocation has failed."""
LARGE_BYTES: Final = 1 << 28
"""Estimates up to this are accepted without asking the system."""
_MEMINFO: Final = "/proc/meminfo"
_CGROUPS: Final = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Files with the limit and the use of a container, of both versions."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_GIBIBYTE: Final = 1 << 30


def require_memory(
    n_bytes: int,
    what: str = "the plan",
    to: str = "compile",
    way_out: str = "use fewer ranks, larger segments or an algorithm of fewer messages",
) -> None:
    """Raise `MemoryLimitError` if something takes more memory than this process can get.

    Parameters
    ----------
    n_bytes : int
        Estimate of the peak memory, in bytes.
    what, to, way_out : str
        Words of the message: what takes the memory, what is done with it, and what to do instead.
    """
    free = free_bytes() if n_bytes > LARGE_BYTES else n_bytes
    if n_bytes > free:
        raise MemoryLimitError(
            f"{what} takes about {n_bytes / 2**30:.2g} GiB of memory to {to}, and "
            f"{free / 2**30:.2g} GiB are free; {way_out}"
        )


def raise_for_memory(n_bytes: int, what: str, error: BaseException) -> None:
    """Raise `MemoryLimitError` if an error is due to too little memory for a library.

    Parameters
    ----------
    n_bytes : int
        Memory that the library takes, in bytes.
    what : str
        Name of the library.
    error : BaseException
        Error that was raised when the library was loaded.
    """
    free = free_bytes()
    if free < n_bytes:
        raise MemoryLimitError(
            f"{what} takes about {n_bytes / 2**30:.2g} GiB of memory to load, and "
            f"{free / 2**30:.2g} GiB are free; allow more memory"
        ) from error


def free_bytes() -> int:
    """Return the memory that this process can still get, in bytes, as far as it is known."""
    free = free_machine_bytes()
    if sys.platform.startswith("linux"):
        limited, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limited != resource.RLIM_INFINITY:
            free = min(free, limited - _mapped_bytes())
    return max(0, free)


def limit_memory(n_bytes: int) -> None:
    """Limit the memory that this process may still allocate; beyond it `MemoryError` is raised.

    Parameters
    ----------
    n_bytes : int
        The limit in bytes. It is ignored if the system has no such limit, or a lower one.
    """
    if not sys.platform.startswith("linux"):
        return
    limit, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _mapped_bytes() + n_bytes
    if limit == resource.RLIM_INFINITY or wanted < limit:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks up to 1 GiB for later arrays; do nothing elsewhere.

    Large plans are made of many arrays of tens of megabytes. If each array is mapped and
    unmapped, its page faults take longer than the work on it. This is a setting of the whole
    process, so only our own programs and processes call it, and no library function.
    """
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _GIBIBYTE)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _GIBIBYTE - 1)


def _mapped_bytes() -> int:
    """Return the size of this process' address space."""
    return int(_read("/proc/self/statm").split()[0]) * resource.getpagesize()


def free_machine_bytes() -> int:
    """Return the memory that all processes of this machine or container can still get, in bytes.

    It is `sys.maxsize` if the system does not say.
    """
    found = [sys.maxsize]
    for line in _read(_MEMINFO).splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) << 10)
    for limit, use in _CGROUPS:
        words = _read(limit).strip(), _read(use).strip()
        if all(word.isdecimal() for word in words):
            found.append(int(words[0]) - int(words[1]))
    return max(0, min(found))


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
