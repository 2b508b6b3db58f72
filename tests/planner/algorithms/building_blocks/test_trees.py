"""k-nomial trees of bcast, reduce, gather and scatter: rounds, bytes and edges."""

from __future__ import annotations

import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.building_blocks.trees import spans
from collplan.planner.metrics import measure
from collplan.planner.verify import verify
from looping import SIZES, looped
from oracle import AFFINE, check_result, make_spec, with_counts
from schedules import counted, schedule

KINDS = ("bcast", "reduce", "gather", "scatter")


@pytest.mark.many
@looped("p", SIZES)
@pytest.mark.long
def test_rounds_and_bytes_are_those_of_the_formulas(p: int) -> None:
    for radix in (2, 3, 4, 7, 70):
        widths = spans(p, min(radix, max(p, 2)))
        rounds = sum(min(radix - 1, -(-p // span) - 1) for span in widths)
        sent = {
            "bcast": rounds,
            "reduce": int(p > 1),
            "scatter": p - 1,
            "gather": max((min(span, p - span) for span in widths), default=0),
        }
        assert rounds <= (radix - 1) * len(widths)
        for kind in KINDS:
            found = counted(kind, "knomial", p, 5, root=p // 3, radix=radix)
            assert (found.n_rounds, found.bytes_sent_per_rank) == (rounds, 5 * sent[kind]), kind


@pytest.mark.quick
@looped("p", range(1, 41))
@pytest.mark.parametrize("radix", [2, 3, 4, 9])
def test_all_kinds_have_the_edges_of_the_published_tree(radix: int, p: int) -> None:
    down, span = [], 1
    while span < p:
        level = [
            [(v, v + j * span) for v in range(0, p, radix * span) if v + j * span < p]
            for j in range(1, radix)
        ]
        down[:0] = [edges for edges in level if edges]
        span *= radix
    root = p // 2
    at_root = [sorted(((a + root) % p, (b + root) % p) for a, b in edges) for edges in down]
    for kind in KINDS:
        rounds = [sent for sent in schedule(kind, "knomial", p, root, radix=radix) if sent]
        if kind in ("bcast", "scatter"):
            assert [[(a, b) for a, b, _ in sent] for sent in rounds] == at_root
        else:
            turned = [(b, a) for sent in rounds for a, b, _ in sent]
            assert sorted(turned) == sorted(edge for edges in at_root for edge in edges)


@pytest.mark.parametrize("kind", ["reduce", "gather", "scatter"])
@looped("radix", [2, 3, 5, 40])
def test_every_radix_computes_the_same(kind: str, radix: int) -> None:
    for p in (1, 2, 9, 10, 27):
        for root in sorted({0, p // 2, p - 1}):
            flavour = {"datatype": "uint64", "op": AFFINE} if kind == "reduce" else {}
            knomial = {"name": "knomial", "radix": radix}
            plan = compile_plan(
                make_spec(kind, knomial, p, root=root, count=5, **flavour), is_proved=False
            )
            verify(plan)
            check_result(plan)


def test_an_operation_that_does_not_commute_costs_one_message_to_the_root() -> None:
    for root, more in ((0, 0), (3, 1)):
        knomial = {"name": "knomial", "radix": 3}
        spec = make_spec("reduce", knomial, 9, root=root, count=5, datatype="uint64", op=AFFINE)
        assert measure(compile_plan(spec)).n_rounds == 4 + more


def test_empty_blocks_are_not_sent() -> None:
    for kind in ("gather", "scatter"):
        spec = make_spec(kind, {"name": "knomial", "radix": 3}, 9, count=1)
        plan = compile_plan(with_counts(spec, [0, 0, 0, 0, 2, 0, 0, 0, 0]), is_proved=False)
        verify(plan)
        assert measure(plan).n_messages == 2  # 4 is a child of 3, which is one of 0
