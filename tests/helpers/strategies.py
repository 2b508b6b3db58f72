"""Random specs and plans: every collective, algorithm, root, size, op and pass, and any counts."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.specs import PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES
from oracle import AFFINE, VECTORS, gaps, make_spec, random_counts, with_counts

MAX_TASKS = 200
"""Above this the brute-force check becomes slow."""


def random_spec(rng: random.Random, kind: str | None = None) -> PlanSpec:
    """Return a spec of 1 to 8 ranks with an algorithm that can serve it.

    Elements are 64 random bits, so that a wrong combination does not give a
    right number by chance.
    """
    kind = kind or rng.choice(registry.kinds())
    n_ranks = rng.choice((1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6, 7, 8))
    commutative = not COLLECTIVES[kind].has_op or rng.random() < 0.5
    algorithm = rng.choice(registry.legal(kind, n_ranks, commutative))
    max_bytes = rng.choice((8, 16, 24))
    in_place = rng.random() < 0.4
    spec = make_spec(
        kind,
        algorithm.name,
        n_ranks,
        machine={"nodes": n_ranks} if rng.random() < 0.3 else None,
        root=rng.randrange(n_ranks),
        count=rng.choice((0, 1, 1, 2, 3, n_ranks - 1, n_ranks, 2 * n_ranks + 1)),
        in_place=in_place,
        datatype="uint64",
        op="sum" if commutative else AFFINE,
        passes=[{"name": "segment", "max_bytes": max_bytes}] if rng.random() < 0.25 else [],
    )
    if kind not in VECTORS or rng.random() < 0.5:
        return spec
    counts = random_counts(rng, kind, n_ranks, in_place)
    return with_counts(spec, counts, **gaps(rng, kind, counts, in_place))


def random_plan(rng: random.Random, kind: str | None = None) -> Plan:
    """Compile random specs until one has at most `MAX_TASKS` tasks."""
    while True:
        plan = compile_plan(random_spec(rng, kind))
        if plan.n_tasks <= MAX_TASKS:
            return plan


plan_specs = st.randoms(use_true_random=False).map(random_spec)
"""The same specs as a hypothesis strategy."""
