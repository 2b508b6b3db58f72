"""A pool of ranks for each MPI: cases run on them without an mpiexec of their own.

A case is a function ``test_x(comm, ...)`` with the mark ``ranks(1, 2, 3)``. Each rank has a
connection to this process, and sleeps on it while it has no case. A pool in which a case fails,
hangs or ends a rank is killed, and the next case starts another. A case with more ranks than the
pool has replaces it by a larger one, on which later cases run, too. In a brief run, cases of one
rank run in this process.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import signal
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from folders import HELPERS
from mpi_launching import HANG_S, NOT_LAUNCHED, mpi_environment, mpi_python, mpiexec_of

SIZES = (4, 6)
"""Numbers of ranks that a pool may have."""
START_S = 120.0
GRACE_S = 5.0
"""Seconds that the other ranks get to answer after one has failed."""
STACKS_S = 5.0
"""Seconds that ranks without an answer get to write their stacks."""
STACK = b"most recent call first"
"""Words at the beginning of each thread's stack."""
RANK = HELPERS / "mpi_pool_rank.py"
HERE = "here"
"""Name, in place of an MPI, of this process as the only rank."""


class CaseError(AssertionError):
    """A case that failed, with what every rank says of it."""


class Pool:
    """Ranks of one MPI that run case after case."""

    def __init__(self, mpi: str, size: int) -> None:
        self.size = size
        python = mpi_python(mpi)
        self._folder = tempfile.TemporaryDirectory(prefix="collplan-pool-")
        path = f"{self._folder.name}/socket"
        self._log = Path(self._folder.name) / "log"
        try:
            with Listener(path, "AF_UNIX", backlog=size) as listener, self._log.open("wb") as log:
                self._job = subprocess.Popen(
                    [str(mpiexec_of(python)), "-n", str(size), str(python), str(RANK), path],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=mpi_environment(),
                    start_new_session=True,
                )
                self._ranks, self._pids = self._accept(listener)
        except BaseException:
            self._folder.cleanup()  # without it, Python warns, which is an error here
            raise

    def _accept(self, listener: Listener) -> tuple[list[Connection], list[int]]:
        socket: Any = listener._listener._socket  # type: ignore[attr-defined]
        socket.settimeout(1.0)
        arrived: list[Connection] = []
        end = time.monotonic() + START_S
        while len(arrived) < self.size:
            try:
                arrived.append(listener.accept())
            except OSError:
                if self.is_alive and time.monotonic() < end:
                    continue
                self.kill()
                raise CaseError(f"the pool does not start\n{self._log.read_text()}") from None
        named = sorted((one.recv(), one) for one in arrived)
        return [one for _, one in named], [pid for (_, pid), _ in named]

    @property
    def is_alive(self) -> bool:
        """Return whether the pool can take a case."""
        return self._job.poll() is None

    def run(
        self,
        module: str,
        name: str,
        n_ranks: int,
        arguments: dict[str, Any],
        timeout_s: float = HANG_S,
    ) -> None:
        """Run a function of a module on the first ranks.

        Raises
        ------
        CaseError
            If it fails on a rank, ends one, or does not end in time. The pool is killed.
        """
        begin = self._log.stat().st_size
        ranks = self._ranks[:n_ranks]
        for rank in ranks:
            rank.send_bytes(_pickled((module, name, n_ranks, arguments)))
        answers = self._collect(ranks, timeout_s)
        if len(answers) == n_ranks and not any(answers.values()):
            return
        self._dump_stacks([rank for rank in range(n_ranks) if rank not in answers], begin)
        self.kill()
        told = [f"rank {rank}:\n{text}" for rank, text in sorted(answers.items()) if text]
        silent = [str(rank) for rank in range(n_ranks) if rank not in answers]
        if silent:
            told.append(f"no answer from ranks {', '.join(silent)}")
        with self._log.open("rb") as log:
            log.seek(begin)
            told.append(log.read().decode(errors="replace"))
        raise CaseError("\n".join(told))

    def _collect(self, ranks: list[Connection], timeout_s: float) -> dict[int, str | None]:
        """Return the answers that come in time, by rank; a rank that has ended gives none."""
        answers: dict[int, str | None] = {}
        waiting = dict(zip(ranks, range(len(ranks)), strict=True))
        end = time.monotonic() + timeout_s
        while waiting and (left_s := end - time.monotonic()) > 0:
            for one in wait(list(waiting), left_s):
                assert isinstance(one, Connection)
                rank = waiting.pop(one)
                with suppress(EOFError, OSError):
                    answers[rank] = one.recv()
                if answers.get(rank, "ended"):
                    end = min(end, time.monotonic() + GRACE_S)
        return answers

    def _dump_stacks(self, ranks: list[int], begin: int) -> None:
        """Let ranks that do not answer write their stacks into the log, behind its beginning."""
        for rank in ranks:
            with suppress(ProcessLookupError):
                os.kill(self._pids[rank], signal.SIGUSR1)
        end = time.monotonic() + STACKS_S
        while self._log.read_bytes()[begin:].count(STACK) < len(ranks) and time.monotonic() < end:
            time.sleep(0.05)

    def kill(self) -> None:
        """End the launcher and all ranks at once."""
        for pid in getattr(self, "_pids", []):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(self._job.pid, signal.SIGKILL)
        self._job.wait()

    def close(self) -> None:
        """Let the ranks end, and remove the pool's files."""
        if self.is_alive:
            for rank in self._ranks:
                rank.send(None)
            try:
                self._job.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._folder.cleanup()


class OwnProcess:
    """The only rank of the world of this process, in place of a pool."""

    def run(self, module: str, name: str, n_ranks: int, arguments: dict[str, Any]) -> None:
        """Run a function of a module; raise `CaseError` if it fails."""
        from mpi_pool_rank import run_case

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in a pool, they are no errors either
            text = run_case(module, name, n_ranks, arguments)
        if text:
            raise CaseError(text)


@dataclass(frozen=True)
class Place:
    """The first ranks of a pool."""

    pool: Pool | OwnProcess
    n_ranks: int


class Pools:
    """The pools of this process, started when a case needs them."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}

    def of(self, mpi: str, n_ranks: int = 1) -> Pool:
        """Return the pool of an MPI, a new one if the last was killed or has too few ranks."""
        pool = self._pools.get(mpi)
        if pool is not None and not (pool.is_alive and pool.size >= n_ranks):
            self._pools.pop(mpi).close()
            pool = None
        if pool is None:
            size = next(size for size in SIZES if size >= n_ranks)
            pool = self._pools[mpi] = self._start(mpi, size)
        return pool

    @staticmethod
    def _start(mpi: str, size: int) -> Pool:
        try:
            return Pool(mpi, size)
        except CaseError as error:
            if NOT_LAUNCHED not in str(error):
                raise
            return Pool(mpi, size)

    def close(self) -> None:
        """End all pools."""
        while self._pools:
            self._pools.popitem()[1].close()


def _pickled(case: tuple[Any, ...]) -> bytes:
    """Return a case as any environment reads it: without what dask adds to errors, by tblib."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file)
    pickler.dispatch_table = {
        kind: reduce
        for kind, reduce in copyreg.dispatch_table.items()
        if not getattr(reduce, "func", reduce).__module__.startswith("tblib")
    }
    pickler.dump(case)
    return file.getvalue()
