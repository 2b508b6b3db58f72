"""Prices of the textbook's algorithms beside those of all, for every collective on Hydra.

`collplan compare` runs twice for every collective and machine: with the textbook's algorithms
alone, flat and in decompositions, and with all. The ratio of the two best makespans says where
the others win. Printed are Markdown tables; ``--plot`` draws the ratios:

    python benchmarks/atlas.py --plot docs/images/atlas_prices.svg --json atlas.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import log2
from pathlib import Path
from typing import Any, Final

from collplan.planner.algorithms import registry
from collplan.reports.output import format_bytes
from collplan.select.comparison import compare
from collplan.select.sweep import processes, sweep
from collplan.specs import AlgorithmChoice, PlanSpec

TEXTBOOK: Final = {
    "allgather": ("linear", "ring", "neighbor_exchange", "bruck", "recursive_doubling"),
    "allreduce": (
        "linear", "reduce_bcast", "ring", "recursive_doubling", "rabenseifner", "circulant",
    ),
    "reduce_scatter_block": ("linear", "pairwise", "ring", "recursive_halving", "circulant"),
    "bcast": ("linear", "chain", "binary", "binomial", "knomial", "scatter_allgather"),
    "reduce": ("linear", "chain", "binomial", "rabenseifner"),
    "alltoall": ("linear", "pairwise", "bruck"),
    "barrier": ("dissemination", "recursive_doubling"),
    "scan": ("chain", "recursive_doubling", "binomial"),
    "exscan": ("chain", "recursive_doubling", "binomial"),
    "gather": ("linear", "chain", "binomial"),
    "scatter": ("linear", "chain", "binomial"),
}  # fmt: skip
"""Algorithms of the textbook; `circulant` is that in one block."""
RANKS: Final = {"36 x 1": 36, "36 x 32": 36 * 32}
"""Machines and their ranks."""
SIZES: Final = tuple(1 << bits for bits in range(6, 25, 2))
"""Bytes of the count: 64 B to 16 MiB."""
ITEMSIZE: Final = 4
OF_BLOCKS: Final = ("allgather", "reduce_scatter_block", "gather", "scatter", "alltoall")
"""Collectives of which all blocks together have the size."""
SMALL: Final = ("36 x 1",)
"""Machines on which variants are priced, too."""
VARIANTS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "allreduce": (
        {"name": "circulant", "blocks": "auto"},
        *({"name": "recursive_multiplying", "radix": radix} for radix in (2, 3, 6)),
        *({"name": "recursive_dividing", "radix": radix} for radix in (2, 3, 6)),
    ),
    "reduce_scatter_block": (
        {"name": "circulant", "blocks": "auto"},
        {"name": "bruck", "radix": 4},
    ),
    "allgather": tuple({"name": "bruck", "radix": radix} for radix in (3, 4, 6)),
    "bcast": tuple({"name": "knomial", "radix": radix} for radix in (3, 6, 8)),
    "reduce": tuple({"name": "knomial", "radix": radix} for radix in (3, 6, 8)),
    "alltoall": tuple({"name": "bruck", "radix": radix} for radix in (3, 4, 6)),
    "barrier": tuple({"name": "dissemination", "radix": radix} for radix in (3, 4, 6)),
    "gather": tuple({"name": "knomial", "radix": radix} for radix in (3, 6, 8)),
    "scatter": tuple({"name": "knomial", "radix": radix} for radix in (3, 6, 8)),
}
"""Options of algorithms beside their defaults, which `compare` does not try by itself."""
CLEAR: Final = 1.03
"""Ratio from which a win is told."""
Found = dict[str, Any]


def keep_textbook() -> dict[str, dict[str, Any]]:
    """Forget all algorithms in this process but those of the textbook; return those of before."""
    before = {kind: dict(known) for kind, known in registry._algorithms.items()}
    for kind, names in TEXTBOOK.items():
        for name in [one.name for one in registry.of(kind) if one.name not in names]:
            del registry._algorithms[kind][name]
    return before


def specs_of(label: str, kind: str) -> list[PlanSpec]:
    """Return the specs of a collective on a machine, one per size."""
    n_ranks = RANKS[label]
    machine = {"preset": "hydra", "ranks_per_node": n_ranks // 36}
    if kind == "barrier":
        return [PlanSpec.model_validate({"machine": machine, "collective": {"kind": kind}})]
    unit = ITEMSIZE * (n_ranks if kind in OF_BLOCKS else 1)
    counts = dict.fromkeys(max(1, round(size / unit)) for size in SIZES)
    collective = {"kind": kind, "datatype": "float32"}
    return [
        PlanSpec.model_validate({"machine": machine, "collective": collective | {"count": count}})
        for count in counts
    ]


def best_of(
    label: str, kind: str, seconds: float, forget: Callable[[], object] | None
) -> list[Found]:
    """Return the best candidate of every size, and whether no other may be better."""
    specs, rows = specs_of(label, kind), []
    with processes(initializer=forget) as executor:
        found = compare(specs, executor, patterns=["*"], seconds=seconds)  # no libraries
        more = VARIANTS.get(kind, ()) if forget is None and label in SMALL else ()
        variants = [spec.replace(algorithms=one) for spec in specs for one in more]
        prices = sweep(variants, executor)
    for i, spec in enumerate(specs):
        size = found.sizes[i]
        if size not in found.leading:
            continue
        times = {found.leading[size]: found.makespans[found.leading[size], size]}
        for one, price in zip(more, prices[i * len(more) :], strict=False):
            if price.makespan_s is not None:
                times.setdefault(str(AlgorithmChoice.model_validate(one)), price.makespan_s)
        name = min(times, key=lambda name: times[name])
        row = {"count": spec.collective.count, "name": name, "s": times[name]}
        rows.append(row | {"is_sure": size in found.best})
    return rows


def run(options: argparse.Namespace) -> list[Found]:
    """Compare all, and the textbook's alone in processes that know no others; save what is done."""
    rows: list[Found] = []
    if options.json is not None and options.json.exists():
        rows = json.loads(options.json.read_text())
    done = {(row["machine"], row["kind"]) for row in rows}
    for label, kind in product(options.machines, options.kinds):
        if (label, kind) in done:
            continue
        row: Found = {"machine": label, "kind": kind}
        row["all"] = best_of(label, kind, options.seconds, None)
        before = keep_textbook()
        row["textbook"] = best_of(label, kind, options.seconds, keep_textbook)
        registry._algorithms.update(before)
        rows.append(row)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=1))
        print(f"{label} {kind}", file=sys.stderr)
    return rows


def pairs(row: Found) -> Iterator[tuple[int, Found, Found, float]]:
    """Yield size in bytes, best of the textbook, best of all, and the ratio of their times."""
    everything = {one["count"]: one for one in row["all"]}
    unit = ITEMSIZE * (RANKS[row["machine"]] if row["kind"] in OF_BLOCKS else 1)
    for one in row["textbook"]:
        other = everything.get(one["count"])
        if other is not None and other["s"] > 0:
            # All that the textbook has is among all: a ratio below 1 is a candidate left out.
            yield one["count"] * unit, one, other, max(1.0, one["s"] / other["s"])


def print_ratios(rows: Sequence[Found]) -> None:
    """Print how many times as fast the best of all is, collectives by sizes."""
    for label in dict.fromkeys(row["machine"] for row in rows):
        print(f"\n| {label} | " + " | ".join(map(format_bytes, SIZES)) + " |")
        print("|---|" + "---|" * len(SIZES))
        for row in (one for one in rows if one["machine"] == label):
            ratios: dict[int, str] = {}
            for size, one, other, ratio in pairs(row):
                mark = "" if one["is_sure"] and other["is_sure"] else "?"
                nearest = min(SIZES, key=lambda known: abs(log2(known / max(1, size))))
                ratios[nearest] = f"{ratio:.2f}{mark}"
            cells = (ratios.get(size, "") for size in SIZES)
            print(f"| {row['kind']} | " + " | ".join(cells) + " |")


def print_wins(rows: Sequence[Found]) -> None:
    """Print what wins where, by clear ratios."""
    print("\n| machine | collective | size | the textbook's best | best of all | ratio |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        for size, one, other, ratio in pairs(row):
            if ratio >= CLEAR:
                told = [format_bytes(size) if size else "", one["name"], other["name"]]
                print(f"| {row['machine']} | {row['kind']} | {' | '.join(told)} | {ratio:.2f} |")


def plot(path: Path, rows: Sequence[Found]) -> None:
    """Draw the ratios against sizes, a panel per machine."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "atlas", "svg.fonttype": "none"}
    from matplotlib import pyplot

    labels = list(dict.fromkeys(row["machine"] for row in rows))
    figure, panels = pyplot.subplots(1, len(labels), figsize=(10, 4), sharey=True, squeeze=False)
    for panel, label in zip(panels[0], labels, strict=True):
        for i, row in enumerate(one for one in rows if one["machine"] == label):
            points = [(size, ratio) for size, _, _, ratio in pairs(row) if size > 0]
            if len(points) > 1:
                line = "-" if i < 7 else "--"
                panel.plot(*zip(*points, strict=True), line, label=row["kind"], linewidth=1.4)
        panel.set_xscale("log", base=2)
        panel.set_title(f"Hydra, {label} ranks")
        panel.set_xlabel("bytes of the vector, or of all blocks")
        panel.grid(alpha=0.3)
    panels[0][0].set_ylabel("best of the textbook / best of all")
    panels[0][-1].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", nargs="+", default=list(RANKS), choices=RANKS)
    parser.add_argument("--kinds", nargs="+", default=list(TEXTBOOK), choices=TEXTBOOK)
    parser.add_argument("--seconds", type=float, default=60.0, help="per processor and comparison")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", type=Path, help="results, which are not found again")
    options = parser.parse_args()
    rows = run(options)
    print_ratios(rows)
    print_wins(rows)
    if options.plot is not None:
        plot(options.plot, rows)


if __name__ == "__main__":
    main()
