"""Options that the benchmarks share, and what is read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Ranks = Annotated[
    int | None,
    typer.Option("-n", "--ranks", min=1, metavar="RANKS", help="Number of ranks to start."),
]
Repetitions = Annotated[int, typer.Option(min=2, help="Timed repetitions, after two warm-ups.")]
NodesFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="SPEC",
        help="Let ranks stand for nodes as this spec's machine says; by default MPI says who "
        "shares a node.",
    ),
]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Give up after this long.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        writable=True, metavar="FILE", help="Draw times against sizes into an SVG or PNG file."
    ),
]
Progress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on standard error; by default where that is a terminal.",
    ),
]


def common_arguments(
    repetitions: int,
    ranks: int | None,
    nodes_from: Path | None,
    plot: Path | None,
    as_json: bool,
) -> list[str]:
    """Return the arguments that say these options again, to the ranks."""
    named = {"-n": ranks, "--nodes-from": nodes_from, "--plot": plot}
    given = [
        text for name, value in named.items() if value is not None for text in (name, str(value))
    ]
    return ["--repetitions", str(repetitions), *given, *(["--json"] if as_json else [])]


def parse_sizes(
    text: str, itemsize: int = 1, datatype: str = "a byte", max_count: int | None = None
) -> list[int]:
    """Return the sizes of ``--sizes``, ascending and each once.

    Parameters
    ----------
    text : str
        Sizes as ``64KiB,1MiB``.
    itemsize : int
        What they must be multiples of, in bytes.
    datatype : str
        What has so many bytes.
    max_count : int, optional
        The most elements; without it there is no limit here.

    Raises
    ------
    CollplanError
        If one is not a size, not whole elements, or too large.

    Examples
    --------
    >>> parse_sizes("64KiB,4KiB,64KiB")
    [4096, 65536]
    """
    from collplan.specs import parse_bytes
    from collplan.specs.errors import CollplanError

    sizes = set()
    for part in text.split(","):
        try:
            size = parse_bytes(part)
        except ValueError as error:
            raise CollplanError(f"--sizes: {error}") from None
        if size % itemsize:
            raise CollplanError(
                f"--sizes: {part.strip()} is no multiple of the {itemsize} bytes of {datatype}; "
                f"give whole elements"
            )
        if max_count is not None and size // itemsize > max_count:
            raise CollplanError(
                f"--sizes: {part.strip()} is too large; give at most {max_count} times "
                f"{itemsize} bytes"
            )
        sizes.add(size)
    return sorted(sizes)
