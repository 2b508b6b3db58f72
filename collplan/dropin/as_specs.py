"""Requests as specs have them: what a plan of one computes, and which none can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collplan.dropin.elements import unit_of
from collplan.planner.collective.operations import get_operation
from collplan.specs import COLLECTIVES, Operation, numpy_dtype
from collplan.specs.elements import LOGICAL

if TYPE_CHECKING:
    from collplan.dropin.calls import CollectiveCall


def commutes(op: str) -> bool:
    """Return whether a registered operation commutes."""
    return get_operation(op).commutative


def why_not_reduced(request: CollectiveCall) -> str | None:
    """Return why no plan can reduce so; None if one can."""
    if request.op is None:
        return "the operation is not one that plans know"
    if request.element is None:
        return "the datatype is not one that plans reduce"
    if request.element == "bool" and request.op not in LOGICAL:
        return f"{request.op} is not defined on bool"
    try:
        _operation(request.op).check_datatype(request.element)
    except ValueError as error:
        return str(error)
    return None


def _operation(op: str) -> Operation:
    return Operation(name=op, commutative=commutes(op))


def dtype_of(request: CollectiveCall) -> np.dtype[Any]:
    """Return the dtype of a plan's elements."""
    if not COLLECTIVES[request.kind].has_data:
        return np.dtype(np.uint8)
    return unit_of(request.n_bytes) if request.element is None else numpy_dtype(request.element)


def collective_of(request: CollectiveCall) -> Any:
    """Return the collective to plan: never in place, which ranks may differ in."""
    model: Any = COLLECTIVES[request.kind]
    if not model.has_data:
        return model()
    dtype = dtype_of(request)
    fields: dict[str, Any] = {
        "count": request.n_bytes // dtype.itemsize,
        "datatype": request.element or dtype.name,
    }
    if model.is_rooted:
        fields["root"] = request.root
    if request.op is not None:
        fields["op"] = _operation(request.op)
    return model(**fields)
