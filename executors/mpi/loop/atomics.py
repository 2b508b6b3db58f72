"""Words that ranks of a node watch: read and written so that what they announce is there.

A release makes all that its thread did before visible to whoever reads the word by
an acquire; LLVM keeps both in order with every other access, on all processors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from collplan.executors.mpi.loop.calls import compiled, intrinsic

_WORD = ir.IntType(64)
_BYTES = 8


@intrinsic
def load_acquire(context: Any, address: Any) -> Any:
    """Return the word at an address; what comes later is not done before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.load_atomic(place, "acquire", _BYTES)

    return types.int64(types.int64), generate


@intrinsic
def store_release(context: Any, address: Any, value: Any) -> Any:
    """Write the word at an address; what came earlier has been done before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        builder.store_atomic(arguments[1], place, "release", _BYTES)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def fence(context: Any) -> Any:
    """Do all that comes earlier, for all to see, before anything that comes later."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@compiled
def read_word(address: int) -> int:
    """Call `load_acquire` from Python."""
    word: int = load_acquire(address)
    return word


@compiled
def write_word(address: int, value: int) -> None:
    """Call `store_release` from Python."""
    store_release(address, value)
