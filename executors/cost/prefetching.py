"""Prefetching: the simulator asks for rows that it will read soon, and goes on meanwhile.

The tables of a large plan do not fit in a processor's caches, and the next event is often at a
row that was not used for long. Most time of a simulation would be spent on waiting for memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from collplan.planner.arrays.jit import Kernel

N_RECENT: Final = 8
"""Number of sends after which rows are prefetched that depend on what a send prefetched."""


def _prefetch(records: Any, place: int) -> None:
    """Ask the processor for the first bytes of a row; nothing else changes.

    Parameters
    ----------
    records : ndarray of records
        A contiguous table.
    place : int
        A row of it; any number is allowed, as nothing is read.
    """


class _Instruction(Kernel):
    """A function of one instruction, which numba has no other name for."""

    @cached_property
    def dispatcher(self) -> Any:
        """The function that numba puts in place of a call."""
        import numba.core.cgutils
        from llvmlite import ir  # type: ignore[import-untyped]
        from numba.core import types
        from numba.extending import intrinsic

        cgutils: Any = numba.core.cgutils

        @intrinsic
        def prefetch(typing_context: Any, records: Any, place: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                table = context.make_array(records)(context, builder, arguments[0])
                index = context.cast(builder, arguments[1], place, types.intp)
                row = builder.gep(table.data, [index])
                pointer, word = cgutils.voidptr_t, ir.IntType(32)
                parts = [pointer, word, word, word]
                function = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(ir.VoidType(), parts), "llvm.prefetch.p0"
                )
                is_write, most_local, is_data = word(1), word(3), word(1)
                builder.call(
                    function, [builder.bitcast(row, pointer), is_write, most_local, is_data]
                )
                return context.get_dummy_value()

            return types.void(records, place), generate

        return prefetch

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        function, context = self.dispatcher, cpu_target.typing_context
        context.refresh()  # it looks for new functions when asked only
        return context.resolve_value_type(function)


prefetch: Final = _Instruction(_prefetch, {}, is_inner=True)
"""Ask the processor for the first bytes of a row (`_prefetch`)."""
