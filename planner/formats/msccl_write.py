"""Write plans in MSCCL's XML."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Final, NoReturn
from xml.sax.saxutils import quoteattr

import numpy as np

from collplan.planner.formats.msccl import BLOCKS, IN_PLACE, KINDS
from collplan.planner.formats.msccl_read import MscclError
from collplan.planner.formats.output_files import write_text
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Buffer, Extent, Op, Plan, Task
from collplan.planner.plan.ragged import ON_START
from collplan.planner.rewrite.fold import require_unfolded
from collplan.planner.verify.order import completion_order

NAMES: Final = {kind: name for name, kind in reversed(KINDS.items())}
"""Names of collectives in MSCCL's runtime, by kind."""
MAX_STEPS: Final = 64
MAX_COUNT: Final = 71
MAX_BLOCKS: Final = 32
"""Limits of MSCCL's runtime: steps per thread block, chunks per step, thread blocks per channel."""
_BUFFERS: Final = {Buffer.SEND: "i", Buffer.RECV: "o", Buffer.SCRATCH: "s"}


@dataclass(frozen=True, slots=True)
class Written:
    """Size of a written schedule, and notes.

    Parameters
    ----------
    n_chunks, n_blocks, n_steps : int
        Number of chunks of a buffer, greatest number of thread blocks per GPU, and greatest
        number of steps per thread block.
    notes : tuple of str
        Notes for users of the file, see `_MscclWriter.notes`.
    """

    n_chunks: int
    n_blocks: int
    n_steps: int
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    """A step to be written, with the steps of other thread blocks for which it waits."""

    kind: str
    source: tuple[str, int]
    dest: tuple[str, int]
    count: int
    order: int = -1
    waits: list[_Entry] = field(default_factory=list)
    block: int = -1
    number: int = -1
    is_awaited: bool = False


def write_msccl(
    plan: Plan,
    path: str | Path,
    *,
    protocol: str = "Simple",
    between: tuple[int, int] | None = None,
) -> Written:
    """Write a plan as a schedule in MSCCL's XML.

    Each GPU gets a thread block per peer to which it sends, a thread block per peer from which it
    receives, and a thread block for copies and reductions, all on channel 0. A reduction with a
    separate result becomes a copy and a reduction. Steps have an attribute ``order``, the row of
    the task in the plan, which MSCCL does not read.

    Parameters
    ----------
    plan : Plan
        A verified plan of all ranks.
    path : str or Path
        File to write.
    protocol : str
        Protocol of MSCCL: "Simple", "LL" or "LL128".
    between : (int, int), optional
        Smallest and largest size in bytes for which MSCCL uses the schedule. By default, both
        are the size of the plan's collective.

    Returns
    -------
    Written

    Raises
    ------
    MscclError
        If MSCCL has no equivalent of the collective or of one of the tasks.
    """
    writer = _MscclWriter(plan)
    programs = writer.programs()
    write_text(Path(path), writer.document(programs, protocol, between))
    blocks = [len(blocks) for blocks in programs]
    steps = [len(block) for blocks in programs for block in blocks.values()]
    notes = tuple(writer.notes(programs))
    return Written(writer.n_chunks, max(blocks, default=0), max(steps, default=0), notes)


class _MscclWriter:
    def __init__(self, plan: Plan) -> None:
        require_unfolded(plan, "written as an MSCCL schedule")
        if plan.only_rank is not None or plan.spec is None:
            raise MscclError("MSCCL's XML has the programs of all ranks of a collective; give both")
        self.plan, self.collective = plan, plan.spec.collective
        kind = self.collective.kind
        if kind not in NAMES or (self.collective.in_place and kind not in IN_PLACE):
            what = f"{kind} in place" if kind in NAMES else kind
            raise MscclError(f"{what} is no collective of MSCCL; it has {', '.join(NAMES)}")
        if not self.collective.is_commutative:
            raise MscclError("MSCCL's operations commute; give a plan of one that does")
        self.tasks = list(plan.tasks())
        self.chunk = self._chunk_elements()
        whole = self.collective.count * (plan.n_ranks if kind in BLOCKS else 1)
        self.n_chunks = whole // self.chunk
        self.n_split = 0

    def _chunk_elements(self) -> int:
        """Return the largest chunk size in elements that divides all offsets and counts."""
        plan, size = self.plan, int(self.collective.count)
        for side in (plan.reads, plan.writes):
            size = int(np.gcd.reduce(side.offset, initial=size))
            size = int(np.gcd.reduce(side.count, initial=size))
        if size == 0:
            raise MscclError("the plan moves no elements; MSCCL's steps move chunks")
        for task in self.tasks:
            if task.op == Op.REDUCE:
                half = sum(extent.count for extent in task.writes)
                size = gcd(size, half)
        return size

    def programs(self) -> list[dict[tuple[str, int], list[_Entry]]]:
        """Return the steps of every thread block, by kind and peer, for every GPU."""
        plan = self.plan
        _, position = completion_order(plan, *match_messages(plan))
        found: list[dict[tuple[str, int], list[_Entry]]] = [
            defaultdict(list) for _ in range(plan.n_ranks)
        ]
        last: dict[int, _Entry] = {}
        blocks: dict[int, tuple[str, int]] = {}
        kinds = plan.deps.kind
        # Both ends of a message have the same position in one order, so there are no cycles.
        for row in np.argsort(position, kind="stable").tolist():
            task = self.tasks[row]
            block = blocks[row] = self._block_of(task)
            waits = []
            for i in range(plan.deps.indptr[row], plan.deps.indptr[row + 1]):
                before = int(plan.deps.task[i])
                if plan.rank[before] != task.rank:
                    raise MscclError(f"{task} waits for another rank; use messages as transport")
                if kinds[i] & ON_START and blocks.get(before) != block:
                    raise MscclError(f"{task} waits for a start, which MSCCL's steps cannot")
                if blocks[before] != block:
                    waits.append(last[before])
            entries = self._entries(task)
            entries[0].waits = waits
            last[row] = entries[-1]
            for entry in entries:
                entry.order = row
            found[task.rank][block] += entries
        for program in found:
            self._number(program)
        return found

    def _block_of(self, task: Task) -> tuple[str, int]:
        """Return the thread block of a task, as kind and peer."""
        if task.op in (Op.SEND, Op.RECV):
            return task.op.name.lower(), task.peer
        return "local", -1

    def _entries(self, task: Task) -> list[_Entry]:
        """Return the steps of a task."""
        if task.op == Op.SEND:
            source, count = self._place(task, task.reads)
            return [_Entry("s", source, source, count)]
        if task.op == Op.RECV:
            dest, count = self._place(task, task.writes)
            return [_Entry("r", dest, dest, count)]
        if task.op == Op.COPY:
            dest, count = self._place(task, task.writes)
            return [_Entry("cpy", self._place(task, task.reads)[0], dest, count)]
        if task.op == Op.REDUCE:
            return self._reduce(task)
        raise MscclError(f"{task} is no step of MSCCL, which has messages, copies and reductions")

    def _reduce(self, task: Task) -> list[_Entry]:
        dest, count = self._place(task, task.writes)
        reads = task.reads
        if len(reads) == 1:  # the right operand follows the left operand in memory
            one, half = reads[0], reads[0].count // 2
            reads = (
                Extent(one.buffer, one.offset, half, one.pattern),
                Extent(one.buffer, one.offset + half, half, one.pattern),
            )
        if len(reads) != 2:
            self._refuse_pieces(task)
        left, right = (self._place(task, (extent,))[0] for extent in reads)
        if dest in (left, right):
            other = right if dest == left else left
            return [_Entry("re", other, dest, count)]
        self.n_split += 1
        return [_Entry("cpy", left, dest, count), _Entry("re", right, dest, count)]

    def _place(self, task: Task, extents: tuple[Extent, ...]) -> tuple[tuple[str, int], int]:
        """Return buffer, first chunk, and number of chunks of a single contiguous piece."""
        if len(extents) != 1 or extents[0].pattern != (0, 1, 0, 1):
            self._refuse_pieces(task)
        extent = extents[0]
        if extent.buffer == Buffer.SHARED:
            raise MscclError(f"{task} uses memory of a node; use messages as transport")
        offset, buffer = extent.offset // self.chunk, _BUFFERS[extent.buffer]
        # The in-place allreduce of MSCCL has only one buffer, the input.
        if self.collective.in_place and self.collective.kind == "allreduce" and buffer == "o":
            buffer = "i"
        return (buffer, offset), extent.count // self.chunk

    def _refuse_pieces(self, task: Task) -> NoReturn:
        raise MscclError(
            f"{task} is of several pieces, a step of MSCCL moves one; use an algorithm that "
            f"sends blocks one by one"
        )

    def _number(self, program: dict[tuple[str, int], list[_Entry]]) -> None:
        """Number thread blocks and steps, and add a 'nop' for every wait of a step but one."""
        for number, entries in enumerate(program.values()):
            for at, entry in enumerate(entries):
                entry.block, entry.number = number, at
        for entries in program.values():
            done: dict[int, int] = {}
            for entry in entries:
                # Per block, only the last step that is waited for matters, and only if no
                # earlier step of this block has waited for it.
                latest: dict[int, _Entry] = {}
                for other in entry.waits:
                    if other.number > latest.get(other.block, other).number or (
                        other.block not in latest
                    ):
                        latest[other.block] = other
                entry.waits = [
                    one for one in latest.values() if one.number > done.get(one.block, -1)
                ]
                done |= {one.block: one.number for one in entry.waits}
                for one in entry.waits:
                    one.is_awaited = True
        for block, entries in program.items():
            written = []
            for entry in entries:
                written += [
                    _Entry("nop", ("i", -1), ("o", -1), 0, waits=[other])
                    for other in entry.waits[:-1]
                ]
                entry.waits = entry.waits[-1:]
                written.append(entry)
            for at, entry in enumerate(written):
                entry.number = at
            program[block] = written

    def document(
        self,
        programs: list[dict[tuple[str, int], list[_Entry]]],
        protocol: str,
        between: tuple[int, int] | None,
    ) -> str:
        """Return the XML document."""
        collective, n = self.collective, self.plan.n_ranks
        whole = self.n_chunks * self.chunk * collective.itemsize
        low, high = between or (whole, whole)
        algorithm = self.plan.phases[0].algorithm if len(self.plan.phases) == 1 else ""
        name = quoteattr(f"{NAMES[collective.kind]}_{algorithm or 'collplan'}")
        in_place = int(collective.in_place)
        lines = [
            f'<algo name={name} proto="{protocol}" nchannels="1" nchunksperloop="{self.n_chunks}" '
            f'ngpus="{n}" coll="{NAMES[collective.kind]}" inplace="{in_place}" '
            f'outofplace="{1 - in_place}" minBytes="{low}" maxBytes="{high}">'
        ]
        for gpu, program in enumerate(programs):
            sizes = self.plan.buffer_sizes[gpu] // self.chunk
            chunks = dict(zip("ios", sizes.tolist(), strict=True))
            if in_place and collective.kind == "allreduce":
                chunks |= {"i": chunks["o"], "o": 0}
            words = " ".join(f'{name}_chunks="{size}"' for name, size in chunks.items())
            lines.append(f'  <gpu id="{gpu}" {words}>')
            for number, ((kind, peer), entries) in enumerate(program.items()):
                send, recv = (peer if kind == way else -1 for way in ("send", "recv"))
                lines.append(f'    <tb id="{number}" send="{send}" recv="{recv}" chan="0">')
                lines += [self._step(at, entry) for at, entry in enumerate(entries)]
                lines.append("    </tb>")
            lines.append("  </gpu>")
        return "\n".join([*lines, "</algo>", ""])

    def _step(self, at: int, entry: _Entry) -> str:
        block, step = (entry.waits[0].block, entry.waits[0].number) if entry.waits else (-1, -1)
        (srcbuf, srcoff), (dstbuf, dstoff) = entry.source, entry.dest
        order = "" if entry.order < 0 else f' order="{entry.order}"'
        return (
            f'      <step s="{at}" type="{entry.kind}" srcbuf="{srcbuf}" srcoff="{srcoff}" '
            f'dstbuf="{dstbuf}" dstoff="{dstoff}" cnt="{entry.count}" depid="{block}" '
            f'deps="{step}" hasdep="{int(entry.is_awaited)}"{order}/>'
        )

    def notes(self, programs: list[dict[tuple[str, int], list[_Entry]]]) -> list[str]:
        """Return notes on exceeded limits of MSCCL's runtime, split reductions, and the root."""
        found = []
        steps = [block for program in programs for block in program.values()]
        for what, size, most in (
            ("steps of a thread block", max(map(len, steps), default=0), MAX_STEPS),
            ("chunks of a step", max((e.count for b in steps for e in b), default=0), MAX_COUNT),
            ("thread blocks of a GPU", max(map(len, programs), default=0), MAX_BLOCKS),
        ):
            if size > most:
                found.append(f"{size} {what}, MSCCL's runtime takes {most} unless it is built anew")
        if self.n_split:
            found.append(f"{self.n_split} reductions into a third place are a copy and a reduction")
        root = self.collective.root
        if root:
            found.append(f"the root is {root}, which MSCCL's files do not say")
        return found
