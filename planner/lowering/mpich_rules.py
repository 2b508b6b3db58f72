"""Rules by which MPICH chooses an algorithm, to price its collectives by.

They are those of its non-blocking collectives, by which plans call it, as its source says them in
``src/mpi/coll/coll_selection.json`` (commit 07f13b4). What MPICH does besides in its device, as to
compose collectives by nodes, is not in these rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.algorithms.registry import Algorithm, registry
from collplan.planner.blueprint.blueprint import Component


@dataclass(frozen=True, slots=True)
class Rule:
    """An algorithm, by our name, and for what it is chosen; the first rule that holds decides.

    Parameters
    ----------
    algorithm : str
    below_bytes : float
        Bytes below which it is chosen: of all blocks together, or for `per_block` of one.
    per_block : bool
    least_size, below_size : int
        Number of ranks from which, and up to which, it is chosen.
    is_power_of_two : bool
        Whether it is chosen for such numbers of ranks only.
    combines_parts : bool
        Whether it needs a commutative operation, and an element per rank.
    """

    algorithm: str
    below_bytes: float = np.inf
    per_block: bool = False
    least_size: int = 0
    below_size: float = np.inf
    is_power_of_two: bool = False
    combines_parts: bool = False


RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "allgather": (
        Rule("recursive_doubling", below_bytes=524_288, is_power_of_two=True),
        Rule("ring", is_power_of_two=True),
        Rule("bruck", below_bytes=81_920),
        Rule("ring"),
    ),
    "allreduce": (
        Rule("recursive_doubling", below_bytes=2_049),
        Rule("rabenseifner", combines_parts=True),
        Rule("recursive_doubling"),
    ),
    "alltoall": (
        Rule("bruck", below_bytes=2_049, per_block=True, least_size=8),
        Rule("linear", below_bytes=32_769, per_block=True),
        Rule("pairwise"),
    ),
    "barrier": (Rule("recursive_doubling"),),
    "bcast": (
        Rule("binomial", below_size=8),
        Rule("binomial", below_bytes=12_288),
        Rule("scatter_allgather"),
    ),
    "exscan": (Rule("recursive_doubling"),),
    "gather": (Rule("binomial"),),
    "reduce": (
        Rule("binomial", below_bytes=2_049),
        Rule("rabenseifner", combines_parts=True),
        Rule("binomial"),
    ),
    "reduce_scatter_block": (
        Rule("recursive_halving", below_bytes=524_288, is_power_of_two=True),
        # MPICH halves among a power of two of ranks, after the others have folded.
        Rule("circulant", below_bytes=524_288, combines_parts=True),
        Rule("pairwise"),
    ),
    "scan": (Rule("recursive_doubling"),),
    "scatter": (Rule("binomial"),),
}
"""Rules of every collective.

MPICH has two broadcasts that scatter and then allgather, by recursive doubling or a ring.
`scatter_allgather`, which has the ring, stands for both: a rank sends as many bytes in either.
"""


def mpich_algorithm(component: Component, itemsize: int, commutative: bool) -> Algorithm:
    """Return the algorithm of ours that MPICH would choose for the largest group of a component.

    Parameters
    ----------
    component : Component
    itemsize : int
        Bytes per element.
    commutative : bool
        Whether operands may be exchanged.
    """
    sizes = np.unique(component.groups.sizes).tolist()
    size, totals = max(sizes), component.given.totals
    block = int(totals.max(initial=0)) * itemsize
    traits = component.traits
    # Blocks are of about one size; of an alltoall all that one rank sends counts.
    total = block * size if traits.has_blocks else block
    n_elements = total // itemsize
    for rule in RULES[component.kind]:
        algorithm = registry.find(component.kind, rule.algorithm)
        if not rule.least_size <= size < rule.below_size:
            continue
        if (block if rule.per_block else total) >= rule.below_bytes:
            continue
        if rule.is_power_of_two and size & (size - 1):
            continue
        if rule.combines_parts and (not commutative or n_elements < size):
            continue
        if all(algorithm.refusal(one, commutative) is None for one in sizes):
            return algorithm
    return registry.find(component.kind, RULES[component.kind][-1].algorithm)
