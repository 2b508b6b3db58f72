"""Decisions and plans for programs without Python, in the helper process of a node.

The helper reads the tuning table, and answers the requests that ranks send through a socket; see
`collplan.preload.connections`.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import blake2b
from io import StringIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from collplan.api.rank_counts import RankCounts
from collplan.deciding.calls import CollectiveCall, VectorCall
from collplan.deciding.decisions import (
    NATIVE_CALLS,
    calls_before,
    calls_before_trial,
    is_tried,
    why_later,
    why_not_tried,
    whys_native,
)
from collplan.deciding.options import (
    MAX_PLANS,
    NATIVE,
    CallOptions,
    check_choices,
    parse_native_calls,
)
from collplan.deciding.statistics import Statistics, is_logged, log_file, new_statistics
from collplan.deciding.trial_share import SHARE, TRIALS, parse_share
from collplan.deciding.trials import TRIED
from collplan.executors.mpi.engine.portable import NATIVE_KINDS
from collplan.executors.mpi.engine.reduction import Callback
from collplan.executors.mpi.errors import one_line
from collplan.executors.mpi.host.cores import host, scheduling_group
from collplan.executors.mpi.launch.launcher import short_version
from collplan.executors.mpi.program.messages import HANDLE_BYTES, STATUS_BYTES
from collplan.preload.settings import CHECK, CORES, FORCE, HANG_AFTER, TABLE
from collplan.preload.teams import MASK_AT, N_FACTS, Planner, Team
from collplan.preload.trial_answers import Paying, answer_paying, answer_turn
from collplan.programs.progress_places import PLACED
from collplan.specs import COLLECTIVES, CollplanError
from collplan.specs.loading import machine_at_hand
from collplan.specs.request import MESSAGES
from collplan.tables.fingerprint import fingerprint_of
from collplan.tables.table import TuningTable, load_table
from collplan.watch.area import open_area
from collplan.watch.options import of_words
from collplan.watch.watcher import Watcher

HELLO, COMM, DECIDE, PLAN, STATISTICS, WATCH, TRY, TURN, PLACE = range(1, 10)
PASSES, SHARES, TRIES, NEEDS = 1, 2, 4, 8
"""Bits of a decision: plans run a call, do so through shared memory, may be tried, or must run."""
SHARED: Final = b"shared"
"""End of a request for the plan through shared memory."""
KINDS: Final = (
    *NATIVE_KINDS,
    *("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter"),
)
"""Kinds of collectives, in the order of their numbers in the preloaded library."""
STARTED: Final = frozenset(KINDS) - {"gatherv", "scatterv", "alltoallv"}
"""Kinds whose non-blocking calls may run by plans."""
SIZES_LOGGED: Final = 2
"""Value for ranks whose statistics have a row for each size."""
_HELLO: Final = struct.Struct("<8q")
_COMM: Final = struct.Struct("<qq")
_AREA: Final = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class Hello:
    """Description that a rank sends of itself, with fields in the order of the message.

    Parameters
    ----------
    pid : int
        Process id of the rank.
    rank, size : int
        Rank in ``MPI_COMM_WORLD``, and the number of ranks.
    n_nodes, node : int
        Number of nodes, and that of the rank's node, which is the rank of its first rank.
    handle_bytes, status_bytes : int
        Sizes of MPI's handles and of ``MPI_Status`` in the program, in bytes.
    tag_ub : int
        Largest tag that the program's MPI supports.
    """

    pid: int
    rank: int
    size: int
    n_nodes: int
    node: int
    handle_bytes: int
    status_bytes: int
    tag_ub: int


class Question(NamedTuple):
    """Call about which a rank asks.

    Parameters
    ----------
    team : Team
        Ranks of the communicator.
    rank : int
        Rank that asks.
    call : CollectiveCall
    is_blocking : bool
        Whether the call waits for its plan.
    choice : str
        Plan of a trial as JSON; empty for that of the table.
    """

    team: Team
    rank: int
    call: CollectiveCall
    is_blocking: bool
    choice: str


class Helper:
    """State of the helper, and its answers to the ranks of a node.

    Parameters
    ----------
    table : TuningTable, optional
        Table of a Python program that answers for itself; by default, environment variables name
        the table and give the options.
    options : CallOptions, optional
        CallOptions of such a program.
    """

    def __init__(
        self, table: TuningTable | None = None, options: CallOptions | None = None
    ) -> None:
        self._table, self._options = table, options
        self._is_counting = table is not None  # a Python program may read its statistics
        self._planner: Planner | None = None
        self._callbacks: list[Callback] | None = None if table is None else []
        self._teams: dict[bytes, Team] = {}
        self._members: list[tuple[Team, int]] = []
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._answers: dict[int, Callable[[bytes], bytes]] = {
            HELLO: self._hello,
            COMM: self._comm,
            DECIDE: self._decide,
            PLAN: self._plan,
            STATISTICS: self._statistics,
            WATCH: _watch,
            TRY: self._try,
            TURN: lambda message: answer_turn(message, self._given.trials),
            PLACE: self._place,
        }

    def statistics(self, text: str) -> Statistics:
        """Return statistics as `statistics_of`, with the number of ranks per core."""
        statistics = statistics_of(text)
        crowds = [team.crowding.ranks_per_core for team in list(self._teams.values())]
        statistics.ranks_per_core = max(crowds, default=1.0)
        return statistics

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
        table, given = self._read_table(short_version(version), hello.n_nodes), self._given
        self._planner = Planner(table, given, self._callbacks)
        natives = whys_native(table, is_blocking=True, are_tried=given.trials > 0)
        bits = sum((kind not in natives) << number for number, kind in enumerate(KINDS))
        natives = whys_native(table, is_blocking=False, are_tried=False)
        started = sum(
            (kind in STARTED and kind not in natives) << number for number, kind in enumerate(KINDS)
        )
        text = json.dumps([table.model_dump(mode="json"), asdict(given)])
        digest = int.from_bytes(blake2b(text.encode(), digest_size=7).digest(), "little")
        asked_at = NATIVE_CALLS if given.native_calls is None else given.native_calls
        if any(sweep.reproducible != "ranks" for sweep in table.sweeps):
            asked_at = 0  # not even the first calls may be native
        logging = SIZES_LOGGED if log_file() is not None else int(self._is_counting or is_logged())
        head = struct.pack("<4qQQ", asked_at, given.max_plans, logging, digest, bits, started)
        return head + bytes(self._facts(hello).data)

    @property
    def _given(self) -> CallOptions:
        """CallOptions of the program, or those of the environment."""
        if self._options is None:
            self._options = options_of_environment()
        return self._options

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

    def _facts(self, hello: Hello) -> Any:
        facts = np.zeros(N_FACTS, np.uint64)
        group = scheduling_group(process=str(hello.pid))
        facts[:MASK_AT] = hello.node, _number(host()), _number(group)
        bits = np.zeros(64 * (N_FACTS - MASK_AT), np.uint8)
        processors = [one for one in os.sched_getaffinity(hello.pid) if one < len(bits)]
        bits[processors or [0]] = 1
        facts[MASK_AT:] = np.packbits(bits, bitorder="little").view(np.uint64)
        return facts

    def _place(self, message: bytes) -> bytes:
        """Return the processor of a rank of the world, and those of its thread under `PLACED`."""
        rank, _ = _COMM.unpack_from(message)
        assert self._planner is not None
        assert self._table is not None
        place = _team_of(message).places(self._given.cores, self._table.numa_domains)[rank]
        self._planner.n_spare = place.n_spare
        found = (place.own, *map(place.of, PLACED))
        return struct.pack(f"<{len(found)}q", *(-1 if one is None else one for one in found))

    def _comm(self, message: bytes) -> bytes:
        rank, _ = _COMM.unpack_from(message)
        facts = message[_COMM.size :]
        if facts not in self._teams:
            self._teams[facts] = _team_of(message)
        number = self._numbers.setdefault((facts, rank), len(self._members))
        if number == len(self._members):
            self._members.append((self._teams[facts], rank))
        return struct.pack("<q", number)

    def _decide(self, message: bytes) -> bytes:
        asked = self._question(message)
        assert self._planner is not None
        team, call = asked.team, asked.call
        decision, digest, shares = self._planner.decide(team, call, is_blocking=asked.is_blocking)
        times = (-1.0 if one is None else one for one in (decision.native_s, decision.chosen_s))
        native_calls, share = self._given.native_calls, self._given.trials
        if asked.is_blocking and is_tried(call, decision, len(team.facts), share):
            ways, n_calls = TRIES, calls_before_trial(native_calls)
            later = why_not_tried(decision)
        else:
            is_plan = not decision.choice.native
            needs_memory = not asked.is_blocking and decision.choice.transport != MESSAGES
            ways = PASSES * (is_plan and not needs_memory) | SHARES * shares
            ways |= NEEDS * decision.needs_plan
            n_calls = calls_before(decision, native_calls)
            later = why_later(decision, n_calls)
        head = struct.pack("<qqqdd", ways, digest, n_calls, *times)
        return head + f"{decision.label}\0{decision.why}\0{later}\0".encode()

    def _plan(self, message: bytes) -> bytes:
        question, _, words = message.partition(b"\0")
        asked = self._question(question)
        assert self._planner is not None
        team, call = asked.team, asked.call
        if words == SHARED:
            return self._planner.shared_program(team, asked.rank, call)
        if not asked.is_blocking and isinstance(call, VectorCall):
            known = [RankCounts(call.kind, np.frombuffer(words, np.int64))] * len(team.facts)
            return self._planner.started_program(team, asked.rank, call, told=known)
        if not asked.is_blocking:
            computation_s = struct.unpack("<d", words)[0] if words else None
            return self._planner.started_program(team, asked.rank, call, computation_s)
        told = counts_told(words, call, len(team.facts)) if isinstance(call, VectorCall) else ()
        return self._planner.program(team, asked.rank, call, told, choice=asked.choice)

    def _try(self, message: bytes) -> bytes:
        question, _, words = message.partition(b"\0")
        asked = self._question(question)
        assert self._planner is not None
        predict = partial(self._planner.predict, asked.team, asked.call)
        return answer_paying(Paying.read(words), self._given.trials, predict)

    def _question(self, message: bytes) -> Question:
        number, name, n_bytes, root, op, element, digest, *choice = message.decode().split(" ", 7)
        kind = name.removeprefix("I")
        op_name, element_name = (None if one == "-" else one for one in (op, element))
        call = CollectiveCall(kind, int(n_bytes), int(root), op_name, element_name)
        if COLLECTIVES[kind].regular is not None:
            call = VectorCall(
                kind, int(n_bytes), int(root), op_name, element_name, bytes.fromhex(digest)
            )
        team, rank = self._members[int(number)]
        return Question(team, rank, call, kind == name, "".join(choice))

    def _statistics(self, message: bytes) -> bytes:
        statistics = self.statistics(message.decode())
        # The rank prints them, because this process has no output.
        with redirect_stderr(StringIO()) as text:
            statistics.deliver()
        return text.getvalue().encode()


def options_of_environment() -> CallOptions:
    """Return the options that environment variables give.

    Raises
    ------
    CollplanError
        If the value of a variable is not a valid number.
    """
    cores = os.environ.get(CORES)
    return CallOptions(
        MAX_PLANS,
        parse_native_calls(os.environ.get(NATIVE)),
        None,
        parse_share(os.environ.get(TRIALS, SHARE), TRIALS),
        tuple(int(one) for one in cores.split(",")) if cores else None,
    )


def statistics_of(text: str) -> Statistics:
    """Return statistics, given the lines of text in which the library writes its rows."""
    statistics = new_statistics()
    making, *lines = text.splitlines()
    statistics.making_s = int(making) * 1e-9
    for line in lines:
        collective, ran, why, *numbers = line.split("\t")
        ranks, planned, native_s, chosen_s, least, most, calls, ns = numbers
        times = (None if float(one) < 0 else float(one) for one in (native_s, chosen_s))
        if why == TRIED:
            row = statistics.own_row(
                collective, ran, why, int(ranks), int(least), planned=planned == "1"
            )
        else:
            row = statistics.row(collective, ran, why, int(ranks), int(least))
        row.planned, row.most_bytes = planned == "1", max(row.most_bytes, int(most))
        row.native_s, row.chosen_s = times
        row.calls += int(calls)
        row.seconds += int(ns) * 1e-9
    return statistics


def _watch(message: bytes) -> bytes:
    """Watch the ranks of the node in a thread, given the place of their memory."""
    options = of_words(os.environ[HANG_AFTER], os.environ[CHECK])
    if options.is_on:
        Watcher(open_area(*_AREA.unpack(message)), options).start()
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


def _team_of(message: bytes) -> Team:
    _, size = _COMM.unpack_from(message)
    return Team(np.frombuffer(message, np.uint64, offset=_COMM.size).reshape(size, N_FACTS))


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
