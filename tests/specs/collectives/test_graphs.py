"""Graphs of ranks: lists of edges, and grids in the order of MPI's Cartesian communicators."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.specs import CartesianGrid, EdgeList, SpecError
from collplan.specs.errors import FieldError
from collplan.specs.syntax.tables import read_edges
from neighborhoods import graphs, grids, neighbors_of
from tiers import examples

EDGE = "[source, destination] or [source, destination, elements]"


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 6).flatmap(lambda p: st.tuples(st.just(p), graphs(p))))
def test_neighbors_are_in_mpis_order(case: tuple[int, Any]) -> None:
    p, given_graph = case
    is_grid = isinstance(given_graph, dict)
    graph = CartesianGrid(**given_graph) if is_grid else EdgeList(given_graph)
    edges = graph.neighbors(p)
    for rank in range(p):
        sources, dests = neighbors_of(graph, rank)
        assert len(dests) == edges.n_sent[rank]
        assert len(sources) == edges.n_received[rank]
        for ends, here, there, place in (
            (dests, edges.source, edges.dest, edges.sent),
            (sources, edges.dest, edges.source, edges.received),
        ):
            found = dict(
                zip(place[here == rank].tolist(), there[here == rank].tolist(), strict=True)
            )
            assert found == {i: end for i, end in enumerate(ends) if end is not None}


def test_a_block_to_the_left_comes_from_the_right() -> None:
    for p in (1, 2, 3):
        edges = CartesianGrid(grid=(p,), periodic=True).neighbors(p)
        assert (edges.sent == 1 - edges.received).all()


def test_edges_of_each_dimension_are_counted() -> None:
    for p in (1, 4, 6):
        for fields in grids(p):
            grid = CartesianGrid(**fields)
            dimension = grid.neighbors(p).sent // 2
            assert grid.n_each == tuple(np.bincount(dimension, minlength=len(grid.grid)).tolist())


def test_graphs_are_compared_by_value() -> None:
    assert EdgeList([[0, 1]]) == EdgeList(np.array([[0, 1]], np.uint8)) != EdgeList([[1, 0]])
    assert hash(EdgeList([[0, 1, 2]])) == hash(EdgeList(((0, 1, 2),)))
    assert EdgeList([[0, 1, 2]]).to_json() == [[0, 1, 2]]
    assert EdgeList([]).n_edges == EdgeList(np.zeros((0, 3))).n_edges == 0
    assert not EdgeList([[0, 1]]).array.flags.writeable


@pytest.mark.parametrize(
    ("edges", "line"),
    [
        ("0 1", f"'0 1' is no graph; give a list of edges, each {EDGE}, or a grid as "
         "{grid: [4, 2]}"),
        ([[0]], f"[0] (edge 0) is no edge; give {EDGE}"),
        ([[0, 1], [0, 1, 2]], "edge 1 has 3 numbers, and the first edge has 2; give a number of "
         "elements for every edge, or for none"),
        ([[0, 1], [0, True]], "True (edge 1) is not a whole number; give one"),
        ([[0, 1.5]], "1.5 (edge 0) is not a whole number; give one"),
        ([[0, -1]], "-1 (edge 0) is negative; give 0 or more"),
        ([[0, 2**16]], "65536 (edge 0) is too large; at most 65535"),
        ([[0, 1, 2**70]], f"{2**70} (edge 0) is too large; at most {2**56}"),
        (np.zeros(3), f"the edges have shape (3,); give rows of {EDGE}"),
        (np.array([[0.5, 1]]), "the edges hold float64, not whole numbers; give those"),
    ],
)  # fmt: skip
def test_wrong_edges_are_named(edges: Any, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(line)}$"):
        read_edges(edges)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"grid": []}, "grid: "),
        ({"grid": [4, 0]}, "grid: grid of extents [4, 0]; every extent is 1 or more"),
        ({"grid": [4], "periodic": [True, False]}, "periodic has 2 entries for 1 dimensions; give "
         "one for each, or a single one for all"),
        ({"grid": [256, 512]}, "the grid has 131,072 ranks; give at most 65,536"),
        ({"grid": [4], "periods": True}, "periods: unknown key; did you mean 'periodic'?"),
    ],
)  # fmt: skip
def test_wrong_grids_are_named(fields: Any, line: str) -> None:
    with pytest.raises(FieldError) as caught:
        CartesianGrid(**fields)
    assert str(caught.value).startswith(line)
    assert isinstance(caught.value, SpecError)
