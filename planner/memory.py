"""Memory that planning takes, estimated before it is allocated."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from collplan.planner.errors import MemoryLimitError

if sys.platform != "win32":
    import resource

TOO_LARGE: Final = "the plan does not fit into memory; use fewer ranks or a smaller count"
"""Text of the error if an allocation has failed."""
LARGE_BYTES: Final = 1 << 28
"""Estimates up to this are accepted without asking the system."""
_PROC: Final = Path("/proc")
_GROUP_FILES: Final = {
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Files with the limit and the use of a control group, and the entry of its file ``memory.stat``
with the bytes of cached files, which are freed when memory is needed; by type of file system."""
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
    return int(_read(_PROC / "self" / "statm").split()[0]) * resource.getpagesize()


def free_machine_bytes() -> int:
    """Return the memory that all processes of this machine or container can still get, in bytes.

    It is `sys.maxsize` if the system does not say.
    """
    found = [sys.maxsize, *_free_in_groups()]
    for line in _read(_PROC / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) << 10)
    return max(0, min(found))


def _free_in_groups() -> Iterator[int]:
    """Generate the free bytes of the process' control group and of all above it, if limited.

    The limit of a batch job or of a service is that of the process' own group. In a container,
    the groups above its root are not seen.
    """
    groups = {}
    for line in _read(_PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "memory" in controllers.split(","):
            groups["cgroup" if controllers else "cgroup2"] = PurePath(path)
    for line in _read(_PROC / "self" / "mountinfo").splitlines():
        # The number of optional fields varies; a dash ends them.
        fields, (kind, _, options) = (part.split() for part in line.split(" - ", 1))
        if kind not in groups or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        group, root, top = groups[kind], PurePath(fields[3]), Path(fields[4])
        own = top / group.relative_to(root) if group.is_relative_to(root) else top
        for folder in (own, *own.parents):
            if folder.is_relative_to(top):
                yield from _free_in(folder, kind)


def _free_in(folder: Path, kind: str) -> Iterator[int]:
    """Generate the free bytes of a control group, unless it has no limit."""
    limit_file, use_file, cached_entry = _GROUP_FILES[kind]
    limit, use = (_read(folder / name).strip() for name in (limit_file, use_file))
    if limit.isdecimal() and use.isdecimal():
        entries = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
        yield int(limit) - int(use) + int(entries.get(cached_entry, 0))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
