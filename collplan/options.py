"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec, as YAML or JSON.")]
SpecOrPlan = Annotated[
    Path, typer.Argument(metavar="SPEC|PLAN", help="A spec, as YAML or JSON, or a plan file.")
]
Schedule = Annotated[
    Path,
    typer.Argument(metavar="SPEC|PLAN|FILE.goal", help="A spec, a plan file or a GOAL schedule."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
