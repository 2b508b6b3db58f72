"""Prefetching of table rows that the simulator will read soon.

The tables of a large plan do not fit in the caches of a processor, and the next event often uses
a row that has not been used for a long time. Without prefetching, a simulation would spend most
of its time waiting for memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from collplan.planner.machine_code.kernel import Kernel

N_RECENT: Final = 8
"""Number of sends between the two prefetches for a send: its rows, and the rows they refer to."""


def _prefetch(records: Any, place: int) -> None:
    """Prefetch the first cache line of a row, which has no effect on results.

    Parameters
    ----------
    records : ndarray of records
        Contiguous table.
    place : int
        Index of a row; any number is allowed, as nothing is read.
    """


class _Instruction(Kernel):
    """A function that numba replaces by a single instruction of the processor."""

    @cached_property
    def dispatcher(self) -> Any:
        """Intrinsic that generates the code of a call."""
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
        context.refresh()  # numba looks for new functions only on request
        return context.resolve_value_type(function)


prefetch: Final = _Instruction(_prefetch, {}, is_inner=True)
"""Prefetch the first cache line of a row; see `_prefetch`."""
