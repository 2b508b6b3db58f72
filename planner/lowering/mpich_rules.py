"""Rules by which MPICH chooses algorithms, to estimate the cost of its collectives.

They are the rules of its non-blocking collectives, which plans call, in its file
``src/mpi/coll/coll_selection.json`` (commit 07f13b4). Compositions of collectives in MPICH's
device, for example by nodes, are not modeled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from collplan.planner.algorithms.registry import Algorithm, registry
from collplan.planner.blueprint.blueprint import Component


@dataclass(frozen=True, slots=True)
class Rule:
    """An algorithm, and the conditions under which it is chosen. The first matching rule decides.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm in collplan.
    below_bytes : float
        Number of bytes below which it is chosen.
    per_block : bool
        Whether `below_bytes` refers to one block. Otherwise it refers to all blocks together.
    least_size : int
        Minimum number of ranks.
    below_size : float
        Number of ranks below which it is chosen.
    is_power_of_two : bool
        Whether it is chosen only if the number of ranks is a power of two.
    combines_parts : bool
        Whether it requires a commutative operation and at least one element per rank.
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
    "neighbor_alltoall": (Rule("linear"),),
    "reduce": (
        Rule("binomial", below_bytes=2_049),
        Rule("rabenseifner", combines_parts=True),
        Rule("binomial"),
    ),
    "reduce_scatter_block": (
        Rule("recursive_halving", below_bytes=524_288, is_power_of_two=True),
        # MPICH reduces the ranks to a power of two first, and then uses recursive halving.
        Rule("circulant", below_bytes=524_288, combines_parts=True),
        Rule("pairwise"),
    ),
    "scan": (Rule("recursive_doubling"),),
    "scatter": (Rule("binomial"),),
}
"""Rules of every collective.

MPICH has two broadcasts by scatter and allgather, with recursive doubling or with a ring.
`scatter_allgather`, which uses a ring, represents both, as ranks send the same number of bytes.
"""


def mpich_algorithm(component: Component, itemsize: int, commutative: bool) -> Algorithm:
    """Return the algorithm that MPICH would choose for the largest group of a component.

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
    # Blocks are assumed to have about the same size. For an alltoall, the total of one rank counts.
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
