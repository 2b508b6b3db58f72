"""Two applications whose collectives run on a mesh of native components, beside others.

Jacobi's iteration and a parallel Adams-Bashforth method, the applications of Hartmann,
Kühnemann, Rauber and Rünger. Their collectives run natively, on a mesh of the MPI library's own
collectives in rows and columns, on the same mesh by collplan's algorithms, on full lanes in both
ways, and as the plan that the planner chooses; in turns. The time is that in communication, of the
slowest rank each time.

Run: ``collplan emulate --nodes 4 --per-node 4 --lanes 2 --rate 100Mbit -- python
benchmarks/mesh_applications.py [--repetitions 5 --unknowns 200000 --grid 256]``
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.binding.bound_plan import BoundPlan, bind
from collplan.executors.mpi.world import join_world
from collplan.measure.timing import library_name
from collplan.programs.compiling_together import compile_together
from collplan.reports.output import print_line, print_table
from collplan.specs import Machine, PlanSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from jacobi import Jacobi, System
from pab import ParallelAdams
from stopwatch import Stopwatch

Array = npt.NDArray[Any]
METHODS: Final[dict[str, dict[str, Any] | None]] = {
    "native": None,
    "mesh native": {"decomposition": "mesh", "algorithms": {"row": "native", "column": "native"}},
    "mesh": {"decomposition": "mesh"},
    "full_lane native": {"decomposition": "full_lane", "algorithms": "native"},
    "full_lane": {"decomposition": "full_lane"},
    "best": {"decomposition": "auto"},
}
"""Ways to run collectives, by name; None is MPI's own call."""


class MeshComm:
    """The communicator that an application sees: its collectives run by plans of one method.

    Parameters
    ----------
    comm : MPI.Intracomm
    method : dict or None
        Fields of a spec; None calls MPI.
    """

    def __init__(self, comm: MPI.Intracomm, method: dict[str, Any] | None) -> None:
        self._comm, self._method = comm, method
        self.rank, self.size = comm.rank, comm.size
        self._machine = Machine.model_validate_json(os.environ["COLLPLAN_MACHINE"])
        self._bound: dict[tuple[str, int], BoundPlan] = {}

    def Allgather(self, sendbuf: Array, recvbuf: Array) -> None:
        """Gather equal blocks everywhere."""
        if self._method is None:
            self._comm.Allgather(sendbuf, recvbuf)
        else:
            self._run("allgather", sendbuf.size, sendbuf, recvbuf)

    def Allreduce(self, sendbuf: Array, recvbuf: Array) -> None:
        """Add up vectors, for all ranks."""
        if self._method is None:
            self._comm.Allreduce(sendbuf, recvbuf)
        else:
            self._run("allreduce", sendbuf.size, sendbuf, recvbuf)

    def Reduce(self, sendbuf: Array, recvbuf: Array) -> None:
        """Add up vectors, for rank 0."""
        if self._method is None:
            self._comm.Reduce(sendbuf, recvbuf)
        else:
            self._run("reduce", sendbuf.size, sendbuf, recvbuf if self.rank == 0 else None)

    def Bcast(self, buffer: Array) -> None:
        """Tell all ranks the vector of rank 0."""
        if self._method is None:
            self._comm.Bcast(buffer)
        else:
            self._run("bcast", buffer.size, None, buffer)

    def free(self) -> None:
        """Free all plans."""
        for bound in self._bound.values():
            bound.free()

    def _run(self, kind: str, count: int, sendbuf: Array | None, recvbuf: Array | None) -> None:
        ends = [None if end is None else end.reshape(-1) for end in (sendbuf, recvbuf)]
        if (kind, count) not in self._bound:
            fields: dict[str, Any] = {"machine": self._machine, **(self._method or {})}
            if fields["decomposition"] == "mesh":
                shape = (self._machine.nodes, self.size // self._machine.nodes)
                fields["decomposition"] = {"name": "mesh", "shape": shape}
            fields["collective"] = {"kind": kind, "count": count, "datatype": "float64"}
            plan = compile_together(PlanSpec.model_validate(fields), self._comm, [])
            self._bound[kind, count] = bind(plan, self._comm, *ends)
        bound = self._bound[kind, count]
        bound.rebind(*ends)
        bound()


def applications(options: argparse.Namespace) -> dict[str, Callable[[Any, Stopwatch], Array]]:
    """Return functions that run an application on a communicator, by name."""
    system = System(options.unknowns, 4)

    def jacobi(form: str) -> Callable[[Any, Stopwatch], Array]:
        return lambda comm, watch: Jacobi(system, comm, form, watch).solve(0.0, 5)[0]

    forms = ("row", "column-allreduce", "column-reduce")
    found = {f"Jacobi, {form}": jacobi(form) for form in forms}
    return found | {
        "Adams-Bashforth": lambda comm, watch: ParallelAdams(comm, options.grid, 2, watch).solve(
            40, 4
        )
    }


def main() -> int:
    """Measure, and print medians of the ranks' communication."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--unknowns", type=int, default=200_000)
    parser.add_argument("--grid", type=int, default=256)
    options = parser.parse_args()
    comm = join_world()
    comms = {name: MeshComm(comm, method) for name, method in METHODS.items()}
    rows, is_right = [], True
    for name, run in applications(options).items():
        times: dict[str, list[float]] = {method: [] for method in METHODS}
        results: dict[str, Array] = {}
        for turn in range(1 + options.repetitions):
            for method, mesh in comms.items():
                watch = Stopwatch(comm)
                results[method] = run(mesh, watch)
                if turn:  # the first calls bind, and open connections
                    times[method].append(watch.stop()["communication_s"])
        is_right &= all(np.allclose(results["native"], one) for one in results.values())
        medians = [median(times[method]) for method in METHODS]
        rows.append([name, *(f"{1e3 * s:.1f}" for s in medians)])
        gains = dict(zip(METHODS, medians, strict=True))
        rows[-1] += [f"{medians[0] / gains[one]:.2f}" for one in ("full_lane native", "best")]
    for mesh in comms.values():
        mesh.free()
    is_right = bool(comm.allreduce(is_right, MPI.LAND))
    if comm.rank == 0:
        print_line(f"{comm.size} ranks, {library_name()}, {options.repetitions} repetitions")
        heads = ["ms of communication", *METHODS, "native/full_lane native", "native/best"]
        print_table(heads, rows)
        print_line("all results are alike" if is_right else "results DIFFER")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
