"""Dynamic rules of Open MPI's coll/tuned, as classic files (4 and 5) or JSON (6)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from collplan.exports.selection import (
    Export,
    LibraryRules,
    Selection,
    Target,
    select,
    settings_of,
    total_bytes,
)
from collplan.libraries.counterparts import algorithms_of
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.tables.sweep import Sweep
from collplan.tables.table import TuningTable

IDS: Final = {
    "allgather": 0, "allreduce": 2, "alltoall": 3, "barrier": 6, "bcast": 7, "exscan": 8,
    "gather": 9, "reduce": 11, "reduce_scatter_block": 13, "scan": 14, "scatter": 15,
}  # fmt: skip
"""Number of each collective in classic files."""
NUMBERS: Final = {
    (row.collective, row.name): row.number
    for row in algorithms_of("openmpi").rows
    if row.number is not None
}
"""Number of each algorithm in classic files, by collective and Open MPI's name."""
_SIZE_BLIND: Final = frozenset({"gather", "scatter", "scan", "exscan", "barrier"})
"""Kinds that get one rule for all sizes.

For scans, Open MPI leaves the count out of the size. For gather and scatter, it reads arguments
that are significant only at the root or only at other ranks, so that ranks could follow different
rules. A barrier has no size.
"""
_FAN_OUT: Final = "faninout="
"""Prefix of the option for the fan-out of a rule.

Chains have a fan-out. Open MPI 6 also reads it as the radix of Bruck's algorithm; earlier releases
always use radix 2.
"""


def write_classic(table: TuningTable, assume_commuting: bool = False) -> Export:
    """Write a table as a file of rules for Open MPI 4 and 5.

    Open MPI decides by itself for numbers of ranks that the table does not contain. The file has
    no version number, because Open MPI before 5.0.7 ignores files that begin with one, without a
    message. Version 2 only adds a parameter that no rule here has.

    Parameters
    ----------
    table : TuningTable
    assume_commuting : bool
        Whether to assume that all operations are commutative. Rules apply to any operation,
        and some algorithms give wrong results for non-commutative ones. By default, these
        algorithms are left out.
    """
    selections, notes = select(table, _library(assume_commuting, has_direct=False))
    by_kind: dict[str, dict[int, Selection]] = {}
    for selection in selections:
        by_kind.setdefault(selection.sweep.collective, {})[selection.sweep.ranks] = selection
    lines = [f"{len(by_kind)} # collectives"]
    n_rules = 0
    for kind in sorted(by_kind, key=IDS.__getitem__):
        blocks: dict[int, list[str]] = {0: ["0 0 0 0"]}
        for ranks, selection in sorted(by_kind[kind].items()):
            blocks[ranks] = _rules(selection)
            n_rules += len(blocks[ranks])
            # Rules also apply to larger communicators, up to the next listed number of ranks.
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
            if target.options:
                rule["faninout"] = _fan_out(target)
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
        options += " --mca coll ^han"  # Open MPI would prefer coll/han to these rules
    for name, value in settings_of(selections):
        options += f" --mca {name} {value}"
    return f"mpiexec {options}"


def _rules(selection: Selection) -> list[str]:
    """Return a line with first size, algorithm, fan-out and segment size for each interval.

    Sizes are in bytes. Algorithm 0 lets Open MPI choose.
    """
    sweep = selection.sweep
    lines = []
    for interval in selection.intervals:
        target = interval.target
        rule = "0 0 0"
        if target is not None:
            number = NUMBERS[sweep.collective, target.name]
            rule = f"{number} {_fan_out(target)} {target.segment_bytes}"
        lines.append(f"{total_bytes(sweep, interval.begin)} {rule}")
    return lines


def _fan_out(target: Target) -> int:
    return sum(int(option.removeprefix(_FAN_OUT)) for option in target.options)


def _library(assume_commuting: bool, has_direct: bool) -> LibraryRules:
    answer = partial(equivalent, assume_commuting, has_direct)
    return LibraryRules("Open MPI", answer, _SIZE_BLIND, across_nodes="coll/han")


def equivalent(
    assume_commuting: bool,
    has_direct: bool,
    sweep: Sweep,
    algorithm: AlgorithmChoice,
    segment_bytes: int,
) -> Target | str:
    """Return Open MPI's counterpart of a collplan algorithm, or the reason why there is none."""
    kind, ranks, library = sweep.collective, sweep.ranks, algorithms_of("openmpi")
    found = library.find(kind, algorithm, ranks, is_cut=segment_bytes > 0)
    if isinstance(found, str):
        return found
    if found.number is None and not has_direct:
        return library.missing
    if found.reorders and not assume_commuting:
        return (
            "Open MPI would run it for operations that do not commute, too, with wrong results "
            "(--assume-commuting takes it)"
        )
    options, setting = found.told(algorithm, ranks, segment_bytes)
    name, _, value = setting.partition("=")
    told = tuple(options.split())
    return Target(found.name, segment_bytes, told, setting=(name, value) if name else None)
