"""Next steps after a comparison: how to tune and use plans, and what MPI has itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from shlex import quote
from typing import Any, Final, NamedTuple

from collplan.libraries.counterparts import algorithms_of, setting_of
from collplan.libraries.decisions import DECIDING, title_of
from collplan.reports.output import format_bytes, format_seconds
from collplan.select.compared import Comparison
from collplan.specs import AlgorithmChoice, PlanSpec
from collplan.specs.request import MESSAGES
from collplan.tune.racing import StopRules

MEASURED: Final = 1.5
"""Predicted time, divided by the best, up to which `collplan tune` measures plans by default."""
PLAN_S: Final = 0.5
"""Time in seconds to make, bind and check one plan on the ranks of a node with few cores."""
NEARLY: Final = 0.99
"""Ratio to the time of the library's default above which its other algorithms gain nothing."""


class OwnAlgorithm(NamedTuple):
    """The best algorithm that an MPI library has itself, at one size.

    Parameters
    ----------
    bytes : int
        Size in bytes.
    algorithm : str
        Name in the library; empty if its default is best.
    setting : str
        Beginning of a command that selects it; empty for the default.
    makespan_s : float
        Simulated time in seconds.
    """

    bytes: int
    algorithm: str
    setting: str
    makespan_s: float


def next_steps(comparison: Comparison, source: str) -> dict[str, Any]:
    """Return the commands that use a comparison's result, as values for JSON.

    Parameters
    ----------
    comparison : Comparison
    source : str
        The spec's file.

    Returns
    -------
    dict
        `tune` and `use`, commands; `tune_plans`, about the number of plans that `tune` measures;
        `tune_s`, the time in seconds that it takes at most, about; `library`, the title of the
        MPI library; and `own`, a list of `OwnAlgorithm` as mappings. Empty for collectives on
        graphs, which are not tuned.
    """
    if any(spec.collective.has_edges for spec in comparison.specs.values()):
        return {}
    n_plans = sum(
        seconds <= MEASURED * comparison.makespans[comparison.leading[size], size]
        for (_, size), seconds in comparison.makespans.items()
    )
    sizes = f" --sizes {','.join(map(_size, comparison.sizes))}" if any(comparison.sizes) else ""
    return {
        "tune": f"collplan tune {quote(source)}{sizes} -o table.yaml",
        "use": "collplan exec --table table.yaml PROGRAM",
        "tune_plans": n_plans,
        "tune_s": StopRules().seconds * len(comparison.leading) + PLAN_S * n_plans,
        "library": comparison.baseline,
        "own": [one._asdict() for one in _own_algorithms(comparison)],
    }


def _size(n_bytes: int) -> str:
    """Return a size as commands read it, without loss.

    Examples
    --------
    >>> _size(1 << 20), _size(1000)
    ('1MiB', '1000')
    """
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n_bytes and n_bytes % size == 0:
            return f"{n_bytes // size}{unit}"
    return str(n_bytes)


def lines_of(steps: dict[str, Any], comparison: Comparison) -> Iterator[str]:
    """Generate lines of text for what `next_steps` has returned."""
    if not steps:
        return
    yield (
        f"next: {steps['tune']} measures the best plans, about {steps['tune_plans']}, on the "
        f"machine itself; this takes about {format_seconds(steps['tune_s'])} at most"
    )
    yield f"then: {steps['use']} runs an unchanged program with the winners"
    for (name, setting), some in groupby(
        (OwnAlgorithm(**one) for one in steps["own"]), key=lambda one: one[1:3]
    ):
        rows = list(some)
        first, last = rows[0], rows[-1]
        size = format_bytes(first.bytes)
        if len(rows) > 1:
            size += f" to {format_bytes(last.bytes)}"
        ratio = last.makespan_s / comparison.makespans[comparison.leading[last.bytes], last.bytes]
        what = f"{steps['library']} has nothing better than its default"
        if name:
            what = f"{name} is the best that {steps['library']} has"
        yield (
            f"{what} at {size}, {ratio:.3g} times the best"
            + (f" at {format_bytes(last.bytes)}" if len(rows) > 1 else "")
            + (f": {setting}" if setting else "")
        )


def _own_algorithms(comparison: Comparison) -> Iterator[OwnAlgorithm]:
    """Generate the best algorithm of the baseline's library at each size that was simulated.

    There is none if the order of operands matters between runs, as nobody has proved that of a
    library.
    """
    library = {title_of(one): one for one in DECIDING}.get(comparison.baseline)
    if library is None or comparison.level not in (None, "ranks"):
        return
    settings = {name: _setting(library, spec) for name, spec in comparison.specs.items()}
    for size in comparison.leading:
        found = [
            OwnAlgorithm(size, *told, comparison.makespans[name, size])
            for name, told in settings.items()
            if told is not None and (name, size) in comparison.makespans
        ]
        best = min(found, key=lambda one: one.makespan_s, default=None)
        default_s = comparison.baseline_s.get(size)
        if default_s is not None and (best is None or best.makespan_s > NEARLY * default_s):
            yield OwnAlgorithm(size, "", "", default_s)
        elif best is not None:
            yield best


def _setting(library: str, spec: PlanSpec) -> tuple[str, str] | None:
    """Return the name of a candidate's algorithm in a library, and the setting that selects it."""
    choice, machine = spec.algorithms, spec.machine
    is_plain = spec.transport == MESSAGES and not spec.passes and spec.decomposition.name == "flat"
    if not is_plain or not isinstance(choice, AlgorithmChoice):
        return None
    collective = spec.collective
    row = algorithms_of(library).find(
        collective.planned_kind, choice, machine.n_ranks, is_cut=False
    )
    if isinstance(row, str) or ((row.commutes or row.reorders) and not collective.is_commutative):
        return None
    setting = setting_of(library, row, spans_nodes=machine.nodes > 1)
    return None if setting is None else (row.name, setting)
