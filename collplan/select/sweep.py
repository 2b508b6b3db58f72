"""Prices of many specs, computed one after another or on any executor of `concurrent.futures`."""

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

from collplan.planner.arrays.recent import Recent
from collplan.planner.errors import AlgorithmError, AsymmetricError, MemoryLimitError
from collplan.planner.memory import free_machine_bytes, keep_freed_memory, limit_memory
from collplan.planner.plan.plan import Plan
from collplan.specs import PlanSpec

Item = TypeVar("Item")
Result = TypeVar("Result")

PRELOADED: Final = (
    "collplan.select.sweep",
    "collplan.executors.cost.simulator",
    "collplan.planner.compiler.compile",
)
"""Modules that a pool's server imports, so that its processes start with them."""

AT_ONCE: Final = 256
"""Largest number of jobs that wait in an executor."""
MOST_KEPT_BYTES: Final = 1 << 26
"""Memory of the plans that a process keeps after it priced them, in bytes."""
NO_MEMORY: Final = "it takes more memory than a process may use here"


@dataclass(frozen=True, slots=True)
class Price:
    """Result of simulating a spec's plan.

    Parameters
    ----------
    makespan_s : float or None
        Time in seconds; None if there is no such plan.
    n_tasks : int
        Number of tasks of the plan.
    refusal : str or None
        The reason why there is no plan.
    lacks_memory : bool
        Whether the reason is that memory does not suffice.
    pcie_reads : int or None
        Number of reads of queue pairs by all adapters; None if these hold all queue pairs.
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
        Specs to price.
    executor : concurrent.futures.Executor or distributed.Client, optional
        Threads, processes, ``mpi4py.futures.MPIPoolExecutor``, or the workers of
        dask.distributed. By default, specs are priced in this process, one after another.
        Specs are sent to the executor, and numbers come back.
    on_done : callable, optional
        Called with the place and the price of a spec as soon as it is priced, in any order.

    Returns
    -------
    tuple of Price, shape (n,)
        Prices in the order of `specs`.

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
    """Compile and simulate one spec. A refusal is returned and not raised.

    Many plans of a spec at several counts are the same but for the size of elements. Such a plan
    is compiled once; see `scaling.shrink`.
    """
    from collplan.executors.cost.simulator import simulate
    from collplan.select.scaling import shrink, stretch

    try:
        smaller, factor = shrink(_resolved(spec))
        # A plan that serves only this count is not kept, because it would displace others.
        if factor == 1:
            plan = _compile(smaller)
        else:
            plan = stretch(_recent.find(smaller, lambda: _compile(smaller)), factor)
        timeline = simulate(plan)
    except AlgorithmError as error:
        return Price(None, 0, str(error), isinstance(error, MemoryLimitError))
    except MemoryError:
        return Price(None, 0, NO_MEMORY, lacks_memory=True)
    reads = timeline.pcie_reads
    total = None if reads is None else int(reads.sum())
    return Price(timeline.makespan_s, plan.n_tasks * plan.n_copies, pcie_reads=total)


def price_all(specs: Iterable[PlanSpec]) -> tuple[Price, ...]:
    """Price specs, one after another."""
    return tuple(map(price, specs))


_recent: Final = Recent[PlanSpec, Plan](MOST_KEPT_BYTES, lambda plan: plan.nbytes)
"""Plans that were priced last in this process."""


def compile_priced(spec: PlanSpec) -> Plan:
    """Compile the plan that `price` simulates for a spec.

    Raises
    ------
    AlgorithmError
        If there is no such plan.
    """
    return _compile(_resolved(spec))


def _resolved(spec: PlanSpec) -> PlanSpec:
    """Return the spec whose plan is priced: its count and algorithms are final."""
    from collplan.planner.lowering.select import priced_spec
    from collplan.select.estimate import folds, with_even_count

    spec = priced_spec(spec)
    # With an even count, nodes and lanes have equal shares, and few pieces differ in size. Flat
    # algorithms divide vectors by their own rules, so they keep the spec's count unless they fold.
    even = with_even_count(spec)
    return even if spec.decomposition.name != "flat" or folds(even) else spec


def _compile(spec: PlanSpec) -> Plan:
    """Compile the plan to price. On a large machine it is folded, if that is possible."""
    from collplan.planner.compiler.compile import compile_plan
    from collplan.planner.compiler.folded import compile_folded
    from collplan.select.estimate import FEW_RANKS

    if spec.machine.n_ranks > FEW_RANKS and not spec.machine.network.joins_nodes:
        try:
            return compile_folded(spec, is_proved=False)
        except AsymmetricError:
            pass
    return compile_plan(spec, is_proved=False)


def run_jobs(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    executor: Executor | Any | None = None,
    *,
    n_at_once: int = AT_ONCE,
    on_done: Callable[[int, Result], None] | None = None,
) -> tuple[Result, ...]:
    """Apply a function to every item; return the results in the items' order.

    If a call raises, calls that have not begun are cancelled. Parameters are those of `sweep`.
    For processes, the function, items and results must be picklable. At most `n_at_once` items
    are in work at the same time.
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
    """Return the executor of a client of dask.distributed; return an executor or None unchanged."""
    if workers is None or isinstance(workers, Executor):
        return workers
    executor: Executor = workers.get_executor(pure=False)
    return executor


def number_of_workers(executor: Executor | None) -> int:
    """Return the number of jobs that an executor runs at the same time."""
    client = getattr(executor, "_client", None)
    if client is not None:
        return max(1, int(sum(client.nthreads().values())))
    names = ("num_workers", "_max_workers")
    return max(1, *(int(getattr(executor, name, None) or 1) for name in names))


@contextmanager
def processes(
    n_workers: int | None = None, initializer: Callable[[], object] | None = None
) -> Iterator[Executor | None]:
    """Provide a pool of processes, or None if it would have only one.

    The processes are forked from a server without threads that has imported the modules that
    they need. They are not forked from this process, in which a progress display or numba may
    hold locks that no thread of the new process would release. Each process may use its share
    of the free memory; beyond it, it raises `MemoryError` and is not killed.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes; by default one for each processor that this process may use.
    initializer : callable, optional
        Function that each process calls first, for example to import the user's algorithms.
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
        # The server imports its modules while this process imports others.
        forkserver.ensure_running()
    begin = partial(_begin, n_workers, initializer)
    with ProcessPoolExecutor(n_workers, context, begin) as pool:
        yield pool


def _begin(n_workers: int, initializer: Callable[[], object] | None) -> None:
    """Prepare a process of a pool."""
    # Objects of imported modules are never garbage, so that the collector can ignore them.
    gc.freeze()
    keep_freed_memory()
    limit_memory(free_machine_bytes() // n_workers)
    if initializer is not None:
        initializer()


def usable_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
