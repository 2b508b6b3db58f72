"""Dynamic rules of Open MPI's coll/tuned: classic files (5.0.7 and later), JSON (6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from collplan.exports.selection import (
    Export,
    Library,
    Selection,
    Target,
    select,
    settings_of,
    total_bytes,
)
from collplan.specs.named_option import AlgorithmChoice
from collplan.tune.sweep import Sweep
from collplan.tune.table import TuningTable

IDS: Final[Mapping[str, tuple[int, Mapping[str, int]]]] = {
    "allgather": (
        0, {"bruck": 2, "recursive_doubling": 3, "ring": 4, "neighbor": 5},
    ),
    "allreduce": (
        2, {"recursive_doubling": 3, "ring": 4, "segmented_ring": 5, "rabenseifner": 6},
    ),
    "alltoall": (3, {"linear": 1, "pairwise": 2, "modified_bruck": 3}),
    "barrier": (6, {"recursive_doubling": 3, "bruck": 4}),
    "bcast": (
        7,
        {
            "basic_linear": 1, "pipeline": 3, "knomial": 7, "scatter_allgather_ring": 9,
        },
    ),
    "exscan": (8, {"linear": 1, "recursive_doubling": 2}),
    "gather": (9, {"basic_linear": 1, "binomial": 2}),
    "reduce": (11, {"linear": 1, "pipeline": 3, "binomial": 5, "rabenseifner": 7}),
    "reduce_scatter_block": (13, {"recursive_halving": 3}),
    "scan": (14, {"linear": 1, "recursive_doubling": 2}),
    "scatter": (15, {"binomial": 2, "linear_nb": 3}),
}  # fmt: skip
"""The number of every collective and of its algorithms, in classic files."""
_OURS: Final[Mapping[str, Mapping[str, str]]] = {
    "allgather": {
        "bruck": "bruck", "recursive_doubling": "recursive_doubling", "ring": "ring",
        "neighbor_exchange": "neighbor",
    },
    "allreduce": {
        "recursive_doubling": "recursive_doubling", "ring": "ring", "rabenseifner": "rabenseifner",
    },
    "alltoall": {"linear": "linear", "pairwise": "pairwise", "bruck": "modified_bruck"},
    "barrier": {"recursive_doubling": "recursive_doubling", "dissemination": "bruck"},
    "bcast": {
        "linear": "basic_linear", "chain": "pipeline", "binomial": "knomial", "knomial": "knomial",
        "scatter_allgather": "scatter_allgather_ring",
    },
    "exscan": {"chain": "linear", "recursive_doubling": "recursive_doubling"},
    "gather": {"linear": "basic_linear", "binomial": "binomial"},
    "reduce": {
        "linear": "linear", "chain": "pipeline", "binomial": "binomial",
        "rabenseifner": "rabenseifner",
    },
    "reduce_scatter_block": {"recursive_halving": "recursive_halving"},
    "scan": {"chain": "linear", "recursive_doubling": "recursive_doubling"},
    "scatter": {"linear": "linear_nb", "binomial": "binomial"},
}  # fmt: skip
"""The library's name of each algorithm of ours, by collective."""
_SEGMENTED: Final = {
    ("bcast", "pipeline"), ("bcast", "knomial"),
    ("reduce", "pipeline"), ("reduce", "binomial"), ("allreduce", "segmented_ring"),
}  # fmt: skip
_REORDERING: Final = {
    ("allreduce", "ring"), ("allreduce", "segmented_ring"),
    ("reduce", "pipeline"), ("reduce", "binomial"),
}  # fmt: skip
"""Algorithms that Open MPI runs by rule but that are wrong for non-commutative operations."""
_SIZE_BLIND: Final = frozenset({"gather", "scatter", "scan", "exscan", "barrier"})
"""Kinds that want one rule: for scans Open MPI leaves the count out of the size, and for gather
and scatter it reads arguments that count at the root or elsewhere only, so that ranks would
follow different rules."""
_KNOMIAL_RADIX: Final = "coll_tuned_bcast_algorithm_knomial_radix"
"""Open MPI's variable, 4 unless set. Its own ``binomial`` and ``binary_tree`` of bcast have
other edges than ours: the former's children lie above their parent's leading bit."""
_FAN_OUT: Final = {("allgather", "bruck"): 2}
"""Radix of Bruck's algorithm as Open MPI 6 reads it; earlier releases always use radix 2."""
_FOLDING: Final = {
    ("allreduce", "rabenseifner"), ("reduce", "rabenseifner"), ("barrier", "recursive_doubling"),
}  # fmt: skip
"""Algorithms that differ from ours unless the number of ranks is a power of two: ranks beyond
it are paired with other ranks, or pairs exchange halves."""


def write_classic(table: TuningTable, assume_commuting: bool = False) -> Export:
    """Write a table as a file of rules, version 2, for Open MPI 5.0.7 and later.

    Numbers of ranks that the table does not know are left to Open MPI.

    Parameters
    ----------
    table : TuningTable
    assume_commuting : bool
        Whether all operations commute: rules hold for any, and some algorithms are
        wrong for those that do not.
    """
    selections, notes = select(table, _library(assume_commuting, has_direct=False))
    by_kind: dict[str, dict[int, Selection]] = {}
    for selection in selections:
        by_kind.setdefault(selection.sweep.collective, {})[selection.sweep.ranks] = selection
    lines = ["rule-file-version-2", f"{len(by_kind)} # collectives"]
    n_rules = 0
    for kind in sorted(by_kind, key=lambda kind: IDS[kind][0]):
        blocks: dict[int, list[str]] = {0: ["0 0 0 0"]}
        for ranks, selection in sorted(by_kind[kind].items()):
            blocks[ranks] = _rules(selection)
            n_rules += len(blocks[ranks])
            # A rule holds for all larger communicators, too, up to the next.
            blocks.setdefault(ranks + 1, ["0 0 0 0"])
        lines += [f"{IDS[kind][0]} # {kind}", f"{len(blocks)} # numbers of ranks"]
        for ranks, rules in sorted(blocks.items()):
            lines += [f"{ranks} # ranks", f"{len(rules)} # rules", *rules]
    return Export("\n".join(lines) + "\n", _use(selections), n_rules, notes)


def write_json(table: TuningTable, assume_commuting: bool = False) -> Export:
    """Write a table as JSON rules, version 3, for Open MPI 6; see `write_classic`."""
    selections, notes = select(table, _library(assume_commuting, has_direct=True))
    collectives: dict[str, list[dict[str, Any]]] = {}
    n_rules = 0
    for selection in selections:
        sweep, rules = selection.sweep, []
        for interval in selection.intervals:
            if interval.target is None:
                continue
            rule: dict[str, Any] = {"msg_size_min": total_bytes(sweep, interval.begin)}
            last = None if interval.end is None else total_bytes(sweep, interval.end) - 1
            rule |= {"msg_size_max": "inf" if last is None else last, "alg": interval.target.name}
            if (sweep.collective, interval.target.name) in _FAN_OUT:
                rule["faninout"] = _FAN_OUT[sweep.collective, interval.target.name]
            if interval.target.segment_bytes:
                rule["seg_size"] = interval.target.segment_bytes
            rules.append(rule)
        n_rules += len(rules)
        entry = {"comm_size_min": sweep.ranks, "comm_size_max": sweep.ranks, "rules": rules}
        collectives.setdefault(sweep.collective, []).append(entry)
    document = {"rule_file_version": 3, "module": "tuned", "collectives": collectives}
    return Export(json.dumps(document, indent=1) + "\n", _use(selections), n_rules, notes)


def _use(selections: list[Selection]) -> str:
    options = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_dynamic_rules_filename {path}"
    if any(selection.spans_nodes for selection in selections):
        options += " --mca coll ^han"  # which would be asked first
    for name, value in settings_of(selections):
        options += f" --mca {name} {value}"
    return f"mpiexec {options}"


def _rules(selection: Selection) -> list[str]:
    """Return lines of: from bytes, algorithm, fan-out, segment; algorithm 0 is Open MPI's own."""
    sweep = selection.sweep
    lines = []
    for interval in selection.intervals:
        target = interval.target
        begin = total_bytes(sweep, interval.begin)
        if target is None:
            lines.append(f"{begin} 0 0 0")
            continue
        number = IDS[sweep.collective][1][target.name]
        fan_out = _FAN_OUT.get((sweep.collective, target.name), 0)
        lines.append(f"{begin} {number} {fan_out} {target.segment_bytes}")
    return lines


def _library(assume_commuting: bool, has_direct: bool) -> Library:
    return Library(
        name="Open MPI",
        equivalent=partial(equivalent, assume_commuting, has_direct),
        size_blind=_SIZE_BLIND,
        family="Open MPI",
        across_nodes="coll/han",
    )


def equivalent(
    assume_commuting: bool,
    has_direct: bool,
    sweep: Sweep,
    algorithm: AlgorithmChoice,
    segment_bytes: int,
) -> Target | str:
    """Return Open MPI's algorithm that does what one of ours does, or why there is none."""
    kind = sweep.collective
    name = _OURS.get(kind, {}).get(algorithm.name)
    if (kind, algorithm.name) == ("allgather", "linear") and has_direct:
        name = "direct"
    if segment_bytes and (kind, name) == ("allreduce", "ring"):
        name = "segmented_ring"
    if name is None or (segment_bytes and (kind, name) not in _SEGMENTED):
        return "Open MPI has no equivalent"
    if (kind, name) in _REORDERING and not assume_commuting:
        return (
            "Open MPI would run it for operations that do not commute, too, with wrong results "
            "(--assume-commuting takes it)"
        )
    if (kind, name) in _FOLDING and sweep.ranks & (sweep.ranks - 1):
        return "Open MPI's has other messages unless the ranks are a power of two"
    if name == "knomial":
        radix = 2 if algorithm.name == "binomial" else algorithm.options.get("radix", 4)
        return Target(name, segment_bytes, setting=(_KNOMIAL_RADIX, str(radix)))
    return Target(name, segment_bytes)
