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
"""Number of tasks up to which viewers display a trace well: 365 MB of JSON, 105 MB of Pajé."""
_WRITERS: Final = {".json": perfetto_chunks, ".paje": paje_chunks}
T = TypeVar("T")


class TraceError(CollplanError):
    """A trace that cannot be written."""


def check_trace_path(path: str | Path) -> Path:
    """Return the path of a trace; raise `TraceError` if its extension is not that of a format.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Path

    Raises
    ------
    TraceError
        If the extension is neither ``.json`` nor ``.paje``.
    """
    path = Path(path)
    if path.suffix not in _WRITERS:
        raise TraceError(
            f"trace: {path} ends in {path.suffix or 'nothing'}, which is not a trace format; "
            f"use .json for Perfetto or .paje for Pajé"
        )
    return path


def write_trace(path: str | Path, layers: Sequence[Layer]) -> None:
    """Write layers of tasks and messages to a file, in the format of its extension.

    Parameters
    ----------
    path : str or Path
        Path that ends in ``.json`` for Perfetto or ``.paje`` for Pajé. An existing file is
        replaced atomically.
    layers : sequence of Layer
        Timelines to show beside each other, such as a simulated and a measured one.

    Raises
    ------
    TraceError
        If the extension is another one, or the file cannot be written.
    """
    write_chunks(path, layers, _WRITERS)


def write_chunks(
    path: str | Path,
    layers: Sequence[T],
    writers: Mapping[str, Callable[[Sequence[T]], Iterator[str]]],
) -> None:
    """Write layers to a file by the writer for its extension.

    Parameters
    ----------
    path : str or Path
    layers : sequence
    writers : mapping of str to callable
        Functions that generate the text of a file from the layers, by extension.

    Raises
    ------
    TraceError
        If the extension is another one, or the file cannot be written.
    """
    path = check_trace_path(path)
    with replacing(path, TraceError) as file:
        for chunk in writers[path.suffix](layers):
            file.write(chunk.encode())
