"""Workers of commands: processes, ranks of ``mpi4py.futures``, or workers of dask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collplan.own_algorithms import FILES, import_own
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.syntax.documents import read_document

if TYPE_CHECKING:
    from concurrent.futures import Executor

WORTH_A_POOL: Final = 1_000
"""Product of ranks and sizes from which worker processes save more time than they cost."""
INTERPRETED: Final = 100
"""Factor by which simulations take longer if their machine code is not compiled yet."""
CONNECT_S: Final = 20
"""Time limit for the answer of a dask scheduler, in seconds."""


@contextmanager
def workers(n_plans: int, scheduler: str | None = None) -> Iterator[Executor | None]:
    """Provide an executor within a context, or None if the work is done in this process.

    The workers are those of the given dask scheduler. Without a scheduler, they are the ranks of
    ``mpi4py.futures`` if it has started this program, and otherwise processes.

    Parameters
    ----------
    n_plans : int
        Number of ranks times number of sizes, which decides whether processes pay.
    scheduler : str, optional
        Address or file of a scheduler of dask.distributed.

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
    """Return whether processes pay; between two limits, machine code that is kept decides."""
    if n_plans >= WORTH_A_POOL or n_plans * INTERPRETED < WORTH_A_POOL:
        return n_plans >= WORTH_A_POOL
    from collplan.executors.cost.kernel import run

    return not run.has_code


@contextmanager
def _dask_workers(scheduler: str) -> Iterator[Executor | None]:
    """Provide an executor on the workers of a scheduler, which import the user's own files."""
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
            f"--dask: no scheduler of dask.distributed at {show_value(address)} ({said}); "
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
    """Return the address of a scheduler from its file."""
    found = read_document(path, "file of a scheduler")
    address = found.get("address") if isinstance(found, dict) else None
    if not isinstance(address, str):
        raise CollplanError(
            f"--dask: {path} is no file that 'dask scheduler --scheduler-file' writes; "
            f"give that, or the scheduler's address"
        )
    return address


def import_there(files: str) -> None:
    """Import the user's own files on a worker, which may not have inherited the environment."""
    if files:
        os.environ[FILES] = files
    import_own()
