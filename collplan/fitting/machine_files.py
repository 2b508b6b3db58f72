"""Machine files from fits to measurements: parameters, intervals, sources and validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from collplan.fitting.cluster_model import (
    ClusterModel,
    CountedPoints,
    FittedCosts,
    fit_costs,
    preset_of,
)
from collplan.fitting.points import FEWEST, LATENCY, MeasurementError, PointCollection
from collplan.fitting.terms import (
    COPIES,
    KNOTS,
    LINKS,
    MESSAGES,
    PER_LINK,
    REDUCTIONS,
    waits_of,
)
from collplan.fitting.validation import Scores, leave_parts_out, predict_splits, score
from collplan.measure.calibration.fit import Parameter, machine_document, parameters_text
from collplan.planner.arrays import Floats
from collplan.specs import Machine
from collplan.specs.errors import printable, suggest

RESAMPLES: Final = 40
"""Fits to jobs drawn with replacement, for intervals."""
FOLDS: Final = 5
"""Most fits of the cross-validation."""
ENDS: Final = (5.0, 95.0)
"""Percentiles at the ends of intervals of 90 %."""
SHORT: Final = 2
"""Knot of the size whose time, less 2 o, is L: 64 bytes."""
LONG: Final = 7
"""Knot from which to the next G is the slope: 2 MiB."""
CACHED, UNCACHED = 6, 9
"""Knots of the bytes a node works on for rates in the cache and beyond it: 256 KiB and 128 MiB."""
NOT_DETERMINED: Final = "not determined by the data: as in the machine to start from"
UNFITTED: Final = "not fitted: as in the machine to start from"


@dataclass(frozen=True)
class ClusterFit:
    """Machine of one system, fitted to points.

    Parameters
    ----------
    system : str
        Name of the system.
    machine : Machine
        Machine with the fitted parameters.
    parameters : tuple of Parameter
        Fitted parameters, and those that keep their values, in the order of the file.
    sources : tuple of str
        Names of the files.
    jobs, points : int
        Numbers of jobs and points of the system.
    nodes, n_bytes : tuple of int
        Least and greatest number of nodes and of bytes of the points.
    scores : Scores or None
        Errors of the cross-validation, with the correction; None for a single job.
    notes : tuple of str
        Remarks on the points.
    """

    system: str
    machine: Machine
    parameters: tuple[Parameter, ...]
    sources: tuple[str, ...]
    jobs: int
    points: int
    nodes: tuple[int, int]
    n_bytes: tuple[int, int]
    scores: Scores | None
    notes: tuple[str, ...]


def fit_cluster(
    measured: PointCollection,
    sources: Sequence[Path],
    system: str | None = None,
    known: Machine | None = None,
) -> ClusterFit:
    """Fit the machine of a system to the points of all systems.

    Parameters
    ----------
    measured : PointCollection
        Points; those of other systems teach what systems have in common.
    sources : sequence of Path
        Files of the points, named in the machine file.
    system : str, optional
        Name of the system; may be left out if the points have only one.
    known : Machine, optional
        Machine to start from; the preset of the system by default.

    Raises
    ------
    MeasurementError
        If the system is unknown or has too few points.
    """
    counted = CountedPoints.of(measured.points)
    system = _system_of(counted, system)
    rows = np.flatnonzero(counted.system == system)
    own = counted.take(rows)
    if len(rows) < FEWEST:
        raise MeasurementError(
            f"--from: {len(rows)} points of {system} are of algorithms that can be planned; "
            f"a fit needs {FEWEST} or more"
        )
    base = known or preset_of(system)
    model = ClusterModel(counted, effects=())
    fitted = model.systems[system]
    samples = _resampled(own, model.shared)
    parameters = _parameters(base, own.starts[0], fitted, samples)
    nodes = [point.layout.n_nodes for point in own.points if point.collective != LATENCY] or [1]
    sizes = [point.n_bytes for point in own.points]
    return ClusterFit(
        system=system,
        machine=Machine.model_validate(machine_document(parameters)),
        parameters=tuple(parameters),
        sources=tuple(printable(str(path)) for path in sources),
        jobs=len({point.job for point in own.points}),
        points=len(rows),
        nodes=(min(nodes), max(nodes)),
        n_bytes=(min(sizes), max(sizes)),
        scores=_cross_validated(counted),
        notes=tuple(measured.notes),
    )


def _system_of(counted: CountedPoints, wanted: str | None) -> str:
    names = sorted({*counted.system.tolist()})
    if not names:
        raise MeasurementError(
            "--from: no point is of an algorithm that can be planned; "
            "see collplan/fitting/names.yaml for the names"
        )
    if wanted is None and len(names) == 1:
        return str(names[0])
    if wanted is None:
        raise MeasurementError(
            f"--from: has points of {len(names)} systems; name one by --system: {', '.join(names)}"
        )
    if wanted not in names:
        raise MeasurementError(
            f"--system: {wanted!r} has no points; {suggest(wanted, names)}"
            f"there are {', '.join(names)}"
        )
    return wanted


def _resampled(own: CountedPoints, shared: FittedCosts) -> list[Floats]:
    """Return the costs, relative to their starts, of fits to jobs drawn with replacement."""
    jobs = own.features.names["job"]
    rows_of = [np.flatnonzero(jobs == job) for job in np.unique(jobs)]
    generator = np.random.default_rng(0)
    found = []
    for _ in range(RESAMPLES if len(rows_of) > 1 else 0):
        drawn = generator.integers(len(rows_of), size=len(rows_of))
        part = own.take(np.concatenate([rows_of[one] for one in drawn]))
        found.append(fit_costs(part.counts, part.seconds, part.starts, shared.logs).logs)
    return found


def _cross_validated(counted: CountedPoints) -> Scores | None:
    """Return the errors of all points, in at most `FOLDS` parts of whole jobs."""
    collectives = np.flatnonzero(counted.features.names["kind"] != LATENCY)
    counted = counted.take(collectives)
    splits = leave_parts_out(counted, FOLDS)
    if len(splits) < 2:
        return None
    return score(*predict_splits(counted, splits))


def _values(costs: Floats) -> Mapping[str, float]:
    """Return the parameters of a network by the costs of terms."""
    found: dict[str, float] = {}
    for place, link in enumerate(LINKS):
        times, base = costs[waits_of(place)], place * PER_LINK
        overhead = min(float(costs[base + MESSAGES]), float(times[SHORT]) / 2)
        found[f"network.{link}.L_ns"] = float(times[SHORT]) - 2 * overhead
        found[f"network.{link}.o_ns"] = overhead
        slope = (times[LONG + 1] - times[LONG]) / (KNOTS[LONG + 1] - KNOTS[LONG])
        found[f"network.{link}.G_ns_per_byte"] = max(0.0, float(slope))
    copies, reductions = costs[COPIES], costs[REDUCTIONS]
    found["network.copy_ns_per_byte"] = float(copies[CACHED])
    found["network.reduce_ns_per_byte"] = float(reductions[CACHED])
    rise = float(reductions[UNCACHED] - reductions[CACHED])
    found["network.uncached_ns_per_byte"] = max(0.0, rise)
    return found


def _parts(name: str) -> tuple[str, str]:
    """Return the link, empty for fields of the network itself, and the field of a parameter."""
    parts = name.split(".")
    return (parts[1] if len(parts) > 2 else ""), parts[-1]


def _places(name: str) -> list[int]:
    """Return the terms on which a parameter depends most."""
    link, last = _parts(name)
    if link:
        first = LINKS.index(link) * PER_LINK
        places = {"L_ns": range(SHORT - 1, SHORT + 2), "G_ns_per_byte": range(LONG, LONG + 2)}
        return [first + place for place in places.get(last, (MESSAGES,))]
    terms = COPIES if last.startswith("copy") else REDUCTIONS
    knot = UNCACHED if last.startswith("uncached") else CACHED
    return [terms.start + place for place in range(knot - 1, knot + 2)]


def _parameters(
    base: Machine, starts: Floats, fitted: FittedCosts, samples: Sequence[Floats]
) -> list[Parameter]:
    values = _values(starts * np.exp(fitted.logs))
    spreads = [_values(starts * np.exp(logs)) for logs in samples]
    found = [
        Parameter("nodes", base.nodes, None, UNFITTED),
        Parameter("ranks_per_node", max(base.node_to_n_ranks), None, UNFITTED),
        Parameter("cores", base.cores_per_node, None, UNFITTED),
        Parameter("numa_domains", base.numa_domains, None, UNFITTED),
        Parameter("lanes", base.n_lanes, None, UNFITTED),
    ]
    network = base.network
    for name, value in values.items():
        if not fitted.is_determined[_places(name)].any():
            link, last = _parts(name)
            kept = getattr(getattr(network, link) if link else network, last)
            found.append(Parameter(name, kept, None, NOT_DETERMINED))
            continue
        interval = None
        if spreads:
            drawn = [one[name] for one in spreads]
            low, high = np.percentile(drawn, ENDS).tolist()
            interval = min(low, value), max(high, value)
        found.append(Parameter(name, float(f"{value:.4g}"), interval, "fitted"))
    for link in LINKS:
        offload = getattr(network, link).offload
        found.append(Parameter(f"network.{link}.offload", offload, None, UNFITTED))
    eager = network.eager_limit_bytes
    found.append(Parameter("network.eager_limit_bytes", eager, None, UNFITTED))
    rises = next(one for one in found if one.name.endswith("uncached_ns_per_byte"))
    if rises.value and rises.method == "fitted":
        level = int(KNOTS[LONG + 1] / 2)
        found.append(Parameter("network.cache_bytes", network.cache_bytes or level, None, UNFITTED))
    return found


def cluster_text(fit: ClusterFit) -> str:
    """Return the text of a machine file, whose head states the sources and the validity."""
    head = [
        f"# {printable(fit.system)}, fitted to {', '.join(fit.sources)}:",
        f"# {fit.points} points of {fit.jobs} jobs on {fit.nodes[0]} to {fit.nodes[1]} nodes,",
        f"# {fit.n_bytes[0]} to {fit.n_bytes[1]} bytes. Outside of these the fit is not checked.",
        "# Comments have 90 % intervals of fits to jobs drawn with replacement.",
        "# Model: closed forms along the longest path of messages, not the simulator.",
    ]
    if fit.scores is not None:
        head.append(
            f"# Cross-validated with the correction of `real_clusters.py`: times off by "
            f"{fit.scores.time_error_median:.0%} (median), best within 10 % in "
            f"{fit.scores.within_10:.0%}."
        )
    if preset_of(fit.system).network.topology is not None:
        head.append("# The preset's topology is left out: the fitted costs have its contention.")
    head += [f"# {printable(note)}" for note in fit.notes]
    comments = {one.name: _comment(one) for one in fit.parameters}
    return parameters_text(head, fit.parameters, comments)


def _comment(parameter: Parameter) -> str:
    if parameter.interval is None:
        return "" if parameter.method == "fitted" else parameter.method
    low, high = parameter.interval
    return f"90 % interval {low:.4g} to {high:.4g}"
