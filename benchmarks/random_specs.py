"""Random specs, compiled, proved and run: what one of these steps finds, another should find, too.

Each case is a random machine, collective, decomposition, algorithms, transport and passes. A case
fails in one of these ways:

- reading or compiling ends in an error that is not one of collplan;
- what is compiled has no proof, or another result than numpy's, in a random legal order;
- ranks of an allreduce that rounds get different bits;
- one rank's program is not that rank's part of the whole plan;
- the folded plan, if there is one, is not the plan of all ranks;
- the spec differs after it was written and read.

A failure is one line with the number of its case, which ``--case`` runs alone.

Usage: python benchmarks/random_specs.py [--seconds N] [--seed S] [--case NUMBER]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from collplan.executors.local import run_local
from collplan.planner import Plan
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AlgorithmError, AsymmetricError
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.rewrite.unfold import require_copies
from collplan.planner.verify import verify
from collplan.select.auto import resolve
from collplan.specs import PlanSpec, parse_spec
from collplan.specs.errors import SpecError
from oracle import check_result, filled_buffers
from random_documents import Document, random_document
from rank_programs import assert_equal

REFUSED, PASSED = "refused", "passed"
N_DRAWS = 4
"""Number of random inputs by which bits are compared."""


class Failure(Exception):
    """A step that found something wrong."""


def check(document: Document, rng: random.Random) -> str:
    """Compile, prove and run a spec.

    Returns
    -------
    str
        `REFUSED` or `PASSED`.

    Raises
    ------
    Failure
        If a step fails. The message names the step.
    """
    try:
        given = _step("read", parse_spec, document)
        spec = _step("resolve", resolve, given)
        plan = _step("compile", compile_plan, spec, is_proved=False)
    except (SpecError, AlgorithmError):
        return REFUSED
    _step("write and read", _require_readable, given)
    _step("verify", verify, plan)
    _step("run", check_result, plan, order=rng)
    if spec.collective.kind == "allreduce" and "float" in spec.collective.datatype:
        _step("bits", _require_same_bits, plan, rng)
    rank = rng.randrange(plan.n_ranks)
    own = _step("compile for a rank", _always, compile_plan, spec, rank=rank, is_proved=False)
    _step("program of a rank", assert_equal, own, restrict(plan, rank))
    try:
        folded = _step("fold", compile_folded, spec)
    except AsymmetricError:
        return PASSED
    _step("copies", _always, require_copies, folded, plan)
    return PASSED


def _step(name: str, function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a step; errors of specs and algorithms pass where the step may refuse them."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        may_refuse = name in ("read", "resolve", "compile") and isinstance(
            error, SpecError | AlgorithmError
        )
        if may_refuse or (name == "fold" and isinstance(error, AsymmetricError)):
            raise
        raise Failure(f"{name}: {type(error).__name__}: {error}") from error


def _always(function: Any, *arguments: Any, **options: Any) -> Any:
    return function(*arguments, **options)


def _require_readable(spec: PlanSpec) -> None:
    again = parse_spec(json.loads(spec.model_dump_json()))
    assert again == spec, "the spec that was written is another one"


def _require_same_bits(plan: Plan, rng: random.Random) -> None:
    """Run an allreduce on values whose sum depends on the association."""
    assert plan.spec is not None
    drawn = np.random.default_rng(rng.randrange(2**32))
    for _ in range(N_DRAWS):
        sendbufs, recvbufs = filled_buffers(plan, plan.spec)
        for buffer in (*sendbufs, *recvbufs):
            scale = 10.0 ** drawn.integers(-6, 6, len(buffer))
            buffer[:] = drawn.standard_normal(len(buffer)) * scale
        run_local(plan, sendbufs, recvbufs, order=rng)
        results = [buffer[: plan.spec.collective.count].tobytes() for buffer in recvbufs]
        others = [rank for rank, result in enumerate(results) if result != results[0]]
        assert not others, f"rank {others[0]} has other bits than rank 0"


def run_case(seed: int, number: int) -> tuple[Document, str]:
    """Return a case's document, and its outcome or failure."""
    rng = random.Random(f"{seed}/{number}")
    document = random_document(rng)
    try:
        return document, check(document, rng)
    except Failure as failure:
        return document, " ".join(str(failure).split())[:300]


def main() -> int:
    """Run cases until the time is over, at least one; print failures, and numbers of outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone, and raise what it finds")
    options = parser.parse_args()
    if options.case is not None:
        rng = random.Random(f"{options.seed}/{options.case}")
        document = random_document(rng)
        print(json.dumps(document))
        print(check(document, rng))
        return 0
    end, number, outcomes = time.monotonic() + options.seconds, 0, Counter[str]()
    while number == 0 or time.monotonic() < end:
        document, outcome = run_case(options.seed, number)
        if outcome not in (REFUSED, PASSED):
            print(f"case {number}: {outcome}\n  {json.dumps(document)}", flush=True)
            outcome = f"failed in {outcome.partition(':')[0]}"
        outcomes[outcome] += 1
        number += 1
    print(", ".join([f"{number} cases", *(f"{n} {name}" for name, n in sorted(outcomes.items()))]))
    return int(outcomes.total() > outcomes[PASSED] + outcomes[REFUSED])


if __name__ == "__main__":
    sys.exit(main())
