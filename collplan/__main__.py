"""The `collplan` command: every mistake is one line on standard error, and exit 2."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

from collplan.cli import group
from collplan.memory import keep_freed_memory
from specs.errors import CollplanError

BAD_INPUT: Final = 2
INTERRUPTED: Final = 130

# click's UsageError: its home differs between versions of typer, its child is public.
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
        0 good, 1 the answer is no, 2 bad input, 130 interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        keep_freed_memory()
    try:
        status = _run(arguments or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left; what Python still flushes at exit must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _run(arguments: list[str]) -> int:
    try:
        with group().make_context("collplan", arguments) as context:
            status = group().invoke(context)
        return status if isinstance(status, int) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except CollplanError as error:
        return _complain(str(error))
    except UsageError as error:
        return _complain(_describe_usage(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            raise
        return _complain(f"{error.filename}: {error.strerror}; give another path")
    except MemoryError:
        return _complain("the plan does not fit into memory; use fewer ranks or a smaller count")


def _describe_usage(error: BaseException) -> str:
    text = str(getattr(error, "format_message", error.__str__)()).replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "collplan"
    return f"{text.rstrip('.')}; see '{command} --help'"


def _complain(text: str) -> int:
    sys.stderr.write(f"collplan: error: {' '.join(text.split())}\n")
    return BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
