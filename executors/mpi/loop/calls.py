"""Primitives of compiled code: memory at addresses, C functions, and words shared by threads.

All memory accesses of a thread before it stores a word with release order are visible to a thread
that loads the word with acquire order. LLVM preserves this order on all processors.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import numba.core.cgutils
import numba.np.arrayobj
import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types

from collplan.planner.machine_code.kernel import compile_with

arrayobj: Any = numba.np.arrayobj
cgutils: Any = numba.core.cgutils

Ints = npt.NDArray[np.int32]

intrinsic: Any = extending.intrinsic
"""Decorator of primitives. Its type is `Any`, because numba replaces the return value."""

inner = compile_with(is_inner=True, _nrt=False, error_model="numpy")
"""Compile as part of an entry point, without reference counts and exceptions.

No function allocates memory, because the engine owns all memory. Divisors are never 0.
"""

inlined = compile_with(is_inner=True, _nrt=False, error_model="numpy", forceinline=True)
"""Compile like `inner`, and inline every call."""


def emits(result: Any, *parameters: Any) -> Any:
    """Return a decorator for primitives of compiled code that consist of LLVM instructions.

    Parameters
    ----------
    result : numba type
        Type of the result. For ``void``, the primitive returns None.
    *parameters : numba type
        Types of the parameters. The primitive gets an LLVM builder and their values.
    """

    def decorate(emit: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = emit(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        # Numba ignores the first parameter, and takes the others from the wrapped function.
        return intrinsic(wraps(emit)(lambda *_: (result(*parameters), generate)))

    return decorate


@emits(types.voidptr, types.int64)
def pointer(builder: Any, address: Any) -> Any:
    """Return an address as ``void *``."""
    return builder.inttoptr(address, cgutils.voidptr_t)


def array_of(dtype: npt.DTypeLike) -> Any:
    """Return a primitive for arrays of n elements at an address, without reference counts."""
    kind = types.Array(numba.from_dtype(np.dtype(dtype)), 1, "C")

    @intrinsic
    def array(context: Any, address: Any, n: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            made = arrayobj.make_array(kind)(context, builder)
            data = builder.inttoptr(arguments[0], made.data.type)
            itemsize = context.get_constant(types.intp, np.dtype(dtype).itemsize)
            arrayobj.populate_array(made, data, arguments[1:], [itemsize], itemsize, meminfo=None)
            return made._getvalue()

        return kind(types.int64, types.int64), generate

    return array


ints, longs = array_of(np.int32), array_of(np.int64)
"""Return the array of n integers at an address."""


@intrinsic
def record_at(context: Any, address: Any, row: Any, dtype: Any) -> Any:
    """Return a row of a table of records at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offset = builder.mul(arguments[1], arguments[1].type(dtype.dtype.size))
        place = builder.add(arguments[0], offset)
        return builder.inttoptr(place, context.get_value_type(dtype.dtype))

    return dtype.dtype(types.int64, types.int64, dtype), generate


@intrinsic
def call(context: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at an address, which returns an int, with a tuple of arguments.

    A handle of MPI is passed as int64, whether it is a pointer or an int. Calling conventions of
    64-bit machines pass an int in a 64-bit register, and handles are sign-extended, as some of them
    require. Therefore the same machine code works with all MPIs, and the cache has one version.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        passed = cgutils.unpack_tuple(builder, values[1])
        function = ir.FunctionType(ir.IntType(32), [value.type for value in passed])
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), passed)

    return types.int32(types.int64, arguments), generate


@emits(types.void, types.int64, types.int64, types.int64)
def move(builder: Any, target: Any, source: Any, n_bytes: Any) -> None:
    """Copy bytes like C's memmove, without a function call if their number is a constant."""
    places = (builder.inttoptr(x, cgutils.voidptr_t) for x in (target, source))
    cgutils.raw_memmove(builder, *places, n_bytes, 1)


_WORD = ir.IntType(64).as_pointer()
_BYTES = 8


@emits(types.int64, types.int64)
def load_acquire(builder: Any, address: Any) -> Any:
    """Load the word at an address with acquire order: later accesses are not moved before it."""
    return builder.load_atomic(builder.inttoptr(address, _WORD), "acquire", _BYTES)


@emits(types.void, types.int64, types.int64)
def store_release(builder: Any, address: Any, value: Any) -> None:
    """Store the word at an address with release order: earlier accesses are done before it."""
    builder.store_atomic(value, builder.inttoptr(address, _WORD), "release", _BYTES)


@emits(types.void)
def fence(builder: Any) -> None:
    """Complete all earlier accesses, visible to all threads, before any later access."""
    builder.fence("seq_cst")


@inner
def read_word(address: int) -> int:
    """Load the word at an address with `load_acquire`."""
    word: int = load_acquire(address)
    return word


@inner
def write_word(address: int, value: int) -> int:
    """Store the word at an address with `store_release`, and return it."""
    store_release(address, value)
    return value
