"""Small cases of every collective: all that shapes a plan, and the types it runs with."""

from __future__ import annotations

from collplan.planner.algorithms import registry
from collplan.specs.collective import COLLECTIVES
from oracle import AFFINE, make_spec


def structures(kind: str, n_ranks: int):
    """Yield (root, count, in place, commutative): all that shapes a plan."""
    model = COLLECTIVES[kind]
    counts = sorted({0, 1, n_ranks - 1, n_ranks, 3 * n_ranks + 1})
    for root in range(n_ranks) if model.is_rooted else (0,):
        for count in counts if kind != "barrier" else (0,):
            for in_place in (False, True) if "in_place" in model.model_fields else (False,):
                for commutative in (True, False) if model.has_op else (True,):
                    yield root, count, in_place, commutative


def flavours(kind: str, commutative: bool):
    """Yield the datatypes and operations a structure is run with."""
    if not commutative:
        yield {"datatype": "uint64", "op": AFFINE}
        return
    for datatype in ("int32", "float64"):
        for op in ("sum", "max") if COLLECTIVES[kind].has_op else (None,):
            yield {"datatype": datatype, "op": op}


def legal_specs(n_ranks, machine=None, **kwargs):
    """Yield a spec of every algorithm that is legal on `n_ranks` ranks."""
    for kind in registry.kinds():
        for algorithm in registry.legal(kind, n_ranks, commutative=True):
            yield make_spec(kind, algorithm.name, n_ranks, machine, **kwargs)
