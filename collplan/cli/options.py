"""Arguments and options that several commands share, and checks of all files that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer
from typer.models import ArgumentInfo

from collplan.cli.ranks import one_voice
from collplan.planner.formats.output_files import is_standard_output
from collplan.reports.plots import check_plot_path
from collplan.reports.progress import keep_quiet
from collplan.specs.errors import CollplanError
from collplan.specs.numbers import parse_bytes

T = TypeVar("T")


def option(metavar: str, text: str, *names: str, **limits: Any) -> Any:
    """Return an option with a value: its name in the help, its help, its own names, and limits."""
    return typer.Option(*names, metavar=metavar, help=text, **limits)


def output_file(text: str, *names: str, metavar: str = "FILE") -> Any:
    """Return an option that names a file to write; `guard_files` keeps it from others."""
    return typer.Option(*names, writable=True, metavar=metavar, help=text)


def plot_file(text: str) -> Any:
    """Return an option that names a picture to write, which is checked before anything is done."""
    return typer.Option(writable=True, metavar="FILE", help=text, callback=_check_plot)


def _check_plot(path: Path | None) -> Path | None:
    with one_voice():
        if path is not None:
            check_plot_path(path)
    return path


def flag(name: str, text: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=text)


Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec, as YAML or JSON.")]
SpecOrPlan = Annotated[
    Path, typer.Argument(metavar="SPEC|PLAN", help="A spec, as YAML or JSON, or a plan file.")
]
Schedule = Annotated[
    Path,
    typer.Argument(metavar="SPEC|PLAN|FILE.goal", help="A spec, a plan file or a GOAL schedule."),
]
Json = Annotated[bool, flag("--json", "Print one JSON object and nothing else.")]
Ranks = Annotated[int | None, option("RANKS", "Number of ranks to start.", "-n", "--ranks", min=1)]
CountSizes = Annotated[
    str | None,
    option(
        "SIZE,...", "Bytes of the collective's count, like 1KiB,64KiB; the spec's own by default."
    ),
]
Repetitions = Annotated[int, typer.Option(min=2, help="Timed repetitions, after two warm-ups.")]
TimeoutOrNone = Annotated[float | None, option("SECONDS", "Give up after this long.", min=1)]
Plot = Annotated[Path | None, plot_file("Draw times against sizes into an SVG or PNG file.")]
Progress = Annotated[
    bool | None,
    flag(
        "--progress/--no-progress",
        "Show progress on standard error; by default where that is a terminal.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringOptions:
    """Options of all commands that measure on ranks and start these themselves."""

    timeout: Annotated[float, option("SECONDS", "Give up after this long.", min=1)] = 600
    progress: Progress = None
    as_json: Json = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOptions(MeasuringOptions):
    """Options of all commands of ``collplan bench``."""

    repetitions: Repetitions = 20
    plot: Plot = None


def takes(options: type[T]) -> Callable[[Callable[[T], int]], Callable[..., int]]:
    """Return a decorator for commands that take their parameters as one dataclass.

    Parameters
    ----------
    options : type
        A dataclass whose fields are annotated as parameters of commands are.
    """
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY)
        for one in signature(options).parameters.values()
    ]

    def decorate(command: Callable[[T], int]) -> Callable[..., int]:
        @wraps(command)
        def taking(**given: Any) -> int:
            return command(options(**given))

        taking.__annotations__ = {**hints, "return": int}
        vars(taking)["__signature__"] = Signature(parameters)
        return taking

    return decorate


def guard_files(command: Callable[..., int]) -> Callable[..., int]:
    """Return a command that never overwrites what it reads, and prints JSON without progress.

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
        keep_quiet(bool(arguments.get("as_json")))
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


def require_folder(option: str, path: Path) -> None:
    """Raise `CollplanError` where no file can be at `path`, as there is no folder or it is one."""
    if not path.parent.is_dir():
        raise CollplanError(f"{option}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise CollplanError(f"{option}: {path} is a folder; give a file in it")


def parse_size(option: str, text: str | int) -> int:
    """Return the bytes that an option names; raise `CollplanError` if its text is not a size."""
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise CollplanError(f"{option}: {error}") from None


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
        Name of the unit that has `itemsize` bytes.
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
    sizes = set()
    for part in text.split(","):
        size = parse_size("--sizes", part)
        if size % itemsize:
            raise CollplanError(
                f"--sizes: {part.strip()} is not a multiple of the {itemsize} bytes of {datatype}; "
                f"give whole elements"
            )
        if max_count is not None and size // itemsize > max_count:
            raise CollplanError(
                f"--sizes: {part.strip()} is too large; give at most {max_count} times "
                f"{itemsize} bytes"
            )
        sizes.add(size)
    return sorted(sizes)
