"""Steps of rounds as columns: what an algorithm yields, for one group of positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.relative import Relative, Spread
from collplan.planner.algorithms.rounds import Call, Chunks, Copy, Message, Reduce, Round, Where
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
        return self.fill(np.empty(self._n_rows, dtype=self.dtype))

    def fill(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Write all entries into an array, and return it."""
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

    def add(self, where: Where, first_owner: int, n: int, kept: Bools | None) -> int:
        """Add the runs of `n` steps, of which those in `kept` are numbered from `first_owner`.

        Returns how many they are.
        """
        runs = _as_tuple(where)
        self.is_sorted &= len(runs) < 2
        n_kept = n if kept is None else int(np.count_nonzero(kept))
        self.n += n_kept * len(runs)
        for run in runs:
            self.columns["owner"].add(np.arange(first_owner, first_owner + n_kept), n_kept)
            for name in self.FIELDS[1:]:
                self.columns[name].add(_kept(getattr(run, name), kept), n_kept)
        return n_kept * len(runs)

    def array(self) -> Ints:
        """Return the columns as rows of an array, owners ascending."""
        array = np.empty((len(self.FIELDS), self.n), dtype=np.int32)
        for row, column in zip(array, self.columns.values(), strict=True):
            column.fill(row)
        return array if self.is_sorted else array[:, np.argsort(array[0], kind="stable")]


IN_ORDER: Final = 2
"""Value of `incoming_left` for operands in the order of the two positions."""
MESSAGE: Final[Mapping[str, npt.DTypeLike]] = dict.fromkeys(
    ("round", "source", "dest"), np.int32
) | {"incoming_left": np.int8, "combining": bool, "ordered": bool}
"""Types of the columns of messages."""
LOCAL: Final[Mapping[str, npt.DTypeLike]] = {"round": np.int32, "rank": np.int32, "op": np.int8}
"""Types of the columns of local steps."""


@dataclass
class Steps:
    """Messages, or local steps, as columns that grow.

    Parameters
    ----------
    ends : tuple of str
        The columns that name positions: of a message its source, then its destination.
    columns : dict of Column
    runs : dict of Runs
        The chunks that each reads, writes and combines.
    n : int
        Number of rows.
    """

    ends: tuple[str, ...]
    columns: dict[str, Column]
    runs: dict[str, Runs]
    n: int = 0

    @classmethod
    def of(
        cls, types: Mapping[str, npt.DTypeLike], ends: tuple[str, ...], runs: tuple[str, ...]
    ) -> Steps:
        """Return no steps, of columns with these types."""
        columns = {name: Column(dtype) for name, dtype in types.items()}
        return cls(ends, columns, {name: Runs() for name in runs})

    def arrays(self, n_groups: int = 1) -> dict[str, Any]:
        """Return columns as arrays, repeated for every group."""
        arrays = {name: column.array() for name, column in self.columns.items()}
        if n_groups > 1:
            arrays = {name: np.tile(array, n_groups) for name, array in arrays.items()}
        return arrays

    def add(self, only: Bools | None, values: dict[str, Any], runs: dict[str, Where]) -> int:
        """Add a row for every position of the ends, but none without a position in `only`.

        Returns the number of rows and runs that were added.
        """
        kept = None
        if only is not None:
            # Most steps concern no position that is kept.
            kept = only[values[self.ends[0]]]
            for end in self.ends[1:]:
                kept = kept | only[values[end]]
            if not kept.any():
                return 0
        sizes = [size_of(values[end]) for end in self.ends]
        n = n_kept = max(sizes)
        if kept is not None or min(sizes) < n:
            values |= {end: np.broadcast_to(values[end], n) for end in self.ends}
        if kept is not None:
            kept = np.broadcast_to(kept, n)
            n_kept = int(np.count_nonzero(kept))
        if n_kept == 0:
            return 0
        for name, value in values.items():
            self.columns[name].add(_kept(value, kept), n_kept)
        n_added = n_kept
        for name, where in runs.items():
            n_added += self.runs[name].add(where, self.n, n, kept)
        self.n += n_kept
        return n_added


@dataclass
class Collected:
    """Steps of rounds as columns that grow."""

    only: Bools | None = None
    n_rounds: int = 0
    sends: list[int] = field(default_factory=list)
    """Rounds in which messages are sent, of whatever positions."""
    messages: Steps = field(
        default_factory=lambda: Steps.of(MESSAGE, ("source", "dest"), ("read", "write", "combine"))
    )
    locals: Steps = field(default_factory=lambda: Steps.of(LOCAL, ("rank",), ("read", "write")))

    @property
    def tables(self) -> tuple[Steps, Steps]:
        """Return the messages and the local steps."""
        return self.messages, self.locals

    @property
    def n_rows(self) -> int:
        """Return the number of messages, local steps and runs."""
        return sum(steps.n + sum(runs.n for runs in steps.runs.values()) for steps in self.tables)

    def add_message(self, number: int, step: Message) -> int:
        """Add messages of round `number`; return how many rows and runs are new."""
        if not size_of(step.source) or not size_of(step.dest):
            return 0
        if self.sends[-1:] != [number]:
            self.sends.append(number)
        values = {
            "round": number,
            "source": step.source,
            "dest": step.dest,
            "incoming_left": IN_ORDER if step.incoming_left is None else step.incoming_left,
            "combining": step.combine is not None,
            "ordered": step.ordered,
        }
        runs = {"read": step.read, "write": step.write, "combine": step.combine or ()}
        return self.messages.add(self.only, values, runs)

    def add_local(self, number: int, step: Copy | Reduce | Call) -> int:
        """Add local steps of round `number`; return how many rows and runs are new."""
        if isinstance(step, Reduce):
            op, reads = Op.REDUCE, (*_as_tuple(step.left), *_as_tuple(step.right))
        else:
            op, reads = Op.CALL if isinstance(step, Call) else Op.COPY, _as_tuple(step.read)
        values = {"round": number, "rank": step.rank, "op": op}
        return self.locals.add(self.only, values, {"read": reads, "write": step.write})


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
    n_rows, n_allowed = 0, LARGE_BYTES // BYTES_PER_ROW
    for number, step_round in enumerate(rounds):
        collected.n_rounds = number + 1
        for step in step_round.steps:
            if isinstance(step, Message):
                n_rows += collected.add_message(number, step)
            else:
                n_rows += collected.add_local(number, step)
            if n_groups * n_rows > n_allowed:
                require_memory(n_groups * n_rows * BYTES_PER_ROW)
                n_allowed = 2 * n_groups * n_rows
    return collected
