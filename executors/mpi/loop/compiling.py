"""Compilation of entry points by numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.core.cgutils
import numba.core.compiler_lock
import numba.core.sigutils
import numba.types
from llvmlite import binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir

from collplan.executors.mpi.loop.calls import emits
from collplan.planner.arrays.machine_code import dispatcher_of

Function = Callable[..., Any]
core: Any = numba.core
types: Any = numba.types


@core.compiler_lock.global_compiler_lock
def compile_object(symbol: str, function: Function, signature: str) -> bytes:
    """Compile a function to a position-independent object file, which does not need numba.

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
    compiler = dispatcher_of(function, options, is_inner=True)._compiler
    compiled = compiler.compile(arguments, result)
    context, called = compiled.target_context, compiled.fndesc
    types_of = [context.get_value_type(one) for one in (result, *arguments)]
    module = context.create_module(symbol)
    outer = ir.Function(module, ir.FunctionType(types_of[0], types_of[1:]), symbol)
    inner_type = context.call_conv.get_function_type(result, arguments)
    inner = ir.Function(module, inner_type, called.llvm_func_name)
    builder = ir.IRBuilder(outer.append_basic_block())
    _, found = context.call_conv.call_function(builder, inner, result, arguments, outer.args)
    builder.ret(found)
    compiled.library.add_ir_module(module)
    compiled.library.finalize()
    return _position_independent(compiled.library)


def _position_independent(library: Any) -> bytes:
    """Return position-independent code of a library of numba, for this processor."""
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        reloc="pic",
        codemodel="small",
    )
    code: bytes = machine.emit_object(llvm.parse_bitcode(library._final_module.as_bitcode()))
    return code


_WORD = ir.IntType(64)
_save = types.ExternalFunction("PyEval_SaveThread", types.int64())
_restore = types.ExternalFunction("PyEval_RestoreThread", types.void(types.int64))
_box = types.ExternalFunction("PyLong_FromLongLong", types.int64(types.int64))


def for_python(function: Any, n_arguments: int, *, releases_lock: bool) -> Function:
    """Return a C function with which Python can call a kernel of integers.

    It has the parameters of ``METH_FASTCALL``: a module, the address of an array of Python objects,
    and their number. It returns a Python object.

    Parameters
    ----------
    function : kernel
    n_arguments : int
    releases_lock : bool
        Whether the call releases the GIL, so that other threads of Python can run.
    """
    unbox = _unboxing(n_arguments)

    def called(module: int, arguments: int, n: int) -> Any:
        numbers = unbox(arguments)
        thread = _save() if releases_lock else 0
        found = types.int64(function(*numbers))
        if releases_lock:
            _restore(thread)
        return _box(found)

    return called


def _unboxing(n: int) -> Any:
    """Return a primitive that converts the n Python integers at an address to numbers."""

    @emits(types.UniTuple(types.int64, n), types.int64)
    def unbox(builder: Any, address: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD])
        convert = core.cgutils.get_or_insert_function(builder.module, kind, "PyLong_AsLongLong")
        objects = builder.inttoptr(address, _WORD.as_pointer())
        numbers = ir.Constant(ir.ArrayType(_WORD, n), ir.Undefined)
        for i in range(n):
            number = builder.call(convert, [builder.load(builder.gep(objects, [_WORD(i)]))])
            numbers = builder.insert_value(numbers, number, i)
        return numbers

    return unbox
