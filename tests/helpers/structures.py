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


def thinned(kind: str, n_ranks: int, seed: int, n_roots: int = 6, n_skipped: int = 1):
    """Yield structures: every root, count and kind of call, if not every triple of them.

    From case to case `seed` picks others; of many roots the first, the last and some between.
    """
    axes = list(zip(*structures(kind, n_ranks), strict=True))
    roots = sorted(set(axes[0]))
    if len(roots) > n_roots:
        inner = [1 + (seed + i * n_ranks // n_roots) % (n_ranks - 2) for i in range(n_roots - 2)]
        roots = [0, *sorted(set(inner)), n_ranks - 1]
    counts, calls = sorted(set(axes[1])), sorted(set(zip(axes[2], axes[3], strict=True)))
    step = len(counts) if len(roots) > 1 else min(n_skipped, len(counts))
    for i, root in enumerate(roots):
        for j, count in enumerate(counts):
            for k, call in enumerate(calls):
                if (i + j + 2 * k + seed) % step == 0:
                    yield root, count, *call


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
