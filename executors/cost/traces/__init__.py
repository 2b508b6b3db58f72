"""Timelines as files for trace viewers: Perfetto's JSON and Pajé."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from collplan.executors.cost.traces.layers import Layer as Layer
from collplan.executors.cost.traces.layers import simulated_layer as simulated_layer
from collplan.executors.cost.traces.paje import paje_chunks
from collplan.executors.cost.traces.perfetto import perfetto_chunks
from collplan.planner.formats.output_files import replacing
from collplan.specs.errors import CollplanError

MANY_TASKS: Final = 1_000_000
"""Most tasks of a trace that viewers take well: 365 MB for Perfetto, 105 MB for Pajé."""
_WRITERS: Final = {".json": perfetto_chunks, ".paje": paje_chunks}
T = TypeVar("T")


class TraceError(CollplanError):
    """A trace that cannot be written."""


def check_trace_path(path: str | Path) -> Path:
    """Return the path of a trace, or raise `TraceError` where its ending names no format."""
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise TraceError(
            f"trace: {path} ends in {path.suffix or 'nothing'}, which is not a trace format; "
            f"use .json for Perfetto or .paje for Pajé"
        )
    return path


def write_trace(path: str | Path, layers: Sequence[Layer]) -> None:
    """Write layers of tasks and messages into one file, in the format its ending names.

    Parameters
    ----------
    path : str or Path
        ``.json`` for Perfetto, ``.paje`` for Pajé; an old file is replaced whole.
    layers : sequence of Layer
        Timelines to show beside each other: a simulated one and a measured one.

    Raises
    ------
    TraceError
        For another ending, or where the file cannot be written.
    """
    write_chunks(path, layers, _WRITERS)


def write_chunks(
    path: str | Path,
    layers: Sequence[T],
    writers: Mapping[str, Callable[[Sequence[T]], Iterator[str]]],
) -> None:
    """Write layers into one file by the writer of its ending; as of `write_trace`."""
    path = check_trace_path(path)
    with replacing(path, TraceError) as file:
        for chunk in writers[path.suffix](layers):
            file.write(chunk.encode())
