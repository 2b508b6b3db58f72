"""Texts of plans are read back column by column; what is no such text names its line."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import collplan
from collplan.planner import compile_plan
from collplan.planner.errors import PlanFormatError
from collplan.planner.formats.text import to_text
from collplan.planner.formats.text_read import from_text
from collplan.planner.plan.plan import COLUMNS, CSR_PARTS
from collplan.planner.verify import verify
from oracle import make_spec

MACHINE = {"nodes": 2, "ranks_per_node": 3, "lanes": 2}
KINDS = ("barrier", "bcast", "allreduce", "alltoall", "gatherv", "scan", "reduce_scatter_block")


@pytest.mark.parametrize(
    ("kind", "decomposition", "transport"),
    [*product(KINDS, ("flat", "full_lane", "hierarchical"), ("messages", "shared"))],
)
def test_plans_are_equal_after_reading(kind: str, decomposition: str, transport: str) -> None:
    fields = {"counts": [4, 0, 1, 7, 2, 3]} if kind == "gatherv" else {"count": 12}
    spec = collplan.parse_spec(
        {
            "machine": MACHINE,
            "collective": {"kind": kind} | ({} if kind == "barrier" else fields),
            "decomposition": decomposition,
            "transport": transport,
        }
    )
    plan = compile_plan(spec)
    text = to_text(plan)
    again = from_text(text, spec)
    assert to_text(again) == text
    assert to_text(from_text(text)).splitlines()[1:] == text.splitlines()[1:]
    for name in (*COLUMNS, "buffer_sizes", "shared_sizes", "rank_node", "rank_lane", "rank_core"):
        assert np.array_equal(getattr(plan, name), getattr(again, name)), name
    for part in CSR_PARTS:
        one, other = getattr(plan, part), getattr(again, part)
        for name in one.TYPES:
            # Rows of the table of patterns may have another order.
            if name != "pattern":
                assert np.array_equal(getattr(one, name), getattr(other, name)), (part, name)
    assert plan.itemsize == again.itemsize
    verify(again)


TEXT = to_text(compile_plan(make_spec("bcast", "linear", 3, count=4)))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("send to 1 tag 0", "sent to 1 tag 0", "line 6: 'sent to 1 tag 0' is no operation"),
        ("send to 1 tag 0", "send", "line 6: 'send' is no operation"),
        ("-> recv[0:", "-> receive[0:", "line 10: 'receive"),
        ("  #1 ", "  #0 ", "line 7: task #0 comes twice"),
        ("  #1 ", "  #9 ", "tasks must have the numbers 0 to 3"),
        ("node 0: ranks 0 1 2", "node 1: ranks 0 1 2", "nodes must have the numbers 0 to 0"),
        ("rank 1 (", "rank 4 (", "ranks must have the numbers 0 to 2"),
        ("rank 1 (", "rank one (", "line 9: 'rank one .* is no line of a plan of all ranks"),
    ],
)
def test_what_is_no_text_of_a_plan_names_its_line(old: str, new: str, words: str) -> None:
    assert old in TEXT
    with pytest.raises(PlanFormatError, match=f"^{words}"):
        from_text(TEXT.replace(old, new, 1))


def test_parts_of_plans_are_refused() -> None:
    spec = make_spec("bcast", "linear", 3, count=4)
    with pytest.raises(PlanFormatError, match="ranks must have the numbers"):
        from_text(to_text(compile_plan(spec, rank=1)))
    with pytest.raises(PlanFormatError, match="the text has no ranks"):
        from_text("")
    native = make_spec("bcast", "native", 3, count=4)
    with pytest.raises(PlanFormatError, match=r"in the rank's group 0.* is no operation"):
        from_text(to_text(compile_plan(native)))
