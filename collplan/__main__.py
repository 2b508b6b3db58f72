"""The `collplan` command, also as ``python -m collplan``."""

from __future__ import annotations

import sys

from collplan.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
