"""Functions of the caller that the computations of a program call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_int, c_int64
from dataclasses import replace
from typing import Any

import numpy as np

from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.program.program import Program
from collplan.planner.plan.plan import Op, Plan
from collplan.specs.errors import show_value, suggest

Functions = Mapping[str, Callable[[], object] | int]
"""By the name of a step: a function of Python, or the address of a C function."""


class Computations:
    """The functions of a program's computations as C functions, which the compiled loop calls.

    Parameters
    ----------
    plan : Plan
        Plan of a program.
    functions : mapping of str to callable or int
        For some steps that compute, by name: a function without parameters; or the address of a C
        function ``int f(long)``, whose argument has no meaning, and which returns 0 for success.

    Raises
    ------
    BindError
        If a name is not that of a step that computes, or a value is no function.
    """

    def __init__(self, plan: Plan, functions: Functions) -> None:
        steps = () if plan.program is None else plan.program.steps
        names = [step.name for step in steps if step.compute is not None]
        if not isinstance(functions, Mapping):
            raise BindError(
                f"computations is {show_value(functions)}; give a mapping of names to functions"
            )
        for name, function in functions.items():
            if name not in names:
                raise BindError(
                    f"computations names {show_value(name)}, which is no step that computes; "
                    f"{suggest(str(name), names)}the plan has {', '.join(names) or 'none'}"
                )
            if not callable(function) and type(function) is not int:
                raise BindError(
                    f"computations: {name} is {show_value(function)}; give a function, or the "
                    "address of a C function"
                )
        self._error: BaseException | None = None
        self._kept: list[Any] = []
        self._addresses = {name: self._address_of(one) for name, one in functions.items()}

    def set_in(self, program: Program, plan: Plan) -> Program:
        """Return a rank's program whose COMPUTE tasks call the functions."""
        if not self._addresses:
            return program
        of_phase = [self._addresses.get(phase.step, 0) for phase in plan.phases]
        function = np.array(of_phase, dtype=np.int64)[plan.phase[program.row]]
        return replace(program, function=np.where(program.op == Op.COMPUTE, function, 0))

    def take_error(self) -> BaseException:
        """Return and clear the error that a function has raised."""
        error, self._error = self._error, None
        return error or BindError("a C function of computations returned an error")

    def _address_of(self, function: Callable[[], object] | int) -> int:
        if isinstance(function, int):
            return function

        def call(_: int) -> int:
            # An exception cannot pass through the loop, so it is raised after the loop.
            try:
                function()
            except BaseException as error:
                self._error = error
                return 1
            return 0

        made = ctypes.CFUNCTYPE(c_int, c_int64)(call)
        self._kept.append(made)
        return int(ctypes.cast(made, ctypes.c_void_p).value or 0)
