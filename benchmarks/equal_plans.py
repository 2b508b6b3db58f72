"""Random specs compiled by two checkouts: what differs between their plans.

For every spec, the columns of the plan of all ranks, of one rank's program and of the folded plan
are compared, then the simulated times of all tasks, and what the proof says of a corrupted plan.
Run this after a change that must not change plans.

Each checkout runs in a process of its own. OLD may also be a file that ``--save`` has written.

Usage: python benchmarks/equal_plans.py OLD [NEW] [--number N] [--seed S] [--save FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
HELPERS = Path("tests") / "helpers"
MOST_TASKS = 400
"""Number of tasks up to which plans are corrupted."""
Result = dict[str, str]
"""Texts and digests by name, which a checkout makes of a spec."""
DERIVED: dict[str, Callable[[Any], Any]] = {"node": lambda plan: plan.rank_node[plan.rank]}
"""Columns of older plans, by the columns that tell the same."""


def main() -> int:
    """Compare two checkouts, and print the first differences and numbers of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=ROOT)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, help="write what OLD makes to this file")
    parser.add_argument("--most", type=int, default=10, help="number of cases to print")
    options = parser.parse_args()
    if options.old.is_file():
        cases = [json.loads(line) for line in options.old.read_text().splitlines()]
        documents, old = ([case[key] for case in cases] for key in ("document", "result"))
    else:
        documents = list(_draw(options.seed, options.number))
        old = list(results_of(options.old, documents))
    if options.save is not None:
        cases = [{"document": d, "result": r} for d, r in zip(documents, old, strict=True)]
        options.save.write_text("".join(json.dumps(case) + "\n" for case in cases))
    new = list(results_of(options.new, documents))
    return report(documents, old, new, options.most)


def report(documents: list[Any], old: list[Result], new: list[Result], most: int) -> int:
    """Print what differs, and what was compared. Return 1 if something differs, or 0."""
    different, n_different = Counter[str](), 0
    for number, (document, one, other) in enumerate(zip(documents, old, new, strict=True)):
        names = [name for name in one | other if one.get(name) != other.get(name)]
        different.update(names)
        n_different += bool(names)
        if names and n_different <= most:
            print(f"case {number}: {json.dumps(document)}")
            for name in names:
                print(f"  {name}: {one.get(name)} -> {other.get(name)}")
    n_plans = sum("plan.op" in result for result in old)
    verdicts = Counter(result["verdict"].partition(":")[0] for result in old if "verdict" in result)
    print(f"{len(old)} specs, {n_plans} plans, {n_different} differ")
    print("corrupted plans:", ", ".join(f"{n} {name}" for name, n in verdicts.most_common()))
    for name, n in different.most_common():
        print(f"{name} differs in {n}")
    return int(n_different > 0)


def _draw(seed: int, number: int) -> Iterator[Any]:
    """Generate random specs as documents."""
    sys.path.insert(0, str(ROOT / HELPERS))
    from random_documents import random_document

    return (random_document(random.Random(f"{seed}/{i}")) for i in range(number))


def results_of(checkout: Path, documents: list[Any]) -> Iterator[Result]:
    """Generate what a checkout makes of each document, in a process of its own."""
    place = checkout.resolve()
    code = "import equal_plans; equal_plans.answer()"
    path = os.pathsep.join(map(str, (place, place / HELPERS, Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        input="".join(json.dumps(document) + "\n" for document in documents),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=place,
    )
    return map(json.loads, done.stdout.splitlines())


def answer() -> None:
    """Write a result for every document of the standard input."""
    import collplan

    assert Path(collplan.__file__).parents[1] == Path.cwd(), collplan.__file__
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        print(json.dumps(result_of(json.loads(line), random.Random(line))))


def result_of(document: Any, rng: random.Random) -> Result:
    """Return what this checkout makes of a spec; errors are part of it."""
    import collplan

    try:
        spec = collplan.parse_spec(document)
        plan = collplan.compile(spec, is_proved=False)
    except collplan.CollplanError as error:
        return {"refused": _words(error)}
    found = _contents("plan", plan)
    own = collplan.compile(spec, rank=rng.randrange(plan.n_ranks), is_proved=False)
    found |= _contents("program", own)
    try:
        found |= _contents("folded", collplan.compile(spec, fold=True))
    except collplan.CollplanError as error:
        found["folded"] = _words(error)
    try:
        timeline = collplan.simulate(plan)
        found |= {"starts": _digest(timeline.start_ns), "ends": _digest(timeline.end_ns)}
        found["makespan_ns"] = str(timeline.end_ns.max(initial=0))
    except collplan.CollplanError as error:
        found["simulation"] = _words(error)
    if plan.n_tasks <= MOST_TASKS:
        found["verdict"] = verdict_on_corrupted(plan, rng)
    return found


def verdict_on_corrupted(plan: Any, rng: random.Random) -> str:
    """Return what the proof says of a plan with one random corruption."""
    import collplan
    from mutations import CORRUPTIONS, corrupt

    kind = rng.choice(sorted(CORRUPTIONS))
    try:
        corrupted = corrupt(plan, kind, rng)
        if corrupted is None:
            return "unchanged"
        collplan.verify(corrupted)
    except collplan.CollplanError as error:
        return _words(error)
    return "proved"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _contents(name: str, plan: Any) -> Result:
    """Return digests of all columns of a plan, with those that were columns of older plans."""
    found = dict(_digests(name, plan))
    for column, derive in DERIVED.items():
        found.setdefault(f"{name}.{column}", _digest(derive(plan)))
    found[f"{name}.spec"] = _digest(plan.spec.model_dump_json())
    return found


def _digests(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Generate the name and digest of every array or other value in a record."""
    for field in fields(value):
        part = getattr(value, field.name)
        if field.name == "origin":
            continue
        if is_dataclass(part):
            yield from _digests(f"{name}.{field.name}", part)
        else:
            yield f"{name}.{field.name}", _digest(part)


def _digest(value: Any) -> str:
    if isinstance(value, np.ndarray):
        words = f"{value.dtype.str} {value.shape} ".encode()
        content = words + np.ascontiguousarray(value).tobytes()
    else:
        content = repr(value).encode()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
