"""The collectives of the benchmark of counts that differ, per rank or edge, and their plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from collplan.specs import Machine, PlanSpec

NEIGHBORHOODS: Final = ("neighbor_allgatherv", "neighbor_alltoallv")
KINDS: Final = (
    *("gatherv", "scatterv", "allgatherv", "reduce_scatter", "alltoallv"),
    *NEIGHBORHOODS,
)
"""Cases to measure."""
DISTRIBUTIONS: Final = ("zipf", "spike")
N_NEIGHBORS: Final = 8
"""Most ranks to which a rank of a neighborhood sends."""
ITEMSIZE: Final = 4
SEED: Final = 1
SEGMENTS: Final[dict[str, Any]] = {
    "passes": [{"name": "segment", "max_bytes": "64KiB"}, {"name": "prioritize"}]
}
FLAT: Final = {
    "gatherv": ("linear", "binomial"),
    "scatterv": ("linear", "binomial"),
    "allgatherv": ("ring", "linear"),
    "reduce_scatter": ("pairwise", "ring"),
    "alltoallv": ("linear", "pairwise"),
    "neighbor_allgatherv": ("linear",),
    "neighbor_alltoallv": ("linear",),
}
"""Flat algorithms to measure."""


def spec_of(kind: str, distribution: str, machine: Machine, n_bytes: int) -> PlanSpec:
    """Return the spec of a collective whose blocks have `n_bytes` together.

    Examples
    --------
    >>> spec = spec_of("gatherv", "spike", Machine(ranks_per_node=4), 4096)
    >>> spec.collective.table(4).tolist()
    [0, 1024, 0, 0]
    """
    counts = {"distribution": distribution, "total": n_bytes // ITEMSIZE, "seed": SEED}
    collective: dict[str, Any] = {"kind": kind, "counts": counts, "datatype": "int32"}
    if kind in NEIGHBORHOODS:
        collective["graph"] = random_neighbors(machine.n_ranks)
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


def random_neighbors(n_ranks: int) -> Any:
    """Return edges from every rank to `N_NEIGHBORS` other ranks, or to all, by chance.

    Examples
    --------
    >>> random_neighbors(2).tolist()
    [[0, 1], [1, 0]]
    """
    rng, ranks = np.random.default_rng(SEED), np.arange(n_ranks)
    n_each = min(N_NEIGHBORS, n_ranks - 1)
    dests = [rng.choice(np.delete(ranks, rank), n_each, replace=False) for rank in ranks]
    return np.array([(rank, dest) for rank in ranks for dest in sorted(dests[rank])]).reshape(-1, 2)


def candidates_of(spec: PlanSpec) -> Iterator[tuple[str, PlanSpec]]:
    """Yield a handful of methods, by name: auto, flat algorithms, decompositions, segments."""
    methods: dict[str, dict[str, Any]] = {"auto": {"decomposition": "auto"}}
    methods |= {name: {"algorithms": name} for name in FLAT[spec.collective.kind]}
    if spec.machine.nodes > 1:
        methods |= {name: {"decomposition": name} for name in ("hierarchical", "full_lane")}
        lanes = {"name": "multi_leader", "leaders": spec.machine.lanes}
        methods["multi_leader"] = {"decomposition": lanes}
        methods["balanced"] = {"decomposition": lanes | {"shares": "balanced"}}
    segmented = ("full_lane", "balanced", *FLAT[spec.collective.kind][:1])
    methods |= {f"{name} 64KiB": methods[name] | SEGMENTS for name in segmented if name in methods}
    for name, method in methods.items():
        yield name, PlanSpec.model_validate({**dict(spec), **method})
