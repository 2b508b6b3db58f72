"""Say what ranks see of an emulated cluster, and on which lanes their messages travel.

Arguments: bytes, then ``SOURCE>DEST`` for every message. Rank 0 prints one JSON object:
what every rank sees, and for every message the bytes each rank's node counted meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from collplan.emulate.machine import lane_bytes
from collplan.emulate.running import find_tools

SETTLE_S = 0.3
"""For what is still on its way, as acknowledgements, when a barrier is left."""
NAMESPACES = ("net", "uts", "ipc", "mnt", "pid")


def look_around(comm: MPI.Intracomm) -> dict[str, Any]:
    shared = comm.Split_type(MPI.COMM_TYPE_SHARED)
    return {
        "host": socket.gethostname(),
        "address": socket.gethostbyname(socket.gethostname()),
        "interfaces": sorted(path.name for path in Path("/sys/class/net").iterdir()),
        "neighbors": shared.allgather(comm.rank),
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES},
        "collplan": {k: v for k, v in os.environ.items() if k.startswith("COLLPLAN_")},
        "rp_filter": Path("/proc/sys/net/ipv4/conf/lane0/rp_filter").read_text().strip(),
        "directory": os.getcwd(),
        "python": sys.executable,
    }


def shaped() -> dict[str, str]:
    """Return the rate of every interface that is shaped: this node's, and the switches'."""
    tools = find_tools()
    found = {}
    for enter in ([], [tools["nsenter"], "--target", "1", "--net", "--"]):
        text = subprocess.check_output([*enter, tools["tc"], "qdisc", "show"], text=True)
        for line in text.splitlines():
            words = line.split()
            if words[1] == "tbf":
                found[words[words.index("dev") + 1]] = words[words.index("rate") + 1]
    return found


def count(comm: MPI.Intracomm, source: int, dest: int, n_bytes: int) -> list[Any] | None:
    message = np.zeros(n_bytes, np.uint8)
    comm.barrier()
    time.sleep(SETTLE_S)
    before = lane_bytes()
    comm.barrier()
    if comm.rank == source:
        comm.Send(message, dest)
    if comm.rank == dest:
        comm.Recv(message, source)
    comm.barrier()
    time.sleep(SETTLE_S)
    after = lane_bytes()
    grown = [[after[lane][way] - before[lane][way] for way in (0, 1)] for lane in after]
    return comm.gather(grown)


comm = MPI.COMM_WORLD
n_bytes, *messages = sys.argv[1:]
ranks = comm.gather(look_around(comm))
counts = [count(comm, *map(int, message.split(">")), int(n_bytes)) for message in messages]
if comm.rank == 0:
    print(json.dumps({"ranks": ranks, "counts": counts, "shaped": shaped()}))
