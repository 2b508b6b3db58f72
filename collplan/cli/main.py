"""The `collplan` command; bad input gives one line on standard error and exit status 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, TextIO

import typer

from collplan.cli.group import OWN_PROCESS, group
from collplan.cli.ranks import BAD_INPUT, remember_arguments
from collplan.planner.memory import keep_freed_memory
from collplan.reports.output import OutputError, flush, forget_messages, prepare_streams
from collplan.specs.errors import CollplanError, printable

FAILED: Final = 1
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""Exit status after a write into a pipe without a reader: 128 + SIGPIPE, as shells report it."""

COMPLETING: Final = "_COLLPLAN_COMPLETE"
"""Environment variable with which the completion script of a shell requests completions."""

# The module of click's UsageError differs between versions of typer; its subclass is public.
UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process by default.

    Returns
    -------
    int
        Exit status: 0 for success, 1 for a negative answer or if the output cannot be written,
        2 for bad input, 130 after an interrupt, 141 if the reader of the output has exited.
    """
    if argv is None and COMPLETING in os.environ:
        return complete()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        keep_freed_memory()
    remember_arguments(arguments)
    forget_messages()
    prepare_streams()
    try:
        status = _run(arguments or ["--help"], None if argv is not None else OWN_PROCESS)
        flush()
    except BrokenPipeError:
        _abandon(sys.stdout)
        return BROKEN_PIPE
    except (OSError, OutputError) as error:
        return _fail(error)
    return status


def complete() -> int:
    """Print the possible completions of an unfinished command line for a shell."""
    try:
        group().main(args=[], prog_name="collplan")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED
    return 0


def _fail(error: OSError | OutputError) -> int:
    """Print an error of the operating system in one line; return the exit status."""
    try:
        flush()
    except (OSError, OutputError) as refusal:
        _abandon(sys.stdout)
        error = refusal
    _complain(getattr(error, "strerror", None) or str(error))
    return FAILED


def _abandon(stream: TextIO) -> None:
    """Discard unwritten output of a stream, which Python would otherwise write at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: list[str], process: str | None) -> int:
    try:
        with group().make_context("collplan", arguments, obj=process) as context:
            status = group().invoke(context)
        return status if isinstance(status, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except CollplanError as error:
        return _complain(str(error))
    except UsageError as error:
        return _complain(" ".join(_describe_usage(error).split()))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        return _complain(f"{error.filename}: {error.strerror}; give another path")
    except MemoryError:
        from collplan.planner.memory import TOO_LARGE

        return _complain(TOO_LARGE)


def _describe_usage(error: BaseException) -> str:
    text = str(getattr(error, "format_message", error.__str__)()).replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "collplan"
    return f"{text.rstrip('.')}; see '{command} --help'"


def _complain(text: str) -> int:
    try:
        for line in text.splitlines():
            sys.stderr.write(f"collplan: error: {printable(line)}\n")
        sys.stderr.flush()
    except OSError:
        _abandon(sys.stderr)
    return BAD_INPUT
