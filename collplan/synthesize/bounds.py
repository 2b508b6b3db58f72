"""Lower bounds on the rounds and bytes of all schedules, from counting arguments."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import Problem


def least_rounds(problem: Problem, graph: RankGraph) -> tuple[int, str]:
    """Return a lower bound on the number of rounds, and the reason for it.

    Examples
    --------
    >>> from collplan.synthesize.graph import link_graph
    >>> from collplan.synthesize.problem import state_problem
    >>> path = link_graph("path", {(0, 1): 1, (1, 0): 1, (1, 2): 1, (2, 1): 1}, 3, None)
    >>> least_rounds(state_problem("bcast", 3, 1, 0), path)
    (2, 'a chunk has a way of 2 links')
    """
    far = max(
        graph.distance[chunk.start][rank] or 0
        for chunk in problem.chunks
        for rank in chunk.wanted_by
    )
    least, why = far, f"a chunk has a way of {far} {'links' if far > 1 else 'link'}"
    if graph.ports:
        n = 0
        while (graph.ports + 1) ** n < problem.n_ranks:
            n += 1
        if n >= least:
            least, why = n, f"{graph.ports + 1} times as many ranks per round know of a rank"
    return least, why


def least_chunk_times(problem: Problem, graph: RankGraph) -> int:
    """Return a lower bound on the chunk times of links.

    It follows from the chunks that must enter each set of ranks, and from the number of
    rounds, because each round takes at least one chunk time.

    Examples
    --------
    >>> from collplan.synthesize.graph import link_graph
    >>> from collplan.synthesize.links import read_links
    >>> from collplan.synthesize.problem import state_problem
    >>> dgx1 = link_graph("dgx1", read_links("dgx1"), 8, None)
    >>> least_chunk_times(state_problem("allgather", 8, 6, 0), dgx1)
    7
    """
    sets = np.arange(1, 2**graph.n_ranks - 1)
    inside = (sets[:, None] >> np.arange(graph.n_ranks)) & 1 > 0
    width = np.zeros(len(sets), dtype=np.int64)
    for (a, b), n in graph.widths.items():
        width += n * (~inside[:, a] & inside[:, b])
    if problem.kind == "allreduce":
        # A partial result must enter every set, and each part needs 2(p - 1) messages.
        n_parts = len(problem.chunks)
        total = 2 * (graph.n_ranks - 1) * n_parts
        by_links = -(-total // sum(graph.widths.values()))
        return max(-(-n_parts // int(width.min())), by_links, least_rounds(problem, graph)[0])
    entering = np.zeros(len(sets), dtype=np.int64)
    for (start, wanted_by), n in Counter((c.start, c.wanted_by) for c in problem.chunks).items():
        wanted = inside[:, sorted(wanted_by)].any(axis=1)
        entering += n * (wanted & ~inside[:, start])
    return max(int((-(-entering // width)).max()), least_rounds(problem, graph)[0])


def scale_of(graph: RankGraph) -> int:
    """Return the unit in which the loads of resources with different bounds are compared.

    A load equal to the resource's bound has this value in the common scale.
    """
    return math.lcm(*(one.bound for one in graph.resources if one.bound))
