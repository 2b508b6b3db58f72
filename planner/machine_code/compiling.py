"""Compilation of kernels by numba to object files, which other processes load without numba.

This module imports numba, which takes some tenths of a second. It is imported only if machine code
is missing in the cache (see `object_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numba.core.cgutils
import numba.core.compiler_lock
import numba.core.dispatcher
import numba.core.registry
import numba.core.runtime
import numba.core.sigutils
from llvmlite import binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir

from collplan.planner.machine_code.boxing import (
    FAST_CALL,
    OBJECT,
    WORD,
    c_function,
    define_memory,
    of_result,
    to_value,
)

Function = Callable[..., Any]
core: Any = numba.core


class _Compiler(core.dispatcher._FunctionCompiler):  # type: ignore[misc]
    """A compiler that generates neither machine code nor wrappers for calls from Python."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return flags


class _Dispatcher(numba.core.registry.CPUDispatcher):
    """A function that is a part of the kernels that call it, and is optimized with them."""

    def add_overload(self, found: Any) -> None:
        """Register a compiled overload under a key of its own."""

        def end_without_code() -> None:
            found.library._finalized = True

        # Without this, numba would optimize the function again in each function that calls it.
        found.library._optimize_final_module = lambda: None
        found.library._finalize_final_module = end_without_code
        key = object()
        found.target_context.insert_user_function(key, found.fndesc, [found.library])
        self.overloads[tuple(found.signature.args)] = found._replace(entry_point=key)


def dispatcher_of(function: Function, options: dict[str, Any]) -> Any:
    """Return numba's dispatcher for a function, which other compiled functions call.

    Parameters
    ----------
    function : function
        Function to compile. It is compiled as a part of those that call it, in half the time that
        machine code of its own would take.
    options : dict
        Options of numba's ``njit``.
    """
    dispatcher: Any = numba.njit(**options)(function)
    dispatcher.__class__ = _Dispatcher
    dispatcher._compiler.__class__ = _Compiler
    return dispatcher


@core.compiler_lock.global_compiler_lock
def compile_for_c(symbol: str, function: Function, signature: str) -> bytes:
    """Compile a function to a position-independent object file, for calls by C.

    Parameters
    ----------
    symbol : str
        Name of the C function.
    function : callable
        Function to compile. It must not raise exceptions, because they would be ignored.
    signature : str
        Numba signature of the C function.

    Returns
    -------
    bytes
        Content of the object file.
    """
    arguments, result = core.sigutils.normalize_signature(signature)
    options = {"_nrt": False, "error_model": "numpy"}
    made = _Made(symbol, dispatcher_of(function, options), arguments, result)
    kinds = [made.context.get_value_type(one) for one in (result, *arguments)]
    builder = made.begin(ir.FunctionType(kinds[0], kinds[1:]))
    _, found = made.call(builder, builder.function.args)
    builder.ret(found)
    return made.code()


_save = ("PyEval_SaveThread", OBJECT)
_restore = ("PyEval_RestoreThread", ir.VoidType(), OBJECT)


@core.compiler_lock.global_compiler_lock
def compile_for_python(
    symbol: str, dispatcher: Any, arguments: Sequence[Any], *, releases_lock: bool = False
) -> bytes:
    """Compile a function to a position-independent object file, for calls by Python.

    Parameters
    ----------
    symbol : str
        Name of the C function, which has the parameters of ``METH_FASTCALL``.
    dispatcher : numba dispatcher
        Function to compile. If it raises an exception, other than a MemoryError, the result is a
        string, for which `kernel.made` raises an ArithmeticError.
    arguments : sequence of numba type
    releases_lock : bool
        Whether a call releases the GIL, so that other threads of Python can run. The function then
        creates no arrays.

    Returns
    -------
    bytes
        Content of the object file.
    """
    made = _Made(symbol, dispatcher, tuple(arguments), None)
    builder = made.begin(FAST_CALL)
    things = builder.function.args[1]
    values = [
        to_value(made.context, builder, kind, builder.load(builder.gep(things, [WORD(i)])))
        for i, kind in enumerate(arguments)
    ]
    has_failed = c_function(builder, "PyErr_Occurred", OBJECT)
    with builder.if_then(_is_set(builder, builder.call(has_failed, []))):
        builder.ret(OBJECT(None))  # a number does not fit
    thread = builder.call(c_function(builder, *_save), []) if releases_lock else None
    status, found = made.call(builder, values)
    if releases_lock:
        builder.call(c_function(builder, *_restore), [thread])
    with builder.if_then(status.is_error):
        with builder.if_then(_is_set(builder, builder.call(has_failed, []))):
            builder.ret(OBJECT(None))
        said = made.context.insert_const_string(builder.module, f"{symbol} has raised an exception")
        make = c_function(builder, "PyUnicode_FromString", OBJECT, OBJECT)
        builder.ret(builder.call(make, [said]))
    builder.ret(of_result(made.context, builder, made.result, found))
    define_memory(builder.module)
    return made.code()


def _is_set(builder: Any, pointer: Any) -> Any:
    return builder.not_(core.cgutils.is_null(builder, pointer))


class _Made:
    """A compiled function, and another function of C that calls it."""

    def __init__(self, symbol: str, dispatcher: Any, arguments: Any, result: Any) -> None:
        self._compiled = compiled = dispatcher._compiler.compile(arguments, result)
        self._symbol, self.context = symbol, compiled.target_context
        self._arguments, self.result = arguments, compiled.signature.return_type
        self._module = self.context.create_module(symbol)

    def begin(self, kind: Any) -> Any:
        """Return a builder of the function of C of this type."""
        outer = ir.Function(self._module, kind, self._symbol)
        return ir.IRBuilder(outer.append_basic_block())

    def call(self, builder: Any, values: Sequence[Any]) -> Any:
        """Call the compiled function; return its status and its result."""
        convention, name = self.context.call_conv, self._compiled.fndesc.llvm_func_name
        kind = convention.get_function_type(self.result, self._arguments)
        inner = ir.Function(self._module, kind, name)
        return convention.call_function(builder, inner, self.result, self._arguments, values)

    def code(self) -> bytes:
        """Return position-independent code of both functions, for this processor or numba's."""
        library = self._compiled.library
        library.add_ir_module(self._module)
        library.finalize()
        for function in library._final_module.functions:
            if function.is_declaration and function.name.startswith(("NRT_", "numba_")):
                raise TypeError(f"{self._symbol} needs {function.name} of numba")
        target = llvm.Target.from_default_triple()
        cpu = core.config.CPU_NAME
        machine = target.create_target_machine(
            cpu=cpu or llvm.get_host_cpu_name(),
            features="" if cpu else llvm.get_host_cpu_features().flatten(),
            opt=3,
            reloc="pic",
            codemodel="small",
        )
        code: bytes = machine.emit_object(llvm.parse_bitcode(library._final_module.as_bitcode()))
        return code
