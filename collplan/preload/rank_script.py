"""Script of a rank that ``collplan exec`` starts: it becomes a program, without a command line.

There is one for each rank, so it loads as little as it can.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NoReturn

FORCED: Final = "force"
BAD_INPUT: Final = 2


def rank_command(program: Path, arguments: list[str], table: Path, *, force: bool) -> list[str]:
    """Return the command line of a rank.

    Parameters
    ----------
    program : Path
        The program's file.
    arguments : list of str
        Its arguments.
    table : Path
        The tuning table.
    force : bool
        Whether to use a table that was tuned on another machine.
    """
    from collplan.own_algorithms import own_files

    # Launchers of other nodes may not pass on the environment that names these files.
    imports = os.pathsep.join(own_files())
    options = [str(table), FORCED if force else "", imports]
    return [sys.executable, "-P", __file__, *options, str(program), *arguments]


def main(table: str, forced: str, imports: str, program: str, *arguments: str) -> NoReturn:
    """Become the program, or say what is wrong and exit with 2."""
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.executors.mpi.launch.standard_input import take_input
    from collplan.preload.running import become, say_once
    from collplan.specs.errors import CollplanError

    if imports:
        from collplan.own_algorithms import ask_for

        ask_for([Path(path) for path in imports.split(os.pathsep)])
    take_input()
    try:
        become(Path(program), list(arguments), Path(table), force=forced == FORCED)
    except CollplanError as error:
        say_once(f"error: {error}")
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
