"""Plans of split trees and placed chains on the simulator, beside the model's equations.

With unit transfers and levels in sequence they take what the equations say, to the nanosecond
through shared memory, and by messages but for the first byte of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collplan.executors.cost import Timeline, simulate
from collplan.planner import compile_plan
from collplan.planner.passes.add_compute import add_compute
from collplan.planner.passes.progress.split_tree import number_transfers, split_tree
from collplan.planner.passes.progress.tree_model import (
    overlappable_time,
    shapes_of,
)
from collplan.planner.plan.plan import Plan
from collplan.planner.verify import verify
from collplan.specs import PlanSpec
from overlapping import UNIT_NS, in_sequence, tree, unit_network

N_FREE = 8
DOUBLING = ("gather", "scatter")


def cases(kind: str, step: int = 1, radix: int = 2) -> Iterator[tuple[int, int, int]]:
    """Generate ranks, levels, and one number of communication cores after the other."""
    powers = [radix**i for i in range(1, 6) if radix**i <= 40]
    turn = 0
    for n_ranks in powers if kind in DOUBLING else range(2, 41, step):
        heights = [int(shape.height(n_ranks)) for shape in shapes_of(kind, radix)]
        for levels in range(max(heights) + 1):
            yield n_ranks, levels, 1 + turn % N_FREE
            turn += 3


def model(
    kind: str, n_ranks: int, levels: int, n_comm: int, compute: float, radix: int = 2
) -> float:
    """Return equations 6 to 9 for any computation C, in transfers; 6 and 8 are those without."""
    head = behind = 0.0
    for shape in shapes_of(kind, radix):
        head += int(shape.units_below(np.minimum(levels, shape.height(n_ranks))))
        behind += float(overlappable_time(n_ranks, n_comm, levels, shape))
    return head + max(compute, behind)


def times(plan: Plan, transport: str, compute: float) -> tuple[float, float]:
    """Return what a plan takes alone and with computation, in transfers."""
    costs = unit_network(transport)
    both = (plan, add_compute(plan, round(compute * UNIT_NS)))
    alone, overlapped = (simulate(one, costs, allocated=True).makespan_ns for one in both)
    return alone / UNIT_NS, overlapped / UNIT_NS


@pytest.mark.many
@pytest.mark.parametrize(
    ("kind", "radix"),
    [*(("reduce", radix) for radix in (0, 2, 3, 7)), *(("bcast", radix) for radix in (0, 3))],
)
def test_trees_in_shared_memory_take_what_the_model_says(kind: str, radix: int) -> None:
    """Exactly with levels in sequence, and never longer without; radix 0 is `binomial`."""
    base = radix or 2
    for turn, (n_ranks, levels, n_comm) in enumerate(cases(kind, 5, base)):
        split = split_tree(tree(kind, n_ranks, N_FREE, "shared", radix), levels, n_comm)
        compute = 1.25 if turn % 2 else float(n_ranks)
        case = (n_ranks, levels, n_comm, compute)
        found = times(in_sequence(split), "shared", compute)
        expected = [model(kind, n_ranks, levels, n_comm, c, base) for c in (0.0, compute)]
        assert list(found) == expected, case
        alone, overlapped = times(split, "shared", compute)
        assert alone <= found[0], case
        assert overlapped <= found[1], case


@pytest.mark.many
@pytest.mark.parametrize(
    ("kind", "radix"),
    [
        *((kind, 0) for kind in ("gather", "scatter", "allreduce", "reduce", "bcast")),
        *(
            (kind, radix)
            for kind in ("gather", "scatter", "reduce", "bcast")
            for radix in (2, 3, 6)
        ),
    ],
)
def test_trees_of_messages_take_what_the_model_says(kind: str, radix: int) -> None:
    """The first byte of each of at most 2 H messages in a row is missing.

    Out of sequence they may take longer: ports and cores serve what comes first.
    """
    base = radix or 2
    for n_ranks, levels, n_comm in cases(kind, 7, base):
        split = split_tree(tree(kind, n_ranks, N_FREE, "messages", radix), levels, n_comm)
        compute = 1.0 + n_ranks / 4
        found = times(in_sequence(split), "messages", compute)
        expected = [model(kind, n_ranks, levels, n_comm, c, base) for c in (0.0, compute)]
        assert found == pytest.approx(expected, abs=100 / UNIT_NS), (n_ranks, levels, n_comm)


@pytest.mark.parametrize("kind", ["scan", "exscan"])
def test_prefixes_take_what_the_model_says(kind: str) -> None:
    """Beside computation a scan may take less: ranks without a level in start compute earlier.

    In the last level of an exscan ranks send and receive, and a core may do one after the other.
    """
    for n_ranks, levels, n_comm in cases(kind, 7):
        split = split_tree(tree(kind, n_ranks, N_FREE, "messages"), levels, n_comm)
        compute = 1.0 + n_ranks / 4
        found = times(in_sequence(split), "messages", compute)
        expected = [model(kind, n_ranks, levels, n_comm, c) for c in (0.0, compute)]
        less, more = (1, 1) if kind == "exscan" else (1, 0)
        for time, wanted in zip(found, expected, strict=True):
            assert wanted - less <= time + 1e-4, (n_ranks, levels, n_comm)
            assert time <= wanted + more + 1e-4, (n_ranks, levels, n_comm)
        if kind == "scan":
            assert found[0] == pytest.approx(expected[0], abs=1e-4)


def test_a_gather_of_messages_is_never_worse_out_of_sequence() -> None:
    for n_ranks, levels, n_comm in cases("gather"):
        split = split_tree(tree("gather", n_ranks, N_FREE, "messages"), levels, n_comm)
        for free, bound in zip(
            times(split, "messages", 7.0), times(in_sequence(split), "messages", 7.0), strict=True
        ):
            assert free <= bound + 100 / UNIT_NS


@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_blocks_in_shared_memory_leave_no_tree(kind: str) -> None:
    """Nobody forwards them: the root reads every block where it lies, or each rank its own."""
    plan = split_tree(tree(kind, 8, N_FREE, "shared"), 0, 2)
    transfer, *_ = number_transfers(plan)
    sizes = sorted(plan.elements[transfer >= 0].tolist())
    expected = {"gather": [1, 2, 4], "scatter": [1] * 7}[kind]
    assert sizes == [n * UNIT_NS for n in expected]


def test_in_sequence_no_level_begins_before_the_last_has_ended() -> None:
    plan = in_sequence(split_tree(tree("bcast", 8, N_FREE, "shared"), 1, 2))
    verify(plan)
    timeline = simulate(plan, unit_network("shared"), allocated=True)
    by_round = [timeline.start_ns[(plan.round == i) & (timeline.end_ns > 0)] for i in range(3)]
    assert [sorted(set(starts.tolist())) for starts in by_round] == [
        [0.0], [UNIT_NS], [2 * UNIT_NS],
    ]  # fmt: skip


BYTES, SWITCH_NS = 100_001, 3000
HOP_NS = BYTES - 1
"""Time in ns for which a message occupies both its cores, at 1 ns per byte."""


def chain(policy: str, compute_ns: int = 0, switch_ns: int = SWITCH_NS) -> Timeline:
    """Return a scan of 62 ranks on KNL's 64 cores; only bytes and switches take time."""
    link = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 1, "O_ns_per_byte": 1}
    network: dict[str, Any] = dict.fromkeys(("core", "numa", "node"), link)
    network |= {"copy_ns_per_byte": 0, "reduce_ns_per_byte": 0, "uncached_ns_per_byte": 0}
    network |= {"memory_ns_per_byte": 0, "eager_limit_bytes": "1MiB", "switch_s": switch_ns * 1e-9}
    passes: list[Any] = [{"name": "place_progress", "policy": policy}]
    if compute_ns:
        passes.append({"name": "add_compute", "duration_ns": compute_ns})
    spec = {
        "machine": {"preset": "knl64", "ranks_per_node": 62, "network": network},
        "collective": {"kind": "scan", "count": BYTES, "datatype": "uint8", "op": "sum"},
        "algorithms": "chain",
        "passes": passes,
    }
    return simulate(compile_plan(PlanSpec.model_validate(spec)))


class TestChains:
    """Section 5: 61 hops, each a send and a receive."""

    def test_bind_lets_a_hops_ends_run_at_once(self) -> None:
        assert chain("bind").makespan_ns == 61 * HOP_NS

    def test_numa_serialises_them_but_for_the_hop_between_its_cores(self) -> None:
        """And the core turns to another rank at each of the 60 hops inside."""
        assert chain("numa").makespan_ns == (2 * 60 + 1) * HOP_NS + 60 * SWITCH_NS
        assert chain("numa", switch_ns=0).makespan_ns == pytest.approx(2 * 61 * HOP_NS, rel=0.01)

    def test_odd_even_is_bind_and_a_switch_a_hop(self) -> None:
        """But for the first two hops, before which its cores have run nothing, or the same rank."""
        assert chain("odd_even").makespan_ns == 61 * HOP_NS + 60 * SWITCH_NS
        assert chain("odd_even", switch_ns=0).makespan_ns == chain("bind").makespan_ns

    def test_bind_does_not_overlap(self) -> None:
        for compute_ns in (100 * HOP_NS, 10 * HOP_NS):
            assert chain("bind", compute_ns).makespan_ns == compute_ns + 61 * HOP_NS

    @pytest.mark.parametrize("policy", ["numa", "odd_even"])
    def test_communication_cores_do(self, policy: str) -> None:
        alone = chain(policy).makespan_ns
        for compute_ns in (200 * HOP_NS, 10 * HOP_NS):
            assert chain(policy, compute_ns).makespan_ns == max(compute_ns, alone)

    def test_odd_even_with_computation_is_the_fastest(self) -> None:
        compute_ns = 61 * HOP_NS
        found = {policy: chain(policy, compute_ns).makespan_ns for policy in ("bind", "numa")}
        assert chain("odd_even", compute_ns).makespan_ns < min(found.values())
