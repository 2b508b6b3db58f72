"""The command line that starts this collplan again for every rank, and the file it runs."""

from __future__ import annotations

import sys
from pathlib import Path


def own_command(*arguments: object) -> list[str]:
    """Return the command line that runs this very collplan with `arguments`.

    It names this file by its path, and ``-P`` keeps Python from searching the
    working folder. Nothing that lies where the user stands is imported, except
    the files that ``--import`` names.
    """
    from collplan.own_algorithms import own_files

    # Launchers of other nodes may not pass on the environment that names these files, too.
    imports = [word for path in own_files() for word in ("--import", path)]
    return [sys.executable, "-P", str(Path(__file__)), *imports, *map(str, arguments)]


def main() -> int:
    """Run the command in this process's arguments, from an installation or a plain checkout."""
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.cli.main import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
