"""Price many specs: one after another, or on any executor of `concurrent.futures`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from collplan.planner.errors import AlgorithmError, AsymmetricError, MemoryLimitError
from collplan.planner.memory import free_machine_bytes, keep_freed_memory, limit_memory
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec

Item = TypeVar("Item")
Result = TypeVar("Result")

PRELOADED: Final = (
    "collplan.select.sweep",
    "collplan.executors.cost.simulator",
    "collplan.planner.compiler",
    "collplan.planner.arrays.machine_code",
)
"""Modules that a pool's first process imports, so that the others start with them."""

AT_ONCE: Final = 256
"""Jobs that wait at an executor at most."""
NO_MEMORY: Final = "it takes more memory than a process may use here"


@dataclass(frozen=True, slots=True)
class Price:
    """Result of simulating a spec's plan.

    Parameters
    ----------
    makespan_s : float or None
        Seconds; None where there is no such plan.
    n_tasks : int
        Tasks of the plan.
    refusal : str or None
        Why there is none.
    lacks_memory : bool
        Whether that is for want of memory.
    pcie_reads : int or None
        Reads of queue pairs by all adapters; None where they hold all.
    """

    makespan_s: float | None
    n_tasks: int
    refusal: str | None = None
    lacks_memory: bool = False
    pcie_reads: int | None = None


def sweep(
    specs: Sequence[PlanSpec],
    executor: Executor | Any | None = None,
    *,
    on_done: Callable[[int, Price], None] | None = None,
) -> tuple[Price, ...]:
    """Compile and simulate every spec on its machine.

    Parameters
    ----------
    specs : sequence of PlanSpec, shape (n,)
    executor : concurrent.futures.Executor or distributed.Client, optional
        Threads, processes, ``mpi4py.futures.MPIPoolExecutor``, or the workers of
        dask.distributed; by default one after another, here. Specs go there, numbers
        come back.
    on_done : callable, optional
        Called with a spec's place and price as soon as it is priced, in
        whatever order that happens.

    Returns
    -------
    tuple of Price, shape (n,)
        In the order of `specs`, whatever the executor.

    Examples
    --------
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 2}, "collective": {"kind": "bcast", "count": 4},
    ... })
    >>> [price.n_tasks for price in sweep([spec, spec])]
    [2, 2]
    """
    return run_jobs(price, specs, executor, on_done=on_done)


def price(spec: PlanSpec) -> Price:
    """Compile and simulate one spec; a refusal is a result, not an exception."""
    from collplan.executors.cost.simulator import simulate

    try:
        plan = compile_priced(spec)
        timeline = simulate(plan)
    except AlgorithmError as error:
        return Price(None, 0, str(error), isinstance(error, MemoryLimitError))
    except MemoryError:
        return Price(None, 0, NO_MEMORY, lacks_memory=True)
    reads = timeline.pcie_reads
    total = None if reads is None else int(reads.sum())
    return Price(timeline.makespan_s, plan.n_tasks * plan.n_copies, pcie_reads=total)


def compile_priced(spec: PlanSpec) -> Plan:
    """Compile the plan that stands for a spec's in prices: what `price` simulates.

    Raises
    ------
    AlgorithmError
        If there is no such plan.
    """
    from collplan.planner.lowering.select import priced_spec
    from collplan.select.auto import resolve

    return _compile(priced_spec(resolve(spec)))


def _compile(spec: PlanSpec) -> Plan:
    """Compile the plan to price: on a large machine that of one node, if it stands for all."""
    from collplan.planner.compiler import compile_folded, compile_plan
    from collplan.select.estimate import FEW_RANKS, with_even_count

    network, even = spec.machine.network, with_even_count(spec)
    if spec.machine.n_ranks > FEW_RANKS and not network.joins_nodes:
        try:
            return compile_folded(even)
        except AsymmetricError:
            pass
    # An even count gives nodes and lanes equal shares, so that few pieces of memory differ in size.
    # Flat algorithms divide vectors by rules of their own, which it may not suit.
    return compile_plan(spec if spec.decomposition.name == "flat" else even, is_proved=False)


def run_jobs(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    executor: Executor | Any | None = None,
    *,
    n_at_once: int = AT_ONCE,
    on_done: Callable[[int, Result], None] | None = None,
) -> tuple[Result, ...]:
    """Apply a function to every item; return the results in the items' order.

    Where one raises, what has not begun is cancelled. Parameters are those of
    `sweep`; processes must be able to pickle function, items and results. No more than
    `n_at_once` items are taken before one of them is done.
    """
    done: dict[int, Result] = {}
    for i, result in _as_done(function, items, executor_on(executor), n_at_once):
        done[i] = result
        if on_done is not None:
            on_done(i, result)
    return tuple(done[i] for i in range(len(done)))


def _as_done(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    executor: Executor | None,
    n_at_once: int,
) -> Iterator[tuple[int, Result]]:
    coming = enumerate(items)
    if executor is None:
        for i, item in coming:
            yield i, function(item)
        return
    place: dict[Future[Result], int] = {}
    try:
        while True:
            for i, item in islice(coming, n_at_once - len(place)):
                place[executor.submit(function, item)] = i
            if not place:
                return
            for future in wait(place, return_when=FIRST_COMPLETED).done:
                yield place.pop(future), future.result()
    finally:
        for future in place:
            future.cancel()


def executor_on(workers: Executor | Any | None) -> Executor | None:
    """Return an executor on a client of dask.distributed; an executor, or None, as it is."""
    if workers is None or isinstance(workers, Executor):
        return workers
    executor: Executor = workers.get_executor(pure=False)
    return executor


def number_of_workers(executor: Executor | None) -> int:
    """Return how many jobs an executor runs at once."""
    client = getattr(executor, "_client", None)
    if client is not None:
        return max(1, int(sum(client.nthreads().values())))
    names = ("num_workers", "_max_workers")
    return max(1, *(int(getattr(executor, name, None) or 1) for name in names))


@contextmanager
def processes(
    n_workers: int | None = None, initializer: Callable[[], object] | None = None
) -> Iterator[Executor | None]:
    """Give a pool of processes; none where there would be but one.

    They are forked from a server that has no threads and has imported what
    they need, never from this process: a progress display or numba may hold
    locks here that nobody would release there. Each may use its share of the free
    memory; beyond it `MemoryError` is raised there, and no process is killed.

    Parameters
    ----------
    n_workers : int, optional
        By default one for each processor this process may use.
    initializer : callable, optional
        Called in every process first, such as to import algorithms of one's own.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import forkserver, get_all_start_methods, get_context

    n_workers = n_workers or usable_processors()
    if n_workers < 2:
        yield None
        return
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    context = get_context(method)
    context.set_forkserver_preload(list(PRELOADED))
    if method == "forkserver":
        # It imports modules while this process imports its own.
        forkserver.ensure_running()
    begin = partial(_begin, n_workers, initializer)
    with ProcessPoolExecutor(n_workers, context, begin) as pool:
        yield pool


def _begin(n_workers: int, initializer: Callable[[], object] | None) -> None:
    """Begin the work of a process of a pool."""
    # Objects of imported modules stay: garbage need not be looked for among them.
    gc.freeze()
    keep_freed_memory()
    limit_memory(free_machine_bytes() // n_workers)
    if initializer is not None:
        initializer()


def usable_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
