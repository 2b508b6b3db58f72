"""Neighborhood collectives in specs: their fields, blocks and mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.specs import EdgeList, PlanSpec, SpecError, load_spec, parse_spec
from neighborhoods import specs
from tiers import examples

RING = {"grid": [4], "periodic": True}
DRAWN = {"distribution": "zipf", "total": 60, "seed": 1}


def spec_of(**fields: Any) -> PlanSpec:
    machine = {"nodes": 2, "ranks_per_node": 2}
    return parse_spec({"machine": machine, "collective": {"kind": "neighbor_alltoallv", **fields}})


def test_blocks_lie_in_the_order_of_neighbors() -> None:
    layout = spec_of(graph=[[0, 2, 5], [3, 2, 1], [0, 1, 0], [0, 2, 2]]).collective.edge_layout(4)
    assert layout is not None
    assert layout.given.tolist() == [0, 0, 5, 5]
    assert layout.received.tolist() == [0, 5, 0, 6]
    assert layout.send_sizes.tolist() == [7, 0, 0, 1]
    assert layout.recv_sizes.tolist() == [0, 0, 8, 0]


def test_blocks_beyond_borders_have_room() -> None:
    fields = {"graph": {"grid": [2, 2]}, "counts": [3, 4]}
    layout = spec_of(**fields).collective.edge_layout(4)
    assert layout is not None
    # Rank 0 has neighbors in positive direction only: rank 2, then rank 1.
    assert layout.dest[:2].tolist() == [2, 1]
    assert layout.given[:2].tolist() == [3, 10]
    assert layout.send_sizes.tolist() == layout.recv_sizes.tolist() == [14] * 4


@settings(max_examples=examples(40), deadline=None)
@given(specs(), st.integers(0, 200))
def test_specs_are_written_and_scaled(spec: PlanSpec, count: int) -> None:
    assert PlanSpec.model_validate_json(spec.to_json()) == spec
    collective, layout = spec.collective, spec.collective.edge_layout(spec.machine.n_ranks)
    assert layout is not None
    if spec.collective.kind == "neighbor_alltoallv":
        assert collective.count == layout.counts.sum()
    scaled = spec.with_count(count).collective
    assert scaled.edge_layout(spec.machine.n_ranks) is not None
    if isinstance(collective.graph, EdgeList) and collective.graph.n_edges:
        assert scaled.count == count


def test_counts_of_edges_are_drawn() -> None:
    collective = spec_of(graph=[[0, 1], [1, 2], [0, 1]], counts=DRAWN).collective
    layout = collective.edge_layout(4)
    assert layout is not None
    assert layout.counts.sum() == collective.count == 60
    assert collective.with_count(120).count == 120
    gathered = spec_of(kind="neighbor_allgatherv", graph=RING, counts=DRAWN).collective
    layout = gathered.edge_layout(4)
    assert layout is not None
    assert layout.send_sizes.sum() == gathered.count == 60


def test_edges_are_read_from_files(tmp_path: Path) -> None:
    np.save(tmp_path / "edges.npy", np.array([[0, 1, 7], [1, 0, 2]]))
    np.save(tmp_path / "flat.npy", np.arange(3))
    path = tmp_path / "spec.yaml"
    text = "machine: {{ranks_per_node: 2}}\ncollective: {{kind: neighbor_alltoallv, graph: {}}}\n"
    path.write_text(text.format("edges.npy"))
    assert load_spec(path).collective.count == 9
    path.write_text(text.format("flat.npy"))
    with pytest.raises(SpecError, match=r"collective.graph: .*flat.npy holds no list of edges"):
        load_spec(path)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "collective.graph: is missing; give it a value"),
        ({"graph": [[0, 1]]}, "collective: counts is missing, and graph has no numbers of "
         "elements; give [source, destination, elements]"),
        ({"graph": RING}, "collective: counts is missing, and graph has no numbers of elements; "
         "give one per dimension"),
        ({"graph": [[0, 1, 5]], "counts": [5]}, "collective: counts are given, and the edges of "
         "graph have numbers of elements; keep one"),
        ({"graph": RING, "counts": [1, 2]}, "collective: counts has 2 numbers for the 1 "
         "dimensions of graph; give one for each"),
        ({"graph": [[0, 1]], "counts": [[1]]}, "collective: counts has 1 x 1 numbers for the 1 "
         "edges of graph; give one for each"),
        ({"graph": [[0, 1, 5]], "send_displs": [1, 2]}, "collective: send_displs has 2 numbers for "
         "the 1 edges of graph; give one for each"),
        ({"graph": RING, "counts": [1], "recv_displs": [1]}, "collective: recv_displs is for lists "
         "of edges; leave it out, as a grid has no gaps"),
        ({"graph": [[0, 1, 5], [2, 1, 3], [0, 3, 9]], "recv_displs": [0, 4, 0]},
         "collective.recv_displs: 5 elements from 0 and 3 elements from 4 overlap in rank 1's "
         "buffer; received blocks lie apart"),
        ({"graph": RING, "counts": DRAWN}, "collective: counts is a distribution, which is drawn "
         "for the edges of a list; a grid takes a list, with a number per dimension"),
        ({"graph": [], "counts": DRAWN}, "collective: counts is a distribution, which is drawn for "
         "the edges of a list; graph has no edges: leave it out"),
        ({"graph": [[0, 1, 2], [3, 4, 1]]}, "collective.graph: edge 1, from rank 3 to rank 4, "
         "leaves this machine; its 4 ranks are 0 to 3"),
        ({"graph": {"grid": [3, 2]}, "counts": [1, 1]}, "collective.graph.grid: the grid 3 x 2 "
         "has 6 ranks, the machine has 4; use extents whose product is 4"),
        ({"graph": [[0, 1, 5]], "in_place": True}, "collective.in_place: unknown key; valid: "
         "kind, graph, datatype, counts, send_displs, recv_displs"),
        ({"graph": [[0, 1, 2**56], [0, 1, 1]]}, f"collective: the blocks are {2**56 + 1} elements "
         f"in all; give at most {2**56}"),
        ({"kind": "neighbor_alltoall", "graph": [[0, 1, 5]], "count": 3}, "collective: graph has "
         "numbers of elements; neighbor_alltoall takes edges as [source, destination]"),
        ({"kind": "neighbor_allgather", "graph": [[0, 1]]}, "collective.count: is missing; give it "
         "a value"),
        ({"kind": "neighbor_allgatherv", "graph": RING, "counts": [1]}, "collective.counts: has "
         "entries for 1 ranks, the machine has 4; give one for every rank"),
        ({"kind": "neighbor_allgatherv", "graph": RING, "counts": [[1]]}, "collective: counts is a "
         "matrix; neighbor_allgatherv needs a list, with a number for every rank"),
    ],
)  # fmt: skip
def test_wrong_fields_are_named(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(**fields)
    assert str(caught.value) == line


def test_alltoallw_is_refused() -> None:
    with pytest.raises(SpecError, match=r"'neighbor_alltoallw' is not .* 'neighbor_alltoallv'\?"):
        spec_of(kind="neighbor_alltoallw")
