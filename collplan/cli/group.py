"""The group of commands: the table for the help, and imports of modules on demand."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from collplan.cli.options import as_command, parse_size
from collplan.specs.errors import CollplanError, show_value, suggest

COMMANDS: Final = {
    "compile": "Compile a spec into a plan file; report its metrics beside lower bounds.",
    "verify": "Prove a plan, or show the counter-example.",
    "draw": "Draw the task graph into an SVG, PNG, PDF or dot file.",
    "show": "Print a plan as text, a line per task.",
    "cost": "Price a plan or a GOAL schedule on a machine model.",
    "compare": "Compare all candidates of a collective over a range of sizes.",
    "synthesize": "Search an optimal schedule on a small machine; write it as an algorithm.",
    "report": "Write which algorithm wins, by how much and why, as one HTML file.",
    "overlap": "Choose the split of a tree between computing and communicating cores.",
    "run": "Run a plan under MPI; check it against numpy, time it against the native collective.",
    "emulate": "Run a command on a multi-lane cluster emulated on this machine.",
    "machine": "Write a machine file from the ranks or the batch job that is there.",
    "calibrate": "Measure the cost model's parameters on this machine; write a machine file.",
    "tune": "Measure candidates on this machine; write a table of the best per size.",
    "exec": "Run an unmodified MPI program with a tuning table.",
    "profile": "Count a program's collectives, and say which would gain from a plan.",
    "why": "Say why a program's collectives take their time, and what would help.",
    "bench": "Measure lanes, performance guidelines, and overlap with computation.",
    "export": "Write a plan or a tuning table in another project's format.",
    "convert": "Make a plan of a schedule in MSCCL's XML, proved.",
    "algorithms": "List the algorithms with their requirements.",
    "schema": "Write the JSON Schema of specs, for editors.",
    "doctor": "Check MPI and graphviz, and report problems.",
    "help": "Explain a command, a pass, or the fields of specs.",
}
"""Commands with their lines of help; each command is in the module of the same name."""
PLANNING: Final = frozenset(
    [
        "compile",
        "verify",
        "draw",
        "show",
        "cost",
        "compare",
        "synthesize",
        "report",
        "overlap",
        "export",
        "convert",
    ]
)
"""Commands that start no ranks and no programs of users, which a limit of memory might stop."""


class LazyGroup(TyperGroup):
    """A group that imports the module of a command only to run it or to print its help."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, which is built from its module."""
        if cmd_name not in COMMANDS:
            hint = suggest(cmd_name, COMMANDS)
            ctx.fail(f"{show_value(cmd_name)} is not a command; {hint}valid: {', '.join(COMMANDS)}")
        module = import_module(f"collplan.cli.{cmd_name}")
        if hasattr(module, "app"):  # a group of commands, such as ``bench``
            return typer.main.get_command(module.app)
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        command = as_command(module.command)
        app.command(name=cmd_name, context_settings=settings)(command)
        return typer.main.get_command(app)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the table of commands without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@cache
def group() -> Any:
    """Return the root command."""
    app = typer.Typer(
        cls=LazyGroup, add_completion=True, rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(_root)
    return typer.main.get_command(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from collplan import __version__

        typer.echo(f"collplan {__version__}")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
    imports: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            metavar="FILE.py",
            help="Import a Python file with algorithms, passes or operations of your own first; "
            "may be repeated.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory that each process may take, as 2GiB; plans that need more are refused.",
        ),
    ] = None,
) -> None:
    """Plan, prove, draw, price and run MPI collectives.

    SPEC is a YAML file that describes what to plan; PLAN is a compiled file.
    Exit status: 0 success, 1 negative answer, 2 bad input.
    """
    from collplan.own_algorithms import ask_for, import_own

    if max_memory is not None:
        _limit_memory(parse_size("--max-memory", max_memory))
    elif ctx.obj == OWN_PROCESS and ctx.invoked_subcommand in PLANNING:
        # Otherwise the kernel ends a process that takes more, without a word.
        from collplan.planner.memory import free_bytes

        _limit_memory(max(LEAST_MEMORY, free_bytes()))
    ask_for(imports or [])
    import_own()


OWN_PROCESS: Final = "the process of the command"
"""Object of the context if the process does nothing but run the command."""
LEAST_MEMORY: Final = 1 << 29
"""Least limit of memory in bytes: address space that numpy, numba and small plans need."""


def _limit_memory(n_bytes: int) -> None:
    """Limit the memory of this process and of each process that it starts."""
    from collplan.planner.memory import limit_memory

    if n_bytes < LEAST_MEMORY:
        raise CollplanError(
            f"--max-memory: {n_bytes} bytes are too few for Python's libraries; give 512MiB or more"
        )
    limit_memory(n_bytes)
