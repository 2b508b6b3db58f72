"""Program of every rank of the engine's benchmark; started by ``engine.py``.

A cell is a collective and a size. Its methods take turns: a round runs each of
them as a block of calls in a row after a barrier, each time another one first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from engine_by_hand import ByHand, ByPersistentRequests
from mpi4py import MPI
from stopwatch import in_a_row

from collplan.api.compiling import compile_spec
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.world import join_world
from collplan.measure.native import NativeCollective
from collplan.measure.timing import CallObserver, Times, library_name, time_in_turns
from collplan.planner.algorithms.registry import registry
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError

Array = npt.NDArray[Any]
Call = Callable[[], object]
Cell = dict[str, Any]

SAME: Final = {
    "allreduce": "ring",
    "bcast": "binomial",
    "alltoall": "pairwise",
    "allgather": "ring",
}
"""The collectives that are compared algorithm by algorithm."""
IN_PLACE: Final = ("allreduce", "allgather")
OF_BLOCKS: Final = ("allgather", "alltoall", "gather", "scatter", "reduce_scatter_block")
ITEMSIZE: Final = 8
BLOCK_S: Final = 0.02
"""Time of the calls of a block together, if one takes less."""
SCREENING_ROUNDS: Final = 3


class WarmUp(CallObserver):
    """Make every call once before its block: its memory is warm, and its connections are made."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls

    def announce(self, which: int) -> None:
        """Make the call whose block is next."""
        self._calls[which]()


def time_rounds(comm: MPI.Intracomm, calls: Sequence[Call], n_rounds: int) -> list[list[float]]:
    """Return seconds per call of the slowest rank, for every method and round."""
    n_calls = [_calls_a_block(comm, call) for call in calls]
    times = _time_blocks(comm, calls, n_calls, n_rounds)
    found: list[list[float]] = (times / np.array(n_calls)[:, None]).tolist()
    return found


def _time_blocks(
    comm: MPI.Intracomm, calls: Sequence[Call], n_calls: Sequence[int], n_rounds: int
) -> Times:
    """Return seconds of each method's block of calls, shape (len(calls), n_rounds)."""
    blocks = [in_a_row(call, n) for call, n in zip(calls, n_calls, strict=True)]
    return time_in_turns(comm, blocks, n_rounds, warm_ups=0, watch=WarmUp(calls))


def _calls_a_block(comm: MPI.Intracomm, call: Call) -> int:
    n = 1
    while True:
        longest = float(_time_blocks(comm, [call], [n], 1)[0, 0])
        if longest >= BLOCK_S / 4:
            return max(1, round(n * BLOCK_S / longest))
        n *= 4


def make_spec(kind: str, n_ranks: int, n_bytes: int, **choices: object) -> PlanSpec:
    """Return a spec on one node; sizes are those of MPI's count."""
    collective: dict[str, object] = {"kind": kind}
    if kind != "barrier":
        dtype = dtype_of(n_ranks, n_bytes)
        collective |= {"count": n_bytes // dtype.itemsize, "datatype": dtype.name}
    if kind in IN_PLACE:
        collective["in_place"] = True
    return PlanSpec.model_validate(
        {"machine": {"ranks_per_node": n_ranks}, "collective": collective, **choices}
    )


def dtype_of(n_ranks: int, n_bytes: int) -> np.dtype[Any]:
    """Return the datatype: float64, or bytes where ranks would get less than one each.

    Libraries take another algorithm then than the one that was forced.
    """
    return np.dtype(np.float64 if n_bytes >= n_ranks * ITEMSIZE else np.int8)


def make_buffers(kind: str, n_ranks: int, n_bytes: int) -> tuple[Array, Array]:
    """Return buffers large enough for the collective, touched, full of zeros."""
    dtype = dtype_of(n_ranks, n_bytes)
    n = (n_ranks if kind in OF_BLOCKS else 1) * n_bytes // dtype.itemsize
    # Sums of zeros stay what they are, however often they are made in place.
    return np.full(n, 0, dtype), np.full(n, 0, dtype)


def same_algorithm(
    comm: MPI.Intracomm, kind: str, n_bytes: int, n_rounds: int, receives: int | None = None
) -> Cell:
    """Time native, the engine and code by hand, which all run the same algorithm."""
    limit = {"name": "limit_requests", "receives": receives, "local": None, "remote": None}
    passes = [] if receives is None else [limit]
    spec = make_spec(kind, comm.size, n_bytes, algorithms=SAME[kind], passes=passes)
    sendbuf, recvbuf = make_buffers(kind, comm.size, n_bytes)
    arguments = kind, comm, n_bytes // recvbuf.itemsize, sendbuf, recvbuf
    by_requests = ByPersistentRequests(*arguments)
    with ExitStack() as stack:
        native = stack.enter_context(NativeCollective(spec.collective, comm, sendbuf, recvbuf))
        plan = compile_spec(spec, rank=comm.rank)
        methods: dict[str, Call] = {
            "native": native,
            "engine": stack.enter_context(bind(plan, comm, *_used(spec, sendbuf, recvbuf))),
            "slices": ByHand(*arguments),
            "persistent": by_requests,
        }
        check(comm, kind, methods, sendbuf, recvbuf)
        times = time_rounds(comm, list(methods.values()), n_rounds)
    by_requests.free()
    return {"kind": kind, "bytes": n_bytes, "times_s": dict(zip(methods, times, strict=True))}


def best_variant(comm: MPI.Intracomm, kind: str, n_bytes: int, n_rounds: int) -> Cell:
    """Time native beside the fastest of all plans, which some rounds before have found."""
    sendbuf, recvbuf = make_buffers(kind, comm.size, n_bytes)
    with ExitStack() as stack:
        methods: dict[str, Call] = {}
        for name, choices in candidates(kind).items():
            try:
                spec = make_spec(kind, comm.size, n_bytes, **choices)
                plan = compile_spec(spec, rank=comm.rank)
                bound = bind(plan, comm, *_used(spec, sendbuf, recvbuf))
            except CollplanError:  # on all ranks: an algorithm for powers of two, say
                continue
            methods[name] = stack.enter_context(bound)
        collective = make_spec(kind, comm.size, n_bytes).collective
        native = stack.enter_context(NativeCollective(collective, comm, sendbuf, recvbuf))
        screened = time_rounds(comm, list(methods.values()), SCREENING_ROUNDS)
        medians = dict(zip(methods, np.median(screened, axis=1).tolist(), strict=True))
        best = min(medians, key=lambda name: medians[name])
        times = time_rounds(comm, [native, methods[best]], n_rounds)
    cell = {"kind": kind, "bytes": n_bytes, "best": best, "screened_s": medians}
    return {**cell, "times_s": dict(zip(("native", "engine"), times, strict=True))}


def candidates(kind: str) -> dict[str, dict[str, object]]:
    """Return the choices of every plan worth trying on one node, by name."""
    named: dict[str, dict[str, object]] = {"auto": {"decomposition": "auto"}}
    named |= {one.name: {"algorithms": one.name} for one in registry.of(kind)}
    shared = {f"{name}, shared": {**one, "transport": "shared"} for name, one in named.items()}
    return named | shared


def check(
    comm: MPI.Intracomm, kind: str, methods: dict[str, Call], sendbuf: Array, recvbuf: Array
) -> None:
    """Compare every method's result with the first one's; leave zeros."""
    truth: Array | None = None
    for name, call in methods.items():
        for array in (sendbuf, recvbuf):
            array[:] = np.arange(len(array)) % 10 + comm.rank
        call()
        truth = recvbuf.copy() if truth is None else truth
        if not comm.allreduce(bool(np.array_equal(truth, recvbuf)), MPI.LAND):
            raise CollplanError(f"{kind}: {name} differs from native on {len(recvbuf)} elements")
    for array in (sendbuf, recvbuf):
        array[:] = 0


def _used(spec: PlanSpec, sendbuf: Array, recvbuf: Array) -> tuple[Array | None, Array]:
    collective = spec.collective
    return (None if collective.in_place or collective.kind == "bcast" else sendbuf), recvbuf


def main() -> int:
    """Measure all cells, and let rank 0 write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--what", choices=("same", "best"), required=True)
    parser.add_argument("--collectives", nargs="+", required=True)
    parser.add_argument("--sizes", nargs="+", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--receives", type=int)
    options = parser.parse_args()
    comm = join_world()
    same = partial(same_algorithm, receives=options.receives)
    measure = same if options.what == "same" else best_variant
    cells: list[Cell] = []
    for kind in options.collectives:
        for n_bytes in options.sizes if kind != "barrier" else [0]:
            cell = measure(comm, kind, n_bytes, options.rounds)
            cells.append({"ranks": comm.size, "library": library_name(), **cell})
            if comm.rank == 0:
                # A long run that is stopped leaves what it has measured.
                options.output.write_text(json.dumps(cells))
                place = f"{comm.size} ranks, {kind}, {n_bytes} bytes"
                print(f"{options.what}: {place}: measured", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
