"""Answers of the helper about trials of plans, by the rules of `collplan.deciding.trials`.

Rank 0 of a communicator asks, and tells the other ranks. The helper keeps no trials: each question
has the times of all calls so far, on which the ranks have agreed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from collplan.deciding.statistics import FASTER
from collplan.deciding.trials import FIRST_COST_S, NATIVE, Trial, calls_to_wait, why_not_faster
from collplan.specs import CollplanError
from collplan.tables.sweep import Choice

_PAYING: Final = struct.Struct("<3q")
_OFFER: Final = struct.Struct("<3q")
_TURN: Final = struct.Struct("<3q")
MOST_CONTESTANTS: Final = 4
"""Room for contestants in an answer: native MPI and as many plans as are predicted."""
_ORDER: Final = struct.Struct(f"<2q{MOST_CONTESTANTS}qq2d")
_NS: Final = 1e-9
_FOREVER_NS: Final = 2.0**62


@dataclass(frozen=True, slots=True)
class Paying:
    """Native calls of a signature, with fields in the order of the message.

    Parameters
    ----------
    n_calls : int
        Number of native calls so far.
    native_ns : int
        Total time of these calls on the slowest rank in nanoseconds.
    cost_ns : int
        Cost of the last trial of the communicator in nanoseconds; 0 if there was none.
    """

    n_calls: int
    native_ns: int
    cost_ns: int

    @classmethod
    def read(cls, message: bytes) -> Paying:
        """Read a message."""
        return cls(*_PAYING.unpack(message))

    @property
    def cost_s(self) -> float:
        """Expected cost of a trial in seconds."""
        return self.cost_ns * _NS if self.cost_ns else FIRST_COST_S

    def calls_to_wait(self, share: float) -> int:
        """Return the number of further native calls; 0 if a trial pays now."""
        return calls_to_wait(self.n_calls, self.native_ns * _NS, self.cost_s, share)

    def pays_ns(self, share: float) -> int:
        """Return the time of native calls in nanoseconds before which no trial pays."""
        return int(min(self.cost_s / _NS, _FOREVER_NS * share) / share)


def answer_paying(paying: Paying, share: float, predict: Callable[[], Sequence[Choice]]) -> bytes:
    """Return the answer to the question whether a trial pays.

    Parameters
    ----------
    paying : Paying
        Native calls so far.
    share : float
        Largest time of trials, as a fraction of the time of native calls.
    predict : callable
        Function that returns the plans to try.

    Returns
    -------
    bytes
        Three words: the number of native calls before the question is asked again, which is 0 if a
        trial begins; the time of native calls in nanoseconds before which it need not be asked, as
        long as the cost is the same; the number of plans. The label and the JSON of each plan
        follow. A zero byte ends each text.
    """
    n_more = paying.calls_to_wait(share)
    choices = [] if n_more else predict()
    texts = [text for one in choices for text in (one.label, one.model_dump_json())]
    words = _OFFER.pack(n_more, paying.pays_ns(share), len(choices))
    return words + "".join(f"{text}\0" for text in texts).encode()


def answer_turn(message: bytes, share: float) -> bytes:
    """Return the next turn of a trial or, if it is over, its result.

    Parameters
    ----------
    message : bytes
        Three words: the number of plans, the time in nanoseconds that native calls took before
        the trial, and the number of calls in the trial. The times of these calls in nanoseconds
        follow, and the plans' labels, each with a zero byte. All times are those of the slowest
        rank.
    share : float
        Largest time of trials, as a fraction of the time of native calls.

    Returns
    -------
    bytes
        Number of contestants of the next turn, which is 0 if the trial is over; the winner; the
        contestants of the turn in their order; the time that plans took beyond native calls in
        nanoseconds; the times per call of native MPI and of the winner in seconds; the reason of
        later calls, with a zero byte.

    Raises
    ------
    CollplanError
        If the times are not those of complete turns.
    """
    n_plans, native_ns, n_times = _TURN.unpack_from(message)
    times = struct.unpack_from(f"<{n_times}q", message, _TURN.size)
    labels = message[_TURN.size + 8 * n_times :].decode().split("\0")[:n_plans]
    trial = Trial(n_plans, share * native_ns * _NS)
    try:
        turn = trial.replay([one * _NS for one in times])
    except ValueError:
        raise CollplanError(f"{n_times} calls of a trial are not those of its turns") from None
    if turn:
        return _answer(turn)
    best = trial.fastest()
    why = why_not_faster(labels) if best == NATIVE else FASTER
    medians = trial.median_s(NATIVE), trial.median_s(best)
    return _answer([], best, round(trial.excess_s / _NS), medians, why)


def _answer(
    turn: Sequence[int],
    best: int = NATIVE,
    excess_ns: int = 0,
    medians_s: tuple[float, float] = (-1.0, -1.0),
    why: str = "",
) -> bytes:
    order = [*turn, *[NATIVE] * (MOST_CONTESTANTS - len(turn))]
    return _ORDER.pack(len(turn), best, *order, excess_ns, *medians_s) + f"{why}\0".encode()
