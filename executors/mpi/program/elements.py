"""MPI's datatype of a plan's elements, and MPI's operation that combines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from collplan.executors.mpi.errors import BindError
from collplan.planner.collective.operations import get_operation
from collplan.planner.plan.calls import COMBINING
from collplan.planner.plan.plan import Plan
from collplan.specs.predefined import BUILTIN, LOGICAL, PAIRS, numpy_dtype

Array = npt.NDArray[Any]


class Applies(Protocol):
    """An associative operation on arrays, such as `collplan.planner.collective.operations` has."""

    def apply(self, left: Array, right: Array, out: Array) -> None:
        """Write ``left op right`` into `out`."""


class Elements:
    """MPI's datatype of a plan's elements, and the operation that combines them.

    Free it after use: what MPI does not predefine is created here.

    Parameters
    ----------
    datatype : str
        One of `collplan.specs.predefined.DATATYPES`.
    operation : object with ``apply``, optional
        What combines elements, if anything does.
    commutative : bool
        Whether MPI may exchange operands.
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
        if self.datatype == MPI.DATATYPE_NULL:  # an MPI without float16, say
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
        """Free what was created."""
        while self._own:
            self._own.pop().Free()


def _user_function(operation: Applies, dtype: np.dtype[Any]) -> Callable[..., None]:
    def combine(left: Any, right: Any, _: MPI.Datatype) -> None:
        out = np.frombuffer(right, dtype=dtype)
        # MPI's order: inout = in op inout, with the lower rank's operand in `in`.
        operation.apply(np.frombuffer(left, dtype=dtype), out, out)

    return combine


def combines(plan: Plan) -> bool:
    """Return whether calls of a plan combine elements, the same for the programs of all ranks."""
    return any(phase.is_native and phase.kind in COMBINING for phase in plan.phases)


def elements_of(plan: Plan, operation: Applies | None) -> Elements:
    """Return the elements of a plan, and the operation that its calls combine them by.

    Raises
    ------
    BindError
        If the plan does not say.
    """
    if plan.origin is None:
        raise BindError("the plan calls MPI's collectives, but names no datatype; compile a spec")
    if not combines(plan):
        return Elements(plan.origin.datatype)
    stated = plan.origin.document["collective"]["op"]
    return Elements(plan.origin.datatype, operation, bool(stated.get("commutative", True)))
