"""Tuning tables to export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from collplan.tables.sweep import Choice
from collplan.tables.table import TuningTable, parse_table

MPICH, OPEN_MPI = "MPICH 5.0.2", "Open MPI v5.0.11"
REDUCING = ("allreduce", "reduce", "reduce_scatter_block", "scan", "exscan")
SEGMENTED = {"algorithms": "chain", "passes": [{"name": "segment", "max_bytes": "4KiB"}]}
FULL_LANE = {"decomposition": "full_lane"}
Times = Mapping[int, Mapping[str, float]]


def label_of(choice: Mapping[str, Any]) -> str:
    return Choice.model_validate(choice).label


def sweep(kind: str, times_us: Times, ranks_per_node: tuple[int, ...] = (4,), **more: Any) -> Any:
    """Return a sweep with these medians in µs, each known to 1 %; the fastest wins."""
    labels = {label for times in times_us.values() for label in times}
    named = {label_of(choice): choice for choice in (SEGMENTED, FULL_LANE)}
    choices = {label: named.get(label, {"algorithms": label}) for label in labels}
    return {
        "collective": kind,
        "op_commutes": True if kind in REDUCING else None,
        "ranks": sum(ranks_per_node),
        "placement": {"ranks_per_node": ranks_per_node},
        "choices": choices | ({"native": {"native": True}} if "native" in labels else {}),
        "complete": True,
        "points": [
            {
                "bytes": n_bytes,
                "times": {
                    label: {
                        "median_s": t * 1e-6,
                        "low_s": t * 0.99e-6,
                        "high_s": t * 1.01e-6,
                        "n": 9,
                    }
                    for label, t in times.items()
                },
                "winner": min(times, key=lambda label: times[label]),
            }
            for n_bytes, times in times_us.items()
        ],
        **more,
    }


def table(*sweeps: Any, mpi: str = OPEN_MPI) -> TuningTable:
    versions = {"mpi4py": "4.1.2", "numpy": "2.4.0", "collplan": "0.1.0", "mpiexec": "any"}
    fingerprint = {"cpu": "a processor", "cores_per_node": 4, "mpi": mpi, **versions}
    return parse_table({"fingerprint": fingerprint, "sweeps": list(sweeps)})
