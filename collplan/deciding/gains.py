"""Time that plans would save in the collectives that a program called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from collplan.select.comparison import compare
from collplan.specs import COLLECTIVES, Machine, PlanSpec
from collplan.specs.collectives.collective import validate_collective
from collplan.specs.errors import CollplanError
from collplan.specs.explaining import explaining
from collplan.tables.sweep import NodePlacement
from collplan.tables.table import TuningTable

MOST_COMPARED: Final = 12
"""Number of rows, in descending order of time, for which candidates are simulated."""
SECONDS: Final = 3.0
"""Time limit of the simulations for one row, per processor, in seconds."""
_COUNTED: Final = ("collective", "ranks", "least_bytes", "most_bytes", "calls", "seconds")
LEAST_FACTOR: Final = 1.05
"""Smallest modeled speed-up at which a plan is reported as faster than native."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Calls of a collective with similar sizes, and the speed-up of the best plan for them.

    Parameters
    ----------
    collective : str
        Kind of the collective, or the name of a call that no plan covers.
    ranks : int
        Number of ranks of the communicator.
    least_bytes, most_bytes : int
        Smallest and largest message size in bytes: of the vector or of one block or, if counts
        differ per rank, of all elements that rank 0 sends.
    calls : int
        Number of calls on rank 0.
    seconds : float
        Total time of the calls on rank 0 in seconds.
    waiting_s : float
        Part of it in which ranks wait for late ones, in seconds; 0 if it is unknown.
    plan : str or None
        Label of the best plan; None if native is the best or the best is unknown.
    factor : float or None
        Speed-up of the plan over native; None if it is unknown.
    how : str
        Source of the speed-up, or the reason why it is unknown.
    """

    collective: str
    ranks: int
    least_bytes: int
    most_bytes: int
    calls: int
    seconds: float
    waiting_s: float
    plan: str | None
    factor: float | None
    how: str

    @property
    def saved_s(self) -> float:
        """Seconds that the plan would save on rank 0; no plan makes waiting shorter."""
        if self.plan is None or self.factor is None:
            return 0.0
        return (self.seconds - self.waiting_s) * (1 - 1 / self.factor)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields and the time saved, as values for JSON."""
        return asdict(self) | {"saved_s": self.saved_s}


def gains_of(
    rows: Iterable[Mapping[str, Any]],
    n_ranks: int,
    table: TuningTable | None,
    machine: Machine | None,
    waiting: Mapping[tuple[str, int, int], float] | None = None,
) -> list[Gain]:
    """Return the gains of a program's collectives, in descending order of time.

    Rows with equal numbers of bits in their sizes are merged.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of `Statistics.as_dict`, one per size.
    n_ranks : int
        Number of ranks of the program.
    table : TuningTable or None
        Table whose measured times decide.
    machine : Machine or None
        Machine whose cost model decides if there is no table; one node by default.
    waiting : mapping of (str, int, int) to float, optional
        Share of waiting in the time of calls, by kind, number of ranks, and number of bits of the
        size.
    """
    merged: dict[tuple[str, int, int], dict[str, Any]] = {}
    for row in rows:
        key = row["collective"], row["ranks"], row["most_bytes"].bit_length()
        total = merged.setdefault(key, dict(row) | {"calls": 0, "seconds": 0.0})
        total["least_bytes"] = min(total["least_bytes"], row["least_bytes"])
        total["most_bytes"] = max(total["most_bytes"], row["most_bytes"])
        total["calls"] += row["calls"]
        total["seconds"] += row["seconds"]
    gains = []
    for i, row in enumerate(sorted(merged.values(), key=lambda row: -float(row["seconds"]))):
        own_machine = _machine_of(row["ranks"], n_ranks, machine)
        how = _why_unknown(row, own_machine)
        plan, factor = None, None
        if how is None and own_machine is not None:
            if table is not None:
                plan, factor, how = _by_table(row, own_machine, table)
            elif i < MOST_COMPARED:
                plan, factor, how = _by_model(row, own_machine)
            else:
                how = f"not compared: {MOST_COMPARED} other rows take more time"
        counted = {name: row[name] for name in _COUNTED}
        key = row["collective"], row["ranks"], row["most_bytes"].bit_length()
        waiting_s = row["seconds"] * (waiting or {}).get(key, 0.0)
        one = Gain(**counted, waiting_s=waiting_s, plan=plan, factor=factor, how=how or "")
        gains.append(one)
    return gains


def _machine_of(ranks: int, n_ranks: int, machine: Machine | None) -> Machine | None:
    """Return the machine of a communicator's ranks; None if their placement is unknown."""
    if machine is None:
        return Machine(ranks_per_node=ranks)
    if machine.n_ranks == ranks == n_ranks:
        return machine
    if machine.nodes == 1:
        return Machine(ranks_per_node=ranks, network=machine.network)
    return None


def _why_unknown(row: Mapping[str, Any], machine: Machine | None) -> str | None:
    """Return the reason why the gain of a row is unknown, None if it may be known."""
    kind = row["collective"]
    if kind not in COLLECTIVES:
        if {kind.removeprefix("I"), kind.removesuffix("_init").lower()} & COLLECTIVES.keys():
            return "only the start of the call was timed: tune it with --computation"
        return str(row["why"])
    if COLLECTIVES[kind].has_edges:
        return "the graph of its communicator is not known: compare a spec that has it"
    if COLLECTIVES[kind].regular is not None:
        return "counts differ per rank: compare a spec that has them"
    if row["ranks"] == 1:
        return "one rank alone"
    if machine is None:
        return "the placement of this communicator's ranks is not known"
    return "nothing to move" if row["most_bytes"] == 0 and kind != "barrier" else None


def _by_table(
    row: Mapping[str, Any], machine: Machine, table: TuningTable
) -> tuple[str | None, float | None, str]:
    """Return the plan that the table chooses, its speed-up, and the source of both."""
    kind, placement = row["collective"], NodePlacement.of_nodes(machine.rank_to_node)
    commutes = True if COLLECTIVES[kind].has_op else None
    decision = table.decide(kind, row["most_bytes"], row["ranks"], placement, commutes)
    factor = None
    if decision.native_s is not None and decision.chosen_s:
        factor = decision.native_s / decision.chosen_s
    return None if decision.choice.native else decision.label, factor, decision.why


def _by_model(row: Mapping[str, Any], machine: Machine) -> tuple[str | None, float | None, str]:
    """Return the fastest plan by the cost model, its speed-up, and the source of both."""
    kind, size = row["collective"], row["most_bytes"]
    try:
        with explaining():
            # The datatypes of reductions are unknown; float32 stands for all.
            fields = {"kind": kind, "count": size, "datatype": "uint8"}
            if COLLECTIVES[kind].has_op:
                fields |= {"count": -(-size // 4), "datatype": "float32"}
            known = COLLECTIVES[kind].model_fields
            collective = validate_collective({k: v for k, v in fields.items() if k in known})
            spec = PlanSpec(machine=machine, collective=collective)
        found = compare([spec], seconds=SECONDS)
    except CollplanError as error:
        return None, None, f"not compared: {error}"
    (at,) = found.sizes
    name = found.leading.get(at)
    native = found.makespans.get((found.call, at))
    if name is None or native is None or found.makespans[name, at] <= 0:
        return None, None, "not simulated"
    factor = native / found.makespans[name, at]
    if name == found.call or factor < LEAST_FACTOR:
        return None, 1.0, "by the model, native is as fast as any plan"
    return name, factor, "by the model"
