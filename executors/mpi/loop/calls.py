"""Primitives of compiled code: memory at addresses, C functions, words that threads share.

A release of a word makes everything that its thread did before visible to a thread that reads
the word by an acquire; LLVM keeps both in order with every other access, on all processors.
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

from collplan.planner.arrays.jit import compile_with

arrayobj: Any = numba.np.arrayobj
cgutils: Any = numba.core.cgutils

Ints = npt.NDArray[np.int32]

intrinsic: Any = extending.intrinsic
"""Its results are what the function generates, not what its signature says."""

inner = compile_with(is_inner=True, _nrt=False, error_model="numpy")
"""Compile into an entry point, without reference counts: nothing here allocates, as memory belongs
to the engine. Nothing raises, either: divisors are never 0."""

inlined = compile_with(is_inner=True, _nrt=False, error_model="numpy", forceinline=True)
"""The same, in place of every call."""


def emits(result: Any, *parameters: Any) -> Any:
    """Return a decorator for primitives of compiled code, written as LLVM's instructions.

    Parameters
    ----------
    result : numba type
        Type of what the primitive returns; one of type ``void`` returns None.
    *parameters : numba type
        Types of its parameters, whose values it gets after an LLVM builder.
    """

    def decorate(emit: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = emit(builder, *arguments)
            return context.get_dummy_value() if value is None else value

        # Numba leaves the first parameter out, and finds the others by what this wraps.
        return intrinsic(wraps(emit)(lambda *_: (result(*parameters), generate)))

    return decorate


@emits(types.voidptr, types.int64)
def pointer(builder: Any, address: Any) -> Any:
    """Return an address as ``void *``."""
    return builder.inttoptr(address, cgutils.voidptr_t)


def array_of(dtype: npt.DTypeLike) -> Any:
    """Return a primitive that makes arrays of n elements at an address, not counting references."""
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
"""Return the array of n numbers at an address."""


@intrinsic
def record_at(context: Any, address: Any, row: Any, dtype: Any) -> Any:
    """Return a row of the table of records at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        offset = builder.mul(arguments[1], arguments[1].type(dtype.dtype.size))
        place = builder.add(arguments[0], offset)
        return builder.inttoptr(place, context.get_value_type(dtype.dtype))

    return dtype.dtype(types.int64, types.int64, dtype), generate


@intrinsic
def call(context: Any, address: Any, arguments: Any) -> Any:
    """Call the C function at an address, which returns an int, with a tuple of arguments.

    A handle of MPI is passed as int64 whether it is a pointer or an int: calling
    conventions of 64-bit machines take an int from a register of 64 bits, and
    ours are sign-extended, which those ask for that care. So one machine code
    serves all MPIs, and nobody can load that of another from the cache.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        passed = cgutils.unpack_tuple(builder, values[1])
        function = ir.FunctionType(ir.IntType(32), [value.type for value in passed])
        return builder.call(builder.inttoptr(values[0], function.as_pointer()), passed)

    return types.int32(types.int64, arguments), generate


@emits(types.void, types.int64, types.int64, types.int64)
def move(builder: Any, target: Any, source: Any, n_bytes: Any) -> None:
    """Copy bytes as C's memmove does; a number known when compiling takes no call."""
    places = (builder.inttoptr(x, cgutils.voidptr_t) for x in (target, source))
    cgutils.raw_memmove(builder, *places, n_bytes, 1)


_WORD = ir.IntType(64).as_pointer()
_BYTES = 8


@emits(types.int64, types.int64)
def load_acquire(builder: Any, address: Any) -> Any:
    """Return the word at an address; what comes later is not done before."""
    return builder.load_atomic(builder.inttoptr(address, _WORD), "acquire", _BYTES)


@emits(types.void, types.int64, types.int64)
def store_release(builder: Any, address: Any, value: Any) -> None:
    """Write the word at an address; what came earlier has been done before."""
    builder.store_atomic(value, builder.inttoptr(address, _WORD), "release", _BYTES)


@emits(types.void)
def fence(builder: Any) -> None:
    """Do all that comes earlier, for all to see, before anything that comes later."""
    builder.fence("seq_cst")


@inner
def read_word(address: int) -> int:
    """Return the word at an address, by `load_acquire`."""
    word: int = load_acquire(address)
    return word


@inner
def write_word(address: int, value: int) -> int:
    """Write the word at an address, by `store_release`."""
    store_release(address, value)
    return value
