"""The rank tree, and the algorithms that promise to combine in it."""

from __future__ import annotations

from typing import Any

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.algorithms.building_blocks.rank_tree import joints, prefix_joints
from collplan.planner.compiler.proof import proved_level
from collplan.planner.verify.association import rank_tree_text
from looping import looped, naming
from oracle import AFFINE, make_spec

KINDS = ("allreduce", "reduce", "reduce_scatter_block", "scan", "exscan")


@looped("size", range(2, 34))
def test_combinations_make_the_tree_of_the_proof(size: int) -> None:
    text = [str(rank) for rank in range(size)]
    for left, right, *_ in joints(size):
        text[right] = f"({text[left]} {text[right]})"
    # A message shows the beginning of a long tree.
    wanted = rank_tree_text(0, size)
    assert text[-1].startswith(wanted.removesuffix("..."))
    prefixes = [str(rank) for rank in range(size)]
    for left, right, *_ in prefix_joints(size):
        prefixes[right] = f"({prefixes[left]} {prefixes[right]})"
    assert prefixes[-1] == text[-1]
    for rank, prefix in enumerate(prefixes):
        assert prefix.startswith(rank_tree_text(0, rank + 1).removesuffix("..."))


def choices(kind: str) -> list[dict[str, Any]]:
    return [
        {"name": one.name, **({"radix": radix} if radix else {})}
        for one in registry.of(kind)
        for radix in ((2, 4) if "radix" in (one.options or {}) else (0,))
    ]


@looped("kind", KINDS)
def test_algorithms_that_promise_it_combine_in_the_rank_tree(kind: str) -> None:
    """Each plan is proved; ranks at the roots and not, and numbers of ranks of all forms."""
    n_plans = 0
    for choice in choices(kind):
        one = registry.find(kind, choice["name"])
        for p in (5, 8, 12):
            if not one.keeps_rank_tree(p, {**(one.options or {}), **choice}):
                continue
            if one.refusal(p, commutative=False):
                continue
            for op in ("sum", AFFINE)[: 1 + (p == 5)]:
                fields = {"root": p // 2, "count": p + 2, "datatype": "float64"}
                if op is AFFINE:
                    fields["datatype"] = "uint64"
                spec = make_spec(kind, choice, p, op=op, reproducible="placements", **fields)
                with naming(choice, p):
                    level = proved_level(compile_plan(spec))
                assert level == ("placements" if op == "sum" else None)
                n_plans += 1
    assert n_plans > 6


@looped("kind", KINDS)
def test_what_always_combines_in_the_rank_tree_promises_it(kind: str) -> None:
    for choice in choices(kind):
        one = registry.find(kind, choice["name"])
        known = {**(one.options or {}), **choice}
        if one.commutative_only or one.keeps_rank_tree(5, known):
            continue
        levels = set()
        for p in (5, 8):
            if one.refusal(p, commutative=False) is None:
                op = {"name": "sum", "commutative": False}
                spec = make_spec(kind, choice, p, op=op, count=p, datatype="float64", root=1)
                levels.add(proved_level(compile_plan(spec, is_proved=False)))
        assert levels != {"placements"}, choice
