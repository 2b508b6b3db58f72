"""Tests of the search for chunks that all members need."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.packing.dissemination import HAS, LACKS, disseminate
from collplan.planner.packing.distances import distances
from collplan.planner.packing.hops import find_hops
from linked_machines import boxes, random_fabric, torus


def search(machine, n_parts=1, patience=np.inf, seed=0):
    n = machine.nodes
    table = find_hops(machine, np.arange(n), np.array([0, n]))
    hops = table.for_chunks(1000)
    state = np.full((n, n * n_parts), LACKS, dtype=np.int8)
    for rank in range(n):
        state[rank, rank::n] = HAS
    far = np.zeros((0, 0))
    if patience < np.inf:
        far = distances(hops.source, hops.target, hops.flight_ns, n)
    messages, ns = disseminate(hops, table.group_of, state, far, np.ones(n), patience, seed)
    return hops, state, messages, ns


@pytest.mark.quick
@pytest.mark.parametrize("patience", [1.0, 3.0, np.inf])
@pytest.mark.parametrize("machine", [torus(1), torus(2), torus(3, 3), boxes(2, 3),
                                     *map(random_fabric, range(12))], ids=range(16))  # fmt: skip
def test_links_carry_one_chunk_at_a_time_and_members_send_what_they_have(machine, patience):
    hops, state, messages, ns = search(machine, 2, patience)
    n_members, n_chunks = state.shape
    assert ns < np.inf
    assert len(messages.hop) == n_members * (n_members - 1) * 2
    arrival = np.where(state == HAS, 0.0, np.inf)
    free = np.zeros(len(hops.busy_ns))
    assert (np.diff(messages.start_ns) >= 0).all()
    for hop, chunk, start in zip(*messages, strict=True):
        source, target = hops.source[hop], hops.target[hop]
        assert arrival[source, chunk] <= start * (1 + 1e-9)
        assert arrival[target, chunk] == np.inf
        arrival[target, chunk] = start + hops.flight_ns[hop]
        links = hops.route[hops.route_begin[hop] : hops.route_begin[hop + 1]]
        assert (free[links] <= start * (1 + 1e-9)).all()
        free[links] = start + hops.busy_ns[links]
    assert arrival.max() == pytest.approx(ns)
    assert n_chunks == 2 * n_members


@pytest.mark.quick
@pytest.mark.parametrize(
    ("machine", "n_parts", "steps"),
    [(torus(4, 4), 4, 15), (torus(8, 8, wrap=False), 2, 63), (torus(2, 2, 2, 2), 4, 15)],
    ids=["torus", "grid", "hypercube"],
)
def test_schedules_of_direct_fabrics_meet_the_bound(machine, n_parts, steps):
    assert search(machine, n_parts)[3] == pytest.approx(1000 * steps)


def test_the_same_seed_gives_the_same_schedule():
    one, other = (search(torus(4, 3), 2, seed=5)[2] for _ in range(2))
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert any((a != b).any() for a, b in zip(one, search(torus(4, 3), 2, seed=6)[2], strict=True))


def test_patience_keeps_chunks_from_crossing_slow_links_twice():
    machine = boxes(2, 4, fast="8GB/s")
    hops, _, messages, _ = search(machine, patience=1.0)
    box = np.arange(8) // 4
    crosses = box[hops.source[messages.hop]] != box[hops.target[messages.hop]]
    assert crosses.sum() == 8
