"""Arguments and options that commands share, and checks of the files that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, dataclass_transform, get_type_hints

import typer
from typer.models import ArgumentInfo

from collplan.cli.ranks import one_voice
from collplan.planner.formats.output_files import is_standard_output
from collplan.reports.plots import check_plot_path
from collplan.reports.progress import keep_quiet
from collplan.specs.errors import CollplanError, show_value

if TYPE_CHECKING:
    pass


def argument(metavar: str, text: str, default: Any = ...) -> Any:
    """Return a field of options that is an argument; it is required unless it has a default."""
    return _field(default, typer.Argument(metavar=metavar, help=text))


def option(metavar: str | None, text: str, *names: str, default: Any = None, **limits: Any) -> Any:
    """Return a field of options that is an option with a value.

    Parameters
    ----------
    metavar : str or None
        Name of the value in the help.
    text : str
        Help text.
    *names : str
        Names of the option; by default, the name of the field.
    default : object
        Default value. As in typer, ``...`` makes the option required.
    **limits
        Further keywords of ``typer.Option``.
    """
    return _field(default, typer.Option(*names, metavar=metavar, help=text, **limits))


def flag(name: str, text: str) -> Any:
    """Return a field of options that is an option without a value, and False by default."""
    return option(None, text, name, default=False)


def output_file(text: str, *names: str, metavar: str = "FILE", **more: Any) -> Any:
    """Return a field with a file to write; `as_command` checks that it is no other file."""
    return option(metavar, text, *names, writable=True, **more)


def plot_file(text: str) -> Any:
    """Return a field with a picture to write, whose path is checked before the command runs."""
    return output_file(text, callback=_before_all(check_plot_path))


def trace_file(text: str) -> Any:
    """Return a field with a trace to write, whose suffix is checked before the command runs."""
    formats = "FILE.json for Perfetto, FILE.paje for Paje."
    return output_file(f"{text}: {formats}", callback=_before_all(_check_trace))


def n_ranks(text: str = "Number of ranks to start.") -> Any:
    """Return a field with the number of ranks; None if it is not given."""
    return option("RANKS", text, "-n", "--ranks", min=1)


def launcher() -> Any:
    """Return a field that chooses the launcher of ranks for this process and its children."""
    text = (
        "What starts ranks: the MPI's own mpiexec, srun, or a program's path. 'auto' takes srun "
        "inside a Slurm job where it works, else mpiexec."
    )
    return option("auto|srun|mpiexec|PATH", text, callback=_remember_launcher)


def _remember_launcher(choice: str | None) -> str | None:
    if choice is not None:
        from collplan.executors.mpi.launch.select import LAUNCHER, check_choice

        with one_voice():
            os.environ[LAUNCHER] = check_choice(choice)
    return choice


def _field(default: Any, parameter: object) -> Any:
    return field(default=MISSING if default is ... else default, metadata={"parameter": parameter})


def _before_all(check: Callable[[Path], object]) -> Callable[[Path | None], Path | None]:
    def callback(path: Path | None) -> Path | None:
        with one_voice():
            if path is not None:
                check(path)
        return path

    return callback


def _check_trace(path: Path) -> None:
    from collplan.executors.cost.traces import check_trace_path

    check_trace_path(path)


Spec = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec, as YAML or JSON.")]
SpecOrPlan = Annotated[
    Path, typer.Argument(metavar="SPEC|PLAN", help="A spec, as YAML or JSON, or a plan file.")
]
Schedule = Annotated[
    Path,
    typer.Argument(metavar="SPEC|PLAN|FILE.goal", help="A spec, a plan file or a GOAL schedule."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
CountSizes = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE,...",
        help="Bytes of the collective's count, or of all blocks if counts differ per rank, like "
        "1KiB,64KiB; the spec's own by default.",
    ),
]
DaskScheduler = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS|FILE",
        help="Work on the workers of a dask.distributed scheduler: its address, or its file.",
    ),
]
Repetitions = Annotated[int, typer.Option(min=2, help="Timed repetitions, after two warm-ups.")]
Progress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on standard error; by default where that is a terminal.",
    ),
]


@dataclass_transform(kw_only_default=True)
class Options:
    """Base of classes whose fields are the options of a command."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


class MeasuringOptions(Options):
    """Options of all commands that start ranks and measure on them."""

    timeout: float = option("SECONDS", "Give up after this long.", default=600, min=1)
    launcher: str | None = launcher()
    progress: Progress = None
    as_json: Json = False


class BenchmarkOptions(MeasuringOptions):
    """Options of all commands of ``collplan bench``."""

    repetitions: Repetitions = 20
    plot: Path | None = plot_file("Draw times against sizes into an SVG, PNG or PDF file.")


def as_command(run: Callable[[Any], int | None]) -> Callable[..., int | None]:
    """Return a command of typer whose parameters are the fields of the options of a function.

    The command never overwrites its input files, and shows no progress with ``--json``. If the
    path of an output file is the standard output, reports are printed to standard error.

    Parameters
    ----------
    run : callable
        Function with a parameter `options`, which is annotated with a class of options. It
        returns the exit status; None for success.
    """
    options = get_type_hints(run)["options"]
    annotated = get_type_hints(options, include_extras=True)
    hints = {one.name: annotated[one.name] for one in fields(options)}
    for one in fields(options):
        if one.metadata:
            hints[one.name] = Annotated[hints[one.name], one.metadata["parameter"]]
    declared = {name: hint.__metadata__[0] for name, hint in hints.items()}

    @wraps(run)
    def command(**given: Any) -> int | None:
        outputs: dict[str, Path] = {}
        inputs: dict[str, Path] = {}
        named = [
            (name, one, number)
            for name, value in given.items()
            for number, one in enumerate(value if isinstance(value, list) else [value], 1)
        ]
        for name, value, number in named:
            if isinstance(value, str | Path):
                parameter = declared[name]
                # In an annotation, typer uses the parameter `default` for the first name.
                spelled = f"--{name.replace('_', '-')}"
                names = [parameter.default, *(parameter.param_decls or ()), spelled]
                label = next(text for text in names if isinstance(text, str))
                if isinstance(parameter, ArgumentInfo):
                    label = str(parameter.metavar)
                if isinstance(given[name], list):
                    label += f" ({number})"
                (outputs if parameter.writable else inputs)[label] = Path(value)
        _refuse_shared_files(outputs, inputs)
        keep_quiet(bool(given.get("as_json")))
        is_shown = any(is_standard_output(path) for path in outputs.values())
        with redirect_stdout(sys.stderr) if is_shown else nullcontext():
            return run(options(**given))

    parameters = signature(options).parameters.values()
    command.__annotations__ = {**hints, "return": int}
    vars(command)["__signature__"] = Signature(
        [one.replace(annotation=hints[one.name]) for one in parameters]
    )
    return command


def _refuse_shared_files(outputs: Mapping[str, Path], inputs: Mapping[str, Path]) -> None:
    """Raise an error if a file to be written is also an input, or is written twice.

    Parameters
    ----------
    outputs, inputs : mapping of str to Path
        Files by the option or argument that names them. Values of `inputs` may also be other
        texts, which are ignored.

    Raises
    ------
    CollplanError
        If there is such a file. The message names both options and the file.
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


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated list without surrounding spaces."""
    return [part.strip() for part in text.split(",")]


def parse_numbers(text: str) -> tuple[int, ...] | None:
    """Return the numbers of a comma-separated list; None if an item is not a whole number.

    Examples
    --------
    >>> parse_numbers("0,1, 1"), parse_numbers("1,-1")
    ((0, 1, 1), None)
    """
    parts = split_list(text)
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    return tuple(map(int, parts))


def parse_processors(text: str | None) -> tuple[int, ...] | None:
    """Return the processors in the value of ``--cores``; None if the option is not given.

    Raises
    ------
    CollplanError
        If the value is not a list of whole numbers.
    """
    numbers = None if text is None else parse_numbers(text)
    if numbers is None and text is not None:
        raise CollplanError(
            f"--cores: {show_value(text)} is not a list of processors; "
            f"name one for each core of a node, as "
            "in 0,1,1"
        )
    return numbers


def parse_size(option: str, text: str | int) -> int:
    """Return the value of an option in bytes; raise `CollplanError` if it is not a size."""
    from collplan.specs.syntax.numbers import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise CollplanError(f"{option}: {error}") from None


def require_transport(text: str | None) -> None:
    """Raise `CollplanError` if the value of ``--transport`` names no transport."""
    from collplan.specs.methods.named_option import TRANSPORTS

    if text not in (None, *TRANSPORTS):
        raise CollplanError(
            f"--transport: {show_value(text)} is not a transport; use {' or '.join(TRANSPORTS)}"
        )
