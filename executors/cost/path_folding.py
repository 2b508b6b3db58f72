"""Folding of repeated steps on a critical path, which keeps long paths readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

_LONGEST_PERIOD: Final = 8
_FEWEST_TIMES: Final = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """A group of steps on a path, and its number of repetitions.

    Parameters
    ----------
    first : int
        Index of the first step.
    period : int
        Number of steps in the group.
    times : int
        Number of times that the group occurs; 1 if it does not repeat.
    shift : int
        Difference between the ranks of one repetition and of the previous one.
    """

    first: int
    period: int = 1
    times: int = 1
    shift: int = 0


def fold(steps: Sequence[dict[str, Any]], n_ranks: int) -> list[Fold]:
    """Fold a critical path.

    Two steps are equal if they have the same operation, number of bytes and lane, the same
    distance to their peer, and waited for the same kind of event or resource. From one repetition
    to the next, ranks may change by a constant number.

    Parameters
    ----------
    steps : sequence of dict
        Steps, as in `critical_path` of a cost report.
    n_ranks : int
        Number of ranks, modulo which ranks are counted.

    Returns
    -------
    list of Fold
        Groups of steps in order, which cover the path.

    Examples
    --------
    >>> step = {"op": "send", "bytes": 8, "lane": 0, "waited_for": "message", "resource": None}
    >>> ring = [{**step, "rank": rank, "peer": (rank + 1) % 4} for rank in (2, 3, 0, 1)]
    >>> fold(ring, n_ranks=4)
    [Fold(first=0, period=1, times=4, shift=1)]
    """
    keys = [_key(step, n_ranks) for step in steps]
    ranks = [int(step["rank"]) for step in steps]
    folds: list[Fold] = []
    first = 0
    while first < len(steps):
        best = Fold(first)
        for period in range(1, _LONGEST_PERIOD + 1):
            found = _repeat(keys, ranks, n_ranks, first, period)
            if found.times >= _FEWEST_TIMES and found.times * period > best.times * best.period:
                best = found
        folds.append(best)
        first += best.times * best.period
    return folds


def _repeat(
    keys: list[tuple[Any, ...]], ranks: list[int], n_ranks: int, first: int, period: int
) -> Fold:
    """Return the fold of the `period` steps from `first`, with all their repetitions."""
    end = first + period
    if end >= len(keys):
        return Fold(first, period)
    shift = (ranks[end] - ranks[first]) % n_ranks
    while (
        end < len(keys)
        and keys[end] == keys[end - period]
        and (ranks[end] - ranks[end - period]) % n_ranks == shift
    ):
        end += 1
    return Fold(first, period, (end - first) // period, shift)


def _key(step: dict[str, Any], n_ranks: int) -> tuple[Any, ...]:
    """Return the properties of a step that must be equal in all repetitions."""
    resource, peer = step["resource"], step["peer"]
    return (
        step["op"],
        step["bytes"],
        step["lane"],
        step["waited_for"],
        None if peer is None else (peer - step["rank"]) % n_ranks,
        None if resource is None else (resource["kind"], resource.get("lane")),
    )
