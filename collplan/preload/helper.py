"""Helper process of a node, which makes decisions and plans for programs without Python.

The helper reads the tuning table, and answers the requests that ranks send through a socket. It
ends when the last rank has disconnected.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.dropin.calls import CollectiveCall, VectorCall
from collplan.dropin.config import (
    MAX_PLANS,
    NATIVE,
    check_choices,
    is_logged,
    parse_native_calls,
)
from collplan.dropin.decisions import (
    NATIVE_CALLS,
    calls_before,
    swept_kinds,
    why_later,
    why_no_sweep,
)
from collplan.dropin.statistics import new_statistics
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.host.cores import host, scheduling_group
from collplan.executors.mpi.launch.launcher import short_version
from collplan.executors.mpi.program.messages import HANDLE_BYTES, STATUS_BYTES
from collplan.preload.settings import FORCE, TABLE
from collplan.preload.teams import MASK_AT, N_FACTS, Planner, Team
from collplan.rank_counts import RankCounts
from collplan.specs import COLLECTIVES, CollplanError
from collplan.specs.loading import machine_at_hand
from collplan.tune.fingerprint import fingerprint_of
from collplan.tune.table import TuningTable, load_table

LISTENER: Final = 3
"""File descriptor of the listening socket, which the helper inherits."""
HELLO, COMM, DECIDE, PLAN, STATISTICS = range(1, 6)
KINDS: Final = (
    *("barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather"),
    *("alltoall", "reduce_scatter_block", "scan", "exscan"),
    *("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter"),
)
"""Kinds of collectives, in the order of their numbers in the preloaded library."""
_HEAD: Final = struct.Struct("<qq")
_HELLO: Final = struct.Struct("<7q")
_COMM: Final = struct.Struct("<qq")
_PATIENCE_S: Final = 120.0
"""Time limit for the first rank to connect, in seconds."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Description that a rank sends of itself, with fields in the order of the message.

    Parameters
    ----------
    pid : int
        Process id of the rank.
    rank, size : int
        Rank in ``MPI_COMM_WORLD``, and the number of ranks.
    n_nodes : int
        Number of nodes.
    handle_bytes, status_bytes : int
        Sizes of MPI's handles and of ``MPI_Status`` in the program, in bytes.
    tag_ub : int
        Largest tag that the program's MPI supports.
    """

    pid: int
    rank: int
    size: int
    n_nodes: int
    handle_bytes: int
    status_bytes: int
    tag_ub: int


class Helper:
    """State of the helper, and its answers to the ranks of a node."""

    def __init__(self) -> None:
        self._table: TuningTable | None = None
        self._planner: Planner | None = None
        self._node = int.from_bytes(os.urandom(8), "little")
        self._teams: dict[bytes, Team] = {}
        self._members: list[tuple[Team, int]] = []
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._answers: dict[int, Callable[[bytes], bytes]] = {
            HELLO: self._hello,
            COMM: self._comm,
            DECIDE: self._decide,
            PLAN: self._plan,
            STATISTICS: self._statistics,
        }

    def answer(self, request: int, message: bytes) -> tuple[int, bytes]:
        """Return the answer to a request.

        Parameters
        ----------
        request : int
            Number of the request, such as `DECIDE`.
        message : bytes
            Content of the request.

        Returns
        -------
        status : int
            0 for success, 1 for an error.
        text : bytes
            Content of the answer, or the message of the error.
        """
        try:
            return 0, self._answers[request](message)
        except Exception as error:
            return 1, one_line(error).encode()

    def _hello(self, message: bytes) -> bytes:
        hello = Hello(*_HELLO.unpack_from(message))
        if (hello.handle_bytes, hello.status_bytes) != (HANDLE_BYTES, STATUS_BYTES):
            raise CollplanError(
                f"the program's MPI has handles of {hello.handle_bytes} bytes, that of mpi4py of "
                f"{HANDLE_BYTES}: they are different libraries"
            )
        version = message[_HELLO.size :].decode(errors="replace")
        table = self._read_table(short_version(version), hello.n_nodes)
        kinds = swept_kinds(table, is_blocking=True)
        self._planner = Planner(table, kinds)
        swept = (why_no_sweep(kinds, kind) is None for kind in KINDS)
        bits = sum(is_swept << number for number, is_swept in enumerate(swept))
        text = json.dumps(table.model_dump(mode="json"))
        digest = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
        given = parse_native_calls(os.environ.get(NATIVE))
        asked_at = NATIVE_CALLS if given is None else given
        head = struct.pack("<4qQ", asked_at, MAX_PLANS, is_logged(), digest, bits)
        return head + bytes(self._facts(hello.pid).data)

    def _read_table(self, library: str, n_nodes: int) -> TuningTable:
        if self._table is None:
            name = os.environ.get(TABLE)
            if not name:
                raise CollplanError(f"{TABLE} names no table")
            table = load_table(Path(name))
            check_choices(table)
            if os.environ.get(FORCE) != "1":
                machine = machine_at_hand()
                lanes = None if machine is None else machine.n_lanes
                table.check(fingerprint_of(library, n_nodes, lanes))
            self._table = table
        return self._table

    def _facts(self, pid: int) -> Any:
        facts = np.zeros(N_FACTS, np.uint64)
        group = scheduling_group(process=str(pid))
        facts[:MASK_AT] = self._node, _number(host()), _number(group)
        bits = np.zeros(64 * (N_FACTS - MASK_AT), np.uint8)
        processors = [one for one in os.sched_getaffinity(pid) if one < len(bits)]
        bits[processors or [0]] = 1
        facts[MASK_AT:] = np.packbits(bits, bitorder="little").view(np.uint64)
        return facts

    def _comm(self, message: bytes) -> bytes:
        rank, size = _COMM.unpack_from(message)
        facts = message[_COMM.size :]
        if facts not in self._teams:
            words = np.frombuffer(facts, np.uint64).reshape(size, N_FACTS)
            self._teams[facts] = Team(words)
        number = self._numbers.setdefault((facts, rank), len(self._members))
        if number == len(self._members):
            self._members.append((self._teams[facts], rank))
        return struct.pack("<q", number)

    def _decide(self, message: bytes) -> bytes:
        team, _, call = self._question(message)
        assert self._planner is not None
        decision, digest = self._planner.decide(team, call)
        times = (-1.0 if one is None else one for one in (decision.native_s, decision.chosen_s))
        n_calls = calls_before(decision, parse_native_calls(os.environ.get(NATIVE)))
        head = struct.pack("<qqqdd", not decision.choice.native, digest, n_calls, *times)
        later = why_later(decision, n_calls)
        return head + f"{decision.label}\0{decision.why}\0{later}\0".encode()

    def _plan(self, message: bytes) -> bytes:
        question, _, words = message.partition(b"\0")
        team, rank, call = self._question(question)
        assert self._planner is not None
        told = counts_told(words, call, len(team.facts)) if isinstance(call, VectorCall) else ()
        return self._planner.program(team, rank, call, told)

    def _question(self, message: bytes) -> tuple[Team, int, CollectiveCall]:
        number, kind, n_bytes, root, op, element, digest = message.decode().split()
        op_name, element_name = (None if one == "-" else one for one in (op, element))
        call = CollectiveCall(kind, int(n_bytes), int(root), op_name, element_name)
        if COLLECTIVES[kind].regular is not None:
            call = VectorCall(
                kind, int(n_bytes), int(root), op_name, element_name, bytes.fromhex(digest)
            )
        return *self._members[int(number)], call

    def _statistics(self, message: bytes) -> bytes:
        statistics = new_statistics()
        making, *lines = message.decode().splitlines()
        statistics.making_s = int(making) * 1e-9
        for line in lines:
            collective, ran, why, *numbers = line.split("\t")
            ranks, planned, native_s, chosen_s, least, most, calls, ns = numbers
            times = (None if float(one) < 0 else float(one) for one in (native_s, chosen_s))
            row = statistics.row(collective, ran, why, int(ranks), int(least))
            row.planned, row.most_bytes = planned == "1", max(row.most_bytes, int(most))
            row.native_s, row.chosen_s = times
            row.calls += int(calls)
            row.seconds += int(ns) * 1e-9
        statistics.deliver()
        return b""


def counts_told(words: bytes, call: CollectiveCall, n_ranks: int) -> list[RankCounts]:
    """Return the counts that each rank knows.

    Parameters
    ----------
    words : bytes
        Array of int64, shape (n_ranks, 3 + 2 * n_ranks). A row has a flag for the counts of all
        blocks, a flag for the received counts, the count of the rank's own block (-1 if it is
        unknown), the counts of all blocks, and the received counts; all counts in bytes.
    call : CollectiveCall
        Call whose counts differ per rank.
    n_ranks : int
        Number of ranks.
    """
    table = np.frombuffer(words, np.int64).reshape(n_ranks, -1)
    counts, received = table[:, 3 : 3 + n_ranks], table[:, 3 + n_ranks :]
    return [
        RankCounts(
            call.kind,
            counts[rank] if has_counts else None,
            own if own >= 0 else None,
            received[rank] if has_received else None,
            call.root,
        )
        for rank, (has_counts, has_received, own) in enumerate(table[:, :3].tolist())
    ]


def serve(listener: socket.socket, parent: int) -> None:
    """Answer requests of ranks until the last rank has disconnected; then end this process.

    Parameters
    ----------
    listener : socket
        Listening socket, to which ranks connect.
    parent : int
        Id of the process that started the helper.
    """
    helper, connected = Helper(), _Connected()
    threading.Thread(target=connected.watch, args=(parent,), daemon=True).start()
    while True:
        ready, _, _ = select.select([listener, *connected.sockets], [], [])
        for one in ready:
            if one is listener:
                connected.accept(listener)
                continue
            try:
                request, n_bytes = _HEAD.unpack(_receive(one, _HEAD.size))
                status, text = helper.answer(request, _receive(one, n_bytes))
                one.sendall(_HEAD.pack(status, len(text)) + text)
            except OSError:
                connected.drop(one)


class _Connected:
    """Connected ranks; this process ends when the last of them disconnects."""

    def __init__(self) -> None:
        self.sockets: dict[socket.socket, int] = {}
        """Process descriptor of the rank by socket; -1 if there is no descriptor."""
        self._has_begun = False
        # It wakes the thread that watches the ranks.
        self._changed = os.eventfd(0)

    def accept(self, listener: socket.socket) -> None:
        """Accept the next connection, if it comes from a process of the same user."""
        one, _ = listener.accept()
        where = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, user, _ = struct.unpack("3i", where)
        if user != os.geteuid():
            one.close()
            return
        self.sockets[one] = _descriptor_of(pid)
        self._has_begun = True
        os.eventfd_write(self._changed, 1)

    def drop(self, one: socket.socket) -> None:
        """Remove a rank that has ended; end this process if it was the last one."""
        descriptor = self.sockets.pop(one)
        os.eventfd_write(self._changed, 1)
        one.close()
        if descriptor >= 0:
            os.close(descriptor)
        if not self.sockets:
            os._exit(0)

    def watch(self, parent: int) -> None:
        """End this process when all ranks have ended, also while the helper answers a request.

        If no rank has connected yet, the process ends when `parent` has ended, or after
        `_PATIENCE_S` seconds. The thread sleeps until a process ends or connects.

        Parameters
        ----------
        parent : int
            Id of the process that started the helper.
        """
        starter, begin = _descriptor_of(parent), time.monotonic()
        ended: set[socket.socket] = set()
        while True:
            with suppress(OSError, ValueError):  # the main thread may have closed descriptors
                ranks = {
                    one.fileno() if descriptor < 0 else descriptor: one
                    for one, descriptor in list(self.sockets.items())
                }
                left_s = begin + _PATIENCE_S - time.monotonic()
                is_late = not self._has_begun and left_s <= 0
                if is_late or (ranks and ended.issuperset(ranks.values())):
                    os._exit(0)
                poll = select.poll()
                poll.register(self._changed, select.POLLIN)
                if not self._has_begun and starter >= 0:
                    poll.register(starter, select.POLLIN)
                for number, one in ranks.items():
                    if one not in ended:
                        # A process that the rank has forked may keep the socket open after its end.
                        has_descriptor = self.sockets.get(one, -1) >= 0
                        poll.register(number, select.POLLIN if has_descriptor else select.POLLHUP)
                found = poll.poll(None if self._has_begun else 1000 * left_s)
                ready = {number for number, _ in found}
                if starter in ready and not self._has_begun:
                    os._exit(0)
                if self._changed in ready:
                    os.eventfd_read(self._changed)
                ended.update(one for number, one in ranks.items() if number in ready)


def _descriptor_of(pid: int) -> int:
    """Return a descriptor that is ready when a process ends; -1 if there is none."""
    with suppress(OSError):
        return os.pidfd_open(pid)
    return -1


def _receive(one: socket.socket, n_bytes: int) -> bytes:
    """Return the next `n_bytes` bytes of a socket; raise `OSError` if the rank has ended."""
    parts: list[bytes] = []
    while n_bytes > 0:
        part = one.recv(min(n_bytes, 1 << 20))
        if not part:
            raise ConnectionError("the rank has ended")
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def main(arguments: list[str]) -> int:
    """Serve the ranks of a node.

    Parameters
    ----------
    arguments : list of str
        Number of ranks of the node, and the id of the process that started the helper.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=LISTENER), int(arguments[1]))
    return 0
