"""Several programs of examples/ in one world: rank 0 prints their reports as a list in JSON.

The argument is a list in JSON of the words of each program's command line.
"""

from __future__ import annotations

import io
import json
import runpy
import sys
from contextlib import redirect_stdout

from mpi4py import MPI

from folders import EXAMPLES

sys.path.insert(0, str(EXAMPLES))
reports = []
for name, *arguments in json.loads(sys.argv[1]):
    sys.argv = [name, "--json", *arguments]
    status = None
    with redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        except SystemExit as end:
            status = end.code
    assert not status, f"{name} ended with {status}"
    reports.append(printed.getvalue())
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps([json.loads(report) for report in reports]))
