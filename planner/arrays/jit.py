"""Kernels: functions with loops over arrays, which become machine code when that is worth it.

Small calls run in Python (`interpreted`). The others import numba, which takes longer than
planning and proving a small plan, and load machine code or compile it (`machine_code`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Final

from collplan.planner.arrays.compile_time import getting_kernel
from collplan.planner.arrays.interpreted import Interpreted
from collplan.planner.memory import raise_for_memory

NUMBA_BYTES: Final = 1 << 29
"""Address space that numba takes when it is loaded."""


class Kernel:
    """A function that is interpreted until its machine code is worth the time to get it.

    Parameters
    ----------
    function : function
        Plain Python and numpy, and calls of other kernels.
    options : dict
        Options of numba's ``njit``.
    is_inner : bool
        Whether nothing but other kernels calls it. It is compiled as a part of these.
    """

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], is_inner: bool
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options, self.is_inner = options, is_inner
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, in Python or as machine code: the result is the same."""
        if self._compiled is None:
            if self.is_inner:
                raise TypeError(
                    f"only kernels can call {self.py_func.__name__}, which is part of them"
                )
            if self._interpreted.has_time_for(arguments, self):
                try:
                    return self._interpreted(*arguments)
                except ArithmeticError:
                    pass  # a number does not fit in 64 bits; nothing has changed
            self._compiled = self.dispatcher
        return self._compiled(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's function, of which machine code is made."""
        with getting_kernel():
            try:
                from collplan.planner.arrays.machine_code import dispatcher_of
            except (ImportError, OSError, MemoryError) as error:
                raise_for_memory(NUMBA_BYTES, "numba", error)
                raise
            return dispatcher_of(self.py_func, self._options, is_inner=self.is_inner)

    @property
    def has_code(self) -> bool:
        """Return whether there is machine code, in this process or kept from earlier ones."""
        from collplan.planner.arrays.machine_code import has_code

        return has_code(self.dispatcher)

    @property
    def _numba_type_(self) -> Any:
        """The type that numba takes this for where another kernel calls it."""
        return self.dispatcher._numba_type_

    @cached_property
    def _interpreted(self) -> Interpreted:
        return Interpreted(self.py_func)


def compile_with(
    *, is_inner: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a kernel with these options; see `Kernel`."""
    return lambda function: Kernel(function, options, is_inner)


compiled = compile_with()
"""Decorator for kernels."""
inner = compile_with(is_inner=True)
"""Decorator for functions that only kernels call."""
