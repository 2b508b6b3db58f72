"""Calls of machine code by Python: objects to values of numba, and results to objects.

A function for Python has the parameters of ``METH_FASTCALL``: a module, the address of an array of
Python objects, and their number. It reads the fields of numpy's arrays and of tuples itself, so
that a call needs no numba. Arrays that a function creates are
parts of a ``bytearray``, which its result names (see `of_result`).
"""

from __future__ import annotations

from typing import Any, Final

import numba.core.cgutils
import numba.np.arrayobj
import numba.types
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]

types: Any = numba.types
cgutils: Any = numba.core.cgutils
arrayobj: Any = numba.np.arrayobj

WORD: Final = ir.IntType(64)
OBJECT: Final = ir.IntType(8).as_pointer()
_INT: Final = ir.IntType(32)
FAST_CALL: Final = ir.FunctionType(OBJECT, [OBJECT, OBJECT.as_pointer(), WORD])

_TUPLE_ITEMS: Final = tuple.__basicsize__
"""Offset of the first item in a tuple."""
_DATA: Final = object.__basicsize__
_SHAPE, _STRIDES = _DATA + 16, _DATA + 24
"""Offsets of pointers in numpy's ``PyArrayObject``, whose first fields are part of its ABI."""
_MEMORY_BYTES: Final = 48
"""Size of numba's description of memory: references, destructor, its argument, data, size, and
the functions that allocate."""
_ALIGNMENT: Final = 16
"""Alignment of the memory of arrays for which numba asks for none, in bytes."""
_OWNER, _DATA_OF_MEMORY = 16, 24
"""Offsets in it of the destructor's argument, here the ``bytearray``, and of the data."""


def c_function(builder: Any, name: str, result: Any, *parameters: Any, more: bool = False) -> Any:
    """Return a C function of Python, by name.

    Parameters
    ----------
    builder : IRBuilder
    name : str
    result, *parameters : LLVM type
    more : bool
        Whether it takes any further arguments, as ``printf`` does.
    """
    kind = ir.FunctionType(result, parameters, var_arg=more)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _field(builder: Any, address: Any, offset: int, kind: Any) -> Any:
    """Load a field of an object."""
    place = builder.gep(address, [WORD(offset)])
    return builder.load(builder.bitcast(place, kind.as_pointer()))


def to_value(context: Any, builder: Any, kind: Any, thing: Any) -> Any:
    """Convert an object of Python to a value of a type of numba.

    Parameters
    ----------
    context, builder : numba's context and LLVM's builder
    kind : numba type
        An array, tuple, number, bool or none; the object is known to be one.
    thing : LLVM value
        Address of the object.
    """
    if isinstance(kind, types.Array):
        return _array(context, builder, kind, thing)
    if isinstance(kind, types.BaseTuple):
        items = builder.bitcast(builder.gep(thing, [WORD(_TUPLE_ITEMS)]), OBJECT.as_pointer())
        found = [builder.load(builder.gep(items, [WORD(i)])) for i in range(len(kind))]
        values = [to_value(context, builder, *one) for one in zip(kind, found, strict=True)]
        return context.make_tuple(builder, kind, values)
    if isinstance(kind, types.Float):
        number = _call(builder, "PyFloat_AsDouble", ir.DoubleType(), thing)
        return context.cast(builder, number, types.float64, kind)
    if isinstance(kind, types.Boolean):
        return builder.trunc(_call(builder, "PyObject_IsTrue", _INT, thing), ir.IntType(1))
    if isinstance(kind, types.Integer):
        number = _call(builder, "PyLong_AsLongLong", WORD, thing)
        return context.cast(builder, number, types.int64, kind)
    if kind == types.none:
        return context.get_dummy_value()
    raise TypeError(f"kernels take no arguments of type {kind}")


def _array(context: Any, builder: Any, kind: Any, thing: Any) -> Any:
    made = arrayobj.make_array(kind)(context, builder)
    words = WORD.as_pointer()
    sizes, steps = (_field(builder, thing, offset, words) for offset in (_SHAPE, _STRIDES))
    shape, strides = (
        [builder.load(builder.gep(one, [WORD(i)])) for i in range(kind.ndim)]
        for one in (sizes, steps)
    )
    itemsize = context.get_constant(types.intp, context.get_abi_sizeof(made.data.type.pointee))
    data = _field(builder, thing, _DATA, made.data.type)
    arrayobj.populate_array(made, data, shape, strides, itemsize, meminfo=None, parent=thing)
    return made._getvalue()


def of_result(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Convert a result to an object of Python, for `kernel.made`.

    An array becomes a list of its owner, which is a ``bytearray`` or an argument, its offset there,
    its shape, its strides and its dtype. A named tuple becomes a mapping of its class to a tuple.
    """
    if kind == types.none:
        form, parts = "", list[Any]()
    else:
        form, parts = _parts(context, builder, kind, value)
    build = c_function(builder, "Py_BuildValue", OBJECT, OBJECT, more=True)
    made = builder.call(build, [_text(context, builder, form), *parts])
    if context.enable_nrt:
        context.nrt.decref(builder, kind, value)
    return made


def _text(context: Any, builder: Any, text: str) -> Any:
    return builder.bitcast(context.insert_const_string(builder.module, text), OBJECT)


def _parts(context: Any, builder: Any, kind: Any, value: Any) -> tuple[str, list[Any]]:
    """Return the format and arguments of ``Py_BuildValue`` for a value."""
    if isinstance(kind, types.Array):
        return _parts_of_array(context, builder, kind, value)
    if isinstance(kind, types.BaseTuple):
        values = cgutils.unpack_tuple(builder, value)
        found = [_parts(context, builder, *one) for one in zip(kind, values, strict=True)]
        form = f"({''.join(form for form, _ in found)})"
        parts = [one for _, some in found for one in some]
        if not isinstance(kind, types.BaseNamedTuple):
            return form, parts
        named = kind.instance_class
        name = _text(context, builder, f"{named.__module__}:{named.__qualname__}")
        return f"{{s{form}}}", [name, *parts]
    if isinstance(kind, types.Float):
        return "d", [context.cast(builder, value, kind, types.float64)]
    if isinstance(kind, types.Boolean):
        return "N", [_call(builder, "PyBool_FromLong", OBJECT, builder.zext(value, WORD))]
    if isinstance(kind, types.Integer):
        wide = types.int64 if kind.signed else types.uint64
        return "L" if kind.signed else "K", [context.cast(builder, value, kind, wide)]
    raise TypeError(f"kernels return no values of type {kind}")


def _parts_of_array(context: Any, builder: Any, kind: Any, value: Any) -> tuple[str, list[Any]]:
    array = context.make_array(kind)(context, builder, value=value)
    owner, begin = (cgutils.alloca_once(builder, OBJECT) for _ in range(2))
    with builder.if_else(cgutils.is_null(builder, array.meminfo)) as (is_given, is_made):
        with is_given:
            builder.store(array.parent, owner)
            builder.store(_field(builder, array.parent, _DATA, OBJECT), begin)
        with is_made:
            memory = builder.bitcast(array.meminfo, OBJECT)
            builder.store(_field(builder, memory, _OWNER, OBJECT), owner)
            memory = _call(builder, "PyByteArray_AsString", OBJECT, builder.load(owner))
            builder.store(memory, begin)
    _call(builder, "Py_IncRef", ir.VoidType(), builder.load(owner))
    ends = builder.bitcast(array.data, OBJECT), builder.load(begin)
    offset = builder.sub(*(builder.ptrtoint(one, WORD) for one in ends))
    shape, strides = (cgutils.unpack_tuple(builder, one) for one in (array.shape, array.strides))
    dtype = _text(context, builder, numba.np.numpy_support.as_dtype(kind.dtype).str)
    form = f"[Nn({'n' * kind.ndim})({'n' * kind.ndim})s]"
    return form, [builder.load(owner), offset, *shape, *strides, dtype]


def define_memory(module: Any) -> None:
    """Define the functions with which code of numba allocates and frees memory, in its ABI.

    The memory of an array is that of a ``bytearray``, which begins with numba's description of it.
    That of a list is C's, as its size changes.
    """
    word, none, nothing = WORD, WORD(0), ir.VoidType()
    builder, size, align = _begin(module, "NRT_MemInfo_alloc_aligned", OBJECT, word, _INT)
    align = builder.zext(align, word)
    whole = builder.add(builder.add(size, align), word(_MEMORY_BYTES))
    owner = _call(builder, "PyByteArray_FromStringAndSize", OBJECT, OBJECT(None), whole)
    _return_if_null(builder, owner)
    memory = _call(builder, "PyByteArray_AsString", OBJECT, owner)
    end = builder.add(builder.ptrtoint(memory, word), word(_MEMORY_BYTES - 1))
    data = builder.and_(builder.add(end, align), builder.neg(align))
    _describe(builder, memory, none, builder.ptrtoint(owner, word), data, size)

    builder, size = _begin(module, "NRT_MemInfo_alloc", OBJECT, word)
    builder.ret(_call(builder, "NRT_MemInfo_alloc_aligned", OBJECT, size, _INT(_ALIGNMENT)))

    builder, size, destroy = _begin(module, "NRT_MemInfo_new_varsize_dtor", OBJECT, word, word)
    data = _call(builder, "malloc", OBJECT, size)
    _return_if_null(builder, data)
    memory = _call(builder, "malloc", OBJECT, word(_MEMORY_BYTES))
    _return_if_null(builder, memory)
    _describe(builder, memory, destroy, none, builder.ptrtoint(data, word), size)

    builder, memory, size = _begin(module, "NRT_MemInfo_varsize_realloc", OBJECT, OBJECT, word)
    data = _call(builder, "realloc", OBJECT, _field(builder, memory, _DATA_OF_MEMORY, OBJECT), size)
    _return_if_null(builder, data)
    _set_word(builder, memory, _DATA_OF_MEMORY, builder.ptrtoint(data, word))
    builder.ret(data)

    builder, memory = _begin(module, "NRT_MemInfo_call_dtor", nothing, OBJECT)
    owner = _field(builder, memory, _OWNER, OBJECT)
    with builder.if_else(cgutils.is_null(builder, owner)) as (is_list, is_array):
        with is_list:
            _call(builder, "free", nothing, _field(builder, memory, _DATA_OF_MEMORY, OBJECT))
            _call(builder, "free", nothing, memory)
        with is_array:
            _call(builder, "Py_DecRef", nothing, owner)
    builder.ret_void()

    builder, size = _begin(module, "NRT_Allocate", OBJECT, word)
    builder.ret(_call(builder, "malloc", OBJECT, size))
    builder, data = _begin(module, "NRT_Free", nothing, OBJECT)
    _call(builder, "free", nothing, data)
    builder.ret_void()


def _begin(module: Any, name: str, result: Any, *parameters: Any) -> list[Any]:
    """Return a builder of a function, and its arguments."""
    function = ir.Function(module, ir.FunctionType(result, parameters), name)
    return [ir.IRBuilder(function.append_basic_block()), *function.args]


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call a C function."""
    kinds = [one.type for one in arguments]
    return builder.call(c_function(builder, name, result, *kinds), arguments)


def _return_if_null(builder: Any, address: Any) -> None:
    with builder.if_then(cgutils.is_null(builder, address)):
        builder.ret(OBJECT(None))


def _describe(builder: Any, memory: Any, destroy: Any, owner: Any, data: Any, size: Any) -> None:
    """Fill numba's description of memory with one reference, and return it."""
    for i, word in enumerate((WORD(1), destroy, owner, data, size, WORD(0))):
        _set_word(builder, memory, 8 * i, word)
    builder.ret(memory)


def _set_word(builder: Any, address: Any, offset: int, word: Any) -> None:
    place = builder.gep(address, [WORD(offset)])
    builder.store(word, builder.bitcast(place, WORD.as_pointer()))


def type_of(value: Any) -> Any:
    """Return the type of an argument in numba; arrays may be written to.

    The same machine code works on arrays of which some are read-only.
    """
    if isinstance(value, tuple):
        return types.BaseTuple.from_types(tuple(map(type_of, value)), type(value))
    if type(value) is int:
        return types.int64  # numba would choose by its size
    kind: Any = numba.typeof(value)  # type: ignore[no-untyped-call]
    return kind.copy(readonly=False) if isinstance(value, np.ndarray) else kind
