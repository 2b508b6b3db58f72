"""Options of calls that follow a table, and checks of what users give."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Final

from collplan.deciding.trial_share import SHARE
from collplan.specs import CollplanError, SpecError
from collplan.specs.collectives.collective import traits_of
from collplan.specs.errors import show_value
from collplan.specs.syntax.calling import wrong_type
from collplan.tables.table import TuningTable

MAX_PLANS: Final = 32
"""Default limit of plans per communicator.

Plans use communicators, of which MPI provides a limited number.
"""
NATIVE: Final = "COLLPLAN_NATIVE_CALLS"
"""Environment variable with the number of native calls before a plan is made; see `CallOptions`."""
_MOST_CALLS: Final = 10**9
_MOST_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Options of calls that follow a table, the same on all ranks.

    Parameters
    ----------
    max_plans : int
        Largest number of plans kept per communicator.
    native_calls : int or None
        Number of equal calls that run natively before a plan is made for them; None for as many as
        would have saved the time of making it, see `collplan.deciding.decisions.calls_before`.
    nonblocking_from : int or None
        Message size in bytes, over all blocks, from which non-blocking calls run by plans; None if
        the table decides.
    trials : float
        Largest time of trials, as a fraction of the time of native calls; 0 for no trials.
    cores : tuple of int or None
        Processor of each core of a node; None if the affinity masks of the ranks determine them.

    Raises
    ------
    CollplanError
        If a limit is out of range.
    """

    max_plans: int = MAX_PLANS
    native_calls: int | None = None
    nonblocking_from: int | None = None
    trials: float = SHARE
    cores: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("max_plans", "native_calls", "nonblocking_from"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral | None):
                raise wrong_type(name, value, "a whole number")
        if self.max_plans < 1:
            raise CollplanError(f"max_plans is {self.max_plans}; keep at least 1 plan")
        if self.native_calls is not None and self.native_calls < 0:
            raise CollplanError(
                f"native_calls is {self.native_calls}; give 0 to plan from the first call"
            )


def parse_native_calls(text: str | None) -> int | None:
    """Return the value of the environment variable `NATIVE`; None if it is not set.

    Raises
    ------
    CollplanError
        If the text is not such a number.
    """
    if text is None:
        return None
    if not (text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _MOST_CALLS):
        raise CollplanError(f"{NATIVE}: {show_value(text)} is no number; give 0 to {_MOST_CALLS}")
    return int(text)


def check_choices(table: TuningTable) -> None:
    """Check that all algorithms of winners exist in this version of collplan.

    Raises
    ------
    SpecError
        If an algorithm does not exist. The message names the choice and the valid algorithms.
    """
    if all(sweep.choices[one.winner].native for sweep in table.sweeps for one in sweep.points):
        return
    # Imported late, as this takes a tenth of a second, on rank 0 only.
    from collplan.planner.algorithms.registry import registry
    from collplan.planner.lowering.select import ANYWHERE

    for sweep in table.sweeps:
        planned_kind = traits_of(sweep.collective).regular or sweep.collective
        for label in {point.winner for point in sweep.points}:
            choice = sweep.choices[label]
            named = [] if choice.native else choice.named_algorithms(planned_kind)
            for kind, name in named:
                # Without a kind, the algorithm may belong to components of any kind.
                kinds = [kind] if kind else registry.kinds()
                names = [one.name for each in kinds for one in registry.of(each)]
                valid = names if kind else sorted({*names})
                if name not in (*ANYWHERE, *valid):
                    raise SpecError(
                        f"sweeps: {sweep.collective}: choice {show_value(label)} names the "
                        f"algorithm {show_value(name)}, which does not exist; "
                        f"valid: {', '.join(valid)}"
                    )
