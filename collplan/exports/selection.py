"""Selection of a library's own algorithms, by size, from a tuning table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import log
from typing import Final

from collplan.measure.statistics import is_faster
from collplan.specs import COLLECTIVES, CollplanError
from collplan.specs.named_option import AlgorithmChoice
from collplan.specs.numbers import parse_bytes
from collplan.specs.request import FLAT, MESSAGES
from collplan.tune.sweep import NATIVE_LABEL, Choice, Point, Sweep
from collplan.tune.table import TuningTable

_ORDERING: Final = frozenset({"prioritize", "limit_requests"})
"""Passes that say when to send, not what: an algorithm stays the same with them."""


@dataclass(frozen=True, slots=True)
class Target:
    """An algorithm of a library.

    Parameters
    ----------
    name : str
        The library's for it.
    segment_bytes : int
        Of the segments it cuts messages into; 0 sends them whole.
    options : tuple of str
        What else the library is told.
    setting : tuple of str, optional
        Name and value of a variable that makes it this algorithm. A job has one value of
        it, for all sizes and numbers of ranks.
    """

    name: str
    segment_bytes: int = 0
    options: tuple[str, ...] = ()
    setting: tuple[str, str] | None = None

    def __str__(self) -> str:
        """Write the name, with segments if any."""
        return f"{self.name} in {self.segment_bytes} B" if self.segment_bytes else self.name


@dataclass(frozen=True)
class Library:
    """Algorithms and settings that a library offers.

    Parameters
    ----------
    name : str
        Its own; versions of an MPI whose native times are this library's begin with it.
    equivalent : callable
        Takes a sweep, one of our algorithms and the bytes of a segment (0 if whole);
        returns the library's algorithm, or why there is none.
    size_blind : frozenset of str
        Kinds for which it cannot choose by size.
    knows_commuting : bool
        Whether it can choose by whether the operation commutes.
    across_nodes : str
        What it has to be told to do without where ranks are on several nodes, as its
        rules are not asked there; empty if nothing.
    """

    name: str
    equivalent: Callable[[Sweep, AlgorithmChoice, int], Target | str]
    size_blind: frozenset[str] = frozenset()
    knows_commuting: bool = False
    across_nodes: str = ""


@dataclass(frozen=True, slots=True)
class Interval:
    """Sizes from `begin` bytes up to but excluding `end`; no target is the library's own choice."""

    begin: int
    end: int | None
    target: Target | None


@dataclass(frozen=True)
class Selection:
    """Choice for a sweep's collective on its number of ranks, over all sizes."""

    sweep: Sweep
    intervals: tuple[Interval, ...]

    @property
    def spans_nodes(self) -> bool:
        """Return whether its ranks are on several nodes."""
        return len(self.sweep.placement.ranks_per_node) > 1

    def rules(self) -> Iterator[tuple[int, int | None, Target]]:
        """Yield where all ranks' bytes begin and end, None for no end, and what runs there."""
        for interval in self.intervals:
            if interval.target is not None:
                end = None if interval.end is None else total_bytes(self.sweep, interval.end)
                yield total_bytes(self.sweep, interval.begin), end, interval.target


@dataclass(frozen=True)
class Export:
    """A text for a library.

    Parameters
    ----------
    text : str
        A file's.
    use : str
        How a program is started on it, with ``{path}`` for the file's.
    n_rules : int
        How many sizes and numbers of ranks it says something of.
    notes : list of str
        What it leaves out, a line each.
    """

    text: str
    use: str
    n_rules: int
    notes: list[str]


def select(table: TuningTable, library: Library) -> tuple[list[Selection], list[str]]:
    """Choose, for every sweep of a table, among the algorithms that a library has.

    At every size the fastest of them, if its interval clears that of the native
    collective, as for the table's own winners; else the library chooses itself.

    Parameters
    ----------
    table : TuningTable
    library : Library

    Returns
    -------
    list of Selection
        One a collective, number of ranks and, if the library can tell, whether the
        operation commutes; those without any target are left out.
    list of str
        What could not be taken along, a line each.
    """
    notes: list[str] = []
    if not table.fingerprint.mpi.startswith(library.name):
        notes.append(
            f"native was {table.fingerprint.mpi}, not {library.name}: whether {library.name}'s own "
            f"choice is faster was not measured"
        )
    found = []
    sweeps = _expressible(table, library, notes)
    library = _with_one_setting(sweeps, library)
    for sweep in sweeps:
        selection = Selection(sweep, tuple(_intervals(sweep, library, notes)))
        targets = [interval.target for interval in selection.intervals]
        if not any(targets):
            continue
        found.append(selection)
        if library.across_nodes and selection.spans_nodes and None in targets:
            notes.append(
                f"{sweep.collective} on {sweep.placement}: where {library.name} chooses itself, it "
                f"does so without {library.across_nodes}, which would go before the rules"
            )
    return found, notes


def settings_of(selections: list[Selection]) -> list[tuple[str, str]]:
    """Return the variables that the selections need, each once, with their values."""
    targets = [interval.target for each in selections for interval in each.intervals]
    return list(dict.fromkeys(each.setting for each in targets if each and each.setting))


def total_bytes(sweep: Sweep, n_bytes: int) -> int:
    """Return the bytes of all ranks' blocks, of what is counted in blocks."""
    return n_bytes * sweep.ranks if COLLECTIVES[sweep.collective].has_blocks else n_bytes


def _with_one_setting(sweeps: list[Sweep], library: Library) -> Library:
    """Return a library that refuses what needs another value of a variable than most winners."""
    wanted: dict[str, Counter[str]] = {}
    for sweep in sweeps:
        for interval in _intervals(sweep, library, []):
            if interval.target is not None and interval.target.setting is not None:
                name, value = interval.target.setting
                wanted.setdefault(name, Counter())[value] += 1
    settled = {name: values.most_common(1)[0][0] for name, values in wanted.items()}

    def equivalent(sweep: Sweep, algorithm: AlgorithmChoice, n_bytes: int) -> Target | str:
        answer = library.equivalent(sweep, algorithm, n_bytes)
        if isinstance(answer, str) or answer.setting is None:
            return answer
        name, value = answer.setting
        if settled.get(name, value) == value:
            return answer
        return f"it needs {name} = {value}, and more of the table needs {settled[name]}"

    return replace(library, equivalent=equivalent)


def _expressible(table: TuningTable, library: Library, notes: list[str]) -> list[Sweep]:
    """Return one sweep for all that a library can't tell apart, in the table's order."""
    kept: dict[tuple[str, int, bool | None], Sweep] = {}
    for sweep in table.sweeps:
        place = f"{sweep.name} on {sweep.placement}"
        if sweep.counts is not None:
            notes.append(f"{place}: {library.name} cannot tell counts apart, left out")
            continue
        if sweep.computation_s is not None:
            notes.append(f"{place}: {library.name} is told of blocking calls only, left out")
            continue
        if not sweep.complete:
            notes.append(f"{place}: not complete, left out; tune again to complete it")
            continue
        commutes = sweep.op_commutes if library.knows_commuting else None
        key = sweep.collective, sweep.ranks, commutes
        rival = kept.get(key)
        if rival is None or _preference(sweep) > _preference(rival):
            kept[key], sweep = sweep, rival or sweep
        if rival is not None:
            kept_place = kept[key].placement
            operations = "" if sweep.op_commutes is not False else " of operations out of order"
            notes.append(
                f"{sweep.collective} on {sweep.placement}{operations}: {library.name} cannot tell "
                f"it from {kept_place}, left out"
            )
    return list(kept.values())


def _preference(sweep: Sweep) -> tuple[bool, int]:
    """Return what is greater for the sweep to keep: operations that commute, many nodes."""
    return sweep.op_commutes is not False, len(sweep.placement.ranks_per_node)


def _intervals(sweep: Sweep, library: Library, notes: list[str]) -> Iterator[Interval]:
    answers = {label: _target(sweep, choice, library) for label, choice in sweep.choices.items()}
    targets = {label: one for label, one in answers.items() if isinstance(one, Target)}
    if sweep.collective in library.size_blind:
        winners = [_best_of_all(sweep, targets)] * len(sweep.points)
    else:
        winners = [_best_at(point, targets) for point in sweep.points]
    notes += _lost_winners(sweep, library, winners, answers)
    # The winners are labels of this sweep, or native, which need not have been measured.
    points = zip(sweep.points, winners, strict=True)
    won = tuple(point.model_copy(update={"winner": winner}) for point, winner in points)
    chosen = sweep.model_copy(update={"points": won})
    for target, group in groupby(chosen.intervals(), lambda interval: targets.get(interval[2])):
        intervals = list(group)
        yield Interval(intervals[0][0], intervals[-1][1], target)


def _target(sweep: Sweep, choice: Choice, library: Library) -> Target | str:
    if choice.native:
        return ""
    passes = {each.name: each for each in choice.passes if each.name not in _ORDERING}
    segment = passes.pop("segment", None)
    is_flat = choice.decomposition == FLAT and choice.transport == MESSAGES and not passes
    algorithm = choice.algorithms
    if not is_flat or not isinstance(algorithm, AlgorithmChoice) or algorithm.name == "auto":
        return f"{library.name} has no equivalent"
    try:
        n_bytes = 0 if segment is None else parse_bytes(segment.options.get("max_bytes", "64KiB"))
    except ValueError as error:
        raise CollplanError(f"table: {sweep.collective}: segment: max_bytes: {error}") from None
    return library.equivalent(sweep, algorithm, n_bytes)


def _best_at(point: Point, targets: dict[str, Target]) -> str:
    native = point.times.get(NATIVE_LABEL)
    known = {label: time for label, time in point.times.items() if label in targets}
    best = min(known, key=lambda label: known[label].median_s, default=NATIVE_LABEL)
    if best == NATIVE_LABEL or native is None or is_faster(known[best], native):
        return best
    return NATIVE_LABEL


def _best_of_all(sweep: Sweep, targets: dict[str, Target]) -> str:
    """Return the label of the fastest on geometric mean that is nowhere slower than native."""
    scores = {}
    for label in targets:
        pairs = [(point.times.get(label), point.times.get(NATIVE_LABEL)) for point in sweep.points]
        times = [time for time, _ in pairs if time is not None]
        if len(times) < len(pairs):
            continue
        rivals = [(time, native) for time, native in pairs if time and native]
        wins = any(is_faster(time, native) for time, native in rivals)
        loses = any(is_faster(native, time) for time, native in rivals)
        if not rivals or (wins and not loses):
            scores[label] = sum(log(max(time.median_s, 1e-12)) for time in times)
    return min(scores, key=lambda label: scores[label], default=NATIVE_LABEL)


def _lost_winners(
    sweep: Sweep, library: Library, winners: list[str], answers: Mapping[str, Target | str]
) -> Iterator[str]:
    """Yield a line for every winner of the table that something else stands in for."""
    instead: dict[str, dict[str, None]] = {}
    for point, winner in zip(sweep.points, winners, strict=True):
        if point.winner not in (winner, NATIVE_LABEL):
            # Of the native collective there is no target.
            stand_in = str(answers.get(winner) or f"{library.name}'s own choice")
            instead.setdefault(point.winner, {})[stand_in] = None
    for label, stand_ins in instead.items():
        answer = answers[label]
        why = answer if isinstance(answer, str) else f"{library.name} cannot choose by size"
        place = f"{sweep.collective} on {sweep.placement}"
        yield f"{place}: {label}: {why}; instead {', '.join(stand_ins)}"
