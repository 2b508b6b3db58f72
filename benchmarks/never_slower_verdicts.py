"""Verdicts of the never-slower benchmark: intervals of paired rounds, tables, gains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.measure.statistics import median_interval
from collplan.reports.output import format_bytes, format_seconds

ALLOWED_PART: Final = 0.03
ALLOWED_S: Final = 20e-6
"""Share of native's time, and additional seconds, by which the drop-in may be slower."""
LONG_BYTES: Final = 1 << 18
"""Size in bytes from which gains are required."""
ASKED_GAIN: Final = 1.5
ASKED_LESS: Final = 0.3
"""By this part an application's communication has to take less."""
GAINING: Final = (
    "bcast", "allreduce", "allgather", "reduce", "gather", "scatter", "alltoall", "scan",
)  # fmt: skip
"""The collectives that are to gain."""
HEADS: Final = ("collective", "size", "ran", "native", "drop-in", "drop-in / native", "verdict")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on the rounds of a point.

    Parameters
    ----------
    collective : str
    bytes : int
    winner : str
        The label of what the drop-in ran.
    native_s, dropin_s : float
        Medians.
    ratio : tuple of float
        The median over rounds of drop-in over native, and the ends of its 95 % interval.
    excess_s : tuple of float
        By how much the drop-in took longer than it may: median, and 95 % interval.
    correct : bool
        Whether both gave the same.
    """

    collective: str
    bytes: int
    winner: str
    native_s: float
    dropin_s: float
    ratio: tuple[float, float, float]
    excess_s: tuple[float, float, float]
    correct: bool

    @property
    def is_failed(self) -> bool:
        """Return whether it is slower than allowed beyond noise, or wrong."""
        return self.excess_s[1] > 0 or not self.correct

    @property
    def word(self) -> str:
        """Return the verdict."""
        if not self.correct:
            return "WRONG"
        if self.is_failed:
            return "SLOWER"
        if self.ratio[2] < 1:
            return "faster"
        return "as allowed" if self.excess_s[2] <= 0 else "undecided"


def verdict_of(point: Mapping[str, Any]) -> Verdict:
    """Return the verdict on a point; rounds are pairs, as both were measured in turns.

    Examples
    --------
    >>> rounds = {"native_s": [1e-2] * 9, "dropin_s": [5e-3] * 9}
    >>> found = {"collective": "bcast", "bytes": 64, "winner": "chain", "correct": True}
    >>> verdict = verdict_of(found | rounds)
    >>> verdict.ratio, verdict.word
    ((0.5, 0.5, 0.5), 'faster')
    """
    native, dropin = np.array(point["native_s"]), np.array(point["dropin_s"])
    return Verdict(
        collective=point["collective"],
        bytes=point["bytes"],
        winner=point["winner"],
        native_s=float(np.median(native)),
        dropin_s=float(np.median(dropin)),
        ratio=_median_and_ends(dropin / native),
        excess_s=_median_and_ends(dropin - (1 + ALLOWED_PART) * native - ALLOWED_S),
        correct=point["correct"],
    )


def _median_and_ends(values: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float, float]:
    return float(np.median(values)), *median_interval(values)


def gains(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Return how many times faster each of the collectives is that are to gain.

    The geometric mean over its long messages; collectives without are left out.
    """
    found: dict[str, list[float]] = {}
    for one in verdicts:
        if one.collective in GAINING and one.bytes >= LONG_BYTES:
            found.setdefault(one.collective, []).append(one.native_s / one.dropin_s)
    return {kind: geometric_mean(found[kind]) for kind in GAINING if kind in found}


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean.

    Examples
    --------
    >>> round(geometric_mean([1.0, 4.0]), 3)
    2.0
    """
    return float(np.exp(np.mean(np.log(values))))


def rows_of(verdicts: Iterable[Verdict]) -> list[list[str]]:
    """Return the cells of a table, one row per point; see `HEADS`."""
    return [
        [
            one.collective,
            format_bytes(one.bytes),
            one.winner,
            format_seconds(one.native_s),
            format_seconds(one.dropin_s),
            f"{one.ratio[0]:.2f} ({one.ratio[1]:.2f} to {one.ratio[2]:.2f})",
            one.word,
        ]
        for one in verdicts
    ]


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as documents have it.

    Examples
    --------
    >>> print(markdown(["a", "b"], [["1", "2"]]), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [heads, ["---"] * len(heads), *rows]
    texts = ["| " + " | ".join(cells) + " |" for cells in lines]
    texts[1] = "|" + "|".join(lines[1]) + "|"
    return "\n".join(texts) + "\n"
