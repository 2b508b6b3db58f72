"""Read GOAL schedules.

A schedule becomes a plan with bytes as elements and one rank per node. ``cpu`` is a
core, ``nic`` is a lane, and ``calc`` is a COMPUTE task. Receives write disjoint parts
of the ``recv`` buffer, and sends read from the beginning of the ``send`` buffer, so
that tasks never conflict. A receive that is larger than its message, as MPI allows,
has the size of the message. If a tag does not fit into the column of tags, all tags
are numbered anew, from 0 on and in ascending order.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.errors import PlanFormatError
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.pieces import one_each
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT, ON_START, Dependencies
from collplan.specs.syntax.documents import read_text

_N: Final = r"(\d{1,40})"
"""Pattern of a number; the limit prevents numbers of thousands of digits, which Python refuses."""
_STATEMENT: Final = re.compile(
    r"\s*(?:"
    r"(?:([a-zA-Z]\w*)[ \t]*:[ \t]*)?(?:"
    rf"(?:send[ \t]+{_N}[ \t]*b[ \t]+to|recv[ \t]+{_N}[ \t]*b[ \t]+from)[ \t]+(-?\d{{1,40}})"
    rf"(?:[ \t]+tag[ \t]+(-?\d{{1,40}}))?(?:[ \t]+cpu[ \t]+{_N})?(?:[ \t]+nic[ \t]+{_N})?(?![\w-])"
    rf"|calc[ \t]+{_N}(?:[ \t]+cpu[ \t]+{_N})?(?![\w-]))"
    r"|([a-zA-Z]\w*)[ \t]+(i?)requires[ \t]+([a-zA-Z]\w*)"
    rf"|rank[ \t]+{_N}\s*\{{"
    r"|(\}))",
    re.ASCII,
)
_EDGE, _RANK, _END = 12, 13, 14
"""Number of the last group of the match, for each of these types of statements."""

_HEADER: Final = re.compile(rf"\s*num_ranks[ \t]+{_N}(?!\S)", re.ASCII)
_LONG_WORD: Final = re.compile(r"\S{60,}")
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?(\*/|\Z)", re.DOTALL)
"""Pattern of a comment; a comment that is not closed extends to the end of the text."""
_MOST_BYTES: Final = 2**40
_MAX_RANKS: Final = 2**16
_MAX_UNITS: Final = 2**12
_MAX_TAG: Final = 2**32 - 1  # as in LogGOPSim, whose tags are unsigned
_MAX_PLAN_TAG: Final = 2**31 - 1
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
        A text file in GOAL format.

    Returns
    -------
    Plan
        A plan with one rank per node, whose rows are in the order of the file.

    Raises
    ------
    GoalError
        If the file is not a valid schedule. The message has file and line, problem, and remedy.
    """
    way_out = "give a schedule in GOAL's text form"
    text = read_text(Path(path), "GOAL schedule", way_out, GoalError, most=_MOST_BYTES)
    return parse_goal(text, str(path))


def parse_goal(text: str, name: str = "<goal>") -> Plan:
    """Read a GOAL schedule from a string; errors name `name` as the file.

    Raises
    ------
    GoalError
        If the text is not a valid schedule. The message has name and line, problem, and remedy.

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
    return _GoalReader(text, name).read()


def _blank(name: str, comment: re.Match[str]) -> str:
    """Return the replacement of a comment, which keeps newlines so that line numbers are right."""
    if comment[1] == "":
        line = comment.string.count("\n", 0, comment.start()) + 1
        raise GoalError(f"{name}:{line}: comment never ends; close it with '*/'")
    return " " + "\n" * comment[0].count("\n")


_STATEMENTS: Final = (
    "statements are 'L: send Nb to RANK', 'L: recv Nb from RANK' (then tag T, cpu C, nic N in this "
    "order), 'L: calc NS' (then cpu C), all with or without a label 'L:', 'L requires M', "
    "'L irequires M', with numbers of at most 40 digits"
)
_Task = tuple[int, int, int, int, int, int]
"""Op, amount (in bytes or ns), peer, tag, cpu and nic of a task."""


@dataclass(slots=True)
class _GoalReader:
    """Reader of a schedule, with the statements that it has read so far."""

    text: str
    name: str
    n_ranks: int = 0
    n_tasks: int = 0
    tasks: array[int] = field(default_factory=lambda: array("q"))
    """Numbers of all tasks, one `_Task` after another."""
    edges: array[int] = field(default_factory=lambda: array("i"))
    """Waiting task, task that it waits for, and kind of each dependency."""
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
                self.rank_end.append(self.n_tasks)
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
        rank, due = int(statement[_RANK]), len(self.rank_end)
        if rank >= self.n_ranks:
            way_out = f"number ranks 0 to {self.n_ranks - 1} or raise num_ranks"
            self._fail(statement.start(), f"rank {rank} of {self.n_ranks}", way_out)
        if rank != due:
            way_out = "list every rank once, ascending; an idle one is 'rank N { }'"
            self._fail(statement.start(), f"rank {rank} where rank {due} is due", way_out)

    def _add_task(self, statement: re.Match[str], labels: dict[str, int]) -> None:
        label, sends, receives, peer, tag, cpu, nic, calc, calc_cpu = statement.group(*range(1, 10))
        if label is not None:
            if label in labels:
                problem = f"label {label} is defined twice in its rank"
                self._fail(statement.start(), problem, "rename")
            labels[label] = self.n_tasks
        if calc is not None:
            op, amount, to, number, core, lane = Op.COMPUTE, int(calc), NONE, NONE, calc_cpu, NONE
            is_legal = amount <= _MAX_NS
        else:
            op, core, lane = Op.SEND if receives is None else Op.RECV, cpu, int(nic or 0)
            amount, to, number = int(sends or receives), int(peer), int(tag or 0)
            is_legal = 0 <= to < self.n_ranks and 0 <= number <= _MAX_TAG and amount <= _MAX_BYTES
        unit = int(core or 0)
        task = op, amount, to, number, unit, lane
        if not is_legal or unit >= _MAX_UNITS or lane >= _MAX_UNITS:
            self._fail_task(statement, task)
        self.tasks.extend(task)
        self.n_tasks += 1

    def _fail_task(self, statement: re.Match[str], task: _Task) -> NoReturn:
        op, amount, peer, tag, cpu, nic = task
        n, most, is_message = self.n_ranks, _MAX_UNITS - 1, op != Op.COMPUTE
        too_much = amount > (_MAX_BYTES if is_message else _MAX_NS)
        wrong = (
            (not is_message and too_much, f"{amount} ns", f"give at most {_MAX_NS}"),
            (is_message and peer == -1, "any rank (-1), but a plan is static", "name the rank"),
            (is_message and tag == -1, "any tag (-1), but a plan is static", "name the tag"),
            (is_message and not 0 <= peer < n, f"rank {peer} of {n}", "name one that exists"),
            (is_message and not 0 <= tag <= _MAX_TAG, f"tag {tag}", f"give 0 to {_MAX_TAG}"),
            (is_message and too_much, "message too large", f"give at most {_MAX_BYTES} bytes"),
            (nic > most, f"nic {nic}", f"give 0 to {most}"),
            (cpu > most, f"cpu {cpu}", f"give 0 to {most}"),
        )
        problem, way_out = next(words for is_so, *words in wrong if is_so)
        subject = "" if statement[1] is None else f"{statement[1]}: "
        self._fail(statement.start(), subject + problem, way_out)

    def _add_edge(self, statement: re.Match[str], labels: dict[str, int]) -> None:
        label, on_start, required = statement.group(10, 11, 12)
        after, before = labels.get(label), labels.get(required)
        if after is None or before is None:
            missing = label if after is None else required
            problem = f"label {missing} is not defined in rank {len(self.rank_end)}"
            way_out = "define it above its use, in the same rank"
            self._fail(statement.start(), problem, way_out)
        self.edges.extend((after, before, INTENT | ON_START if on_start else INTENT))

    def _check_end(self, position: int, inside: bool) -> None:
        end, rank = len(self.text), len(self.rank_end)
        rest = self.text[position:].lstrip()
        if rest:
            place = end - len(rest)
            begin = self.text.rfind("\n", 0, place) + 1
            line = self.text[begin:].split("\n", 1)[0].strip()
            quoted = line if len(line) <= 60 else line[:57] + "..."
            self._fail(place, f"cannot read '{quoted}'", _STATEMENTS)
        if inside:
            self._fail(end, f"ends inside rank {rank}, as if cut short", "end it with '}'")
        if rank < self.n_ranks:
            problem = f"ends after {rank} of {self.n_ranks} ranks, as if cut short"
            self._fail(end, problem, "list every rank; an idle one is 'rank N { }'")

    def _fail(self, place: int, problem: str, way_out: str) -> NoReturn:
        # The match of a statement begins with the white space before it.
        place += len(self.text[place:]) - len(self.text[place:].lstrip())
        line = self.text.count("\n", 0, min(place, len(self.text.rstrip()))) + 1
        problem = _LONG_WORD.sub(lambda word: word[0][:40] + "...", problem)
        raise GoalError(f"{self.name}:{line}: {problem}; {way_out}")

    def _plan(self) -> Plan:
        op, amount, peer, tag, cpu, nic = np.array(self.tasks).reshape(-1, 6).T.copy()
        ranks = np.arange(self.n_ranks, dtype=np.int32)
        rank = np.repeat(ranks, np.diff(self.rank_end, prepend=0))
        sends, receives = op == Op.SEND, op == Op.RECV
        if tag.max(initial=0) > _MAX_PLAN_TAG:
            tag[sends | receives] = np.unique(tag[sends | receives], return_inverse=True)[1]
        _cut_receives(amount, sends, receives, rank, peer, tag)
        received_bytes = amount[receives].sum(dtype=float)
        if received_bytes > _MAX_RECEIVED:
            raise GoalError(
                f"{self.name}: all receives together have {received_bytes:.3g} bytes, at most "
                f"2**62 can be; make messages smaller"
            )
        sizes = np.zeros((self.n_ranks, 3), dtype=np.int64)
        np.maximum.at(sizes[:, Buffer.SEND], rank[sends], amount[sends])
        np.add.at(sizes[:, Buffer.RECV], rank[receives], amount[receives])
        offset = np.zeros_like(amount)
        offset[receives] = csr.group_offsets(rank[receives], amount[receives])
        after, before, kind = np.array(self.edges).reshape(-1, 3).T.copy()
        order, indptr = csr.group_by(after, self.n_tasks)
        constant = dict.fromkeys(("round", "priority", "stage"), np.zeros(self.n_tasks, np.int8))
        columns = {"op": op, "rank": rank, "peer": peer, "tag": tag, "lane": nic, "core": cpu}
        return assemble(
            RankPlaces.one_per_node(self.n_ranks),
            columns | constant | {"duration_ns": np.where(op == Op.COMPUTE, amount, 0)},
            one_each(Buffer.SEND, offset, amount).masked(sends),
            one_each(Buffer.RECV, offset, amount).masked(receives),
            Dependencies(indptr, before[order], kind[order]),
            buffer_sizes=sizes,
            itemsize=1,
        )


def _cut_receives(
    amount: Ints, sends: Bools, receives: Bools, rank: Ints, peer: Ints, tag: Ints
) -> None:
    """Give receives that are larger than their messages the size of these, in place.

    Messages match as in a plan: those of the same source, destination and tag in row order. If
    they do not match, nothing changes, as the plan cannot be simulated anyway.
    """
    ends = []
    for is_end, source, dest in ((sends, rank, peer), (receives, peer, rank)):
        rows = np.flatnonzero(is_end)
        keys = np.stack((tag[rows], dest[rows], source[rows]))
        order = np.lexsort(keys)
        ends.append((rows[order], keys[:, order]))
    (sent, sent_keys), (received, received_keys) = ends
    if np.array_equal(sent_keys, received_keys):
        amount[received] = np.minimum(amount[received], amount[sent])
