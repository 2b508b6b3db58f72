"""The `collplan` command, also as ``python -m collplan``, and what every rank of it runs."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    """Run the command in this process's arguments, from an installation or a plain checkout."""
    root = str(Path(__file__).parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    from collplan.cli.garbage import collect_rarely

    collect_rarely()
    from collplan.cli.main import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
