"""Ratios of the makespans of chosen plans to the best that an exhaustive search finds.

usage: python benchmarks/regret.py [--machines FILE] [--kinds NAMES] [--sizes BYTES] [--cells N]
                                   [--reference SECONDS] [--json]

A cell is a collective of a size on a machine. In each cell, the makespans of two plans are divided
by the best makespan: of the plan that `decomposition: auto` chooses, and of the winner that
`compare` names. The best is that of an exhaustive search, which simulates all candidates but those
that a lower bound excludes, for at most `--reference` seconds per processor. Candidates that call
the MPI library's own collectives do not count, as their times depend on the library. The best
makespan is also divided by the lower bound of any plan.

FILE has machines by name, as specs have them. With `--cells`, this number of random cells is
measured, and always the same ones. Makespans are simulated, so only the seconds depend on where
this runs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from math import inf, nan
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final
from unittest.mock import patch

import yaml

from collplan.executors.cost.time_bound import time_bound
from collplan.planner.lowering.select import NATIVELY
from collplan.select import comparison, waves
from collplan.select.auto import resolve
from collplan.select.compared import Comparison
from collplan.select.comparison import SECONDS, compare
from collplan.select.search import search
from collplan.select.sweep import price, processes
from collplan.specs import COLLECTIVES, Machine, PlanSpec

LINK: Final = {"L_ns": 1000, "o_ns": 300, "g_ns": 100, "G_ns_per_byte": 0.04}
"""A link of 200 Gbit/s."""
TWO_LANES: Final = {"lanes": 2, "network": {"network": LINK}}
MACHINES: Final[dict[str, Any]] = {
    "8x8": {"nodes": 8, "ranks_per_node": 8, **TWO_LANES},
    "16x16": {"nodes": 16, "ranks_per_node": 16, **TWO_LANES},
    "64x48": {"nodes": 64, "ranks_per_node": 48, **TWO_LANES},
    "36x32": {"preset": "hydra"},
    "12x32": {"preset": "hydra", "nodes": 12},
    "1x16": {"nodes": 1, "ranks_per_node": 16, "numa_domains": 2},
    "24x1": {"nodes": 24, "ranks_per_node": 1},
    "5x6": {"nodes": 5, "ranks_per_node": 6, "lanes": 3},
    "uneven": {"nodes": 4, "ranks_per_node": [8, 5, 8, 3], **TWO_LANES},
}
SIZES: Final = "64,1024,16384,262144,4194304"
EXHAUSTIVE: Final = {"SAFETY": inf, "CAUTION": ((inf, 0.0),), "STEADY": 0.0, "TOLERANCE": 0.0}
"""Settings of a comparison that believes bounds alone, and no closed form."""
Found = dict[str, Any]


def cells(options: argparse.Namespace) -> Iterator[tuple[str, PlanSpec]]:
    """Generate the cells, each with the name of its machine."""
    machines = yaml.safe_load(options.machines.read_text()) if options.machines else MACHINES
    kinds = options.kinds.split(",") if options.kinds else [*COLLECTIVES]
    every = [*product(machines, kinds, map(int, options.sizes.split(",")))]
    if options.cells and options.cells < len(every):
        every = sorted(random.Random(0).sample(every, options.cells), key=every.index)
    for name, kind, size in every:
        yield name, spec_of(machines[name], kind, size)


def spec_of(machine: dict[str, Any], kind: str, size: int) -> PlanSpec:
    """Return a collective of a size in bytes, which vector collectives have on average per rank."""
    model, count = COLLECTIVES[kind], size // 4
    fields: dict[str, Any] = {"kind": kind}
    fields |= {"datatype": "float32"} if model.has_data else {}
    fields |= {"op": "sum"} if model.has_op else {}
    if model.regular is not None:
        fields["counts"] = {"distribution": "linear", "total": count * Machine(**machine).n_ranks}
    elif model.has_data:
        fields["count"] = count
    whole = {"machine": machine, "collective": fields, "decomposition": "auto"}
    return PlanSpec.model_validate(whole)


def best_plan(found: Comparison) -> tuple[str, float]:
    """Return the name and the makespan of the best candidate that calls no library."""
    times = {
        name: seconds
        for (name, _), seconds in found.makespans.items()
        if found.specs[name].algorithms != NATIVELY
    }
    return min(times.items(), key=lambda one: one[1], default=("", inf))


def measure(name: str, spec: PlanSpec, executor: Any, reference_s: float) -> Found:
    """Return the ratios of a cell, and the processor time of its choices in seconds."""
    search.cache_clear()
    begin_s = process_time()
    chosen = resolve(spec)
    auto_s = process_time() - begin_s
    time_s = price(chosen).makespan_s
    winner, winner_s = best_plan(compare([spec], executor, seconds=SECONDS))
    with ExitStack() as settings:
        for setting, value in EXHAUSTIVE.items():
            settings.enter_context(patch.object(waves, setting, value))
        settings.enter_context(patch.object(comparison, "TOLERANCE", 0.0))
        whole = compare([spec], executor, seconds=reference_s)
    best, best_s = best_plan(whole)
    times = {"auto": nan if time_s is None else time_s, winner: winner_s, best: best_s}
    best = min(times, key=lambda one: times[one])
    return {
        "machine": name,
        "collective": spec.collective.kind,
        "bytes": int(spec.collective.count * spec.collective.itemsize),
        "auto": f"{chosen.decomposition}, {chosen.algorithms}, {chosen.transport}",
        "auto_ratio": times["auto"] / times[best],
        "auto_search_s": auto_s,
        "winner": winner,
        "winner_ratio": winner_s / times[best],
        "best": best,
        "best_s": times[best],
        "bound_ratio": times[best] / (time_bound(spec).time_s or inf),
    }


def at(share: float, values: Sequence[float]) -> float:
    """Return the value that a share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def summary(found: Sequence[Found]) -> Iterator[str]:
    """Generate the lines of the table."""
    yield f"{'':24}{'cells':>6}{'median':>8}{'95 %':>8}{'most':>8}{'within 5 %':>12}"
    by_row: dict[str, list[Found]] = defaultdict(list)
    for one in found:
        by_row["all"].append(one)
        by_row[one["machine"]].append(one)
        by_row[one["collective"]].append(one)
    for row, some in by_row.items():
        for key in ("auto", "winner", "bound"):
            ratios = [one[f"{key}_ratio"] for one in some]
            within = sum(ratio <= 1.05 for ratio in ratios)
            yield (
                f"{f'{row}, {key}':24}{len(ratios):6}{median(ratios):8.3f}"
                f"{at(0.95, ratios):8.3f}{max(ratios):8.2f}{within:12}"
            )
    seconds = [one["auto_search_s"] for one in found]
    most_s = max(seconds)
    yield f"auto: {median(seconds):.2f} s of processor time in the median, at most {most_s:.2f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=Path)
    parser.add_argument("--kinds")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--cells", type=int)
    parser.add_argument("--reference", type=float, default=600.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    with processes() as executor:
        for name, spec in cells(options):
            one = measure(name, spec, executor, options.reference)
            found.append(one)
            words = f"auto {one['auto_ratio']:.3f}, winner {one['winner_ratio']:.3f}, {one['best']}"
            print(f"{name} {one['collective']} {one['bytes']}: {words}", file=sys.stderr)
    print(json.dumps(found, indent=1) if options.json else "\n".join(summary(found)))


if __name__ == "__main__":
    main()
