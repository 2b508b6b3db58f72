"""Numbers of 16 bits as processors without them compute: through those of 32, compiled.

Rounding is to nearest, ties to even, as IEEE 754 and numpy have it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from collplan.executors.mpi.loop.calls import intrinsic

_WORD = ir.IntType(32)
_FLOAT = ir.FloatType()
_HALF = ir.IntType(16)


@intrinsic
def widen(context: Any, half: Any) -> Any:
    """Return the float32 of a half's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.zext(arguments[0], _WORD)
        sign = builder.shl(builder.and_(bits, _WORD(0x8000)), _WORD(16))
        shifted = builder.shl(builder.and_(bits, _WORD(0x7FFF)), _WORD(13))
        # Exponents differ in their bias by 112; multiplying carries subnormals, too.
        scale = builder.bitcast(_WORD((127 + 112) << 23), _FLOAT)
        scaled = builder.fmul(builder.bitcast(shifted, _FLOAT), scale)
        is_special = builder.icmp_unsigned(">=", shifted, _WORD(0x7C00 << 13))
        special = builder.or_(shifted, _WORD(0xFF << 23))
        magnitude = builder.select(is_special, special, builder.bitcast(scaled, _WORD))
        return builder.bitcast(builder.or_(magnitude, sign), _FLOAT)

    return types.float32(types.uint16), generate


@intrinsic
def narrow(context: Any, value: Any) -> Any:
    """Return the bits of the half nearest to a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _WORD)
        sign = builder.and_(bits, _WORD(0x80000000))
        magnitude = builder.xor(bits, sign)
        # Adding a half unit of the last place, and the last place itself for ties.
        odd = builder.and_(builder.lshr(magnitude, _WORD(13)), _WORD(1))
        bias = _WORD((((15 - 127) << 23) + 0xFFF) & 0xFFFFFFFF)
        normal = builder.lshr(builder.add(builder.add(magnitude, bias), odd), _WORD(13))
        # The addition of 0.5 aligns a subnormal's last place with the float's, and rounds it.
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

    return types.uint16(types.float32), generate
