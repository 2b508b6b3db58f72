"""Small cases of every collective: all that shapes a plan, and the types it runs with."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

from collplan.planner.algorithms import registry
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import AFFINE, make_spec


def structures(kind: str, n_ranks: int):
    """Yield (root, count, in place, commutative): all that shapes a plan."""
    model = COLLECTIVES[kind]
    for root in range(n_ranks) if model.is_rooted else (0,):
        for count in _counts(kind, n_ranks):
            for in_place in (False, True) if "in_place" in model.model_fields else (False,):
                for commutative in (True, False) if model.has_op else (True,):
                    yield root, count, in_place, commutative


PLACES = 4
"""Roots of which one is taken: the first rank, the last one, and two between."""


@cache
def shuffled(kind: str) -> list[tuple[int, int, bool, bool]]:
    """Return all (root's place, count's number, in place, commutative) of a kind, mixed."""
    model = COLLECTIVES[kind]
    every = list(
        product(
            range(PLACES if model.is_rooted else 1),
            range(5 if kind != "barrier" else 1),
            (False, True) if "in_place" in model.model_fields else (False,),
            (True, False) if model.has_op else (True,),
        )
    )
    random.Random(kind).shuffle(every)
    return every


def dealt(kind: str, n_ranks: int, turn: int, n: int = 1):
    """Yield `n` structures, or all if there are fewer; successive turns take the next ones.

    So tests of many machines together take every combination of a root, a count and a kind of
    call, though each takes only few of them.
    """
    every, counts = shuffled(kind), _counts(kind, n_ranks)
    for i in range(turn * n, turn * n + min(n, len(every))):
        place, number, in_place, commutative = every[i % len(every)]
        inner = (i + place * n_ranks // PLACES) % n_ranks
        root = (0, n_ranks - 1, inner, inner)[place]
        yield root, counts[number % len(counts)], in_place, commutative


def _counts(kind: str, n_ranks: int) -> list[int]:
    return sorted({0, 1, n_ranks - 1, n_ranks, 3 * n_ranks + 1}) if kind != "barrier" else [0]


def flavours(kind: str, commutative: bool):
    """Yield the datatypes and operations a structure is run with."""
    if not commutative:
        yield {"datatype": "uint64", "op": AFFINE}
        return
    for datatype in ("int32", "float64"):
        for op in ("sum", "max") if COLLECTIVES[kind].has_op else (None,):
            yield {"datatype": datatype, "op": op}


def rounds(flavour) -> bool:
    """Return whether the operation of a flavour rounds."""
    return (flavour.get("datatype"), flavour.get("op")) == ("float64", "sum")


def legal_specs(n_ranks, machine=None, **kwargs):
    """Yield a spec of every algorithm that is legal on `n_ranks` ranks."""
    for kind in registry.kinds():
        for algorithm in registry.legal(kind, n_ranks, commutative=True):
            yield make_spec(kind, algorithm.name, n_ranks, machine, **kwargs)
