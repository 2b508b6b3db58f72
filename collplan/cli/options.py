"""Arguments and options that several commands share, and what all files are checked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import ArgumentInfo

from collplan.planner.formats.output_files import is_standard_output
from collplan.specs.errors import CollplanError

Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec, as YAML or JSON.")]
SpecOrPlan = Annotated[
    Path, typer.Argument(metavar="SPEC|PLAN", help="A spec, as YAML or JSON, or a plan file.")
]
Schedule = Annotated[
    Path,
    typer.Argument(metavar="SPEC|PLAN|FILE.goal", help="A spec, a plan file or a GOAL schedule."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def guard_files(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that never overwrites what it reads.

    Options that name a file to write are declared with ``writable=True``. Where one of
    them is the standard output, what the command reports goes to standard error.
    """
    declared = {
        name: next(iter(getattr(hint, "__metadata__", ())), None)
        for name, hint in get_type_hints(command, include_extras=True).items()
    }

    @wraps(command)
    def guarded(**arguments: Any) -> int:
        outputs: dict[str, Path] = {}
        inputs: dict[str, Path] = {}
        for name, value in arguments.items():
            option = declared[name]
            if isinstance(value, str | Path) and option is not None:
                # Of an annotation typer takes the default for the first name.
                names = [option.default, *(option.param_decls or ()), _spelled(name)]
                named = next(text for text in names if isinstance(text, str))
                label = str(option.metavar) if isinstance(option, ArgumentInfo) else named
                (outputs if option.writable else inputs)[label] = Path(value)
        refuse_shared_files(outputs, inputs)
        is_shown = any(is_standard_output(path) for path in outputs.values())
        with redirect_stdout(sys.stderr) if is_shown else nullcontext():
            return command(**arguments)

    return guarded


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def refuse_shared_files(outputs: Mapping[str, Path], inputs: Mapping[str, Path]) -> None:
    """Raise where a file that is to be written is read, too, or written twice.

    Parameters
    ----------
    outputs, inputs : mapping of str to Path
        Files by the option or argument that names them. Of inputs, those that are no
        file mean something else.

    Raises
    ------
    CollplanError
        Naming both options and the file.
    """
    written: dict[str, str] = {}
    for option, path in outputs.items():
        target = os.path.realpath(path)
        if target in written:
            raise CollplanError(
                f"{option}: {path} is written by {written[target]}, too; give two different files"
            )
        written[target] = option
        for name, source in inputs.items():
            if path.is_file() and source.is_file() and path.samefile(source):
                raise CollplanError(
                    f"{option}: {path} is what {name} names, and would be overwritten; "
                    f"give another file"
                )
