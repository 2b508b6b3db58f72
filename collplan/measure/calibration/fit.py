"""Fit the cost model's parameters to measurements; the same measurements give the same machine."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from collplan.measure.calibration.estimates import (
    eager_bracket,
    fit_burst,
    fit_link,
    fit_local,
    fit_speed_up,
    lane_ns_per_byte,
)
from collplan.measure.calibration.measurements import LINKS, LinkClass, Measurements, Place
from collplan.specs.errors import printable
from collplan.specs.machines.machine import Machine, place_ranks
from collplan.specs.syntax.numbers import write_rate

_RESAMPLES: Final = 100
_INTERVAL_PERCENTILES: Final = (2.5, 97.5)
_DIGITS: Final = 4
_BYTES: Final = ("eager_limit_bytes", "cache_bytes", "burst_bytes")

_OF_PAIRS: Final = ("ping_pongs", "bursts", "transfers")
_COMPARED: Final = ("L_ns", "o_ns", "G_ns_per_byte")
"""Parameters of links by which turns are compared."""
DISAGREE: Final = 1.5
"""Ratio of the largest to the smallest estimate of a turn from which a warning is given."""

Unit = tuple[tuple[int, int], int]
"""Pair of ranks and turn."""
Draw = Callable[[Sequence[float]], float]
Number = float | int | bool | None
Value = Number | str | list[int] | list[str]
Estimates = dict[str, tuple[Number, str]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the model with its estimate from the measurements.

    Parameters
    ----------
    name : str
        Path of the field in a machine file, such as ``network.network.L_ns``.
    value : float, int, bool, str, list of int, or None
        Estimated or known value.
    interval : tuple of float or None
        Ends of the range that holds 95 % of the estimates from resampled measurements;
        None if the value was not estimated from times. For the eager limit, the longest
        eager message and the shortest that waited, in bytes.
    method : str
        Description of the measurement.
    """

    name: str
    value: Value
    interval: tuple[float, float] | None
    method: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """A machine fitted to measurements.

    Parameters
    ----------
    machine : Machine
        Machine with every parameter that could be measured; the others have defaults.
    parameters : tuple of Parameter
        Parameters that were measured or known, in the order of the machine file.
    warnings : tuple of str
        Reasons why the measurements should be repeated.
    """

    machine: Machine
    parameters: tuple[Parameter, ...]
    warnings: tuple[str, ...] = ()


def fit_machine(measurements: Measurements, known: Machine | None = None) -> Calibration:
    """Fit a machine to measurements.

    Estimates are medians and robust lines (`theil_sen`), which hardly change if a tenth of
    the measurements are outliers. Intervals come from a bootstrap: measurements and pairs
    are drawn with replacement by a generator with a fixed seed.

    Parameters
    ----------
    measurements : Measurements
        Measurements of `collplan calibrate`.
    known : Machine, optional
        Machine of the same ranks, whose lanes, cores and domains are kept.

    Returns
    -------
    Calibration
        The machine, and the value and interval of each parameter.
    """
    estimates = _estimate(measurements, median)
    generator = np.random.default_rng(0)

    def draw(times: Sequence[float]) -> float:
        drawn: list[float] = generator.choice(np.asarray(times), size=len(times)).tolist()
        return median(drawn)

    samples = [_estimate(_redrawn(measurements, generator), draw) for _ in range(_RESAMPLES)]
    turns = [_estimate(one, median) for one in _turns(measurements)]
    place = measurements.place
    lanes = _lanes(place, estimates)
    parameters = _place_parameters(place, lanes, estimates, samples)
    if known is not None:
        per_byte = estimates.get("network.network.G_ns_per_byte", (0, ""))[0]
        parameters = _with_known(parameters, known, float(per_byte or 0))
    for name, (value, method) in estimates.items():
        if name == "speed_up":
            continue
        interval = None
        if name == "network.eager_limit_bytes":
            interval = eager_bracket(measurements, _limiting_link(measurements))
        elif not isinstance(value, bool) and value is not None:
            # Turns may differ by more than the repetitions of each.
            ends = _interval(samples, name) or (float(value), float(value))
            interval = min(ends[0], *_known(turns, name)), max(ends[1], *_known(turns, name))
        parameters.append(Parameter(name, _rounded(name, value), interval, method))
    machine = Machine.model_validate(machine_document(parameters))
    return Calibration(machine, tuple(parameters), tuple(_warnings(estimates, turns)))


def _turns(measurements: Measurements) -> list[Measurements]:
    """Return the measurements of every turn, with those that were made only once."""
    numbers = sorted({entry.turn for entry in measurements.ping_pongs})
    return [
        measurements.model_copy(
            update={
                name: tuple(one for one in getattr(measurements, name) if one.turn == number)
                for name in _OF_PAIRS
            }
        )
        for number in numbers
    ]


def _known(samples: Sequence[Estimates], name: str) -> list[float]:
    """Return a parameter's values in the samples that have one."""
    values = [sample[name][0] for sample in samples if name in sample]
    return [float(value) for value in values if value is not None]


def _warnings(estimates: Estimates, turns: Sequence[Estimates]) -> Iterator[str]:
    """Generate a warning for each link without a latency, or whose turns disagree."""
    again = "measure again while nothing else runs"
    for name, (value, _) in estimates.items():
        last = name.rpartition(".")[2]
        if last == "L_ns" and value == 0:
            yield f"{name} is 0, as half a round trip takes no longer than 2 o; {again}"
        found = _known(turns, name)
        if last in _COMPARED and len(found) > 1 and max(found) > DISAGREE * min(found):
            values = ", ".join(f"{one:.4g}" for one in found)
            yield f"{name} differs between turns: {values}; {again}"


def _interval(samples: Sequence[Estimates], name: str) -> tuple[float, float] | None:
    """Return the range that holds 95 % of a parameter's values; None if no sample has one."""
    known = _known(samples, name)
    if not known:
        return None
    low, high = np.percentile(known, _INTERVAL_PERCENTILES)
    return float(low), float(high)


def _estimate(measurements: Measurements, draw: Draw) -> Estimates:
    """Return every parameter's value and method from one sample of the measurements."""
    found: Estimates = {}
    asks: Estimates = {}
    at_once = fit_speed_up(measurements, draw)
    if at_once is not None:
        found["speed_up"] = (at_once, "")
    for link in LINKS:
        if not any(entry.link == link for entry in measurements.ping_pongs):
            continue
        own = fit_link(measurements, link, draw)
        asks[link] = own.pop("handshake")
        if link == "network":
            lanes = _lanes(measurements.place, found)
            lane = lane_ns_per_byte(measurements, lanes, draw)
            if lane is not None:
                own["G_ns_per_byte"] = (lane, "long messages of 1, 2, ... ranks at once")
        found |= {f"network.{link}.{name}": estimate for name, estimate in own.items()}
    limiting = _limiting_link(measurements)
    bracket = eager_bracket(measurements, limiting)
    if bracket is not None:
        method = f"longest send that does not wait for a late receiver, {limiting}"
        found["network.eager_limit_bytes"] = (int(bracket[0]), method)
        found["network.handshake"] = asks[limiting]
    gap = found.get("network.network.G_ns_per_byte")
    burst = None if gap is None else fit_burst(measurements, float(gap[0] or 0), draw)
    if burst is not None:
        found["network.burst_bytes"] = (burst, "what long messages of a ping-pong save against G")
    local = fit_local(measurements, draw)
    return found | {f"network.{name}": estimate for name, estimate in local.items()}


def _redrawn(measurements: Measurements, generator: np.random.Generator) -> Measurements:
    """Return a bootstrap sample: pairs and turns of each link are drawn with replacement."""
    chosen: list[tuple[str, Unit]] = []
    for link in LINKS:
        units = sorted({entry.unit for entry in measurements.ping_pongs if entry.link == link})
        if units:
            drawn = generator.integers(len(units), size=len(units))
            chosen += [(link, units[i]) for i in drawn]
    update = {}
    for name in _OF_PAIRS:
        own: defaultdict[tuple[str, Unit], list[Any]] = defaultdict(list)
        for entry in getattr(measurements, name):
            own[entry.link, entry.unit].append(entry)
        update[name] = tuple(entry for key in chosen for entry in own[key])
    # Checks are for data from outside. Only some pairs measured sizes around the eager limit.
    return measurements.model_copy(update=update)


def _limiting_link(measurements: Measurements) -> LinkClass:
    """Return the class of links whose eager limit is used: the longest distance measured."""
    return max((entry.link for entry in measurements.ping_pongs), key=LINKS.index)


def _lanes(place: Place, estimates: Estimates) -> int:
    if place.lanes is not None:
        return place.lanes
    speed_up = estimates.get("speed_up", (1.0, ""))[0]
    return max(1, round(float(speed_up or 1.0)))


def _rounded(name: str, value: Number) -> Number:
    if value is None or isinstance(value, bool):
        return value
    if name.rpartition(".")[2] in _BYTES:
        return int(value)
    return float(f"{value:.{_DIGITS}g}")


def _place_parameters(
    place: Place, lanes: int, estimates: Estimates, samples: Sequence[Estimates]
) -> list[Parameter]:
    per_node, order = place_ranks(place.rank_to_node)
    same = len(set(per_node)) == 1
    found = [
        Parameter("nodes", len(per_node), None, "ranks that can share memory share a node"),
        Parameter("ranks_per_node", per_node[0] if same else [*per_node], None, "counted"),
        Parameter("numa_domains", place.numa_domains, None, "domains that ranks are bound to"),
    ]
    if place.lanes is not None:
        found.append(Parameter("lanes", lanes, None, "given"))
    elif "speed_up" in estimates:
        method = "how much more ranks at once send than one"
        found.append(Parameter("lanes", lanes, _interval(samples, "speed_up"), method))
    named = order if isinstance(order, str) else [*order]
    found.append(Parameter("rank_order", named, None, "where ranks are"))
    if place.processors is not None:
        method = "of the one host that all nodes share"
        found.append(Parameter("network.processors", place.processors, None, method))
    return found


def _with_known(parameters: list[Parameter], known: Machine, per_byte: float) -> list[Parameter]:
    """Return the parameters of places, with the values of a known machine where it has some.

    Its NUMA domains are used only if the ranks were not seen bound to several domains. If the time
    `per_byte` between nodes in ns was measured (is not 0), the rates of its lanes only say how
    lanes differ.
    """
    lanes: Value = known.n_lanes
    if not isinstance(known.lanes, int):
        scale = 8e9 / max(known.lanes) / per_byte if per_byte else 1
        lanes = [write_rate(max(1, round(rate * scale))) for rate in known.lanes]
    stated: dict[str, Value] = {"cores": known.cores, "lanes": lanes}
    seen = {parameter.name: parameter.value for parameter in parameters}
    if seen["numa_domains"] == 1:
        stated["numa_domains"] = known.numa_domains
    kept = [parameter for parameter in parameters if parameter.name not in stated]
    fixed = [
        Parameter(name, value, None, "of the machine to start from")
        for name, value in stated.items()
        if value is not None
    ]
    first = sum(not parameter.name.startswith("network.") for parameter in kept)
    return [*kept[:first], *fixed, *kept[first:]]


def machine_document(parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the nested fields of the machine file.

    If messages inside nodes were measured, the links ``core``, ``numa`` and ``node`` that no
    two ranks have take the parameters of ``numa``, or else of ``node``. Other links without
    measurements are left out.
    """
    document: dict[str, Any] = {}
    for parameter in parameters:
        *path, last = parameter.name.split(".")
        inner = document
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = parameter.value
    links = document.setdefault("network", {})
    inside = links.get("numa") or links.get("node")
    if inside is not None:
        for link in ("core", "numa", "node"):
            links.setdefault(link, inside)
    return document


def machine_text(calibration: Calibration, measurements: Measurements) -> str:
    """Return the text of a machine file: YAML with comments on the spread of parameters.

    Parameters
    ----------
    calibration : Calibration
        Fitted machine and its parameters.
    measurements : Measurements
        Measurements that it was fitted to, named in the head of the file.
    """
    head = [
        f"# Measured on {printable(measurements.host)}, {printable(measurements.date)},",
        f"# with {printable(measurements.mpi)}, {len(measurements.place.rank_to_node)} ranks.",
        "# Comments say where 95 % of the estimates from resampled measurements lie.",
    ]
    comments = {parameter.name: comment(parameter) for parameter in calibration.parameters}
    return parameters_text(head, calibration.parameters, comments)


def parameters_text(
    head: Sequence[str], parameters: Sequence[Parameter], comments: dict[str, str]
) -> str:
    """Return the text of a machine file.

    Parameters
    ----------
    head : sequence of str
        First lines of the file.
    parameters : sequence of Parameter
        Fields of the machine.
    comments : dict of str to str
        Comments by the names of parameters.
    """
    lines = document_lines(machine_document(parameters), comments)
    return "\n".join([*head, *lines]) + "\n"


def comment(parameter: Parameter) -> str:
    """Return the spread of a parameter in words; empty if it is unknown.

    Examples
    --------
    >>> comment(Parameter("network.network.L_ns", 1200.0, (1150.0, 1291.0), "ping-pong"))
    '95 % interval 1150 to 1291'
    """
    if parameter.interval is None:
        return ""
    low, high = parameter.interval
    if parameter.name.endswith("eager_limit_bytes"):
        return f"{high:g} bytes waited for their receive"
    return f"95 % interval {low:.4g} to {high:.4g}"


def document_lines(
    document: dict[str, Any], comments: dict[str, str], prefix: str = "", depth: int = 0
) -> list[str]:
    """Return the lines of nested fields in YAML, with comments by the dotted names of fields."""
    found = []
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            measured = any(other.startswith(f"{path}.") for other in comments)
            note = "" if measured else "  # no two ranks have it: as the nearest"
            found.append(f"{'  ' * depth}{name}:{note}")
            found += document_lines(value, comments, f"{path}.", depth + 1)
            continue
        note = comments.get(path, "")
        line = f"{'  ' * depth}{name}: {_scalar(value)}"
        found.append(f"{line}  # {note}" if note else line)
    return found


def _scalar(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        # YAML 1.1 reads 1e-05 as text.
        return np.format_float_positional(value, precision=12, trim="0")
    return json.dumps(value)
