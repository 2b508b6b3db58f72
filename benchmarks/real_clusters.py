"""Predictions against measured times of real clusters.

Fits the cost model and its correction to one set of measurements, predicts another one, and prints
the errors. Without ``--fit-times`` it divides one set: every job is left out once, then jobs of
more than 32 nodes (of ORFEO's columns, of more than 12 ranks) are predicted from the smaller ones.
``--terms`` repeats this without each term of the model.

Run: ``.venv/bin/python benchmarks/real_clusters.py --times FILE... --hosts FILE
[--fit-times FILE... --fit-hosts FILE] [--terms] [--json]``.

Times are CSV files of PICO or with the columns of ORFEO. Hosts are a JSON file with the hosts of
each job, or the machine file of maps of ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.fitting.cluster_model import ClusterModel, CountedPoints, Prediction
from collplan.fitting.correction import EFFECTS
from collplan.fitting.points import LATENCY
from collplan.fitting.reading import read_points
from collplan.fitting.terms import (
    COPIES,
    FAR,
    GLOBAL,
    LANE,
    LINKS,
    LOGS,
    MEMORY,
    PEERS,
    PER_LINK,
    PIECES,
    STEPS,
)
from collplan.fitting.validation import (
    Split,
    leave_jobs_out,
    leave_parts_out,
    predict_splits,
    score,
)
from collplan.reports.output import print_line, print_table
from collplan.specs.errors import CollplanError

SMALL_NODES: Final = 32
"""Most nodes of a small job."""
SMALL_RANKS: Final = 12
"""Most ranks of a small job on a machine of few nodes."""
PARTS: Final = 5
"""Parts of the jobs in comparisons of terms."""
TERMS: Final[dict[str, list[int]]] = {
    "changes of the peer": [link * PER_LINK + PEERS for link in range(len(LINKS))],
    "copies and allocated buffers": list(range(COPIES.start, COPIES.stop)),
    "other ranks of the node": [LANE, MEMORY],
    "groups of switches": [GLOBAL, FAR],
    "the logarithm of the ranks": [LOGS],
    "pieces and steps": [PIECES, STEPS],
}
"""Terms that are left out together, by name."""
FEW_NODES: Final = 2
"""Nodes up to which a job is small by its ranks."""
Make = Callable[[CountedPoints], ClusterModel]
Found = dict[str, Any]


def is_small(n_nodes: int, n_ranks: int) -> bool:
    """Return whether a job is one to fit to."""
    return n_ranks <= SMALL_RANKS if n_nodes <= FEW_NODES else n_nodes <= SMALL_NODES


def schemes(counted: CountedPoints, *, is_orfeo: bool) -> dict[str, Sequence[Split]]:
    """Return the ways to divide points, by name."""
    layouts = [point.layout for point in counted.points]
    is_fitted = np.array([is_small(one.n_nodes, one.n_ranks) for one in layouts])
    small, large = np.flatnonzero(is_fitted), np.flatnonzero(~is_fitted)
    found: dict[str, Sequence[Split]] = {}
    if not is_orfeo:
        found["leave one job out"] = list(leave_jobs_out(counted))
    if len(small) and len(large):
        if is_orfeo:
            ranks = np.array([one.n_ranks for one in layouts])
            large = np.flatnonzero(np.isin(ranks, (24, 32, 48)))
        found["small predicts large"] = [(small, large)]
    return found


def scores_of(counted: CountedPoints, predicted: Prediction) -> Found:
    """Return the errors of all points, and by system, collective and class of sizes."""
    found: Found = dict(score(counted, predicted)._asdict())
    names = counted.features.names
    classes = {
        "by_system": names["system"],
        "by_collective": names["kind"],
        "by_size": np.digitize(counted.features.size, [10, 14, 17, 21, 25]),
    }
    labels = ("to 1 KiB", "to 16 KiB", "to 128 KiB", "to 2 MiB", "to 32 MiB", "above")
    for title, values in classes.items():
        found[title] = {}
        for value in np.unique(values):
            rows = np.flatnonzero(values == value)
            part = Prediction(*(column[rows] for column in predicted))
            name = labels[value] if title == "by_size" else str(value)
            found[title][name] = dict(score(counted.take(rows), part)._asdict())
    return found


def models_of(counted: CountedPoints) -> dict[str, tuple[CountedPoints, Make]]:
    """Return points and models that lack a term each, by name."""
    found: dict[str, tuple[CountedPoints, Make]] = {
        "all terms": (counted, ClusterModel),
        "presets, nothing fitted": (
            counted,
            lambda one: ClusterModel(one, is_fitted=False, effects=()),
        ),
        "no correction": (counted, lambda one: ClusterModel(one, effects=())),
        "correction of the presets": (counted, lambda one: ClusterModel(one, is_fitted=False)),
    }
    for title, places in TERMS.items():
        counts = counted.counts.copy()
        counts[:, places] = 0.0
        found[f"without {title}"] = (replace(counted, counts=counts), ClusterModel)
    for effect in EFFECTS:
        others = tuple(one for one in EFFECTS if one is not effect)
        found[f"without the effect of the {effect.title}"] = (counted, _with_effects(others))
    return found


def _with_effects(effects: Sequence[Any]) -> Make:
    return lambda one: ClusterModel(one, effects=effects)


def divide(counted: CountedPoints, *, by_terms: bool) -> Found:
    """Return the errors of each way to divide points; with terms, without each of them.

    With terms, jobs are left out in five parts, as there are many models.
    """
    is_orfeo = all(point.layout.n_nodes <= FEW_NODES for point in counted.points)
    divisions = schemes(counted, is_orfeo=is_orfeo)
    models = {"all terms": (counted, ClusterModel)}
    if by_terms:
        models = models_of(counted)
        divisions["leave one job out"] = leave_parts_out(counted, PARTS)
    return {
        scheme: {
            title: scores_of(*predict_splits(points, splits, make))
            for title, (points, make) in models.items()
        }
        for scheme, splits in divisions.items()
    }


def print_scores(title: str, scores: Found) -> None:
    """Print errors as a table, by class."""
    print_line(title)
    rows = [_row("all", scores)]
    for by in ("by_system", "by_collective", "by_size"):
        rows += [_row(name, one) for name, one in scores[by].items()]
    print_table(["points", "median", "90 %", "best within 10 %", "loss 90 %", "coverage"], rows)


def _row(name: str, one: Found) -> list[str]:
    return [
        f"{name} ({one['points']})",
        f"{one['time_error_median']:.1%}",
        f"{one['time_error_p90']:.1%}",
        f"{one['within_10']:.1%} of {one['cases']}",
        f"{one['loss_p90']:.2f}",
        f"{one['coverage_90']:.1%}",
    ]


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=Path, nargs="+", required=True)
    parser.add_argument("--hosts", type=Path)
    parser.add_argument("--fit-times", type=Path, nargs="+")
    parser.add_argument("--fit-hosts", type=Path)
    parser.add_argument("--terms", action="store_true", help="repeat without each term")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> int:
    """Fit, predict, and print."""
    options = parse_options()
    held = read_points(options.times, options.hosts)
    document: Found = {"notes": held.notes}
    if options.fit_times:
        fitted = read_points(options.fit_times, options.fit_hosts or options.hosts)
        document["notes"] = [*fitted.notes, *held.notes]
        points = CountedPoints.of([one for one in held.points if one.collective != LATENCY])
        model = ClusterModel(CountedPoints.of(fitted.points))
        document |= scores_of(points, model.predict(points))
        document["without_points"] = sorted(
            {*points.system.tolist()} - {*(one.system for one in fitted.points)}
        )
        tables = {"predicted": document}
    else:
        found = divide(CountedPoints.of(held.points), by_terms=options.terms)
        document["schemes"] = found
        first = next(iter(found.values()))
        document |= first["all terms"]
        tables = {
            f"{scheme}; {title}": one
            for scheme, by_model in found.items()
            for title, one in by_model.items()
        }
    if options.json:
        print(json.dumps(document, indent=1))
        return 0
    for note in document["notes"]:
        print_line(note)
    for title, one in tables.items():
        print_scores(title, one)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CollplanError as error:
        print(f"real_clusters.py: error: {error}", file=sys.stderr)
        sys.exit(2)
