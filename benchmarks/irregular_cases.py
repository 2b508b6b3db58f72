"""The collectives of the benchmark of counts that differ per rank, and how each is planned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from collplan.specs import Machine, PlanSpec

KINDS: Final = ("gatherv", "scatterv", "allgatherv", "reduce_scatter", "alltoallv")
"""Cases to measure."""
DISTRIBUTIONS: Final = ("zipf", "spike")
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
    collective = {"kind": kind, "counts": counts, "datatype": "int32"}
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


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
