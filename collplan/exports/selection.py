"""Selection of the algorithms of an MPI library by message size, from a tuning table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import log
from typing import Final

from collplan.measure.statistics import is_faster
from collplan.specs import COLLECTIVES, CollplanError
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.specs.request import FLAT, MESSAGES
from collplan.specs.syntax.numbers import parse_bytes
from collplan.tables.sweep import NATIVE_LABEL, Choice, Point, Sweep
from collplan.tables.table import TuningTable

_ORDERING: Final = frozenset({"prioritize", "limit_requests"})
"""Passes that change when messages are sent, not which ones, and thus keep the algorithm."""


@dataclass(frozen=True, slots=True)
class Target:
    """An algorithm of a library.

    Parameters
    ----------
    name : str
        Name of the algorithm in the library.
    segment_bytes : int
        Size in bytes of the segments into which messages are cut; 0 for whole messages.
    options : tuple of str
        Further options of the algorithm.
    setting : tuple of str, optional
        Name and value of a variable without which the library runs the algorithm in another
        form. The variable has one value per job, for all sizes and numbers of ranks.
    """

    name: str
    segment_bytes: int = 0
    options: tuple[str, ...] = ()
    setting: tuple[str, str] | None = None

    def __str__(self) -> str:
        """Return the name, and the segment size if messages are cut into segments."""
        return f"{self.name} in {self.segment_bytes} B" if self.segment_bytes else self.name


@dataclass(frozen=True)
class LibraryRules:
    """Algorithms and selection rules of an MPI library.

    Parameters
    ----------
    name : str
        Name of the library. The MPI version in the fingerprint of a table begins with this name
        if the native times of the table are those of the library.
    equivalent : callable
        Function that takes a sweep, a collplan algorithm and the segment size in bytes (0 for
        whole messages). It returns the library's algorithm, or the reason why there is none.
    size_blind : frozenset of str
        Kinds for which the library cannot choose by size.
    knows_commuting : bool
        Whether the library can choose by the commutativity of the operation.
    across_nodes : str
        Component of the library that is disabled if ranks are on several nodes, because it
        takes precedence over the rules there; empty if there is none.
    """

    name: str
    equivalent: Callable[[Sweep, AlgorithmChoice, int], Target | str]
    size_blind: frozenset[str] = frozenset()
    knows_commuting: bool = False
    across_nodes: str = ""


@dataclass(frozen=True, slots=True)
class SizeInterval:
    """Interval of message sizes, with the algorithm for these sizes.

    Parameters
    ----------
    begin : int
        First size in bytes.
    end : int or None
        First size in bytes after the interval; None if the interval has no upper limit.
    target : Target or None
        Algorithm; None if the library chooses by itself.
    """

    begin: int
    end: int | None
    target: Target | None


@dataclass(frozen=True)
class Selection:
    """Algorithms for the collective of a sweep on its number of ranks.

    Parameters
    ----------
    sweep : Sweep
    intervals : tuple of SizeInterval
        Intervals in ascending order, which cover all sizes.
    """

    sweep: Sweep
    intervals: tuple[SizeInterval, ...]

    @property
    def spans_nodes(self) -> bool:
        """True if the ranks of the sweep are on several nodes."""
        return len(self.sweep.placement.ranks_per_node) > 1

    def rules(self) -> Iterator[tuple[int, int | None, Target]]:
        """Yield the begin, end and target of each interval with a target.

        Begin and end are in bytes, over the blocks of all ranks if the collective has blocks.
        The end is exclusive, and None if there is no upper limit.
        """
        for interval in self.intervals:
            if interval.target is not None:
                end = None if interval.end is None else total_bytes(self.sweep, interval.end)
                yield total_bytes(self.sweep, interval.begin), end, interval.target


@dataclass(frozen=True)
class Export:
    """A tuning table in the format of a library.

    Parameters
    ----------
    text : str
        Content of the file.
    use : str
        Command line that starts a program with the file; ``{path}`` stands for its path.
    n_rules : int
        Number of rules for a size interval on a number of ranks.
    notes : list of str
        Notes on parts of the table that are not exported, one line each.
    """

    text: str
    use: str
    n_rules: int
    notes: list[str]


def select(table: TuningTable, library: LibraryRules) -> tuple[list[Selection], list[str]]:
    """Choose algorithms of a library for every sweep of a table.

    At each size, the fastest algorithm of the library is chosen if it is faster than the
    native collective by the rule for the winners of the table: the confidence intervals of both
    must not overlap. If native was not measured, the algorithm is chosen, too. Otherwise, the
    library chooses by itself.

    Parameters
    ----------
    table : TuningTable
    library : LibraryRules

    Returns
    -------
    selections : list of Selection
        One selection per collective, number of ranks and, if the library can choose by it,
        commutativity of the operation. Selections without any target are left out.
    notes : list of str
        Notes on parts of the table that are not exported, one line each.
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
    """Return the names and values of the variables that selections need, without repetitions."""
    targets = [interval.target for each in selections for interval in each.intervals]
    return list(dict.fromkeys(each.setting for each in targets if each and each.setting))


def total_bytes(sweep: Sweep, n_bytes: int) -> int:
    """Return the total size for a message size of a sweep, both in bytes.

    If the collective has blocks, the message size is that of one block, and the total size is
    that of the blocks of all ranks. Otherwise, both are equal.
    """
    return n_bytes * sweep.ranks if COLLECTIVES[sweep.collective].has_blocks else n_bytes


def _with_one_setting(sweeps: list[Sweep], library: LibraryRules) -> LibraryRules:
    """Return a library with one value for each variable: the one that most winners need.

    The returned library refuses algorithms that need another value.
    """
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


def _expressible(table: TuningTable, library: LibraryRules, notes: list[str]) -> list[Sweep]:
    """Return the sweeps of a table that a library can express.

    Of several sweeps that the library cannot tell apart, one is returned. Notes on all other
    sweeps are appended to `notes`.
    """
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
    """Return a key that is greatest for the sweep to keep.

    Sweeps of commutative operations are preferred, then sweeps on many nodes.
    """
    return sweep.op_commutes is not False, len(sweep.placement.ranks_per_node)


def _intervals(sweep: Sweep, library: LibraryRules, notes: list[str]) -> Iterator[SizeInterval]:
    answers = {label: _target(sweep, choice, library) for label, choice in sweep.choices.items()}
    targets = {label: one for label, one in answers.items() if isinstance(one, Target)}
    if sweep.collective in library.size_blind:
        winners = [_best_of_all(sweep, targets)] * len(sweep.points)
    else:
        winners = [_best_at(point, targets) for point in sweep.points]
    notes += _lost_winners(sweep, library, winners, answers)
    # The winners are labels of this sweep, or native, which may not have been measured.
    points = zip(sweep.points, winners, strict=True)
    won = tuple(point.model_copy(update={"winner": winner}) for point, winner in points)
    chosen = sweep.model_copy(update={"points": won})
    for target, group in groupby(chosen.intervals(), lambda interval: targets.get(interval[2])):
        intervals = list(group)
        yield SizeInterval(intervals[0][0], intervals[-1][1], target)


def _target(sweep: Sweep, choice: Choice, library: LibraryRules) -> Target | str:
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
    """Return the label of the best algorithm for all sizes, by the geometric mean of its times.

    The algorithm must be faster than native at some size and slower at none; return native if
    there is no such algorithm. Algorithms that were not measured at all sizes are ignored. If
    native was not measured beside an algorithm, no comparison with native is required.
    """
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
    sweep: Sweep, library: LibraryRules, winners: list[str], answers: Mapping[str, Target | str]
) -> Iterator[str]:
    """Yield a note on each winner of the table that another algorithm replaces."""
    instead: dict[str, dict[str, None]] = {}
    for point, winner in zip(sweep.points, winners, strict=True):
        if point.winner not in (winner, NATIVE_LABEL):
            # The native collective has no target.
            stand_in = str(answers.get(winner) or f"{library.name}'s own choice")
            instead.setdefault(point.winner, {})[stand_in] = None
    for label, stand_ins in instead.items():
        answer = answers[label]
        why = answer if isinstance(answer, str) else f"{library.name} cannot choose by size"
        place = f"{sweep.collective} on {sweep.placement}"
        yield f"{place}: {label}: {why}; instead {', '.join(stand_ins)}"
