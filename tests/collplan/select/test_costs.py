"""Costs of messages, and the work that they make: held by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from collplan.planner.plan.pieces import Pieces, one_each
from collplan.planner.plan.plan import Buffer
from collplan.select.costs import Costs
from collplan.select.cuts import Slices
from collplan.select.estimate import program_of_sample
from collplan.select.message_costs import MessageCosts, _copied_in
from collplan.select.work import Held, HeldResources, bound_ns, estimate_ns, n_tasks_of
from collplan.specs import PlanSpec

LINK = {"L_ns": 1000, "o_ns": 100, "g_ns": 10, "G_ns_per_byte": 0.5, "O_ns_per_byte": 0.25}


def costs_of(kind: str, count: int, **machine: object) -> Costs:
    """Return the costs of a flat collective of bytes on one rank per node."""
    network = {"network": LINK, "reduce_ns_per_byte": 1.0, "copy_ns_per_byte": 0.0}
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "network": network, **machine},
            "collective": {"kind": kind, "count": count, "datatype": "uint8"},
            "algorithms": "linear",
        }
    )
    tables, shared = program_of_sample(spec).tables(), np.zeros(1, dtype=np.bool_)
    rows = MessageCosts(tables, spec.machine, 1, shared)
    return Costs(rows, HeldResources.of(spec.machine, None))


def test_a_message_holds_cores_and_lanes_for_its_bytes() -> None:
    work = costs_of("bcast", 1000).work(None)
    assert work.n_tasks == 2  # a send and a receive
    # The lane: g + (s - 1) G, less a gap that may exceed the makespan. Core: o + (s - 1) max(O, G).
    assert bound_ns([work]) == pytest.approx(100 + 999 * 0.5)
    # Latency and overheads at both ends, and G for all bytes: G holds the core without offload.
    assert estimate_ns([work], None) == pytest.approx(1000 + 2 * 100 + 1000 * 0.5, rel=0.01)


def test_reductions_hold_the_core_of_the_receiver() -> None:
    message, reduced = costs_of("bcast", 1000).work(None), costs_of("reduce", 1000).work(None)
    assert bound_ns([reduced]) - bound_ns([message]) == pytest.approx(1000 - 1)


@pytest.mark.parametrize("cut", [100, Slices(10)])
def test_each_piece_is_a_message(cut: int | Slices) -> None:
    costs = costs_of("bcast", 1000)
    whole, pieces = costs.work(None), costs.work(cut)
    assert n_tasks_of([pieces]) == 10 * n_tasks_of([whole])
    assert bound_ns([pieces]) == pytest.approx(10 * 100 + 990 * 0.5)


def test_sizes_scale_but_overheads_remain() -> None:
    costs, other = costs_of("reduce", 1000), costs_of("reduce", 4000)
    for cut in (None, 500, Slices(4)):
        scaled, made = costs.work(cut, 4.0, 4.0), other.work(cut)
        assert bound_ns([scaled]) == pytest.approx(bound_ns([made]))
        assert estimate_ns([scaled], cut) == pytest.approx(estimate_ns([made], cut))


def test_blocks_follow_each_other_and_share_resources() -> None:
    work = costs_of("bcast", 1000).work(None)
    assert estimate_ns([work, work], None) == 2 * estimate_ns([work], None)
    assert bound_ns([work, work]) == pytest.approx(2 * bound_ns([work]))
    assert (bound_ns([]), estimate_ns([], None), n_tasks_of([])) == (0, 0, 0)


def test_places_of_other_ranks_are_not_known() -> None:
    machine = PlanSpec.model_validate(
        {
            "machine": {"nodes": 3, "ranks_per_node": 2, "lanes": 2},
            "collective": {"kind": "bcast", "count": 1},
        }
    ).machine
    places, every = HeldResources.of(machine, (2, 3)), HeldResources.of(machine, None)
    # Two ranks with a core and two ports each, two lanes with two ends, and a memory.
    assert places.is_known.sum() == 2 * 3 + 2 * 2 + 1
    assert every.is_known.sum() == 3 * places.is_known.sum()
    assert places.is_known[places.core].tolist() == [False, False, True, True, False, False]
    assert places.core[0] == places.core[5] != places.out_port[0]


def test_the_busiest_place_is_that_of_all_work_together() -> None:
    places = HeldResources.of(costs_of("bcast", 8).machine, None)
    one, other = np.zeros((2, places.n))
    one[places.core[0]], other[places.core[1]] = 5.0, 4.0
    held = [Held(places, ns, 0.0, 0.0, 0.0, 0.0) for ns in (one, other)]
    assert Held.busiest_ns(held) == 5.0
    assert Held.busiest_ns([held[1], held[1]]) == 8.0


def test_costs_of_messages_name_their_links() -> None:
    spec = PlanSpec.model_validate(
        {
            "machine": {"nodes": 2, "ranks_per_node": 2, "network": {"network": LINK}},
            "collective": {"kind": "bcast", "count": 8},
            "algorithms": "linear",
        }
    )
    rows = MessageCosts(
        program_of_sample(spec).tables(), spec.machine, 8, np.ones(1, dtype=np.bool_)
    )
    assert rows.crosses.tolist() == [False, True, True]
    assert rows.is_copy.tolist() == [True, False, False]
    assert rows.overhead.tolist() == [0, 100, 100]


def test_elements_are_copied_to_shared_memory_again_after_a_step_changes_them() -> None:
    """Messages of rounds 0 and 2 read the same elements, and one of round 2 reads others."""
    messages = SimpleNamespace(
        round=np.array([0, 2, 2]),
        source=np.zeros(3, np.int64),
        dest=np.ones(3, np.int64),
        read=pieces(Buffer.RECV, 0, 0, 4),
        write=pieces(Buffer.SCRATCH, 0, 4, 8),
        combine=SimpleNamespace(indptr=np.zeros(4, np.int64)),
    )
    for changes, copied in ([], [4, 0, 4]), ([0], [4, 4, 4]), ([1], [4, 4, 4]), ([2], [4, 0, 4]):
        n = len(changes)
        steps = SimpleNamespace(
            round=np.array(changes),
            rank=np.zeros(n, np.int64),
            write=pieces(Buffer.RECV, *([0] * n)),
        )
        tables: Any = SimpleNamespace(messages=messages, steps=steps)
        assert _copied_in(tables, np.ones(3, np.bool_)).tolist() == copied


def pieces(buffer: Buffer, *offsets: int) -> Pieces:
    """Return a row of four elements for each offset."""
    return one_each(buffer, np.array(offsets, np.int64), np.full(len(offsets), 4))
