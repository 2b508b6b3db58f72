"""Predefined operations of reductions, compiled for each type of elements.

Results are equal to those of numpy. Operations are plain functions of two numbers, or of two
operands and a result that are structs. Operations on float16 convert to float32 and back, rounding
to nearest with ties to even, like IEEE 754 and numpy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from collplan.executors.mpi.loop.calls import array_of, emits, inner

Combine = Callable[..., Any]

_WORD = ir.IntType(32)
_FLOAT = ir.FloatType()
_HALF = ir.IntType(16)


@emits(types.float32, types.uint16)
def widen(builder: Any, half: Any) -> Any:
    """Return the float32 number of a float16 number, which is given by its bits."""
    bits = builder.zext(half, _WORD)
    sign = builder.shl(builder.and_(bits, _WORD(0x8000)), _WORD(16))
    shifted = builder.shl(builder.and_(bits, _WORD(0x7FFF)), _WORD(13))
    # The biases of the exponents differ by 112. A multiplication is also right for subnormals.
    scale = builder.bitcast(_WORD((127 + 112) << 23), _FLOAT)
    scaled = builder.fmul(builder.bitcast(shifted, _FLOAT), scale)
    is_special = builder.icmp_unsigned(">=", shifted, _WORD(0x7C00 << 13))
    special = builder.or_(shifted, _WORD(0xFF << 23))
    magnitude = builder.select(is_special, special, builder.bitcast(scaled, _WORD))
    return builder.bitcast(builder.or_(magnitude, sign), _FLOAT)


@emits(types.uint16, types.float32)
def narrow(builder: Any, value: Any) -> Any:
    """Return the bits of the float16 number nearest to a float32 number."""
    bits = builder.bitcast(value, _WORD)
    sign = builder.and_(bits, _WORD(0x80000000))
    magnitude = builder.xor(bits, sign)
    # Round by adding half a unit in the last place, and the last bit for ties.
    odd = builder.and_(builder.lshr(magnitude, _WORD(13)), _WORD(1))
    bias = _WORD((((15 - 127) << 23) + 0xFFF) & 0xFFFFFFFF)
    normal = builder.lshr(builder.add(builder.add(magnitude, bias), odd), _WORD(13))
    # For subnormals, adding 0.5 aligns the last place with that of the float32, and rounds.
    half_one = builder.bitcast(_WORD(0x3F000000), _FLOAT)
    aligned = builder.fadd(builder.bitcast(magnitude, _FLOAT), half_one)
    subnormal = builder.sub(builder.bitcast(aligned, _WORD), _WORD(0x3F000000))
    is_nan = builder.icmp_unsigned(">", magnitude, _WORD(0x7F800000))
    special = builder.select(is_nan, _WORD(0x7E00), _WORD(0x7C00))
    is_small = builder.icmp_unsigned("<", magnitude, _WORD(113 << 23))
    is_large = builder.icmp_unsigned(">=", magnitude, _WORD(143 << 23))
    finite = builder.select(is_small, subnormal, normal)
    result = builder.select(is_large, special, finite)
    signed = builder.or_(result, builder.lshr(sign, _WORD(16)))
    return builder.trunc(signed, _HALF)


# If an operand of the following comparisons is NaN, so is the result; if both are, it is the left.


@inner
def minimum(a: Any, b: Any) -> Any:
    return a if a <= b or a != a else b


@inner
def maximum(a: Any, b: Any) -> Any:
    return a if a >= b or a != a else b


@inner
def complex_minimum(a: Any, b: Any) -> Any:
    x, y = a.real, b.real
    is_less = (x < y and a.imag == a.imag and b.imag == b.imag) or (x == y and a.imag <= b.imag)
    return a if is_less or a != a else b


@inner
def complex_maximum(a: Any, b: Any) -> Any:
    x, y = a.real, b.real
    is_more = (x > y and a.imag == a.imag and b.imag == b.imag) or (x == y and a.imag >= b.imag)
    return a if is_more or a != a else b


@inner
def logical_and(a: Any, b: Any) -> Any:
    return (a != 0) & (b != 0)


@inner
def logical_or(a: Any, b: Any) -> Any:
    return (a != 0) | (b != 0)


@inner
def logical_xor(a: Any, b: Any) -> Any:
    return (a != 0) ^ (b != 0)


@inner
def half_magnitude(a: Any) -> Any:
    return a & 0x7FFF


@inner
def half_minimum(a: Any, b: Any) -> Any:
    x = widen(a)
    return a if x <= widen(b) or x != x else b


@inner
def half_maximum(a: Any, b: Any) -> Any:
    x = widen(a)
    return a if x >= widen(b) or x != x else b


def _on_halves(combine: Combine, read: Combine) -> Combine:
    """Return a function of the bits of two float16 numbers, which `read` converts to operands."""

    @inner
    def combine_halves(a: Any, b: Any) -> Any:
        return narrow(np.float32(combine(read(a), read(b))))

    return combine_halves


def _locating(extreme: Combine) -> Combine:
    """Return a function that writes an extreme value, or NaN, and the lowest index that has it."""

    @inner
    def locate(left: Any, right: Any, out: Any) -> None:
        value = extreme(left.value, right.value)
        in_left = left.value == value or left.value != left.value
        in_right = right.value == value or right.value != right.value
        index = left.index if in_left else right.index
        if in_left and in_right and right.index < index:
            index = right.index
        out.index = index
        out.value = value

    return locate


_ORDERED: Final[dict[str, Combine]] = {
    "sum": operator.add,
    "prod": operator.mul,
    "min": minimum,
    "max": maximum,
    "land": logical_and,
    "lor": logical_or,
    "lxor": logical_xor,
}
_BITWISE: Final[dict[str, Combine]] = {
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
}
BY_KIND: Final[dict[str, dict[str, Combine]]] = {
    "i": _ORDERED | _BITWISE,
    "u": _ORDERED | _BITWISE,
    "f": _ORDERED,
    "c": _ORDERED | {"min": complex_minimum, "max": complex_maximum},
    # Booleans are bytes that are 0 or 1. Sums and products of booleans are logical in numpy.
    "b": {
        **dict.fromkeys(("sum", "max", "lor", "bor"), logical_or),
        **dict.fromkeys(("prod", "min", "land", "band"), logical_and),
        **dict.fromkeys(("lxor", "bxor"), logical_xor),
    },
}
"""Functions by kind of numpy dtype and name of the operation."""
HALF: Final[dict[str, Combine]] = {
    **{name: _on_halves(_ORDERED[name], widen) for name in ("sum", "prod")},
    **{name: _on_halves(_ORDERED[name], half_magnitude) for name in ("land", "lor", "lxor")},
    "min": half_minimum,
    "max": half_maximum,
}
"""Functions of the bits of float16 numbers, by name of the operation."""
ON_PAIRS: Final[dict[str, Combine]] = {"minloc": _locating(minimum), "maxloc": _locating(maximum)}
"""Functions of structs of a value and an index, by name. They write their results."""


def combine_of(name: str, dtype: np.dtype[Any]) -> Combine:
    """Return the function of elements for a predefined operation that has machine code."""
    if dtype.names is not None:
        return ON_PAIRS[name]
    functions = HALF if dtype == np.float16 else BY_KIND[dtype.kind]
    return functions[name]


def reduction_of(combine: Combine, dtype: np.dtype[Any]) -> Callable[..., int]:
    """Return a function of arrays of elements, see `reduction_address`.

    The function has separate loops for results at the address of an operand. If two arrays had
    equal addresses, the checks before a vectorized loop would fail. Such an operand and the result
    are therefore one array. For structs, `combine` reads both operands before it writes the result.
    """
    is_struct, elements = dtype.names is not None, array_of(dtype)

    def reduce(
        left: int,
        right: int,
        out: int,
        n: int,
        n_rows: int,
        left_stride: int,
        right_stride: int,
        out_stride: int,
    ) -> int:
        if n == 1 and not is_struct:
            for row in range(n_rows):
                a = elements(left + row * left_stride, 1)
                b = elements(right + row * right_stride, 1)
                c = elements(out + row * out_stride, 1)
                c[0] = combine(a[0], b[0])
            return 0
        for row in range(n_rows):
            a = elements(left + row * left_stride, n)
            b = elements(right + row * right_stride, n)
            c = elements(out + row * out_stride, n)
            if is_struct:
                for i in range(n):
                    combine(a[i], b[i], c[i])
            elif left == out and left_stride == out_stride:
                for i in range(n):
                    c[i] = combine(c[i], b[i])
            elif right == out and right_stride == out_stride:
                for i in range(n):
                    c[i] = combine(a[i], c[i])
            else:
                for i in range(n):
                    c[i] = combine(a[i], b[i])
        return 0

    return reduce
