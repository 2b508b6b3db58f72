"""The compiled loop on tasks without messages; no MPI is needed for them."""

from __future__ import annotations

import ctypes
import operator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.executors.mpi.engine.loop_memory import LoopMemory
from collplan.executors.mpi.engine.reduction import Callback
from collplan.executors.mpi.loop import codes, combine
from collplan.executors.mpi.loop.calls import inner
from collplan.executors.mpi.loop.combine import BY_KIND, HALF, ON_PAIRS, reduction_of
from collplan.executors.mpi.loop.entries import address_of_code, entry
from collplan.executors.mpi.loop.reductions import (
    COMPILED,
    SIGNATURE,
    _code,
    is_compiled,
    reduction_address,
)
from collplan.executors.mpi.program.program import rank_program
from collplan.planner.collective.operations import (
    BUILTIN_OPERATIONS,
    get_operation,
    register_operation,
)
from collplan.planner.plan.plan import Buffer, Op, Plan, Stage
from collplan.planner.plan.ragged import ON_START
from collplan.specs.collectives.predefined import LOCATING, PAIRS, numpy_dtype
from mpi_plans import PlanWriter
from random_extents import BUFFERS, PATTERNS, SIZE, Subtracting, elements, sides
from tiers import examples

DTYPES = [
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
]
REDUCTION = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * 8)


@inner
def subtract(a: int, b: int) -> int:
    """An operation that shows which operand was taken for the left one."""
    return a - b


def subtraction(dtype: str) -> int:
    function = reduction_of(subtract, np.dtype(dtype))
    return address_of_code(f"test_subtract_{dtype}", lambda: function, SIGNATURE)


def loop_memory(plan: Plan, buffers: list[np.ndarray], reduce: int = 0) -> LoopMemory:
    program = rank_program(plan, 0)
    memory = LoopMemory(program, reduce=reduce)
    memory.use(buffers)
    return memory


def random_elements(dtype: np.dtype, n: int) -> np.ndarray:
    """Return elements of any bits, NaNs and infinities among them, and many that are equal."""
    rng = np.random.default_rng(n)
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool)
    values = rng.integers(0, 256, n * dtype.itemsize, dtype=np.uint8).view(dtype)
    values[::3] = rng.integers(0, 3, len(values[::3])).astype(dtype)
    if dtype.kind in "fc":
        values[1::7], values[2::11] = np.nan, np.inf
    return values


def same(got: np.ndarray, wanted: np.ndarray, rounding: float) -> np.ndarray:
    """Compare elements; complex products of numpy are rounded once less."""
    with np.errstate(invalid="ignore"):  # NaNs of any bits signal
        if rounding:
            close = np.isclose(got, wanted, rtol=rounding, atol=0, equal_nan=True)
            return close | ~np.isfinite(wanted)
        return (got == wanted) | ((got != got) & (wanted != wanted))


@pytest.mark.many
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions_are_numpys(dtype: str) -> None:
    """Every operation on every datatype, contiguous and strided, into any operand's place."""
    n_compiled = 0
    for name in BUILTIN_OPERATIONS:
        operation, kind = get_operation(name), np.dtype(dtype)
        if not is_compiled(operation, kind):
            assert kind.kind in "fc" or name in ("minloc", "maxloc")
            continue
        n_compiled += 1
        function = REDUCTION(reduction_address(name, kind))
        a, b = random_elements(kind, 1021), random_elements(kind, 1021)[::-1].copy()
        rounding = 1e-3 if (name, kind.kind) == ("prod", "c") else 0
        wanted = np.empty_like(a)
        with np.errstate(all="ignore"):
            operation.apply(a, b, wanted)
        for place in range(3):
            for run, rows, step in ((len(a), 1, 0), (1, len(a), 1), (3, 340, 3)):
                left, right, out = a.copy(), b.copy(), np.zeros_like(a)
                target = (out, left, right)[place]
                addresses = (x.ctypes.data for x in (left, right, target))
                function(*addresses, run, rows, *(step * kind.itemsize,) * 3)
                done = run * rows
                good = same(target[:done], wanted[:done], rounding)
                assert good.all(), (name, place, run, a[:done][~good], b[:done][~good])
    assert n_compiled == (7 if kind.kind in "fc" else 10)


@pytest.mark.parametrize("dtype", [name for name in PAIRS if name != "long_double_int"])
def test_pairs_are_located_as_planned(dtype: str) -> None:
    """NaNs, equal values and their lowest index, in any operand's place."""
    kind = numpy_dtype(dtype)
    rng = np.random.default_rng(1)
    a, b = (np.zeros(500, kind) for _ in range(2))
    for side in (a, b):
        side["value"] = rng.integers(-3, 4, len(side))
        side["index"] = rng.integers(0, 9, len(side))
        if kind["value"].kind == "f":
            side["value"][rng.integers(0, 500, 60)] = np.nan
    for name in ("minloc", "maxloc"):
        operation = get_operation(name)
        assert is_compiled(operation, kind)
        function = REDUCTION(reduction_address(name, kind))
        wanted = np.zeros_like(a)
        operation.apply(a, b, wanted)
        for place in range(3):
            left, right, out = a.copy(), b.copy(), np.zeros_like(a)
            target = (out, left, right)[place]
            addresses = (x.ctypes.data for x in (left, right, target))
            function(*addresses, 5, 100, *(5 * kind.itemsize,) * 3)
            assert np.array_equal(target["index"], wanted["index"]), (name, place)
            assert same(target["value"], wanted["value"], 0).all(), (name, place)


def test_codes_of_tasks_and_stages_are_those_of_plans() -> None:
    for kind in (*Op, *Stage):
        name = f"STAGE_{kind.name}" if isinstance(kind, Stage) else kind.name
        if kind != Op.CALL:
            assert getattr(codes, name) == kind
    # The loop begins calls as messages: their code comes first.
    assert codes.CALL < codes.SEND < codes.RECV < codes.COPY


def test_names_of_compiled_operations_are_known_without_numba() -> None:
    assert {kind: set(functions) for kind, functions in BY_KIND.items()} == COMPILED
    assert set(HALF) == COMPILED["f"]
    assert set(ON_PAIRS) == {*LOCATING}


def test_what_is_not_compiled() -> None:
    assert not is_compiled(get_operation("minloc"), numpy_dtype("long_double_int"))
    assert not is_compiled(get_operation("sum"), numpy_dtype("double_int"))
    assert not is_compiled(get_operation("sum"), np.dtype(np.longdouble))
    assert not is_compiled(get_operation("sum"), np.dtype(">f8"))
    assert not is_compiled(get_operation("band"), np.dtype(float))
    own = register_operation("difference", np.subtract, commutative=False)
    assert not is_compiled(own, np.dtype(float))
    assert not is_compiled(np.add, np.dtype(float))


def test_halves_round_to_nearest_even() -> None:
    """All pairs of neighbors of every half, whose sums lie between two halves or on one."""
    bits = np.arange(2**16, dtype=np.uint16)
    a = bits.view(np.float16)
    function = REDUCTION(reduction_address("sum", np.dtype(np.float16)))
    with np.errstate(all="ignore"):
        for other in (1, 2**-11, -(2.0**-24), 2.0**-14, 65504, np.nan):
            b, out = np.full(2**16, other, np.float16), np.zeros(2**16, np.float16)
            function(a.ctypes.data, b.ctypes.data, out.ctypes.data, 2**16, 1, 0, 0, 0)
            assert same(out, a + b, 0).all()


@settings(deadline=None, max_examples=examples(100))
@given(st.data(), st.sampled_from([Op.COPY, Op.REDUCE]), st.sampled_from(["i1", "i2", "i4", "i8"]))
def test_any_extents(data: st.DataObject, op: Op, dtype: str) -> None:
    """As element lists have it, by machine code and by Python, twice in a row."""
    n = data.draw(st.integers(1, 14))
    writes = data.draw(sides(n, data.draw(st.sampled_from([BUFFERS, (Buffer.RECV,)]))))
    reads = data.draw(sides(n, BUFFERS))
    if op is Op.REDUCE:
        in_place = data.draw(st.sampled_from([0, 1, 2]))
        other = data.draw(sides(n, BUFFERS))
        reads = {0: reads + other, 1: writes + other, 2: other + writes}[in_place]
    writer = PlanWriter([[SIZE] * 3], patterns=PATTERNS[1:], itemsize=np.dtype(dtype).itemsize)
    writer.add(op, 0, reads, writes)
    plan = writer.plan()
    buffers = [np.arange(SIZE).astype(dtype) * (3 + b) for b in range(3)]
    wanted, viewed = ([buffer.copy() for buffer in buffers] for _ in range(2))
    memory = loop_memory(plan, buffers, subtraction(dtype))
    in_python = Callback(Subtracting(), np.dtype(dtype))
    other_memory = loop_memory(plan, viewed, in_python.address)
    for _ in range(2):
        values = [wanted[b][i] for interval in reads for b, i in elements(interval)]
        cells = [cell for interval in writes for cell in elements(interval)]
        for i, (b, place) in enumerate(cells):
            value = values[i] if op is Op.COPY else int(values[i]) - int(values[n + i])
            wanted[b][place] = np.int64(value).astype(dtype)
        assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
        assert entry("run_loop")(other_memory.address, codes.RUN) == codes.DONE
    for buffer, want, view in zip(buffers, wanted, viewed, strict=True):
        assert np.array_equal(buffer, want)
        assert np.array_equal(view, want)


def test_staged_tasks_of_several_sizes() -> None:
    """Memory for the largest task serves smaller ones, whose operands may share an extent."""
    writer = PlanWriter([[0, 20, 0]], itemsize=8)
    recv = Buffer.RECV
    last: list[int] = []
    for n in (3, 8, 1):
        swap = [(recv, n, n), (recv, 0, n)], [(recv, 0, n), (recv, n, n)]
        last = [writer.add(Op.COPY, 0, *swap, after=last)]
        # Both operands in one extent, and the result one element further.
        last = [writer.add(Op.REDUCE, 0, [(recv, 0, 2 * n)], [(recv, 1, n)], after=last)]
    values = np.arange(20) ** 2
    wanted = values.copy()
    for n in (3, 8, 1):
        wanted[: 2 * n] = np.concatenate((wanted[n : 2 * n], wanted[:n]))
        wanted[1 : n + 1] = wanted[:n] - wanted[n : 2 * n]
    nothing = np.zeros(0, dtype=np.int64)
    memory = loop_memory(writer.plan(), [nothing, values, nothing], subtraction("int64"))
    assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
    assert values.tolist() == wanted.tolist()


@pytest.mark.quick
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("count", [1, 3, 64])
def test_large_strided_copies(itemsize: int, count: int) -> None:
    """A matrix's columns into a contiguous place, back into others, and transposed."""
    rows, width = 50, 200
    patterns = [(width, rows, 0, 1), (1, rows, rows, count), (width, rows, 1, count)]
    size = rows * width
    writer = PlanWriter([[size] * 3], itemsize=itemsize, patterns=patterns)
    packed = (Buffer.SCRATCH, 0, rows * count)
    a = writer.add(Op.COPY, 0, [(Buffer.SEND, 5, count, 1)], [packed])
    b = writer.add(Op.COPY, 0, [packed], [(Buffer.RECV, 100, count, 1)], after=[a])
    turned = (Buffer.SCRATCH, rows * count, 1, 2)
    writer.add(Op.COPY, 0, [(Buffer.SEND, 5, 1, 3)], [turned], after=[b])
    rng = np.random.default_rng(0)
    source, target, scratch = rng.integers(0, 256, (3, size, itemsize), dtype=np.uint8)
    block = source.reshape(rows, width, itemsize)[:, 5 : 5 + count]
    wanted = target.copy().reshape(rows, width, itemsize)
    wanted[:, 100 : 100 + count] = block
    memory = loop_memory(writer.plan(), [source, target, scratch])
    assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
    assert np.array_equal(target.reshape(wanted.shape), wanted)
    assert np.array_equal(scratch[: rows * count].reshape(block.shape), block)
    transposed = scratch[rows * count : 2 * rows * count].reshape(count, rows, itemsize)
    assert np.array_equal(transposed, block.swapaxes(0, 1))


def test_order_of_a_program() -> None:
    """Priorities, dependencies on starts, stages: each task notes when it ran, by copying a clock.

    Task i copies clock[0] to order[i] and then increases the clock by a reduction.
    """
    n = 12
    rng = np.random.default_rng(5)
    writer = PlanWriter([[2, n, 0]], itemsize=8)
    priorities = rng.permutation(n)
    tasks = [
        writer.add(
            Op.COPY,
            0,
            [(Buffer.SEND, 0, 1)],
            [(Buffer.RECV, i, 1)],
            priority=int(priorities[i]),
        )
        for i in range(n)
    ]
    for i in tasks:
        writer.add(
            Op.REDUCE,
            0,
            [(Buffer.SEND, 0, 2)],
            [(Buffer.SEND, 0, 1)],
            after=[i],
            priority=int(priorities[i]) - n,
        )
    clock, order = np.array([0, 1]), np.zeros(n, dtype=np.int64)
    add = reduction_address("sum", np.dtype(int))
    memory = loop_memory(writer.plan(), [clock, order, np.zeros(0, np.int64)], add)
    for _ in range(3):
        clock[0] = 0
        assert entry("run_loop")(memory.address, codes.RUN) == codes.DONE
        assert order.tolist() == priorities.tolist()


def test_stages() -> None:
    """START inside the start, WAIT inside the wait, or by tests when nothing else is left."""
    writer = PlanWriter([[1, 4, 0]], itemsize=8)
    one = (Buffer.SEND, 0, 1)
    early = writer.add(Op.COPY, 0, [one], [(Buffer.RECV, 0, 1)], stage=Stage.START)
    late = writer.add(Op.COPY, 0, [one], [(Buffer.RECV, 1, 1)], stage=Stage.WAIT, after=[early])
    writer.add(Op.COPY, 0, [one], [(Buffer.RECV, 2, 1)], after=[(early, ON_START)])
    writer.add(Op.COPY, 0, [one], [(Buffer.RECV, 3, 1)], stage=Stage.WAIT, after=[late])
    send, recv = np.array([7]), np.zeros(4, dtype=np.int64)
    memory = loop_memory(writer.plan(), [send, recv, send])
    assert entry("run_loop")(memory.address, codes.START) == codes.DONE
    assert recv.tolist() == [7, 0, 7, 0]
    assert memory.get("n_left") == 2
    assert entry("run_loop")(memory.address, codes.TEST) == codes.DONE
    assert recv.tolist() == [7, 7, 7, 7]
    assert entry("run_loop")(memory.address, codes.TEST) == codes.DONE
    recv[:] = 0
    assert entry("run_loop")(memory.address, codes.START) == codes.DONE
    assert entry("run_loop")(memory.address, codes.WAIT) == codes.DONE
    assert recv.tolist() == [7, 7, 7, 7]
    assert memory.get("n_left") == 0


def test_a_cycle_is_a_deadlock() -> None:
    writer = PlanWriter([[1, 1, 0]])
    for other in (1, 0):
        writer.add(Op.COPY, 0, [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)], after=[other])
    memory = loop_memory(writer.plan(), [np.zeros(1, np.int32)] * 3)
    assert entry("run_loop")(memory.address, codes.RUN) == codes.DEADLOCK
    assert memory.get("n_left") == 2


def test_computation_lets_python_in() -> None:
    """A long computation goes on where it was when the loop's turn was over."""
    writer = PlanWriter([[1, 1, 0]])
    first = writer.add(Op.COMPUTE, 0, duration_ns=30_000_000)
    writer.add(Op.COPY, 0, [(Buffer.SEND, 0, 1)], [(Buffer.RECV, 0, 1)], after=[(first, ON_START)])
    send, recv = np.ones(1, np.int32), np.zeros(1, np.int32)
    memory = loop_memory(writer.plan(), [send, recv, recv])
    memory.set(turn_ns=500_000)
    turns = 1
    found = entry("run_loop")(memory.address, codes.RUN)
    while found == codes.PENDING:
        found = entry("run_loop")(memory.address, codes.WAIT)
        turns += 1
    assert found == codes.DONE
    assert turns > 1
    assert recv[0] == 1
    assert memory.get("progress") == 2


def test_empty_program() -> None:
    memory = loop_memory(PlanWriter([[0, 0, 0]]).plan(), [np.zeros(0, np.int32)] * 3)
    for what in (codes.START, codes.TEST, codes.WAIT, codes.RUN):
        assert entry("run_loop")(memory.address, what) == codes.DONE


def test_codes_of_one_name_do_the_same():
    """Names say what is compiled: an unsigned integer adds as a signed one, a Boolean does not."""
    names = {dtype: _code("sum", np.dtype(dtype))[0] for dtype in DTYPES}
    for dtype, name in names.items():
        alike = {other for other in DTYPES if names[other] == name}
        integers = {f"int{dtype[-2:].lstrip('t')}", f"uint{dtype[-2:].lstrip('t')}"}
        assert alike == (integers if "int" in dtype else {dtype})
    signed = {_code("max", np.dtype(f"{kind}32"))[0] for kind in ("int", "uint")}
    assert len(signed) == 2


def test_logical_operations_take_every_number_but_0_as_true():
    for name, expected in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        function = getattr(combine, f"logical_{name}").py_func
        for a, b in product((0, 1, 2, -1.5), repeat=2):
            assert function(a, b) == expected(a != 0, b != 0), name
