"""Signatures of collective calls, which are equal on all ranks, and the collectives to plan."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collplan.api.rank_counts import Ints, RankCounts
from collplan.planner.collective.operations import get_operation
from collplan.specs import COLLECTIVES, Operation, numpy_dtype
from collplan.specs.collectives.counts import Table
from collplan.specs.collectives.predefined import LOGICAL, check_operation


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """Signature of a call, which MPI requires to be equal on all ranks.

    Parameters
    ----------
    kind : str
        Kind of the collective.
    n_bytes : int
        Message size in bytes: the size of the vector, or of one block.
    root : int
        Root; 0 if the collective has none.
    op : str or None
        Name of the operation in specs; None if the call has no operation, or plans do not
        support it.
    element : str or None
        Type of the reduced elements; None if the call reduces nothing, or plans do not support
        the type.
    """

    kind: str
    n_bytes: int
    root: int = 0
    op: str | None = None
    element: str | None = None

    @property
    def commutes(self) -> bool | None:
        """True if the operation is commutative; None if there is no operation."""
        return None if self.op is None else _operation(self.op).commutative

    @property
    def rounds(self) -> bool:
        """Return whether plans combine elements with an operation that rounds."""
        if self.op is None or self.element is None or self.why_not_reduced() is not None:
            return False
        model: Any = COLLECTIVES["allreduce"]
        return bool(model(count=0, datatype=self.element, op=_operation(self.op)).rounds)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the plan's elements."""
        if not COLLECTIVES[self.kind].has_data:
            return np.dtype(np.uint8)
        return unit_of(self.n_bytes) if self.element is None else numpy_dtype(self.element)

    def why_unplanned(self) -> str | None:
        """Return the reason why no plan can run the call; None if one can."""
        if self.n_bytes == 0 and COLLECTIVES[self.kind].has_data:
            return "nothing to move"
        return self.why_not_reduced() if COLLECTIVES[self.kind].has_op else None

    def why_not_reduced(self) -> str | None:
        """Return the reason why no plan can perform the reduction; None if one can."""
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
        """Return the collective to plan.

        The collective is never in place, because only some of the ranks may pass MPI_IN_PLACE.
        """
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
    """Signature of a call whose counts differ per rank.

    `n_bytes` is the mean size of a block, rounded up.

    Parameters
    ----------
    digest : bytes
        Digest of the counts of all ranks.
    counts : RankCounts
        Counts that this rank knows, in bytes.
    """

    digest: bytes = b""
    counts: RankCounts = field(default=RankCounts(""), compare=False)

    def collective_of(self, table: Ints) -> Any:
        """Return the collective to plan, given the sizes of all blocks in bytes.

        The blocks of the collective are contiguous, because each rank may pass other
        displacements.

        Parameters
        ----------
        table : ndarray of int64
            Size of each block in bytes; for alltoallv, one row per sender.
        """
        dtype = self.dtype if self.element else unit_of(int(np.gcd.reduce(table, axis=None)))
        return self._model(dtype, counts=Table(table // dtype.itemsize))


def _operation(op: str) -> Operation:
    return Operation(name=op, commutative=get_operation(op).commutative)


def unit_of(n_bytes: int) -> np.dtype[np.generic]:
    """Return the largest integer dtype whose size divides a number of bytes.

    Plans of collectives that only move data use these elements, which are the same on all
    ranks even if ranks pass different datatypes.

    Examples
    --------
    >>> unit_of(800), unit_of(12), unit_of(7)
    (dtype('int64'), dtype('int32'), dtype('int8'))
    """
    return np.dtype(f"int{8 * math.gcd(n_bytes, 8)}")
