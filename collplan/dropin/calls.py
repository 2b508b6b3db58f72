"""A collective call as all ranks see it, and the collective of a spec that plans it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collplan.dropin.elements import unit_of
from collplan.planner.collective.operations import get_operation
from collplan.rank_counts import Ints, RankCounts
from collplan.specs import COLLECTIVES, Operation, numpy_dtype
from collplan.specs.counts import Table
from collplan.specs.predefined import LOGICAL, check_operation


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective as all ranks see it, whatever their buffers look like.

    Parameters
    ----------
    kind : str
    n_bytes : int
        Of MPI's count.
    root : int
        0 where there is none.
    op : str or None
        The operation's name in specs; None where there is none or no plan has it.
    element : str or None
        What is reduced.
    """

    kind: str
    n_bytes: int
    root: int = 0
    op: str | None = None
    element: str | None = None

    @property
    def commutes(self) -> bool | None:
        """Return whether the operation commutes; None if there is none."""
        return None if self.op is None else _operation(self.op).commutative

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of a plan's elements."""
        if not COLLECTIVES[self.kind].has_data:
            return np.dtype(np.uint8)
        return unit_of(self.n_bytes) if self.element is None else numpy_dtype(self.element)

    def why_unplanned(self) -> str | None:
        """Return why no plan can run such a call, whatever a table says; None if one can."""
        if self.n_bytes == 0 and COLLECTIVES[self.kind].has_data:
            return "nothing to move"
        return self.why_not_reduced() if COLLECTIVES[self.kind].has_op else None

    def why_not_reduced(self) -> str | None:
        """Return why no plan can reduce so; None if one can."""
        if self.op is None:
            return "the operation is not one that plans know"
        if self.element is None:
            return "the datatype is not one that plans reduce"
        if self.element == "bool" and self.op not in LOGICAL:
            return f"{self.op} is not defined on bool"
        try:
            check_operation(self.op, self.element)
        except ValueError as error:
            return str(error)
        return None

    def collective(self) -> Any:
        """Return the collective to plan: never in place, which ranks may differ in."""
        model: Any = COLLECTIVES[self.kind]
        if not model.has_data:
            return model()
        return self._model(self.dtype, count=self.n_bytes // self.dtype.itemsize)

    def _model(self, dtype: np.dtype[Any], **fields: Any) -> Any:
        model: Any = COLLECTIVES[self.kind]
        if model.is_rooted:
            fields["root"] = self.root
        if self.op is not None:
            fields["op"] = _operation(self.op)
        return model(datatype=self.element or dtype.name, **fields)


@dataclass(frozen=True, slots=True)
class VectorCall(CollectiveCall):
    """A collective whose counts differ per rank, as all ranks see it.

    `n_bytes` is the mean size of a block, rounded up.

    Parameters
    ----------
    digest : bytes
        The same for the same counts of all ranks.
    counts : RankCounts
        What this rank knows of them, in bytes.
    """

    digest: bytes = b""
    counts: RankCounts = field(default=RankCounts(""), compare=False)

    def collective_of(self, table: Ints) -> Any:
        """Return the collective to plan, given the bytes of all blocks: without gaps.

        Where blocks lie, ranks may differ in.
        """
        dtype = self.dtype if self.element else unit_of(int(np.gcd.reduce(table, axis=None)))
        return self._model(dtype, counts=Table(table // dtype.itemsize))


def _operation(op: str) -> Operation:
    return Operation(name=op, commutative=get_operation(op).commutative)
