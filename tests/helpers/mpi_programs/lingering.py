"""Ranks that say in which namespaces they are, a line of JSON each, and stay."""

from __future__ import annotations

import json
import os
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
names = ("net", "uts", "ipc", "mnt", "pid")
found = comm.gather([os.readlink(f"/proc/self/ns/{name}") for name in names])
if comm.rank == 0:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
time.sleep(600)
