"""Gains of plans for the collectives that a program called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from collplan.planner.plan.phases import NATIVE
from collplan.select.comparison import compare
from collplan.specs import COLLECTIVES, Machine, PlanSpec
from collplan.specs.collective import validate_collective
from collplan.specs.errors import CollplanError
from collplan.specs.explaining import explaining
from collplan.tune.sweep import Placement
from collplan.tune.table import TuningTable

MOST_COMPARED: Final = 12
"""Rows that the model compares candidates for: those of the most time."""
SECONDS: Final = 3.0
"""Time for the simulations of one row, per processor, in seconds."""
_COUNTED: Final = ("collective", "ranks", "least_bytes", "most_bytes", "calls", "seconds")
LEAST_FACTOR: Final = 1.05
"""Factor from which a plan is called faster."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Calls of a collective, and what a plan would gain.

    Parameters
    ----------
    collective : str
        Its kind, or the name of a call that no plan covers.
    ranks : int
        Of the communicator.
    least_bytes, most_bytes : int
        Of MPI's count; where counts differ per rank, of what rank 0 sends.
    calls : int
    seconds : float
        On rank 0, in all.
    plan : str or None
        The best; None where native stays, or nothing is known.
    factor : float or None
        How many times faster than native it is; None where nothing is known.
    how : str
        How that is known, or why it is not.
    """

    collective: str
    ranks: int
    least_bytes: int
    most_bytes: int
    calls: int
    seconds: float
    plan: str | None
    factor: float | None
    how: str

    @property
    def saved_s(self) -> float:
        """Seconds that the plan would save rank 0, if its calls wait for nobody."""
        if self.plan is None or self.factor is None:
            return 0.0
        return self.seconds * (1 - 1 / self.factor)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as what JSON can hold."""
        return asdict(self) | {"saved_s": self.saved_s}


def gains_of(
    rows: Iterable[Mapping[str, Any]],
    n_ranks: int,
    table: TuningTable | None,
    machine: Machine | None,
) -> list[Gain]:
    """Return what plans would gain, those of the most time first.

    Parameters
    ----------
    rows : iterable of mapping
        Of `Statistics.as_dict`, by size.
    n_ranks : int
        Of the program.
    table : TuningTable or None
        Whose measured times decide.
    machine : Machine or None
        Where there is no table, the machine whose model decides; by default one node.
    """
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for row in rows:
        key = row["collective"], row["ranks"], row["most_bytes"].bit_length()
        one = found.setdefault(key, dict(row) | {"calls": 0, "seconds": 0.0})
        one["least_bytes"] = min(one["least_bytes"], row["least_bytes"])
        one["most_bytes"] = max(one["most_bytes"], row["most_bytes"])
        one["calls"] += row["calls"]
        one["seconds"] += row["seconds"]
    gains = []
    for i, row in enumerate(sorted(found.values(), key=lambda row: -float(row["seconds"]))):
        here = _machine_of(row["ranks"], n_ranks, machine)
        why = _why_unknown(row, here)
        plan, factor = None, None
        if why is None and here is not None:
            if table is not None:
                plan, factor, why = _by_table(row, here, table)
            elif i < MOST_COMPARED:
                plan, factor, why = _by_model(row, here)
            else:
                why = f"not compared: {MOST_COMPARED} others take longer"
        counted = {name: row[name] for name in _COUNTED}
        gains.append(Gain(**counted, plan=plan, factor=factor, how=why or ""))
    return gains


def _machine_of(ranks: int, n_ranks: int, machine: Machine | None) -> Machine | None:
    """Return where the ranks of a communicator are; None if that is not known."""
    if machine is None:
        return Machine(ranks_per_node=ranks)
    if machine.n_ranks == ranks == n_ranks:
        return machine
    if machine.nodes == 1:
        return Machine(ranks_per_node=ranks, network=machine.network)
    return None


def _why_unknown(row: Mapping[str, Any], here: Machine | None) -> str | None:
    """Return why nothing is known of calls, None if something may be."""
    kind = row["collective"]
    if kind not in COLLECTIVES:
        if kind[:1] == "I" and kind[1:] in COLLECTIVES:
            return "time to start it: tune beside a computation"
        return str(row["why"])
    if COLLECTIVES[kind].regular is not None:
        return "counts differ per rank: compare a spec that has them"
    if row["ranks"] == 1:
        return "one rank alone"
    if here is None:
        return "where the ranks of this communicator are is not known"
    return "nothing to move" if row["most_bytes"] == 0 and kind != "barrier" else None


def _by_table(
    row: Mapping[str, Any], here: Machine, table: TuningTable
) -> tuple[str | None, float | None, str]:
    """Return the table's choice, its gain, and why."""
    kind, placement = row["collective"], Placement.of_nodes(here.rank_to_node)
    commutes = True if COLLECTIVES[kind].has_op else None
    found = table.decide(kind, row["most_bytes"], row["ranks"], placement, commutes)
    factor = None
    if found.native_s is not None and found.chosen_s:
        factor = found.native_s / found.chosen_s
    return None if found.choice.native else found.label, factor, found.why


def _by_model(row: Mapping[str, Any], here: Machine) -> tuple[str | None, float | None, str]:
    """Return the best candidate of the model, its gain, and why."""
    kind, size = row["collective"], row["most_bytes"]
    try:
        with explaining():
            # Of reductions the datatype is not known: elements of four bytes stand for all.
            own = {"kind": kind, "count": size, "datatype": "uint8"}
            if COLLECTIVES[kind].has_op:
                own |= {"count": -(-size // 4), "datatype": "float32"}
            known = COLLECTIVES[kind].model_fields
            collective = validate_collective({name: own[name] for name in own if name in known})
            spec = PlanSpec(machine=here, collective=collective)
        found = compare([spec], seconds=SECONDS)
    except CollplanError as error:
        return None, None, f"not compared: {error}"
    (at,) = found.sizes
    name = found.leading.get(at)
    native = found.makespans.get((NATIVE, at))
    if name is None or native is None or found.makespans[name, at] <= 0:
        return None, None, "not simulated"
    factor = native / found.makespans[name, at]
    if name == NATIVE or factor < LEAST_FACTOR:
        return None, 1.0, "by the model, native is as fast as any plan"
    return name, factor, "by the model"
