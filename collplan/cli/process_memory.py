"""Memory of our own process."""

from __future__ import annotations

import contextlib
import ctypes
import sys

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
GIBIBYTE = 1 << 30


def keep_freed_memory() -> None:
    """Make glibc keep freed blocks up to 1 GiB for later arrays; do nothing elsewhere.

    Large plans are made of many arrays of tens of megabytes. Mapped and
    unmapped one by one, each pays for its page faults anew, which costs more
    than the work on it. A setting of the whole process: for programs of our
    own, not for a library inside somebody else's.
    """
    if not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, GIBIBYTE)
        libc.mallopt(M_TRIM_THRESHOLD, 2 * GIBIBYTE - 1)
