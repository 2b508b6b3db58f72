"""Dynamic rules of Open MPI's coll/tuned: classic files (5.0.7 and later), JSON (6)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from collplan.exports.selection import (
    Export,
    Library,
    Selection,
    Target,
    has_other_radix,
    select,
    settings_of,
    total_bytes,
)
from collplan.specs.named_option import AlgorithmChoice
from collplan.tune.sweep import Sweep
from collplan.tune.table import TuningTable


class Equivalent(NamedTuple):
    """An algorithm of Open MPI that does what one of ours does.

    Parameters
    ----------
    name : str
    number : int
        Of the algorithm in classic files.
    has_segments : bool
        Whether it can cut messages into segments.
    reorders : bool
        Whether Open MPI runs it by rule for operations that do not commute, with wrong results.
    folds : bool
        Whether it differs from ours unless the number of ranks is a power of two: ranks beyond
        it are paired with other ranks, or pairs exchange halves.
    """

    name: str
    number: int
    has_segments: bool = False
    reorders: bool = False
    folds: bool = False


IDS: Final = {
    "allgather": 0, "allreduce": 2, "alltoall": 3, "barrier": 6, "bcast": 7, "exscan": 8,
    "gather": 9, "reduce": 11, "reduce_scatter_block": 13, "scan": 14, "scatter": 15,
}  # fmt: skip
"""The number of every collective in classic files."""
_EQUIVALENTS: Final[Mapping[tuple[str, str], Equivalent]] = {
    ("allgather", "bruck"): Equivalent("bruck", 2),
    ("allgather", "recursive_doubling"): Equivalent("recursive_doubling", 3),
    ("allgather", "ring"): Equivalent("ring", 4),
    ("allgather", "neighbor_exchange"): Equivalent("neighbor", 5),
    ("allgather", "sparbit"): Equivalent("sparbit", 7),
    ("allreduce", "recursive_doubling"): Equivalent("recursive_doubling", 3),
    ("allreduce", "ring"): Equivalent("ring", 4, reorders=True),
    ("allreduce", "rabenseifner"): Equivalent("rabenseifner", 6, folds=True),
    ("alltoall", "linear"): Equivalent("linear", 1),
    ("alltoall", "pairwise"): Equivalent("pairwise", 2),
    ("alltoall", "bruck"): Equivalent("modified_bruck", 3),
    ("barrier", "recursive_doubling"): Equivalent("recursive_doubling", 3, folds=True),
    ("barrier", "dissemination"): Equivalent("bruck", 4),
    ("bcast", "linear"): Equivalent("basic_linear", 1),
    ("bcast", "chain"): Equivalent("pipeline", 3, has_segments=True),
    ("bcast", "binomial"): Equivalent("knomial", 7, has_segments=True),
    ("bcast", "knomial"): Equivalent("knomial", 7, has_segments=True),
    ("bcast", "scatter_allgather"): Equivalent("scatter_allgather_ring", 9),
    ("exscan", "chain"): Equivalent("linear", 1),
    ("exscan", "recursive_doubling"): Equivalent("recursive_doubling", 2),
    ("gather", "linear"): Equivalent("basic_linear", 1),
    ("gather", "binomial"): Equivalent("binomial", 2),
    ("reduce", "linear"): Equivalent("linear", 1),
    ("reduce", "chain"): Equivalent("pipeline", 3, has_segments=True, reorders=True),
    ("reduce", "binomial"): Equivalent("binomial", 5, has_segments=True, reorders=True),
    ("reduce", "rabenseifner"): Equivalent("rabenseifner", 7, folds=True),
    ("reduce_scatter_block", "recursive_halving"): Equivalent("recursive_halving", 3),
    ("scan", "chain"): Equivalent("linear", 1),
    ("scan", "recursive_doubling"): Equivalent("recursive_doubling", 2),
    ("scatter", "linear"): Equivalent("linear_nb", 3),
    ("scatter", "binomial"): Equivalent("binomial", 2),
}
"""By collective and algorithm of ours."""
_SEGMENTED_RING: Final = Equivalent("segmented_ring", 5, has_segments=True, reorders=True)
"""Stands for allreduce's ring in segments."""
NUMBERS: Final = {
    **{(kind, one.name): one.number for (kind, _), one in _EQUIVALENTS.items()},
    ("allreduce", _SEGMENTED_RING.name): _SEGMENTED_RING.number,
}
"""The number of every algorithm in classic files, by collective and its name there."""
_SIZE_BLIND: Final = frozenset({"gather", "scatter", "scan", "exscan", "barrier"})
"""Kinds that want one rule: for scans Open MPI leaves the count out of the size, and for gather
and scatter it reads arguments that count at the root or elsewhere only, so that ranks would
follow different rules."""
_KNOMIAL_RADIX: Final = "coll_tuned_bcast_algorithm_knomial_radix"
"""Open MPI's variable, 4 unless set. Its own ``binomial`` and ``binary_tree`` of bcast have
other edges than ours: the former's children lie above their parent's leading bit."""
_FAN_OUT: Final = {("allgather", "bruck"): 2}
"""Radix of Bruck's algorithm as Open MPI 6 reads it; earlier releases always use radix 2."""


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
    for kind in sorted(by_kind, key=IDS.__getitem__):
        blocks: dict[int, list[str]] = {0: ["0 0 0 0"]}
        for ranks, selection in sorted(by_kind[kind].items()):
            blocks[ranks] = _rules(selection)
            n_rules += len(blocks[ranks])
            # A rule holds for all larger communicators, too, up to the next.
            blocks.setdefault(ranks + 1, ["0 0 0 0"])
        lines += [f"{IDS[kind]} # {kind}", f"{len(blocks)} # numbers of ranks"]
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
        for begin, end, target in selection.rules():
            last = "inf" if end is None else end - 1
            rule: dict[str, Any] = {"msg_size_min": begin, "msg_size_max": last, "alg": target.name}
            if (sweep.collective, target.name) in _FAN_OUT:
                rule["faninout"] = _FAN_OUT[sweep.collective, target.name]
            if target.segment_bytes:
                rule["seg_size"] = target.segment_bytes
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
        rule = "0 0 0"
        if target is not None:
            known = sweep.collective, target.name
            rule = f"{NUMBERS[known]} {_FAN_OUT.get(known, 0)} {target.segment_bytes}"
        lines.append(f"{total_bytes(sweep, interval.begin)} {rule}")
    return lines


def _library(assume_commuting: bool, has_direct: bool) -> Library:
    answer = partial(equivalent, assume_commuting, has_direct)
    return Library("Open MPI", answer, _SIZE_BLIND, across_nodes="coll/han")


def equivalent(
    assume_commuting: bool,
    has_direct: bool,
    sweep: Sweep,
    algorithm: AlgorithmChoice,
    segment_bytes: int,
) -> Target | str:
    """Return Open MPI's algorithm that does what one of ours does, or why there is none."""
    kind, own = sweep.collective, algorithm.name
    if (kind, own) == ("allgather", "linear") and has_direct and not segment_bytes:
        return Target("direct")
    known = _EQUIVALENTS.get((kind, own))
    if segment_bytes and (kind, own) == ("allreduce", "ring"):
        known = _SEGMENTED_RING
    if known is None or has_other_radix(algorithm):
        return "Open MPI has no equivalent"
    if segment_bytes and not known.has_segments:
        return "Open MPI has no equivalent"
    if known.reorders and not assume_commuting:
        return (
            "Open MPI would run it for operations that do not commute, too, with wrong results "
            "(--assume-commuting takes it)"
        )
    if known.folds and sweep.ranks & (sweep.ranks - 1):
        return "Open MPI's has other messages unless the ranks are a power of two"
    setting = None
    if known.name == "knomial":
        setting = _KNOMIAL_RADIX, str(2 if own == "binomial" else algorithm.options.get("radix", 4))
    return Target(known.name, segment_bytes, setting=setting)
