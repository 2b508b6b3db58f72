"""``collplan bench``: benchmarks of lanes, performance guidelines, and overlap."""

from __future__ import annotations

from typing import Final

import typer

from collplan.cli.bench import guideline, lanes, overlap
from collplan.cli.options import as_command

app: Final = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="""Measure a machine and its MPI: lanes, guidelines, overlap.

    Each command starts the right mpiexec; under mpiexec it runs as a rank. The
    slowest rank of each repetition counts. Each accepts --json, and --plot FILE
    for a picture.
    """,
)
app.command("lane-pattern")(as_command(lanes.lane_pattern))
app.command("multi-collective")(as_command(lanes.multi_collective))
app.command("guideline")(as_command(guideline.command))
app.command("overlap")(as_command(overlap.command))
