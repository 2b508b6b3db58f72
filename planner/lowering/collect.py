"""Steps that an algorithm yields for one group of positions, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.planner.algorithms.relative import Relative, Spread
from collplan.planner.algorithms.rounds import Call, Chunks, Copy, Message, Reduce, Round, Where
from collplan.planner.arrays import Bools, Ints
from collplan.planner.memory import LARGE_BYTES, require_memory
from collplan.planner.plan.plan import Op

SINGLE: Final = {int, bool, Op}
"""Types of entries that are one value for all rows of a step."""
BYTES_PER_ROW: Final = 250
"""Peak memory of compilation, in bytes per message, local step, or run of chunks."""


class Column:
    """A column of arrays, ranges, relative numbers and single values.

    Parameters
    ----------
    dtype : dtype or None
        Type of the entries; None for integers of 32 bits, or of 64 bits if any needs them.
    sizes : list of int
        Number of entries of every value, the same for all columns of a table.
    values : sequence
        Arrays, ranges, relative numbers and single values.
    """

    def __init__(
        self, dtype: npt.DTypeLike | None, sizes: list[int], values: Sequence[Any]
    ) -> None:
        self.dtype, self.sizes, self.values = dtype, sizes, values

    def array(self) -> npt.NDArray[Any]:
        """Return all entries, in an array that the caller must not change."""
        n, values = sum(self.sizes), self.values
        if len(values) == 1 and isinstance(values[0], np.ndarray) and values[0].shape == (n,):
            return self._typed(values[0])
        if set(map(type, values)) <= SINGLE:
            # Most columns have one value per step.
            return np.repeat(self._typed(np.array(values, dtype=self.dtype)), self.sizes)
        return self._typed(self._joined(np.empty(n, dtype=self.dtype or np.int64)))

    def _typed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return entries in the column's type."""
        return narrow(values) if self.dtype is None else np.asarray(values, dtype=self.dtype)

    def _joined(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Write all entries into an array, and return it."""
        begin = 0
        for values, n in zip(self.values, self.sizes, strict=True):
            if isinstance(values, range):
                values = np.arange(values.start, values.stop)
            array[begin : begin + n] = values
            begin += n
        return array

    def spread(self) -> Spread:
        """Return all entries, some of which may be relative to positions."""
        are_relative = [isinstance(part, Relative) for part in self.values]
        parts = list(zip(self.values, are_relative, strict=True))
        values = [part.values if is_relative else part for part, is_relative in parts]
        offsets = [part.offset if is_relative else 0 for part, is_relative in parts]
        value, offset = (Column(np.int64, self.sizes, one).array() for one in (values, offsets))
        return Spread(value, offset, np.repeat(np.array(are_relative, dtype=bool), self.sizes))


class GrowingColumns:
    """Growing columns of one length.

    Parameters
    ----------
    types : mapping of str to dtype or None
        Type of every column by name, as in `Column`.
    """

    def __init__(self, types: Mapping[str, npt.DTypeLike | None]) -> None:
        self.types = types
        self.sizes: list[int] = []
        self._rows: list[tuple[Any, ...]] = []

    @property
    def columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        values = zip(*self._rows, strict=True) if self._rows else ((),) * len(self.types)
        types = zip(self.types.items(), values, strict=True)
        return {name: Column(dtype, self.sizes, one) for (name, dtype), one in types}

    def append(self, entries: Iterable[Any], n: int) -> None:
        """Add `n` rows: for every column an array of them, relative numbers, or one value."""
        self.sizes.append(n)
        self._rows.append(tuple(entries))

    def exchange(self, arrays: Iterable[npt.NDArray[Any]], n: int) -> None:
        """Replace all entries by one array for every column, with `n` entries."""
        self.sizes[:] = [n]
        self._rows = [tuple(arrays)]


class Runs(GrowingColumns):
    """Runs of chunks of many steps, which later become pieces."""

    FIELDS = ("owner", "space", "first", "n", "stride", "repeat")

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(self.FIELDS))
        self.is_sorted = True
        self.n = 0

    def add(self, where: Where, first_owner: int, n: int, kept: Ints | None) -> int:
        """Add the runs of `n` steps. Those in `kept` have numbers from `first_owner` on.

        Returns the number of added runs.
        """
        runs = _as_tuple(where)
        self.is_sorted &= len(runs) < 2
        n_kept = n if kept is None else len(kept)
        owners = range(first_owner, first_owner + n_kept)
        for run in runs:
            fields = fields_of(run)
            if kept is not None:
                fields = tuple([_kept(value, n, kept) for value in fields])
            self.append((owners, *fields), n_kept)
        self.n += n_kept * len(runs)
        return n_kept * len(runs)

    def arrays(self) -> list[Ints]:
        """Return all columns, owners ascending."""
        arrays = [column.array() for column in self.columns.values()]
        if self.is_sorted:
            return arrays
        order = np.argsort(arrays[0], kind="stable")
        return [array[order] for array in arrays]

    def settle(self) -> None:
        """Keep every column as one array, owners ascending."""
        self.exchange(self.arrays(), self.n)
        self.is_sorted = True


fields_of = attrgetter(*Runs.FIELDS[1:])
"""Function that returns the fields of chunks that are columns of runs."""


IN_ORDER: Final = 2
"""Value of `incoming_left` for operands in the order of the two positions."""
MESSAGE: Final[Mapping[str, npt.DTypeLike]] = dict.fromkeys(
    ("round", "source", "dest", "queue"), np.int32
) | {"incoming_left": np.int8, "combining": bool, "ordered": bool}
"""Types of the columns of messages."""
LOCAL: Final[Mapping[str, npt.DTypeLike]] = {"round": np.int32, "rank": np.int32, "op": np.int8}
"""Types of the columns of local steps."""


class Steps(GrowingColumns):
    """Messages or local steps.

    Parameters
    ----------
    types : mapping of str to dtype
        Type of every column by name.
    ends : tuple of str
        The columns with positions: for messages the source and the destination.
    runs : tuple of str
        Kinds of chunks of every row, such as those that it reads.
    """

    def __init__(
        self, types: Mapping[str, npt.DTypeLike], ends: tuple[str, ...], runs: tuple[str, ...]
    ) -> None:
        super().__init__(types)
        self.ends, self.n = ends, 0
        self.runs = {name: Runs() for name in runs}

    def arrays(self, n_groups: int = 1) -> dict[str, Any]:
        """Return columns as arrays, repeated for every group."""
        arrays = {name: column.array() for name, column in self.columns.items()}
        if n_groups > 1:
            arrays = {name: np.tile(array, n_groups) for name, array in arrays.items()}
        return arrays

    def settle(self) -> None:
        """Keep every column as one array, for steps that many programs use."""
        self.exchange([column.array() for column in self.columns.values()], self.n)
        for runs in self.runs.values():
            runs.settle()

    def add(self, only: Bools | None, values: dict[str, Any], runs: dict[str, Where]) -> int:
        """Add a row for every position of the ends, unless no position is in `only`.

        Returns the number of rows and runs that were added.
        """
        ends = [values[end] for end in self.ends]
        n = n_kept = max(map(size_of, ends))
        kept = None
        if only is not None and n:
            # Most steps have no kept position.
            is_kept = only[ends[0]] if len(ends) == 1 else only[ends[0]] | only[ends[1]]
            kept = np.atleast_1d(is_kept).nonzero()[0]
            n_kept, kept = len(kept), None if len(kept) == n else kept
        if n_kept == 0:
            return 0
        self.append([_kept(values[name], n, kept) for name in self.types], n_kept)
        n_added = n_kept
        for name, where in runs.items():
            n_added += self.runs[name].add(where, self.n, n, kept)
        self.n += n_kept
        return n_added


@dataclass
class Collected:
    """Steps of rounds, as growing columns."""

    only: Bools | None = None
    n_rounds: int = 0
    sends: list[int] = field(default_factory=list)
    """Rounds in which any position sends messages."""
    messages: Steps = field(
        default_factory=lambda: Steps(MESSAGE, ("source", "dest"), ("read", "write", "combine"))
    )
    locals: Steps = field(default_factory=lambda: Steps(LOCAL, ("rank",), ("read", "write")))

    @property
    def tables(self) -> tuple[Steps, Steps]:
        """Return the messages and the local steps."""
        return self.messages, self.locals

    @property
    def n_rows(self) -> int:
        """Return the number of messages, local steps and runs."""
        return sum(steps.n + sum(runs.n for runs in steps.runs.values()) for steps in self.tables)

    def add_message(self, number: int, step: Message) -> int:
        """Add messages of round `number`; return the number of new rows and runs."""
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
            "queue": step.queue,
        }
        runs = {"read": step.read, "write": step.write, "combine": step.combine or ()}
        return self.messages.add(self.only, values, runs)

    def add_local(self, number: int, step: Copy | Reduce | Call) -> int:
        """Add local steps of round `number`; return the number of new rows and runs."""
        if isinstance(step, Reduce):
            op, reads = Op.REDUCE, (*_as_tuple(step.left), *_as_tuple(step.right))
        else:
            op, reads = Op.CALL if isinstance(step, Call) else Op.COPY, _as_tuple(step.read)
        values = {"round": number, "rank": step.rank, "op": op}
        return self.locals.add(self.only, values, {"read": reads, "write": step.write})


def size_of(values: Any) -> int:
    """Return the number of entries; relative numbers have one entry per position of a block."""
    if type(values) is int:
        return 1
    return values.motion.step if isinstance(values, Relative) else getattr(values, "size", 1)


def _kept(value: Any, n: int, kept: Ints | None) -> Any:
    """Return the kept ones of `n` entries. A single value for all entries does not change."""
    if isinstance(value, int):
        return value
    size = size_of(value)
    assert size in (1, n), f"{size} entries for {n} steps"
    return value if kept is None or size < n or value.ndim == 0 else value[kept]


def narrow(values: Ints) -> Ints:
    """Return integers in 32 bits, or in 64 bits if some do not fit into 32."""
    if values.dtype == np.int32:
        return values
    limits = np.iinfo(np.int32)
    if values.size and (values.min() < limits.min or values.max() > limits.max):
        return values
    return values.astype(np.int32, copy=False)


def _as_tuple(where: Where) -> tuple[Chunks, ...]:
    return where if isinstance(where, tuple) else (where,)


def collect(rounds: Iterable[Round], only: Bools | None = None, n_groups: int = 1) -> Collected:
    """Collect the steps of all rounds into columns.

    Parameters
    ----------
    rounds : iterable of Round
        Rounds that an algorithm yields.
    only : ndarray of bool, optional
        Keep only steps of the marked positions.
    n_groups : int
        Number of groups that have the same steps.

    Raises
    ------
    AlgorithmError
        If the tasks do not fit into memory, as soon as this is known.
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
