"""Kernels that interrupt themselves: run in a process of its own, as one that fails may crash."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

import numpy as np
from numba import types

from collplan.planner.machine_code.kernel import compile_at_once

_raise_signal: Any = types.ExternalFunction("raise", types.int32(types.int32))


@compile_at_once()
def interrupted_kernel(n: int) -> Any:
    """Interrupt the process, then return arrays."""
    _raise_signal(np.int32(2))
    return np.zeros(n), (np.ones(n), n)


def check_default() -> None:
    """Python's own handler raises, once the kernel has returned, and is there as before."""
    for _ in range(3):
        try:
            interrupted_kernel(3)
        except KeyboardInterrupt:
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        else:
            raise AssertionError("the interrupt is lost")


def check_own_handler() -> None:
    """A handler that returns gets its interrupt, and the kernel's result is not lost."""
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    zeros, (ones, n) = interrupted_kernel(3)
    assert (zeros.tolist(), ones.tolist(), n) == ([0.0] * 3, [1.0] * 3, 3)
    assert came == [signal.SIGINT]


def check_ignored() -> None:
    """Ignored signals stay ignored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert len(interrupted_kernel(2)[0]) == 2
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def check_thread() -> None:
    """In another thread the kernel returns, and the main thread is interrupted."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(interrupted_kernel(4)))
    try:
        thread.start()
        while thread.is_alive():
            time.sleep(0.01)
        time.sleep(10)
    except KeyboardInterrupt:
        thread.join()
        assert len(found[0][0]) == 4
    else:
        raise AssertionError("the interrupt is lost")


if __name__ == "__main__":
    {"default": check_default, "own handler": check_own_handler, "ignored": check_ignored,
     "thread": check_thread}[sys.argv[1]]()  # fmt: skip
    print("passed")
