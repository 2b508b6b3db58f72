"""Agreement of ranks on what they bind."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from mpi4py import MPI

from collplan.executors.mpi.binding.agreement import _first_difference
from collplan.executors.mpi.binding.bound_plan import bind
from collplan.executors.mpi.errors import BindError
from mpi_plans import InPython, refuses, ring_allreduce_max


@pytest.mark.ranks(2, 3)
@pytest.mark.parametrize("names", [("AbsoluteMaximum", "SignedMaximum"), ("max", "max of all")])
def test_operations_whose_names_share_an_end_or_a_beginning_differ(
    comm: MPI.Intracomm, names: tuple[str, str]
) -> None:
    operation = InPython("max")
    operation.name = names[comm.rank > 0]
    send, recv = np.zeros((2, 5), dtype=np.int32)
    plan = ring_allreduce_max(comm.size, 5)
    odd = int(comm.size == 2)  # of two ranks, the first one counts as the usual one
    words = f"rank {odd} reduces by {names[odd]}, "
    refuses(BindError, words, partial(bind, plan, comm, send, recv, operation=operation))


def test_the_first_field_that_differs_is_named() -> None:
    for one, other, words in (
        ('{"a": {"b": 1, "c": 2}}', '{"a": {"b": 1, "c": 3}}', "a.c is 2, theirs 3"),
        ('{"a": 1}', '{"a": 1, "b": {"c": [2]}}', "b.c is None, theirs [2]"),
        ('{"a": 1}', '{"a": 1}', ""),
        (None, '{"a": 1}', "one was imported, the other compiled from a spec"),
        (None, None, ""),
    ):
        assert _first_difference(one, other) == words
