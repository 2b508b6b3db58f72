"""Sizes of the buffers of a collective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.planner.collective.buffers import buffer_sizes
from collplan.specs.collectives.collective import validate_collective


@pytest.mark.quick
@pytest.mark.parametrize(
    ("fields", "sent", "received"),
    [
        ({"kind": "bcast", "count": 4, "root": 1}, [0, 0, 0], [4, 4, 4]),
        ({"kind": "scatter", "count": 4, "root": 1}, [0, 12, 0], [4, 4, 4]),
        ({"kind": "scatter", "count": 4, "root": 1, "in_place": True}, [0, 12, 0], [4, 0, 4]),
        ({"kind": "gather", "count": 4, "root": 1}, [4, 4, 4], [0, 12, 0]),
        ({"kind": "reduce", "count": 4, "root": 1, "in_place": True}, [4, 0, 4], [0, 4, 0]),
        ({"kind": "allgather", "count": 4, "in_place": True}, [0, 0, 0], [12, 12, 12]),
        ({"kind": "reduce_scatter_block", "count": 4, "in_place": True}, [0, 0, 0], [12, 12, 12]),
        ({"kind": "alltoall", "count": 4}, [12, 12, 12], [12, 12, 12]),
        ({"kind": "gatherv", "counts": [1, 0, 5], "root": 0}, [1, 0, 5], [6, 0, 0]),
        ({"kind": "allgatherv", "counts": [1, 2, 5], "displs": [9, 0, 4]}, [1, 2, 5], [10] * 3),
        ({"kind": "alltoallv", "counts": [[1, 2, 3], [0, 0, 0], [4, 0, 0]]}, [6, 0, 4], [5, 2, 3]),
    ],
)
def test_sizes(fields: dict[str, Any], sent: list[int], received: list[int]) -> None:
    found = buffer_sizes(validate_collective({"datatype": "int32"} | fields), 3)
    assert [sizes.tolist() for sizes in found] == [sent, received]
    assert all(sizes.dtype == np.int64 for sizes in found)
