"""Write a fitted machine as a file that a spec can name, with what is known of each number."""

from __future__ import annotations

from typing import Any

from collplan.measure.calibration.fit import Calibration, Parameter, Value, machine_document
from collplan.measure.calibration.measurements import Measurements
from collplan.specs.errors import printable


def machine_text(calibration: Calibration, measurements: Measurements) -> str:
    """Return the file's text: YAML, with a comment at every parameter.

    Parameters
    ----------
    calibration : Calibration
        What was fitted.
    measurements : Measurements
        What it was fitted to; said in the file's head.
    """
    head = [
        f"# Measured on {printable(measurements.host)}, {printable(measurements.date)},",
        f"# with {printable(measurements.mpi)}, {len(measurements.place.rank_to_node)} ranks.",
        "# Comments say where 95 % of the estimates from resampled measurements lie.",
    ]
    comments = {parameter.name: comment(parameter) for parameter in calibration.parameters}
    document = machine_document(calibration.parameters)
    return "\n".join([*head, *_lines(document, "", 0, comments)]) + "\n"


def comment(parameter: Parameter) -> str:
    """Return what is known of a parameter beside its value, empty where nothing is.

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


def _lines(
    document: dict[str, Any], prefix: str, depth: int, comments: dict[str, str]
) -> list[str]:
    found = []
    for name, value in document.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            measured = any(other.startswith(f"{path}.") for other in comments)
            note = "" if measured else "  # no two ranks have it: as the nearest"
            found.append(f"{'  ' * depth}{name}:{note}")
            found += _lines(value, f"{path}.", depth + 1, comments)
            continue
        note = comments.get(path, "")
        line = f"{'  ' * depth}{name}: {_scalar(value)}"
        found.append(f"{line}  # {note}" if note else line)
    return found


def _scalar(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, float):
        # YAML 1.1 takes 1e-05 for text.
        digits = f"{value:.12f}".rstrip("0")
        return f"{digits}0" if digits.endswith(".") else digits
    return str(value)
