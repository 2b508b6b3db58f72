"""Start a program on two ranks as the command line does: program, timeout in s, arguments."""

from __future__ import annotations

import sys
from pathlib import Path

from collplan.executors.mpi.launch.jobs import relaunch
from collplan.specs.errors import CollplanError

name, timeout_s, *arguments = sys.argv[1:]
program = [sys.executable, str(Path(__file__).parent / name), *arguments]
try:
    code = relaunch(program, 2, float(timeout_s) or None)
except CollplanError as error:
    print(error, file=sys.stderr)
    code = 2
except KeyboardInterrupt:
    code = 130
sys.exit(code)
