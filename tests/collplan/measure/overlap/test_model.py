"""Tables of the overlap model: the paper's findings, and real plans on the simulator beside."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from collplan.measure.overlap.model import MOST_RADIX, N_TREES, OverlapTable, overlap_model
from collplan.measure.overlap.simulation import SimulatedOverlap, simulate_overlap
from collplan.planner.passes.progress.tree_model import overlappable_time
from collplan.specs.errors import CollplanError
from collplan.specs.loading import load_machine


def levels_at(table: OverlapTable, ranks: int) -> int:
    return table.best()[ranks - 1].levels


def switches(table: OverlapTable) -> list[tuple[int, int]]:
    return [(one.ranks, one.levels) for one in table.switches()]


class TestThePaper:
    """Section 6.2 and 7, on 64 and 48 cores, constant buffers."""

    @pytest.mark.parametrize("kind", ["reduce", "bcast"])
    def test_the_least_of_all_is_at_51_ranks(self, kind: str) -> None:
        best = overlap_model(kind, 64).best_overall()
        assert (best.ranks, best.levels) == (51, 0)
        assert best.time == 64 * 6 / 51

    def test_seven_cores_for_communication_want_one_level_four_two_and_two_three(self) -> None:
        table = overlap_model("reduce", 64)
        assert [levels_at(table, ranks) for ranks in (51, 57, 60, 62)] == [0, 1, 2, 3]
        for levels, ranks in enumerate((51, 57, 60, 62)):
            assert table.overlapped[:, levels].argmin() == ranks - 1

    def test_knl_switches_at_52_58_and_62_tasks(self) -> None:
        assert switches(overlap_model("reduce", 64)) == [(52, 1), (58, 2), (62, 3)]

    def test_skylake_is_best_with_38_tasks(self) -> None:
        table = overlap_model("reduce", 48)
        assert table.best_overall().ranks == 38
        assert switches(table) == [(39, 1), (44, 2), (47, 3)]

    def test_sixteen_tasks_on_two_cores_take_eight_steps_or_five_or_four(self) -> None:
        """Figures 9 and 10."""
        table = overlap_model("reduce", 18)
        assert table.communication[15, :3].tolist() == [8, 5, 4]
        assert table.blocking[15] == 4

    def test_with_a_core_for_every_rank_nothing_is_worth_splitting_off(self) -> None:
        for kind in N_TREES:
            assert not any(one.levels for one in overlap_model(kind, 64).best()[:32])

    def test_gather_switches_later(self) -> None:
        """Values that the paper draws in figure 16 without numbers."""
        assert switches(overlap_model("gather", 64)) == [(58, 1), (60, 2), (61, 3), (63, 4)]


def levels_by_hand(kind: str, radix: int, n: int) -> list[tuple[int, int]]:
    """Return the transfers of every level, leaves first, and the units that one moves."""
    found = []
    for exponent in range(n.bit_length()):
        span = radix**exponent
        own = [
            sum(1 for rank in range(n) if rank % (radix * span) == child * span)
            for child in range(1, radix)
        ]
        children = [count for count in own if count]
        # Down the tree, the last child is served last.
        ordered = children[::-1] if kind in ("bcast", "scatter") else children
        found += [(count, span if kind in ("gather", "scatter") else 1) for count in ordered]
    return found


def by_hand(kind: str, cores: int, ranks: int, levels: int, radix: int) -> dict[str, Fraction]:
    """Return the equations' times, written out again, in whole fractions."""
    own, whole = (levels_by_hand(kind, radix, n) for n in (ranks, cores))
    folded = sum(
        (Fraction(-(-count // (cores - ranks)) * units) for count, units in own[levels:]),
        Fraction(0),
    )
    head = sum(units for _, units in own[:levels])
    compute = Fraction(cores, ranks) * sum(units for _, units in whole)
    trees = 2 if kind == "allreduce" else 1
    return {
        "blocking": Fraction(trees * sum(units for _, units in own)),
        "compute": trees * compute,
        "communication": trees * (head + folded),
        "overlapped": trees * (head + max(compute, folded)),
    }


@pytest.mark.parametrize(
    ("kind", "radix"),
    [*((kind, 2) for kind in N_TREES), *((kind, r) for kind in list(N_TREES)[:4] for r in (3, 4))],
)
@pytest.mark.parametrize("cores", [2, 3, 7, 20, 33])
def test_tables_hold_the_equations(kind: str, radix: int, cores: int) -> None:
    table = overlap_model(kind, cores, radix)
    assert table.n_levels == len(levels_by_hand(kind, radix, cores)) + 1
    for ranks in range(1, cores):
        for levels in range(table.n_levels):
            expected = by_hand(kind, cores, ranks, levels, radix)
            for name, time in expected.items():
                own = getattr(table, name)[ranks - 1]
                found = own[levels] if own.ndim else own
                assert found == pytest.approx(float(time), rel=1e-15), (name, ranks, levels)


def test_equal_times_go_to_fewer_levels_and_fewer_ranks() -> None:
    times = np.array([[3.0, 3.0], [2.0, 2.0], [4.0, 2.0], [2.0, 5.0]])
    table = OverlapTable("reduce", 5, np.zeros(4), np.zeros(4), times, times)
    assert [(one.ranks, one.levels) for one in table.best()] == [(1, 0), (2, 0), (3, 1), (4, 0)]
    assert switches(table) == [(3, 1), (4, 0)]
    assert (table.best_overall().ranks, table.best_overall().levels) == (2, 0)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scan", 64), ("collective", "'scan'", "reduce, bcast")),
        (("reduce", 1), ("cores: 1", "2 or more")),
        (("reduce", 0), ("cores: 0", "2 or more")),
        (("reduce", 10**6), ("cores: 1000000 is too many", "65536")),
        (("reduce", 64, 1), ("radix: 1 is out of range", "2 to 64")),
        (("reduce", 64, 65), ("radix: 65 is out of range", "2 to 64")),
        (("allreduce", 64, 4), ("radix: 4", "binomial", "use 2")),
    ],
)
def test_what_has_no_model_is_refused(arguments: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(CollplanError) as refused:
        overlap_model(*arguments)
    assert all(word in str(refused.value) for word in words)


def test_a_tree_of_radix_4_has_more_levels_and_is_split_later() -> None:
    tables = [overlap_model("reduce", 64, radix) for radix in (2, 4)]
    assert [table.n_levels for table in tables] == [7, 10]
    assert [switches(table)[0] for table in tables] == [(52, 1), (53, 1)]


@cache
def simulated(kind: str, **fields: Any) -> SimulatedOverlap:
    return simulate_overlap(kind, 16, **fields)


class TestSimulated:
    """All plans for 16 cores. A rank alone copies its own buffer: no transfer, so left out."""

    @pytest.mark.parametrize("kind", ["reduce", "allreduce"])
    def test_unit_transfers_take_what_the_model_says(self, kind: str) -> None:
        """But for the last level of an allreduce, whose ranks began to compute early."""
        model, found = overlap_model(kind, 16), simulated(kind).table
        trees = N_TREES[kind]
        assert found.blocking[1:] == pytest.approx(model.blocking[1:], rel=1e-5)
        assert found.compute == pytest.approx(model.compute, rel=1e-5)
        more = (found.overlapped - model.overlapped)[1:]
        assert abs(more).max() <= (trees - 1) + 1e-4
        assert switches(found) == switches(model)

    @pytest.mark.parametrize(("kind", "radix"), [("reduce", 3), ("reduce", 5), ("bcast", 4)])
    def test_knomial_trees_take_what_the_model_says(self, kind: str, radix: int) -> None:
        transport = "shared" if kind == "reduce" else "messages"
        found = simulated(kind, radix=radix, transport=transport).table
        model = overlap_model(kind, 16, radix)
        assert found.radix == model.radix == radix
        assert found.blocking[1:] == pytest.approx(model.blocking[1:], rel=1e-4)
        assert found.compute == pytest.approx(model.compute, rel=1e-5)
        # Out of sequence a tree may be faster, as its levels are not in step.
        assert (found.overlapped <= model.overlapped * (1 + 1e-4))[1:].all()

    def test_a_broadcast_through_shared_memory_is_no_tree(self) -> None:
        """Everybody reads the root's buffer, on their own cores at once.

        The first communication core still gets the first transfers of every level.
        """
        model, found = overlap_model("bcast", 16), simulated("bcast").table
        assert found.blocking[1:] == pytest.approx(1)
        ranks = np.arange(2, 16)
        for levels in range(found.n_levels):
            behind = overlappable_time(ranks, 16 - ranks, levels)
            assert found.communication[1:, levels] == pytest.approx(np.maximum(1, behind))
        assert (found.overlapped <= model.overlapped * (1 + 1e-6)).all()
        by_messages = simulated("bcast", transport="messages").table
        assert by_messages.blocking[1:] == pytest.approx(model.blocking[1:], rel=1e-4)

    @pytest.mark.parametrize("kind", ["gather", "scatter"])
    def test_blocks_of_a_power_of_two_take_what_the_model_says(self, kind: str) -> None:
        model, found = overlap_model(kind, 16), simulated(kind).table
        for ranks in (2, 4, 8):
            row = ranks - 1
            assert found.overlapped[row] == pytest.approx(model.overlapped[row], rel=1e-4)
            assert found.communication[row] == pytest.approx(model.communication[row], rel=1e-4)
        # Of other numbers of ranks the last subtree is smaller than the model takes it for.
        assert (found.blocking <= model.blocking * (1 + 1e-6)).all()
        assert found.blocking[10] == pytest.approx(10, rel=1e-4)

    def test_a_machine_prices_the_same_plans(self) -> None:
        machine = load_machine("knl64")
        found = simulated("reduce", machine=machine, transfer_bytes=2**21, name="knl64")
        per_byte = machine.network.reduce_ns_per_byte + machine.network.uncached_ns_per_byte
        assert found.transfer_s == pytest.approx(per_byte * 2**21 / 1e9, rel=0.01)
        assert found.table.overlapped[1:] == pytest.approx(
            overlap_model("reduce", 16).overlapped[1:], rel=0.02
        )

    def test_several_nodes_are_one(self) -> None:
        machine = load_machine("hydra")
        found = simulate_overlap("bcast", 8, machine, 2**20, "hydra")
        assert found.table.n_cores == 8
        assert found.machine == "hydra"

    def test_too_many_cores_are_refused(self) -> None:
        with pytest.raises(
            CollplanError, match="300 is too many for simulating all plans; use 256"
        ):
            simulate_overlap("reduce", 300)


@pytest.mark.quick
@pytest.mark.parametrize("radix", [0, 1, MOST_RADIX + 1])
def test_radixes_out_of_range_are_refused(radix: int) -> None:
    with pytest.raises(CollplanError, match=f"radix: {radix} is out of range; use 2 to"):
        overlap_model("reduce", 4, radix=radix)
