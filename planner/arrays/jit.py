"""Kernels: functions with loops over arrays, compiled to machine code if this saves time.

Small calls run in Python (see `interpreted`). For other calls, numba is imported, which takes
longer than to plan and verify a small plan, and machine code is loaded or compiled (see
`machine_code`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any, Final

from collplan.planner.arrays.compile_time import getting_kernel
from collplan.planner.arrays.interpreted import Interpreted
from collplan.planner.memory import raise_for_memory

NUMBA_BYTES: Final = 1 << 29
"""Address space that numba reserves when it is loaded, in bytes."""


class Kernel:
    """A function that runs in Python while that takes less time than to get its machine code.

    Parameters
    ----------
    function : function
        Function in plain Python and numpy, which may call other kernels.
    options : dict
        Options of numba's ``njit``.
    is_inner : bool
        Whether only other kernels call the function. It is then compiled as a part of these.
    work : callable, optional
        Number of steps of a call, from its arguments; by default, it is the number of elements of
        their arrays.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        is_inner: bool,
        work: Callable[..., int] | None = None,
    ) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self._options, self.is_inner, self._work = options, is_inner, work
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Call the function, in Python or as machine code, with the same result."""
        if self._compiled is None:
            if self.is_inner:
                raise TypeError(
                    f"only kernels can call {self.py_func.__name__}, which is part of them"
                )
            n_steps = None if self._work is None else self._work(*arguments)
            if self._interpreted.has_time_for(arguments, self, n_steps):
                try:
                    return self._interpreted(*arguments)
                except ArithmeticError:
                    pass  # a number does not fit in 64 bits; no argument has changed
            self._compiled = self.dispatcher
        return self._compiled(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's dispatcher, which compiles the function."""
        with getting_kernel():
            try:
                from collplan.planner.arrays.machine_code import dispatcher_of
            except (ImportError, OSError, MemoryError) as error:
                raise_for_memory(NUMBA_BYTES, "numba", error)
                raise
            return dispatcher_of(self.py_func, self._options, is_inner=self.is_inner)

    @property
    def has_code(self) -> bool:
        """Return whether machine code exists, in this process or in a cache of earlier ones."""
        from collplan.planner.arrays.machine_code import has_code

        return has_code(self.dispatcher)

    @property
    def kept(self) -> Any:
        """Cached machine code of the function; None if no folder for it is writable."""
        return self.dispatcher.kept

    @property
    def _numba_type_(self) -> Any:
        """Type of the function in numba, for calls by other kernels."""
        return self.dispatcher._numba_type_

    @cached_property
    def _interpreted(self) -> Interpreted:
        return Interpreted(self.py_func)


def compile_with(
    *, is_inner: bool = False, work: Callable[..., int] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Kernel]:
    """Return a decorator that makes a kernel with these options; see `Kernel`."""
    return lambda function: Kernel(function, options, is_inner, work)


compiled = compile_with()
"""Decorator for kernels."""
inner = compile_with(is_inner=True)
"""Decorator for functions that only kernels call."""
