"""Come up as a rank and say so; an error is said once, by the launcher's rank 0."""

from __future__ import annotations

import sys

from collplan.executors.mpi.launch.environment import launcher_rank
from collplan.executors.mpi.world import join_world
from collplan.specs.errors import CollplanError

try:
    comm = join_world(int(sys.argv[1]) if len(sys.argv) > 1 else None)
except CollplanError as error:
    if launcher_rank() == 0:
        print(error, file=sys.stderr)
    sys.exit(2)
if comm.rank == 0:
    print(f"passed: a world of {comm.size}")
