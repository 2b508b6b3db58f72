"""What is measured so far: an unfinished table, point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from executors.tuning.journal import AGAIN, Journal, read_complete
from executors.tuning.prediction import Selection
from executors.tuning.request import Goal, Request
from executors.tuning.trial import Verdict
from specs.errors import CollplanError
from specs.sweep import NATIVE, NATIVE_LABEL, Choice, Point, Sweep
from specs.tuning import Fingerprint, TuningTable


@dataclass(frozen=True, slots=True)
class State:
    """An unfinished table, and what was found wrong.

    Parameters
    ----------
    table : TuningTable
    wrong : tuple of str
        Candidates whose results were wrong: where, at which size, the first element.
    """

    table: TuningTable
    wrong: tuple[str, ...] = ()

    def sweep_of(self, goal: Goal) -> Sweep:
        """Return what is measured of a goal."""
        return goal.find(self.table) or goal.empty_sweep()

    def missing(self, goal: Goal) -> list[int]:
        """Return the sizes that are not measured yet."""
        known = {point.bytes for point in self.sweep_of(goal).points}
        return [size for size in goal.sizes if size not in known]

    def after(self, goal: Goal, n_bytes: int, selection: Selection, verdict: Verdict) -> State:
        """Return the state with one more point."""
        specs = {candidate.name: candidate.spec for candidate in selection.kept}
        choices = {
            name: NATIVE if name == NATIVE_LABEL else Choice.of(specs[name])
            for name in verdict.times
        }
        point = Point(
            bytes=n_bytes, times=verdict.times, winner=verdict.winner, skipped=selection.skipped
        )
        before = self.sweep_of(goal)
        sweep = before.replace(
            points=tuple(sorted((*before.points, point), key=lambda p: p.bytes)),
            choices=before.choices | choices,
        )
        sweep = sweep.replace(complete=goal.is_reached(sweep))
        others = [other for other in self.table.sweeps if other != before]
        found = [f"{goal}, {n_bytes} bytes: {who}: {at}" for who, at in verdict.wrong.items()]
        return State(self.table.replace(sweeps=(*others, sweep)), (*self.wrong, *found))


def open_state(
    journal: Journal, goals: Sequence[Goal], request: Request, now: Fingerprint, *, restart: bool
) -> State:
    """Return what there is already, in the journal or as a complete table.

    Raises
    ------
    CollplanError
        If there are files that this is no continuation of.
    """
    empty = TuningTable(
        fingerprint=now, numa_domains=request.numa_domains, network=request.network, sweeps=()
    )
    if restart:
        journal.remove()
        return State(empty)
    begun = journal.read(now)
    if begun is not None:
        return State(*begun)
    table = read_complete(journal.output, now)
    if table is None:
        return State(empty)
    if len(table.sweeps) != len(goals) or not all(g.is_reached(g.find(table)) for g in goals):
        raise CollplanError(
            f"{journal.output}: is a table of other sweeps; give another --output, {AGAIN}"
        )
    return State(table)
