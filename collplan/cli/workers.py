"""Workers of commands: processes, ranks of ``mpi4py.futures``, or a cluster of dask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collplan.own_algorithms import FILES, import_own
from collplan.specs.documents import read_document
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from concurrent.futures import Executor

WORTH_A_POOL: Final = 1_000
"""Ranks times sizes from which worker processes save more time than they take to start."""
INTERPRETED: Final = 100
"""Factor by which simulations take longer that are not compiled yet."""
CONNECT_S: Final = 20
"""Seconds within which a scheduler of dask must answer."""


@contextmanager
def workers(n_plans: int, scheduler: str | None = None) -> Iterator[Executor | None]:
    """Give an executor, or None to work here.

    Parameters
    ----------
    n_plans : int
        Ranks times sizes: processes are started where they pay.
    scheduler : str, optional
        Address or file of a scheduler of dask.distributed, whose workers are taken. Without it,
        those are the ranks of ``mpi4py.futures`` if it has started this program, else processes.

    Raises
    ------
    CollplanError
        If no scheduler answers, or a worker is lost.
    """
    from concurrent.futures import BrokenExecutor

    from collplan.executors.mpi.launch.jobs import is_under_futures, mpi_executor
    from collplan.select.sweep import processes

    try:
        if scheduler is not None:
            with _dask_workers(scheduler) as executor:
                yield executor
        elif is_under_futures():
            with mpi_executor(import_own) as executor:
                yield executor
        elif not _are_worth_a_pool(n_plans):
            yield None
        else:
            with processes(initializer=import_own) as pool:
                yield pool
    except BrokenExecutor:
        raise CollplanError(
            "a process that simulated was killed, as where memory runs out; lower --max-tasks"
        ) from None


def _are_worth_a_pool(n_plans: int) -> bool:
    """Return whether processes pay; numba is imported only if its machine code decides that."""
    if n_plans >= WORTH_A_POOL or n_plans * INTERPRETED < WORTH_A_POOL:
        return n_plans >= WORTH_A_POOL
    from collplan.executors.cost.kernel import run

    return not run.has_code


@contextmanager
def _dask_workers(scheduler: str) -> Iterator[Executor | None]:
    """Give an executor on the workers of a scheduler, with own algorithms imported there."""
    try:
        import distributed
    except ImportError:
        raise CollplanError(
            "--dask: dask.distributed is not installed; pip install 'collplan[dask]'"
        ) from None
    from collplan.select.sweep import executor_on

    address = _address_in(Path(scheduler)) if Path(scheduler).is_file() else scheduler
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise CollplanError(
            f"--dask: no scheduler of dask.distributed at {address!r} ({said}); "
            f"start one as with 'dask scheduler', and give its address or file"
        ) from None
    with client:
        if not client.nthreads():
            raise CollplanError(
                f"--dask: the scheduler at {address} has no workers; start some, as with "
                f"'dask worker {address}'"
            )
        client.run(import_there, os.environ.get(FILES, ""))
        try:
            yield executor_on(client)
        except distributed.KilledWorker as error:
            raise CollplanError(
                f"--dask: {error.args[0]} killed {error.args[-1]} workers, as where memory runs "
                f"out; lower --max-tasks"
            ) from None


def _address_in(path: Path) -> str:
    """Return the address in a scheduler's file."""
    found = read_document(path, "file of a scheduler")
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise CollplanError(
            f"--dask: {path} is no file that 'dask scheduler --scheduler-file' writes; "
            f"give that, or the scheduler's address"
        )
    return address


def import_there(files: str) -> None:
    """Import own algorithms on a worker, which may not have inherited this environment."""
    if files:
        os.environ[FILES] = files
    import_own()
