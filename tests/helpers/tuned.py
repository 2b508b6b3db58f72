"""Requests, verdicts and journals of tuning runs that measured nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collplan.specs import Bcast, PlanSpec, Reduce
from collplan.tables.sweep import Time
from collplan.tables.table import Fingerprint
from collplan.tune.candidates import Candidate, MeasuredCandidates
from collplan.tune.journal import Journal
from collplan.tune.options import Goal, TuningJob
from collplan.tune.trial import Verdict

FINGERPRINT = Fingerprint(
    cpu="some",
    cores_per_node=4,
    mpi="MPICH 5",
    mpi4py="4",
    numpy="2",
    collplan="0",
    mpiexec="mpich",
)
CLUSTER = {"nodes": 4, "ranks_per_node": 4, "lanes": 2}


def spec_of(kind: str, count: int = 1024, **machine: Any) -> PlanSpec:
    sized = {} if kind == "barrier" else {"count": count}
    return PlanSpec.model_validate(
        {"machine": machine or CLUSTER, "collective": {"kind": kind, **sized}}
    )


JOB = TuningJob(collectives=(Bcast(count=0), Reduce(count=0)), sizes=(64, 1024))
NODES = [0, 0, 2, 2]


def verdict_of(winner: str, **times: float) -> Verdict:
    known = {name: Time(median_s=t, low_s=t, high_s=t, n=9) for name, t in times.items()}
    return Verdict(known, winner)


def some_selection(*names: str) -> MeasuredCandidates:
    spec = spec_of("bcast").replace(algorithms={"name": "chain"})
    return MeasuredCandidates([Candidate(name, "flat", spec) for name in names], skipped=5)


def begun(folder: Path, job: TuningJob = JOB) -> tuple[Journal, list[Goal]]:
    goals = list(job.goals(NODES))
    return Journal(folder / "t.yaml", job.arguments(goals[0].placement)), goals
