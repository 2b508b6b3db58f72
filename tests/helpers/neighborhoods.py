"""Neighborhood collectives on random graphs, and their results by MPI's own words."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from collplan.specs import CartesianGrid, PlanSpec

Array = npt.NDArray[Any]
KINDS = ("neighbor_allgather", "neighbor_allgatherv", "neighbor_alltoall", "neighbor_alltoallv")
MACHINES: dict[int, list[dict[str, Any]]] = {
    1: [{}],
    2: [{"nodes": 2}, {"ranks_per_node": 2}],
    3: [{"nodes": 2, "ranks_per_node": [1, 2]}, {"nodes": 3}],
    4: [{"nodes": 2, "ranks_per_node": 2, "lanes": 2}, {"ranks_per_node": 4, "numa_domains": 2}],
    6: [
        {"nodes": 2, "ranks_per_node": 3, "lanes": 2, "rank_order": "cyclic"},
        {"nodes": 3, "ranks_per_node": 2},
        {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2},
    ],
}
"""Machines by their number of ranks."""
DECOMPOSITIONS: list[Any] = [
    "flat",
    "hierarchical",
    "full_lane",
    {"name": "full_lane", "shares": "balanced"},
    {"name": "full_lane", "by": "numa"},
]


def graphs(n_ranks: int) -> st.SearchStrategy[Any]:
    """Return lists of edges, with repeated ones and edges to their source, and grids."""
    rank = st.integers(0, n_ranks - 1)
    edges = st.lists(st.tuples(rank, rank), max_size=4 * n_ranks)
    return st.one_of(edges, st.sampled_from(grids(n_ranks)))


def grids(n_ranks: int) -> list[dict[str, Any]]:
    """Return the grids of some ranks, of one dimension and of two, periodic and not."""
    shapes = [(n_ranks,), *((n, n_ranks // n) for n in (1, 2, 3) if n_ranks % n == 0)]
    return [
        {"grid": shape, "periodic": periods}
        for shape in shapes
        for periods in product((False, True), repeat=len(shape))
    ]


def random_graph(rng: random.Random, kind: str, n_ranks: int) -> dict[str, Any]:
    """Return a graph, and the counts of a kind that has counts."""
    if rng.random() < 0.3:
        graph = rng.choice(grids(n_ranks))
        n_counts = len(graph["grid"])
    else:
        n_counts = rng.randint(1, 4 * n_ranks)
        graph = [[rng.randrange(n_ranks) for _ in range(2)] for _ in range(n_counts)]
    if not kind.endswith("v"):
        return {"graph": graph}
    n_counts = n_ranks if kind == "neighbor_allgatherv" else n_counts
    return {"graph": graph, "counts": [rng.choice((0, 0, 1, 2, 7)) for _ in range(n_counts)]}


@st.composite
def collectives(draw: st.DrawFn, n_ranks: int) -> dict[str, Any]:
    """Return the fields of neighborhood collectives."""
    kind, graph = draw(st.sampled_from(KINDS)), draw(graphs(n_ranks))
    count = st.sampled_from((0, 0, 1, 2, 7))
    n_counts = n_ranks
    if kind == "neighbor_alltoallv":
        n_counts = len(graph["grid"] if isinstance(graph, dict) else graph)
    counts = draw(st.lists(count, min_size=n_counts, max_size=n_counts))
    fields: dict[str, Any] = {"kind": kind, "graph": graph}
    if not kind.endswith("v"):
        fields["count"] = draw(count)
    elif counts:
        fields["counts"] = counts
    if kind == "neighbor_alltoallv" and counts and not isinstance(graph, dict):
        fields |= draw(displacements([dest for _, dest in graph], counts))
    return fields


@st.composite
def displacements(draw: st.DrawFn, dests: list[int], counts: list[int]) -> dict[str, list[int]]:
    """Return displacements of sent blocks, which may overlap, and of received ones, or of none."""
    n, found = len(dests), {}
    if draw(st.booleans()):
        found["send_displs"] = draw(st.lists(st.integers(0, 9), min_size=n, max_size=n))
    if draw(st.booleans()):
        ends: dict[int, int] = {}
        places = [0] * n
        for edge in draw(st.permutations(range(n))):
            places[edge] = ends.get(dests[edge], 0) + draw(st.integers(0, 2))
            ends[dests[edge]] = places[edge] + counts[edge]
        found["recv_displs"] = places
    return found


@st.composite
def specs(draw: st.DrawFn) -> PlanSpec:
    """Return specs of neighborhood collectives on small machines."""
    n_ranks = draw(st.sampled_from(tuple(MACHINES)))
    return PlanSpec.model_validate(
        {
            "machine": draw(st.sampled_from(MACHINES[n_ranks])),
            "collective": {**draw(collectives(n_ranks)), "datatype": "int64"},
            "decomposition": draw(st.sampled_from(DECOMPOSITIONS)),
            "transport": draw(st.sampled_from(("messages", "shared"))),
        }
    )


def neighbors_of(graph: Any, rank: int) -> tuple[list[int | None], list[int | None]]:
    """Return the sources and the destinations of a rank as MPI lists them; None is no rank."""
    if not isinstance(graph, CartesianGrid):
        edges = graph.array[:, :2].tolist()
        return [s for s, d in edges if d == rank], [d for s, d in edges if s == rank]
    places = list(product(*map(range, graph.grid)))
    found: list[int | None] = []
    for dimension, extent in enumerate(graph.grid):
        for step in (-1, 1):
            there = list(places[rank])
            there[dimension] += step
            if graph.periods[dimension]:
                there[dimension] %= extent
            found.append(places.index(tuple(there)) if tuple(there) in places else None)
    return found, found


def exchanged(collective: Any, inputs: list[Array], untouched: int) -> list[Array]:
    """Return all receive buffers after a collective, by a search for the block of each neighbor.

    The k-th block from a rank is the k-th block that it sends there. In a grid, it is the block
    that the neighbor sends in the opposite direction.
    """
    graph, is_grid = collective.graph, isinstance(collective.graph, CartesianGrid)
    sent = [cut(collective, rank, one) for rank, one in enumerate(inputs)]
    buffers = []
    for rank in range(len(inputs)):
        sources = neighbors_of(graph, rank)[0]
        blocks = []
        for place, source in enumerate(sources):
            if source is None:
                n = 0 if "allgatherv" in collective.kind else counts_of(collective, rank)[place]
                blocks.append(np.full(n, untouched))
                continue
            there = place ^ 1
            if not is_grid:
                to_me = [i for i, d in enumerate(neighbors_of(graph, source)[1]) if d == rank]
                there = to_me[sources[:place].count(source)]
            blocks.append(sent[source][there])
        places = displs_of(collective, rank, "recv_displs", [len(block) for block in blocks])
        ends = [place + len(block) for place, block in zip(places, blocks, strict=True)]
        filled = [end for end, block in zip(ends, blocks, strict=True) if len(block)]
        buffer = np.full(max(filled, default=0), untouched)
        for place, end, block in zip(places, ends, blocks, strict=True):
            buffer[place:end] = block
        buffers.append(buffer)
    return buffers


def displs_of(collective: Any, rank: int, field: str, counts: list[int]) -> list[int]:
    """Return where the blocks of a rank lie that it sends, or receives."""
    given = getattr(collective, field, None)
    if given is None:
        return [sum(counts[:place]) for place in range(len(counts))]
    ends = collective.graph.array[:, 0 if field == "send_displs" else 1].tolist()
    rows = zip(ends, given.array.tolist(), strict=True)
    return [place for end, place in rows if end == rank]


def counts_of(collective: Any, rank: int) -> list[int]:
    """Return the numbers of elements that a rank has for its destinations."""
    n = len(neighbors_of(collective.graph, rank)[1])
    if collective.kind == "neighbor_allgatherv":
        return [int(collective.counts.array[rank])] * n
    if collective.kind != "neighbor_alltoallv":
        return [collective.count] * n
    graph = collective.graph
    if isinstance(graph, CartesianGrid):
        return [count for count in collective.counts.array.tolist() for _ in range(2)]
    counts = graph.counts if collective.counts is None else collective.counts.array
    pairs = zip(graph.array[:, 0].tolist(), () if counts is None else counts, strict=True)
    return [int(count) for source, count in pairs if source == rank]


def cut(collective: Any, rank: int, contribution: Array) -> list[Array]:
    """Return the blocks that a rank sends, in the order of its destinations."""
    counts = counts_of(collective, rank)
    if "allgather" in collective.kind:
        return [contribution] * len(counts)
    places = displs_of(collective, rank, "send_displs", counts)
    return [contribution[begin : begin + n] for n, begin in zip(counts, places, strict=True)]


def n_contributed(collective: Any, rank: int) -> int:
    """Return the number of elements that a rank contributes."""
    if collective.kind == "neighbor_allgather":
        return int(collective.count)
    if collective.kind == "neighbor_allgatherv":
        return int(collective.counts.array[rank])
    counts = counts_of(collective, rank)
    places = displs_of(collective, rank, "send_displs", counts)
    return max((at + n for at, n in zip(places, counts, strict=True) if n), default=0)
