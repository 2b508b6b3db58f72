"""Ranks that wait for a message nobody sends; each holds a connection while it lives."""

from __future__ import annotations

import socket
import sys

from mpi4py import MPI

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"up")
MPI.COMM_WORLD.recv(source=MPI.COMM_WORLD.rank)
