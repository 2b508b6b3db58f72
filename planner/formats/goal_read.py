"""Read GOAL schedules.

A schedule becomes a plan of bytes: one rank per node, ``cpu`` a core, ``nic`` a
lane, ``calc`` a COMPUTE. Receives write disjoint parts of the ``recv`` buffer
and sends read the ``send`` buffer from its begin, so nothing conflicts.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import csr
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.plan import (
    INTENT,
    NO_PATTERN,
    NONE,
    ON_START,
    Buffer,
    Dependencies,
    Extents,
    Op,
    Plan,
)

_N: Final = r"(\d{1,40})"
"""A number; Python refuses to read thousands of digits."""
_STATEMENT: Final = re.compile(
    r"\s*(?:"
    r"([a-zA-Z]\w*)[ \t]*:[ \t]*(?:"
    rf"(?:send[ \t]+{_N}b[ \t]+to|recv[ \t]+{_N}b[ \t]+from)[ \t]+(-?\d{{1,40}})"
    rf"(?:[ \t]+tag[ \t]+(-?\d{{1,40}}))?(?:[ \t]+cpu[ \t]+{_N})?(?:[ \t]+nic[ \t]+{_N})?(?![\w-])"
    rf"|calc[ \t]+{_N}(?:[ \t]+cpu[ \t]+{_N})?(?![\w-]))"
    r"|([a-zA-Z]\w*)[ \t]+(i?)requires[ \t]+([a-zA-Z]\w*)"
    rf"|rank[ \t]+{_N}\s*\{{"
    r"|(\}))",
    re.ASCII,
)
_TASK, _CALC_CPU, _EDGE, _RANK, _END = 1, 9, 12, 13, 14
"""Number of the last group that each statement can fill."""

_HEADER: Final = re.compile(rf"\s*num_ranks[ \t]+{_N}(?!\S)", re.ASCII)
_LONG_WORD: Final = re.compile(r"\S{60,}")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?(\*/|\Z)", re.DOTALL)
"""A comment; one that never ends takes the rest, which nothing then searches again."""
_MAX_RANKS: Final = 2**16
_MAX_UNITS: Final = 2**12
_MAX_TAG: Final = 2**31 - 1
_MAX_BYTES: Final = 2**48
_MAX_RECEIVED: Final = 2**62  # offsets of receives, which lie one after another, fit 63 bits
_MAX_NS: Final = 2**53  # above, whole nanoseconds are not exact in the simulator's doubles


class GoalError(PlanFormatError):
    """A GOAL schedule that cannot be read or written; read errors begin with file:line."""

    kind = "goal"


def read_goal(path: str | Path) -> Plan:
    """Read a GOAL schedule as a plan.

    Parameters
    ----------
    path : str or Path
        A text file in GOAL form.

    Returns
    -------
    Plan
        One rank a node; rows in the file's order.

    Raises
    ------
    GoalError
        With file and line, what is wrong there, and the way out.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise GoalError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise GoalError(f"{path}: is not text; give a schedule in GOAL's text form") from None
    return parse_goal(text, str(path))


def parse_goal(text: str, name: str = "<goal>") -> Plan:
    """Read a GOAL schedule from a string; `name` stands for the file in errors.

    Raises
    ------
    GoalError
        With name and line, what is wrong there, and the way out.

    Examples
    --------
    >>> plan = parse_goal('''
    ... num_ranks 2
    ... rank 0 {
    ... first: calc 100
    ... then: send 8b to 1 tag 3
    ... then requires first
    ... }
    ... rank 1 {
    ... only: recv 8b from 0 tag 3
    ... }
    ... ''')
    >>> print(plan.task(1))
    #1 rank 0: send to 1 tag 3 send[0:8] after #0
    """
    if "//" in text or "/*" in text:
        text = _COMMENT.sub(partial(_blank, name), text)
    return _Reader(text, name).read()


def _blank(name: str, comment: re.Match[str]) -> str:
    """Return what stands for a comment: newlines stay, so that errors count lines right."""
    if comment[1] == "":
        line = comment.string.count("\n", 0, comment.start()) + 1
        raise GoalError(f"{name}:{line}: comment never ends; close it with '*/'")
    return " " + "\n" * comment[0].count("\n")


@dataclass(slots=True)
class _Reader:
    """Columns of the schedule read so far."""

    text: str
    name: str
    n_ranks: int = 0
    op: array[int] = field(default_factory=lambda: array("b"))
    amount: array[int] = field(default_factory=lambda: array("q"))
    peer: array[int] = field(default_factory=lambda: array("i"))
    tag: array[int] = field(default_factory=lambda: array("i"))
    cpu: array[int] = field(default_factory=lambda: array("i"))
    nic: array[int] = field(default_factory=lambda: array("h"))
    after: array[int] = field(default_factory=lambda: array("i"))
    before: array[int] = field(default_factory=lambda: array("i"))
    on_start: array[int] = field(default_factory=lambda: array("b"))
    rank_end: list[int] = field(default_factory=list)

    def read(self) -> Plan:
        text, position = self.text, self._read_header()
        match = _STATEMENT.match
        labels: dict[str, int] | None = None
        while statement := match(text, position):
            last = statement.lastindex
            if labels is None:
                if last != _RANK:
                    self._fail(statement.start(), "stands outside of a rank", "begin 'rank N {'")
                self._begin_rank(statement)
                labels = {}
            elif last == _EDGE:
                self._add_edge(statement, labels)
            elif last == _END:
                self.rank_end.append(len(self.op))
                labels = None
            elif last == _RANK:
                self._fail(statement.start(), "begins inside of a rank", "end that with '}' first")
            else:
                self._add_task(statement, labels)
            position = statement.end()
        self._check_end(position, labels is not None)
        return self._plan()

    def _read_header(self) -> int:
        header = _HEADER.match(self.text)
        if header is None:
            self._fail(0, "does not begin with 'num_ranks N'", "say how many ranks there are")
        self.n_ranks = int(header[1])
        if not 1 <= self.n_ranks <= _MAX_RANKS:
            self._fail(header.start(1), f"{self.n_ranks} ranks", f"give 1 to {_MAX_RANKS}")
        return header.end()

    def _begin_rank(self, statement: re.Match[str]) -> None:
        expected, rank = len(self.rank_end), int(statement[_RANK])
        if rank >= self.n_ranks:
            self._fail(
                statement.start(_RANK),
                f"rank {rank} of {self.n_ranks}",
                f"number ranks 0 to {self.n_ranks - 1} or raise num_ranks",
            )
        if rank != expected:
            self._fail(
                statement.start(_RANK),
                f"rank {rank} where rank {expected} is due",
                "list every rank once, ascending; an idle one is 'rank N { }'",
            )

    def _add_task(self, statement: re.Match[str], labels: dict[str, int]) -> None:
        label, sends, receives, peer, tag, cpu, nic, calc, calc_cpu = statement.group(*range(1, 10))
        if label in labels:
            self._fail(statement.start(1), f"label {label} is defined twice in its rank", "rename")
        labels[label] = len(self.op)
        if calc is not None:
            op, amount, to, number, core, lane = Op.COMPUTE, int(calc), NONE, NONE, calc_cpu, NONE
            if amount > _MAX_NS:
                self._fail(statement.start(8), f"{label}: {calc} ns", f"give at most {_MAX_NS}")
        else:
            op = Op.RECV if sends is None else Op.SEND
            amount, to, number = int(sends or receives), int(peer), int(tag or 0)
            core, lane = cpu, int(nic or 0)
            if not 0 <= to < self.n_ranks or not 0 <= number <= _MAX_TAG or amount > _MAX_BYTES:
                self._fail_message(statement, to, number)
            if lane >= _MAX_UNITS:
                self._fail(statement.start(7), f"{label}: nic {nic}", f"give 0 to {_MAX_UNITS - 1}")
        unit = int(core or 0)
        if unit >= _MAX_UNITS:
            self._fail(statement.start(1), f"{label}: cpu {core}", f"give 0 to {_MAX_UNITS - 1}")
        self.op.append(op)
        self.amount.append(amount)
        self.peer.append(to)
        self.tag.append(number)
        self.cpu.append(unit)
        self.nic.append(lane)

    def _fail_message(self, statement: re.Match[str], peer: int, tag: int) -> NoReturn:
        label, place = statement[1], statement.start(1)
        if peer == -1 or tag == -1:
            what = "rank" if peer == -1 else "tag"
            self._fail(place, f"{label}: any {what} (-1), but a plan is static", f"name the {what}")
        if not 0 <= peer < self.n_ranks:
            self._fail(place, f"{label}: rank {peer} of {self.n_ranks}", "name one that exists")
        if not 0 <= tag <= _MAX_TAG:
            self._fail(place, f"{label}: tag {tag}", f"give 0 to {_MAX_TAG}")
        self._fail(place, f"{label}: message too large", f"give at most {_MAX_BYTES} bytes")

    def _add_edge(self, statement: re.Match[str], labels: dict[str, int]) -> None:
        label, on_start, required = statement.group(10, 11, 12)
        after, before = labels.get(label), labels.get(required)
        if after is None or before is None:
            missing = label if after is None else required
            self._fail(
                statement.start(10),
                f"label {missing} is not defined in rank {len(self.rank_end)}",
                "define it above its use, in the same rank",
            )
        self.after.append(after)
        self.before.append(before)
        self.on_start.append(1 if on_start else 0)

    def _check_end(self, position: int, inside: bool) -> None:
        rest = self.text[position:].lstrip()
        if rest:
            place = len(self.text) - len(rest)
            self._fail_unknown(place)
        rank = len(self.rank_end)
        if inside:
            self._fail(
                len(self.text), f"ends inside rank {rank}, as if cut short", "end it with '}'"
            )
        if rank < self.n_ranks:
            self._fail(
                len(self.text),
                f"ends after {rank} of {self.n_ranks} ranks, as if cut short",
                "list every rank; an idle one is 'rank N { }'",
            )

    def _fail_unknown(self, place: int) -> NoReturn:
        begin = self.text.rfind("\n", 0, place) + 1
        line = self.text[begin:].split("\n", 1)[0].strip()
        quoted = line if len(line) <= 60 else line[:57] + "..."
        self._fail(
            place,
            f"cannot read '{quoted}'",
            "statements are 'L: send Nb to RANK', 'L: recv Nb from RANK' (then tag T, cpu C, nic N "
            "in this order), 'L: calc NS' (then cpu C), 'L requires M', 'L irequires M', with "
            "numbers of at most 40 digits",
        )

    def _fail(self, place: int, problem: str, way_out: str) -> NoReturn:
        # A statement's match begins with the blank before it.
        place += len(self.text[place:]) - len(self.text[place:].lstrip())
        line = self.text.count("\n", 0, min(place, len(self.text.rstrip()))) + 1
        problem = _LONG_WORD.sub(lambda word: word[0][:40] + "...", problem)
        raise GoalError(f"{self.name}:{line}: {problem}; {way_out}")

    def _plan(self) -> Plan:
        n = len(self.op)
        op, amount, cpu = (np.array(column) for column in (self.op, self.amount, self.cpu))
        received_bytes = amount[op == Op.RECV].sum(dtype=float)
        if received_bytes > _MAX_RECEIVED:
            raise GoalError(
                f"{self.name}: all receives together have {received_bytes:.3g} bytes, at most "
                f"2**62 can be; make messages smaller"
            )
        nic = np.array(self.nic)
        counts = np.diff(self.rank_end, prepend=0)
        rank = np.repeat(np.arange(self.n_ranks, dtype=np.int32), counts)
        n_bytes = np.where(op == Op.COMPUTE, 0, amount)
        reads, sent = _extents(op == Op.SEND, Buffer.SEND, n_bytes, rank, self.n_ranks)
        writes, received = _extents(op == Op.RECV, Buffer.RECV, n_bytes, rank, self.n_ranks)
        constant = np.broadcast_to(np.int32(0), n)
        ranks = np.arange(self.n_ranks)
        return Plan(
            op=op,
            rank=rank,
            peer=np.array(self.peer),
            tag=np.array(self.tag),
            node=rank,
            lane=nic,
            core=cpu,
            phase=constant,
            round=constant,
            stream=np.broadcast_to(np.int32(NONE), n),
            priority=constant,
            stage=constant,
            duration_ns=np.where(op == Op.COMPUTE, amount, 0),
            reads=reads,
            writes=writes,
            deps=self._dependencies(n),
            patterns=NO_PATTERN,
            buffer_sizes=np.column_stack((sent, received, np.zeros_like(sent))),
            shared_sizes=np.zeros(self.n_ranks, dtype=np.int64),
            rank_node=ranks,
            rank_lane=np.zeros_like(ranks),
            rank_core=np.zeros_like(ranks),
            itemsize=1,
        )

    def _dependencies(self, n_tasks: int) -> Dependencies:
        after, before = np.array(self.after), np.array(self.before)
        order, indptr = csr.group_by(after, n_tasks)
        kind = np.where(np.array(self.on_start), INTENT | ON_START, INTENT)
        return Dependencies(indptr, before[order], kind[order])


def _extents(
    has: npt.NDArray[np.bool_],
    buffer: Buffer,
    n_bytes: npt.NDArray[np.int64],
    rank: npt.NDArray[np.int32],
    n_ranks: int,
) -> tuple[Extents, npt.NDArray[np.int64]]:
    """Return one extent for each task that `has` one, and the size of every rank's buffer."""
    count = n_bytes[has]
    owner = rank[has]
    n = len(count)
    size = np.zeros(n_ranks, dtype=np.int64)
    if buffer is Buffer.SEND:
        offset = np.zeros(n, dtype=np.int64)
        np.maximum.at(size, owner, count)
    else:
        offset = csr.group_offsets(owner, count)
        np.add.at(size, owner, count)
    extents = Extents(
        indptr=csr.running_total(has),
        buffer=np.full(n, buffer),
        offset=offset,
        count=count,
        pattern=np.broadcast_to(np.int32(0), n),
    )
    return extents, size
