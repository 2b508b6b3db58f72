"""Tuning tables by which plans run everything, at every size: for tests of who runs them."""

from __future__ import annotations

from typing import Any

from collplan.specs import COLLECTIVES, PlanSpec
from collplan.tables.sweep import NodePlacement
from collplan.tables.table import Fingerprint, TuningTable, parse_table
from collplan.tune.candidates import Candidate, MeasuredCandidates
from collplan.tune.journal import JournalState
from collplan.tune.options import Goal

ALGORITHMS = {
    "bcast": ("binomial", "scatter_allgather"),
    "gather": ("binomial", "linear"),
    "scatter": ("binomial", "linear"),
    "reduce": ("binomial", "linear"),
    "allgather": ("bruck", "ring"),
    "allreduce": ("reduce_bcast", "ring"),
    "reduce_scatter_block": ("linear", "pairwise"),
    "scan": ("recursive_doubling", "chain"),
    "exscan": ("recursive_doubling", "chain"),
    "alltoall": ("bruck", "pairwise"),
    "barrier": ("dissemination", "recursive_doubling"),
}
"""An algorithm for small messages and one for those of `LARGE` bytes; both keep rank order.

Vector collectives run as those with equal counts do.
"""
LARGE = 64


def planning_table(
    n_ranks: int,
    kinds: tuple[str, ...] = tuple(ALGORITHMS),
    transport: str = "messages",
    native_s: float = 4e-3,
    *,
    overlaps: bool = False,
) -> TuningTable:
    """Return a table whose winners are plans, for up to `n_ranks` ranks of one node.

    Plans take a half or a quarter of `native_s`. If `overlaps`, the table also has measurements of
    non-blocking calls, so that plans that pass messages run those of all sizes.
    """
    measured = {"computation_s": 1e-3, "cores": n_ranks}
    return parse_table(
        {
            "fingerprint": NOWHERE.model_dump(),
            "sweeps": [
                sweep(kind, size, commutes, passed, native_s) | more
                for passed, more in [(transport, {}), ("messages", measured)][: 1 + overlaps]
                for kind in kinds
                for size in range(1, n_ranks + 1)
                for commutes in ((True, False) if COLLECTIVES[kind].has_op else (None,))
            ],
        }
    )


def table_of_one(spec: PlanSpec, computation_s: float) -> TuningTable:
    """Return a table whose only winner is a spec's method, for calls beside a computation."""
    collective, ranks = spec.collective, spec.machine.n_ranks
    placement, n_bytes = NodePlacement.of_nodes([0] * ranks), collective.count * collective.itemsize
    goal = Goal(
        collective, tuple(range(ranks)), placement, (n_bytes,), computation_s, cores=ranks + 1
    )
    selection = MeasuredCandidates([Candidate("it", "its family", spec)], 0)
    nothing = JournalState(TuningTable(fingerprint=NOWHERE, sweeps=()))
    return nothing.table_won_by(goal, n_bytes, selection, "it")


def sweep(
    kind: str,
    size: int,
    commutes: bool | None,
    transport: str = "messages",
    native_s: float = 4e-3,
) -> dict[str, Any]:
    """Return the sweep of a collective on ranks of one node."""
    small, large = ALGORITHMS[kind]
    if commutes is False and kind == "allreduce":
        large = small
    points = [point(1, small, native_s, 2)]
    points += [point(LARGE, large, native_s, 4)] if large != small else []
    if kind == "barrier":
        points = points[:1]
    return {
        "collective": kind,
        "op_commutes": commutes,
        "ranks": size,
        "placement": NodePlacement.of_nodes([0] * size).model_dump(),
        "points": points,
        "choices": {
            "native": {"native": True},
            small: {"algorithms": small, "transport": transport},
            large: {"algorithms": large, "transport": transport},
        },
        "complete": True,
    }


def point(n_bytes: int, winner: str, native_s: float, gain: int) -> dict[str, Any]:
    """Return a size at which a plan was faster than native by this factor."""
    times = {"native": native_s, winner: native_s / gain}
    return {
        "bytes": n_bytes,
        "winner": winner,
        "times": {
            label: {"median_s": taken, "low_s": taken, "high_s": taken, "n": 10}
            for label, taken in times.items()
        },
    }


NOWHERE = Fingerprint(
    cpu="none",
    cores_per_node=1,
    mpi="none",
    mpi4py="0",
    numpy="0",
    collplan="0",
    mpiexec="none",
)


def reproducing_table(n_ranks: int, level: str, *, is_native: bool) -> TuningTable:
    """Return a table of reductions at a level of `reproducible`, which has no plans for it.

    Its winners are native, which such a table does not let run, or combine in other orders.
    """
    sweeps = []
    for kind in (kind for kind in ALGORITHMS if COLLECTIVES[kind].has_op):
        name = "native" if is_native else {"reduce": "linear"}.get(kind, "chain")
        name = "ring" if name == "chain" and not COLLECTIVES[kind].is_prefix else name
        choices = {"native": {"native": True}} | ({} if is_native else {name: {"algorithms": name}})
        changes = {"points": [point(1, name, 4e-3, 2)], "choices": choices, "reproducible": level}
        sweeps.append(sweep(kind, n_ranks, True) | changes)
    return parse_table({"fingerprint": NOWHERE.model_dump(), "sweeps": sweeps})
