"""The engine that runs a program: chosen by what the program needs, and loaded by all ranks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.executors.mpi.host.cores import host
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.planner.plan.plan import Op

if TYPE_CHECKING:
    from collplan.executors.mpi.engine.recording import Recorder
    from collplan.executors.mpi.loop.loading import Reduction
    from collplan.executors.mpi.program.program import Program

Array = npt.NDArray[Any]
EngineName = Literal["compiled", "python"]
ENGINES: Final = get_args(EngineName)
COMPILING_S: Final = 600.0
"""Time limit in seconds for a rank that compiles: many times what compiling takes."""


class Applies(Protocol):
    """An associative operation on arrays, such as `collplan.planner.collective.operations` has."""

    def apply(self, left: Array, right: Array, out: Array) -> None:
        """Write ``left op right`` into `out`."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which engine runs a program.

    Parameters
    ----------
    name : {"compiled", "python"}
        The engine.
    why_python : str or None
        Why it is not the compiled one.
    reduction : (str, dtype) or None
        What the compiled engine has to reduce by; None if a program reduces nothing.
    """

    name: EngineName
    why_python: str | None = None
    reduction: Reduction | None = None

    @property
    def is_loaded(self) -> bool:
        """Return whether `load` takes no time."""
        from collplan.executors.mpi.loop.loading import is_loaded

        return self.name == "python" or is_loaded(self.reduction)

    def load(self) -> int:
        """Bring compiled code into this process; return the reduction's address."""
        from collplan.executors.mpi.loop.loading import load

        return 0 if self.name == "python" else load(self.reduction)


def choose_engine(
    wanted: EngineName | None,
    program: Program,
    dtype: np.dtype[Any],
    operation: Applies | None,
    recorder: Recorder | None,
) -> Choice:
    """Return the engine that was asked for, or the fastest that can.

    Raises
    ------
    BindError
        If the engine asked for does not exist or cannot run the program.
    """
    if wanted not in (None, *ENGINES):
        raise BindError(f"engine is {wanted!r}; use one of {', '.join(ENGINES)}")
    if wanted == "python":
        return Choice("python", "it was asked for")
    reason, reduction = None, None
    if recorder is not None:
        reason = "tasks are recorded in Python only"
    elif np.any(program.op == Op.REDUCE):
        from collplan.executors.mpi.loop.reductions import is_compiled

        name = str(getattr(operation, "name", type(operation).__name__))
        reduction = name, dtype
        if not is_compiled(operation, dtype):
            reason = f"operation {name} on {dtype} has no compiled form"
    if reason is None:
        return Choice("compiled", None, reduction)
    if wanted == "compiled":
        raise BindError(f"engine is compiled, but {reason}; leave engine out to use Python")
    return Choice("python", reason)


def load_by_turns(comm: MPI.Intracomm, choice: Choice, call: RollCall) -> None:
    """Load compiled code, the first rank of each host before the others; collective.

    Raises
    ------
    Exception
        On all ranks, if one cannot.
    """
    # Hosts may have caches of their own; emulated nodes of one host share its.
    hosts: list[str] = call.gather(host())
    if hosts.index(hosts[comm.rank]) == comm.rank:
        with suppress(Exception):  # it comes again below, where all ranks learn of it
            choice.load()
    # Compiling is no absence, however small the limit of ranks that wait.
    patience_s = max(call.timeout_s or 0.0, COMPILING_S)
    patient = RollCall(comm, patience_s, "load machine code")
    patient.meet()
    call.together(choice.load)
