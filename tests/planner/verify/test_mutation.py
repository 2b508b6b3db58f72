"""Corrupted plans: verify refuses what brute force refuses, and nothing else.

The counts of corruptions by name and verdict stand at the end of pytest's
output (`conftest.py`).
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings

from brute_force import find_faults
from collplan.executors.local import run_local
from collplan.planner import Plan, compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.collective.operations import get_operation
from collplan.planner.formats.text import to_text
from collplan.planner.verify import verify
from judging import judge
from mutations import CORRUPTIONS, corrupt
from oracle import AFFINE, check_result, make_spec
from random_graphs import SIZE, random_graph
from strategies import MAX_TASKS, plan_specs, random_plan
from tiers import examples

N_CHUNKS = 20
PER_CHUNK = 50
N_ORDERS = 4
N_PLANS = 8
"""Plans that a chunk has to corrupt."""


def corruptions(chunk: int) -> Iterator[tuple[str, Plan]]:
    """Yield (name, corrupted plan); every name has its turn, now and then two at once."""
    rng = random.Random(chunk)
    plans = [random_plan(rng) for _ in range(N_PLANS)]
    names = list(CORRUPTIONS)
    for i in range(PER_CHUNK):
        name = names[(chunk * PER_CHUNK + i) % len(names)]
        corrupted = None
        while corrupted is None:
            which = rng.randrange(N_PLANS)
            corrupted = corrupt(plans[which], name, rng)
            if corrupted is None and rng.random() < 0.2:
                plans[which] = random_plan(rng)
        if rng.random() < 0.2:
            corrupted = corrupt(corrupted, rng.choice(names), rng) or corrupted
        yield name, corrupted


@pytest.mark.many
@pytest.mark.parametrize("chunk", range(N_CHUNKS))
def test_verify_and_brute_force_agree_on_corrupted_plans(chunk, record_property):
    verdicts = Counter()
    for name, plan in corruptions(chunk):
        try:
            verdict = judge(plan)
            for seed in range(N_ORDERS if verdict == "harmless" else 0):
                check_result(plan, order=random.Random(seed), seed=seed)
        except Exception as error:
            error.add_note(f"{name} in chunk {chunk} of\n{to_text(plan)}")
            raise
        verdicts[f"{name} {verdict}"] += 1
    assert verdicts.total() == PER_CHUNK
    assert len({key.split()[1] for key in verdicts}) > 3, "verdicts of few sorts only"
    record_property("corruptions", json.dumps(verdicts))


def test_corruptions_are_as_many_and_as_various_as_asked():
    assert N_CHUNKS * PER_CHUNK >= 1000
    assert len(CORRUPTIONS) >= 12


@pytest.mark.parametrize(
    ("kind", "algorithm", "op"),
    [
        ("barrier", "dissemination", None),
        ("reduce", "linear", "sum"),
        ("reduce", "binomial", AFFINE),
        ("scan", "chain", "sum"),
    ],
)
def test_they_agree_beyond_64_ranks(kind, algorithm, op):
    """Sets of ranks are bits of 64-bit words: here they take two."""
    spec = make_spec(kind, algorithm, 66, count=1, datatype="uint64", op=op, root=5)
    plan, rng = compile_plan(spec), random.Random(0)
    assert judge(plan) == "harmless"
    verdicts = set()
    for name in ("drop_message", "drop_local_task", "redirect_read", "double_contribution"):
        corrupted = corrupt(plan, name, rng)
        if corrupted is not None:
            verdicts.add(judge(corrupted))
    assert verdicts & {"missing", "duplicate", "undefined", "operand_order"}


@pytest.mark.parametrize("seed", range(4))
def test_they_agree_on_graphs_that_no_compiler_made(seed):
    """Shared memory, messages to oneself, tags used again, edges between ranks of a node."""
    rng = random.Random(seed)
    verdicts = Counter()
    for _ in range(40):
        graph = random_graph(rng)
        corrupted = corrupt(graph, rng.choice(list(CORRUPTIONS)), rng)
        for plan in filter(None, (graph, corrupted)):
            verdict = judge(plan)
            verdicts[verdict] += 1
            if verdict == "harmless":
                results = {run_in_random_order(plan, order) for order in range(N_ORDERS)}
                assert len(results) == 1, to_text(plan)
    assert {"harmless", "race", "deadlock", "match_order"} <= set(verdicts), verdicts


def run_in_random_order(plan: Plan, seed: int) -> bytes:
    """Return what the receive buffers hold in the end."""
    recvbufs = [np.arange(SIZE, dtype=np.uint8) + 10 * rank for rank in range(plan.n_ranks)]
    sendbufs = [buffer + 100 for buffer in recvbufs]
    order = random.Random(seed)
    run_local(plan, sendbufs, recvbufs, operation=get_operation("sum"), order=order)
    return b"".join(buffer.tobytes() for buffer in recvbufs)


@pytest.mark.parametrize("kind", registry.kinds())
def test_brute_force_accepts_what_the_compiler_makes(kind):
    rng = random.Random(kind)
    for _ in range(6):
        assert judge(random_plan(rng, kind)) == "harmless"


@given(plan_specs)
@settings(max_examples=examples(25), derandomize=True, deadline=None)
def test_compiled_plans_are_proved_and_compute_their_collective(spec):
    plan = compile_plan(spec, is_proved=False)
    verify(plan)
    check_result(plan, order=random.Random(0))
    if plan.n_tasks <= MAX_TASKS:
        assert find_faults(plan) == {}
