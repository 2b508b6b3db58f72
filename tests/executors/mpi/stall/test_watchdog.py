"""Reports of a standstill: their text, and the ranks that get them."""

from __future__ import annotations

import networkx as nx
import pytest

from collplan.executors.mpi.stall.watchdog import spread


@pytest.mark.quick
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64])
def test_word_spreads_to_all_ranks_in_as_many_steps_as_their_number_has_bits(size: int) -> None:
    told = nx.Graph()
    told.add_nodes_from(range(size))
    told.add_edges_from((rank, other) for rank in range(size) for other in spread(rank, size))
    assert nx.number_of_selfloops(told) == 0
    assert nx.diameter(told) <= (size - 1).bit_length()
    assert spread(0, 8) == {1, 2, 4, 6, 7}
