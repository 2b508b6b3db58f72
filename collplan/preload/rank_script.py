"""Script that ``collplan exec`` starts on each rank, and that executes the user's program.

As it runs on every rank, it imports few modules, and not those of the command line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collplan.watch.options import WatchOptions

FORCED: Final = "force"
BAD_INPUT: Final = 2


def rank_command(
    program: Path,
    words: list[str],
    table: Path,
    *,
    force: bool,
    watch: WatchOptions,
    trials: str = "",
    cores: str = "",
) -> list[str]:
    """Return the command line that starts a rank.

    Parameters
    ----------
    program : Path
        File of the program.
    words : list of str
        The program as the user names it, and its arguments.
    table : Path
        File of the tuning table.
    force : bool
        Whether to use a table that was tuned on another machine or with other software.
    watch : WatchOptions
        Choice of what is reported about ranks that wait.
    trials : str
        Share of time for trials of plans; empty for that of the environment.
    cores : str
        Processor of each core of a node, separated by commas; empty if ranks are not bound.
    """
    from collplan.own_algorithms import own_files

    # The environment names these files, but launchers may not pass it on to other nodes.
    imports = os.pathsep.join(own_files())
    options = [str(table), FORCED if force else "", imports, *watch.words(), trials, cores]
    return [sys.executable, "-P", __file__, *options, str(program), *words]


def main(
    table: str,
    forced: str,
    imports: str,
    hang_after: str,
    check: str,
    trials: str,
    cores: str,
    program: str,
    *words: str,
) -> NoReturn:
    """Execute the program in this process; print an error and exit with 2 if this fails.

    Parameters
    ----------
    table : str
        Path of the tuning table.
    forced : str
        `FORCED` to use a table that was tuned on another machine or with other software.
    imports : str
        Python files with algorithms of the user, separated as in ``PATH``.
    hang_after, check : str
        Arguments of `collplan.watch.options.of_words`.
    trials : str
        Share of time for trials of plans; empty for that of the environment.
    cores : str
        Processor of each core of a node, separated by commas; empty if ranks are not bound.
    program : str
        Path of the program.
    *words : str
        The program as the user names it, and its arguments.
    """
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.deciding.trial_share import TRIALS
    from collplan.executors.mpi.launch.standard_input import take_input
    from collplan.preload.running import become, say_once
    from collplan.specs.errors import CollplanError
    from collplan.watch.options import of_words

    if imports:
        from collplan.own_algorithms import ask_for

        ask_for([Path(path) for path in imports.split(os.pathsep)])
    if trials:
        os.environ[TRIALS] = trials
    take_input()
    try:
        watch = of_words(hang_after, check)
        is_forced = forced == FORCED
        become(Path(program), list(words), Path(table), force=is_forced, watch=watch, cores=cores)
    except CollplanError as error:
        say_once(f"error: {error}")
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main(*sys.argv[1:])
