"""MPI datatype of the elements of a plan, and MPI operation that combines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.planner.arrays import Array
from collplan.planner.collective.operations import get_operation
from collplan.planner.plan.plan import Plan
from collplan.planner.rewrite.calls import COMBINING
from collplan.specs.collectives.predefined import BUILTIN, LOGICAL, PAIRS, numpy_dtype


class Applies(Protocol):
    """Associative operation on arrays, as in `collplan.planner.collective.operations`."""

    def apply(self, left: Array, right: Array, out: Array) -> None:
        """Write ``left op right`` into `out`."""


class Elements:
    """MPI datatype of the elements of a plan, and MPI operation that combines them.

    Datatypes and operations that MPI does not predefine are created, and must be freed by `free`.

    Parameters
    ----------
    datatype : str
        One of `collplan.specs.collectives.predefined.DATATYPES`.
    operation : object with ``apply(left, right, out)``, optional
        Operation that combines elements, if there is one.
    commutative : bool
        Whether MPI may exchange operands.

    Attributes
    ----------
    datatype : MPI.Datatype
    operation : MPI.Op or None
    """

    def __init__(
        self, datatype: str, operation: Applies | None = None, commutative: bool = True
    ) -> None:
        self._own: list[MPI.Op | MPI.Datatype] = []
        dtype = numpy_dtype(datatype)
        if datatype in PAIRS:
            self.datatype: MPI.Datatype = getattr(MPI, datatype.upper())
        else:
            self.datatype = MPI.Datatype.fromcode(dtype.char)
        if self.datatype == MPI.DATATYPE_NULL:  # as in an MPI without float16
            self.datatype = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
            self._own.append(self.datatype)
        self.operation: MPI.Op | None = None
        if operation is None:
            return
        name = getattr(operation, "name", "")
        is_builtin = name in BUILTIN and get_operation(name) is operation
        is_predefined = is_builtin and commutative and not self._own
        if is_predefined and (dtype.name != "bool" or name in LOGICAL):
            self.operation = getattr(MPI, name.upper())
        else:
            self.operation = MPI.Op.Create(_user_function(operation, dtype), commutative)
            self._own.append(self.operation)

    def free(self) -> None:
        """Free the datatypes and operations that were created."""
        while self._own:
            self._own.pop().Free()


def _user_function(operation: Applies, dtype: np.dtype[Any]) -> Callable[..., None]:
    def combine(left: Any, right: Any, _: MPI.Datatype) -> None:
        out = np.frombuffer(right, dtype=dtype)
        # MPI's order: inout = in op inout, with the lower rank's operand in `in`.
        operation.apply(np.frombuffer(left, dtype=dtype), out, out)

    return combine


def combines(plan: Plan) -> bool:
    """Return whether calls of a plan combine elements; the result is the same on all ranks."""
    return any(phase.is_native and phase.kind in COMBINING for phase in plan.phases)


def elements_of(plan: Plan, operation: Applies | None) -> Elements:
    """Return the elements of a plan that calls collectives of MPI.

    Parameters
    ----------
    plan : Plan
    operation : object with ``apply`` or None
        Operation of its reductions. It is ignored if no call combines elements.

    Raises
    ------
    BindError
        If the plan names no datatype.
    """
    if plan.origin is None:
        raise BindError("the plan calls MPI's collectives, but names no datatype; compile a spec")
    if not combines(plan):
        return Elements(plan.origin.datatype)
    return Elements(plan.origin.datatype, operation, plan.origin.commutes)
