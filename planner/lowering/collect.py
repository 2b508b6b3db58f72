"""Steps of rounds as columns: what an algorithm yields, for one group of positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.relative import Relative, Spread
from collplan.planner.algorithms.rounds import Chunks, Copy, Message, Reduce, Round, Where
from collplan.planner.arrays import Bools, Ints
from collplan.planner.memory import LARGE_BYTES, require_memory
from collplan.planner.plan.plan import Op

BYTES_PER_ROW: Final = 250
"""Peak memory of compiling, in bytes per message, local step, or run of chunks of one."""


class Column:
    """A column that grows by arrays or scalars."""

    def __init__(self, dtype: npt.DTypeLike = np.int64) -> None:
        self.dtype = dtype
        self.parts: list[tuple[Any, int]] = []

    def add(self, values: Any, n: int) -> None:
        """Add `n` entries: an array of them, relative numbers, or one value for all."""
        if isinstance(values, int):
            # Most columns of most steps are alike.
            if self.parts and isinstance(self.parts[-1][0], int) and self.parts[-1][0] == values:
                n += self.parts.pop()[1]
        else:
            size = size_of(values)
            assert size == n or np.ndim(values) == 0, f"{size} entries for {n} messages"
        self.parts.append((values, n))

    def array(self) -> npt.NDArray[Any]:
        """Return all entries."""
        array = np.empty(self._n_rows, dtype=self.dtype)
        begin = 0
        for values, n in self.parts:
            array[begin : begin + n] = values
            begin += n
        return array

    def spread(self) -> Spread:
        """Return all entries, some of which may be relative to positions."""
        values, offset = np.empty(self._n_rows, dtype=np.int64), np.zeros(self._n_rows, np.int64)
        is_relative = np.zeros(self._n_rows, dtype=bool)
        begin = 0
        for part, n in self.parts:
            rows = slice(begin, begin + n)
            if isinstance(part, Relative):
                values[rows], is_relative[rows] = part.values, True
                if part.has_offset:
                    offset[rows] = part.offset
            else:
                values[rows] = part
            begin += n
        return Spread(values, offset, is_relative)

    @property
    def _n_rows(self) -> int:
        return sum(n for _, n in self.parts)


class Runs:
    """Runs of chunks of many steps, waiting to be turned into pieces."""

    FIELDS = ("owner", "space", "first", "n", "stride", "repeat")

    def __init__(self) -> None:
        self.columns = {name: Column(np.int32) for name in self.FIELDS}
        self.is_sorted = True
        self.n = 0

    def add(self, where: Where, first_owner: int, n: int, kept: Bools | None) -> None:
        """Add the runs of `n` steps, of which those in `kept` are numbered from `first_owner`."""
        runs = _as_tuple(where)
        self.is_sorted &= len(runs) < 2
        n_kept = n if kept is None else int(np.count_nonzero(kept))
        self.n += n_kept * len(runs)
        for run in runs:
            self.columns["owner"].add(np.arange(first_owner, first_owner + n_kept), n_kept)
            for name in self.FIELDS[1:]:
                self.columns[name].add(_kept(getattr(run, name), kept), n_kept)

    def arrays(self) -> tuple[Ints, ...]:
        """Return the columns, owners ascending."""
        arrays = tuple(column.array() for column in self.columns.values())
        if not self.is_sorted:
            order = np.argsort(arrays[0], kind="stable")
            arrays = tuple(array[order] for array in arrays)
        return arrays


IN_ORDER: Final = 2
"""Value of `incoming_left` for operands in the order of the two positions."""
MESSAGE: Final[Mapping[str, npt.DTypeLike]] = dict.fromkeys(
    ("round", "source", "dest"), np.int32
) | {"incoming_left": np.int8, "combining": bool, "ordered": bool}
"""Types of the columns of messages."""
LOCAL: Final[Mapping[str, npt.DTypeLike]] = {"round": np.int32, "rank": np.int32, "op": np.int8}
"""Types of the columns of local steps."""
RUNS: Final = ("read", "write", "combine", "local_read", "local_write")
"""Runs of chunks that messages, and local steps, have."""


@dataclass
class Collected:
    """Steps of rounds as columns that grow."""

    only: Bools | None
    n_rounds: int = 0
    sends: list[int] = field(default_factory=list)
    """Rounds in which messages are sent, of whatever positions."""
    message: dict[str, Column] = field(
        default_factory=lambda: {name: Column(dtype) for name, dtype in MESSAGE.items()}
    )
    local: dict[str, Column] = field(
        default_factory=lambda: {name: Column(dtype) for name, dtype in LOCAL.items()}
    )
    runs: dict[str, Runs] = field(default_factory=lambda: {name: Runs() for name in RUNS})
    n_messages: int = 0
    n_locals: int = 0

    @property
    def n_rows(self) -> int:
        """Return the number of messages, local steps and runs."""
        return self.n_messages + self.n_locals + sum(runs.n for runs in self.runs.values())

    def arrays(self, columns: dict[str, Column], n_groups: int = 1) -> dict[str, Any]:
        """Return columns as arrays, repeated for every group."""
        arrays = {name: column.array() for name, column in columns.items()}
        if n_groups > 1:
            arrays = {name: np.tile(array, n_groups) for name, array in arrays.items()}
        return arrays

    def add_message(self, number: int, step: Message) -> None:
        """Add messages of round `number`."""
        source, dest = step.source, step.dest
        n_sources, n_dests = size_of(source), size_of(dest)
        if n_sources == 0 or n_dests == 0:
            return
        if self.sends[-1:] != [number]:
            self.sends.append(number)
        n = n_kept = max(n_sources, n_dests)
        kept = None
        if self.only is not None or n_sources != n_dests:
            source, dest = np.broadcast_to(source, n), np.broadcast_to(dest, n)
        if self.only is not None:
            kept = self.only[source] | self.only[dest]
            n_kept = int(np.count_nonzero(kept))
            if n_kept == 0:
                return
        row = {
            "round": number,
            "source": _kept(source, kept),
            "dest": _kept(dest, kept),
            "incoming_left": IN_ORDER if step.incoming_left is None else step.incoming_left,
            "combining": step.combine is not None,
            "ordered": step.ordered,
        }
        for name, value in row.items():
            self.message[name].add(value, n_kept)
        for name in ("read", "write", "combine"):
            where = getattr(step, name)
            if where is not None:
                self.runs[name].add(where, self.n_messages, n, kept)
        self.n_messages += n_kept

    def add_local(self, number: int, step: Copy | Reduce) -> None:
        """Add local steps of round `number`."""
        rank = step.rank
        n = n_kept = size_of(rank)
        kept = None
        if self.only is not None:
            rank = np.broadcast_to(rank, n)
            kept = self.only[rank]
            n_kept = int(np.count_nonzero(kept))
        if n_kept == 0:
            return
        self.local["round"].add(number, n_kept)
        self.local["rank"].add(_kept(rank, kept), n_kept)
        self.local["op"].add(Op.COPY if isinstance(step, Copy) else Op.REDUCE, n_kept)
        reads = (step.read,) if isinstance(step, Copy) else (step.left, step.right)
        runs = tuple(run for where in reads for run in _as_tuple(where))
        self.runs["local_read"].add(runs, self.n_locals, n, kept)
        self.runs["local_write"].add(step.write, self.n_locals, n, kept)
        self.n_locals += n_kept


def size_of(values: Any) -> int:
    """Return how many numbers there are; those relative to positions are as many as in a block."""
    return values.motion.step if isinstance(values, Relative) else getattr(values, "size", 1)


def _kept(value: Any, kept: Bools | None) -> Any:
    return value if kept is None or np.ndim(value) == 0 else value[kept]


def _as_tuple(where: Where) -> tuple[Chunks, ...]:
    return where if isinstance(where, tuple) else (where,)


def collect(rounds: Iterable[Round], only: Bools | None = None, n_groups: int = 1) -> Collected:
    """Collect the steps of all rounds into columns.

    Parameters
    ----------
    rounds : iterable of Round
        What an algorithm yields.
    only : ndarray of bool, optional
        Keep only what concerns the positions marked, dropping the rest as it comes.
    n_groups : int
        How many groups will get the same steps.

    Raises
    ------
    AlgorithmError
        If all their tasks do not fit into memory; no more steps are collected then.
    """
    collected = Collected(only)
    n_allowed = LARGE_BYTES // BYTES_PER_ROW
    for number, step_round in enumerate(rounds):
        collected.n_rounds = number + 1
        for step in step_round.steps:
            if isinstance(step, Message):
                collected.add_message(number, step)
            else:
                collected.add_local(number, step)
            if n_groups * collected.n_rows > n_allowed:
                require_memory(n_groups * collected.n_rows * BYTES_PER_ROW)
                n_allowed = 2 * n_groups * collected.n_rows
    return collected
