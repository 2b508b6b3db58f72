"""Cases of `native_cases.write_random_cases` on drop-ins, beside mpi4py's own results.

usage: random_calls.py FILE, under ``collplan exec``
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

MOST = 16384
N_STARTED = 5
WORLD: Any = MPI.COMM_WORLD
ORDER = random.Random(WORLD.rank)
ROW = MPI.INT.Create_contiguous(3).Commit()
COLUMN = MPI.SHORT.Create_vector(3, 1, 2).Commit()
TYPES: dict[str, tuple[MPI.Datatype, str]] = {
    "int": (MPI.INT, "i4"),
    "double": (MPI.DOUBLE, "f8"),
    "int8": (MPI.INT8_T, "i1"),
    "uint16": (MPI.UINT16_T, "u2"),
    "int64": (MPI.INT64_T, "i8"),
    "float": (MPI.FLOAT, "f4"),
    "unsigned": (MPI.UNSIGNED, "u4"),
    "longlong": (MPI.LONG_LONG, "i8"),
    "complex64": (MPI.C_FLOAT_COMPLEX, "c8"),
    "complex128": (MPI.C_DOUBLE_COMPLEX, "c16"),
    "bool": (MPI.C_BOOL, "?"),
    "double_int": (MPI.DOUBLE_INT, "f8, i4"),
    "float_int": (MPI.FLOAT_INT, "f4, i4"),
    "2int": (MPI.TWOINT, "i4, i4"),
    "short_int": (MPI.SHORT_INT, "i2, i4"),
    "long_int": (MPI.LONG_INT, "i8, i4"),
    "byte": (MPI.BYTE, ""),
    "char": (MPI.CHAR, ""),
    "row": (ROW, ""),
    "column": (COLUMN, ""),
}
"""MPI's type of each name, and numpy's; types without one are moved only."""


def least(left: Any, right: Any, _: MPI.Datatype) -> None:
    a, b = np.frombuffer(left, np.int32), np.frombuffer(right, np.int32)
    np.minimum(a, b, out=b)


OWN = MPI.Op.Create(least, commute=True)


@dataclass
class Case:
    """One line of the file, for a rank of a communicator."""

    comm: Any
    kind: str
    type: MPI.Datatype
    layout: str
    op: MPI.Op
    count: int
    in_place: bool
    root: int
    is_apart: bool
    form: str

    def __post_init__(self) -> None:
        rank, size, most = self.comm.rank, self.comm.size, self.count
        self.extent = self.type.extent
        self.is_own = self.in_place and rank == self.root
        order = range(size)[:: -1 if self.is_apart else 1]
        self.counts = [(block * 5 + most) % (most + 1) for block in range(size)]
        self.rows = [(rank * 3 + block + most) % (most + 1) for block in range(size)]
        self.columns = [(block * 3 + rank + most) % (most + 1) for block in range(size)]
        if self.in_place:
            self.columns = [(rank + block) % (most + 1) for block in range(size)]
        widths = [most + 2] * size if self.is_apart else self.counts
        self.places = [sum(widths[b] for b in order[: order.index(block)]) for block in range(size)]
        widths = [most + 1] * size if self.is_apart else self.columns
        self.spots = np.cumsum([0, *widths])[:-1].tolist()
        self.sent = np.zeros(MOST, "u1")
        n = MOST // 16
        values = 1 + (rank * 7 + np.arange(n) * 3) % 2
        if not self.layout:
            self.sent[:] = np.arange(MOST) * 7 + rank * 31
        elif "," in self.layout:
            pairs = self.sent[: n * self.extent].view(self.dtype)
            pairs["f0"], pairs["f1"] = values, rank
        else:
            self.sent[: n * self.extent].view(self.dtype)[:] = values - (self.layout == "?")

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.layout, align=True)

    def call(self, comm: Any, form: str) -> tuple[np.ndarray, Any]:
        """Make the call; return the memory it receives into, and its request."""
        into = np.full(MOST, 0x55, "u1")
        if self.in_place or (self.kind == "bcast" and comm.rank == self.root):
            into[:] = self.sent
        name = {
            "blocking": self.kind.capitalize(),
            "started": f"I{self.kind}",
            "persistent": f"{self.kind.capitalize()}_init",
        }[form]
        request = getattr(comm, name)(*self.arguments(into))
        if form == "persistent":
            request.Start()
        return into, request

    def arguments(self, into: np.ndarray) -> tuple[Any, ...]:
        own, whole = [self.sent, self.count, self.type], [into, self.count, self.type]
        given = MPI.IN_PLACE if self.in_place else own
        mine = MPI.IN_PLACE if self.is_own else own
        n_own = self.counts[self.comm.rank]
        part, parts = [self.sent, n_own, self.type], [into, self.counts, self.places, self.type]
        if self.kind in ("allreduce", "scan", "exscan", "reduce_scatter_block"):
            return given, whole, self.op
        if self.kind == "reduce_scatter":
            if self.in_place:
                return given, [into, sum(self.counts), self.type], self.counts, self.op
            all_ = [self.sent, sum(self.counts), self.type]
            return all_, [into, n_own, self.type], self.counts, self.op
        return {
            "barrier": (),
            "bcast": (whole, self.root),
            "reduce": (mine, whole, self.op, self.root),
            "gather": (mine, whole, self.root),
            "scatter": (own, MPI.IN_PLACE if self.is_own else whole, self.root),
            "allgather": (given, whole),
            "alltoall": (given, whole),
            "gatherv": (MPI.IN_PLACE if self.is_own else part, parts, self.root),
            "scatterv": (
                [self.sent, self.counts, self.places, self.type],
                MPI.IN_PLACE if self.is_own else [into, n_own, self.type],
                self.root,
            ),
            "allgatherv": (MPI.IN_PLACE if self.in_place else part, parts),
            "alltoallv": (
                MPI.IN_PLACE if self.in_place else [self.sent, self.rows, self.type],
                [into, self.columns, self.spots, self.type],
            ),
        }[self.kind]

    def defined(self, into: np.ndarray) -> np.ndarray:
        """Return what MPI defines of the memory that a call has received into."""
        n_bytes = MOST
        if self.kind == "exscan" and self.comm.rank == 0:
            n_bytes = 0
        elif self.in_place and self.kind == "reduce_scatter_block":
            n_bytes = self.count * self.extent
        elif self.in_place and self.kind == "reduce_scatter":
            n_bytes = self.counts[self.comm.rank] * self.extent
        if "," in self.layout:
            is_kept = np.zeros(self.extent, bool)
            for part, place, *_ in (self.dtype.fields or {}).values():
                is_kept[place : place + part.itemsize] = True
            into.reshape(-1, self.extent)[:, ~is_kept] = 0
        return into[:n_bytes]


class Communicators:
    """Drop-ins by name, which are made when they are used."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {"world": WORLD}

    def get(self, name: str) -> Any:
        if name not in self.made:
            color = WORLD.rank % 2 if name == "half" else 0
            self.made[name] = WORLD.Dup() if name == "dup" else WORLD.Split(color, -WORLD.rank)
        return self.made[name]

    def free(self, name: str) -> None:
        if name in self.made:
            self.made.pop(name).Free()


class Running:
    """Requests under way, and how many results were wrong."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, np.ndarray, np.ndarray, Case, str]] = []
        self.n_wrong = 0

    def judge(self, case: Case, expected: np.ndarray, found: np.ndarray, line: str) -> None:
        if not np.array_equal(case.defined(expected), case.defined(found)):
            self.n_wrong += 1
            print(f"rank {WORLD.rank}, {case.comm.size} ranks: wrong is {line}", flush=True)

    def end(self, *, all_: bool) -> None:
        """End one request by waiting or by tests, or all of them."""
        while self.started:
            request, *rest = self.started.pop(ORDER.randrange(len(self.started)))
            if ORDER.random() < 0.5:
                while not request.Test():
                    pass
            request.Wait()
            case, expected, found, line = rest[2], rest[0], rest[1], rest[3]
            if case.form == "persistent":
                request.Free()
            self.judge(case, expected, found, line)
            if not all_:
                return


def main() -> None:
    comms, running, n_cases = Communicators(), Running(), 0
    for line in Path(sys.argv[1]).read_text().splitlines():
        where, kind, name, op, *rest = line.split()
        if kind == "free":
            running.end(all_=True)
            comms.free(where)
            continue
        comm = comms.get(where)
        count, in_place, is_last, is_apart = map(int, rest[:4])
        root = comm.size - 1 if is_last else 0
        how = OWN if op == "own" else MPI.SUM if op == "-" else getattr(MPI, op.upper())
        flags = bool(in_place), root, bool(is_apart), rest[4]
        case = Case(comm, kind, *TYPES[name], how, count, *flags)
        expected, _ = case.call(MPI.Intracomm(comm), "blocking")
        while len(running.started) >= N_STARTED:
            running.end(all_=False)
        found, request = case.call(comm, case.form)
        if request is None:
            running.judge(case, expected, found, line)
        else:
            running.started.append((request, expected, found, case, line))
        if ORDER.random() < 0.3:
            running.end(all_=False)
        n_cases += 1
    running.end(all_=True)
    n_wrong = WORLD.reduce(running.n_wrong)
    if WORLD.rank == 0:
        print(f"{n_cases} cases, {n_wrong} wrong")


if __name__ == "__main__":
    main()
