"""Conversion of MSCCL schedules to plans: tasks, and the memory that they access."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.collective.buffers import buffer_sizes
from collplan.planner.errors import DeadlockError, MatchError
from collplan.planner.formats.msccl_read import MscclError, read_schedule
from collplan.planner.formats.msccl_schedule import RECEIVES, SENDS, Order, Place, Schedule, Step
from collplan.planner.plan.assembly import RankPlaces, assemble
from collplan.planner.plan.hazards import derive_dependencies
from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.origin import KnownSpec
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces, contiguous
from collplan.planner.plan.plan import NONE, Buffer, Op, Plan
from collplan.planner.plan.ragged import Dependencies
from collplan.planner.plan.tags import MAX_TAGS
from collplan.planner.verify.order import completion_order
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError, SpecError
from collplan.specs.explaining import explaining

KINDS: Final = {
    "allreduce": "allreduce",
    "allgather": "allgather",
    "alltoall": "alltoall",
    "reducescatter": "reduce_scatter_block",
    "reduce_scatter": "reduce_scatter_block",
    "broadcast": "bcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""Kinds of collectives by their names in MSCCL's runtime and in msccl-tools."""
BLOCKS: Final = ("allgather", "alltoall", "reduce_scatter_block", "gather", "scatter")
"""Kinds whose count is the number of elements of one rank's block."""
IN_PLACE: Final = ("allreduce", "allgather", "alltoall")
"""Kinds whose in-place forms are the same in MSCCL and MPI."""
_UNSAID: Final = re.compile(r"[^\w.+-]+")
_LONGEST_NAME: Final = 60


def read_msccl(
    path: str | Path,
    *,
    machine: Machine | None = None,
    count: int | None = None,
    datatype: str = "float32",
    op: str = "sum",
    root: int = 0,
) -> Plan:
    """Read a schedule in MSCCL's XML as a plan.

    Parameters
    ----------
    path : str or Path
    machine : Machine, optional
        Machine whose ranks are the GPUs; one node by default.
    count : int, optional
        Count of the collective, in elements; by default, each chunk has one element.
    datatype, op : str
        Datatype, and operation of reductions, which MSCCL's files do not state.
    root : int
        Root of rooted collectives, which MSCCL's files do not state.

    Returns
    -------
    Plan
        Plan of the file's collective, which is not verified. If the collective has no
        equivalent in MPI, such as ``custom``, the plan has bytes as elements and no spec.

    Raises
    ------
    MscclError
        If the file is not a valid schedule. The message has file and line, problem, and remedy.
    DeadlockError
        If steps wait for each other.
    CollplanError
        If machine, count, datatype or operation do not fit the schedule.

    References
    ----------
    Cowan, Maleki, Musuvathi, Saarikivi, Xiong, "MSCCLang: Microsoft Collective Communication
    Language", ASPLOS 2023, section 4.
    """
    return plan_of(
        read_schedule(path),
        str(path),
        machine=machine,
        count=count,
        datatype=datatype,
        op=op,
        root=root,
    )


def plan_of(
    schedule: Schedule,
    path: str,
    *,
    machine: Machine | None = None,
    count: int | None = None,
    datatype: str = "float32",
    op: str = "sum",
    root: int = 0,
) -> Plan:
    """Return the plan of a schedule that has been read from a file; see `read_msccl`.

    GPUs become ranks. A fused step of MSCCL becomes several tasks: a receive, a reduction and a
    send. Thread blocks and channels are not kept. The plan keeps the order of steps only between
    conflicting accesses to memory. If the file does not order two such accesses, the plan does
    not order them either, so that verification finds the race.
    """
    try:
        order = schedule.order()
    except DeadlockError as error:
        raise DeadlockError(f"{path}: {error}") from None
    if machine is None:
        machine = Machine(ranks_per_node=schedule.n_gpus)
    if machine.n_ranks != schedule.n_gpus:
        raise SpecError(
            f"machine: has {machine.n_ranks} ranks, {path} is for {schedule.n_gpus} GPUs; "
            f"give one of as many"
        )
    spec, elements = _spec_of(schedule, path, machine, count, datatype, op, root)
    memory = _ChunkMemory(schedule, path, spec, elements)
    plan = _Builder(schedule, order, memory, machine, frozenset()).plan()
    landed = _overtaken(plan)
    return _Builder(schedule, order, memory, machine, landed).plan() if landed else plan


def _overtaken(plan: Plan) -> frozenset[tuple[int, int, int]]:
    """Return the messages to be received in scratch, as source, destination and tag.

    In MSCCL, sends do not wait for their receives. If the plan deadlocks because they do in a
    rendezvous, the result has all messages whose receives wait for a send.
    """
    try:
        completion_order(plan, *match_messages(plan))
    except MatchError:
        return frozenset()  # verification reports the mistake
    except DeadlockError:
        pass
    else:
        return frozenset()
    after = plan.deps.owner()
    waits = after[(plan.op[plan.deps.task] == Op.SEND) & (plan.op[after] == Op.RECV)]
    columns = (plan.peer[waits], plan.rank[waits], plan.tag[waits])
    return frozenset(zip(*(column.tolist() for column in columns), strict=True))


def _spec_of(
    schedule: Schedule,
    name: str,
    machine: Machine,
    count: int | None,
    datatype: str,
    op: str,
    root: int,
) -> tuple[PlanSpec | None, int]:
    """Return the spec of a schedule's collective, and the number of elements per chunk."""
    kind = KINDS.get(schedule.collective)
    if kind is None:
        return None, 1 if count is None else count
    in_place = schedule.is_in_place and kind != "bcast"
    if in_place and kind not in IN_PLACE:
        raise MscclError(
            f"{name}: {schedule.collective} in place, which MSCCL does in another way than MPI; "
            f"give a schedule out of place"
        )
    unit, n = schedule.n_chunks, schedule.n_gpus
    if kind in BLOCKS:
        if unit % n:
            raise MscclError(
                f"{name}: nchunksperloop is {unit}, which {n} GPUs do not divide; give a multiple"
            )
        unit //= n
    count = unit if count is None else count
    if count % unit:
        raise CollplanError(
            f"count: {count} elements, {name} divides them into {unit} equal chunks; "
            f"give a multiple of {unit}"
        )
    given: dict[str, Any] = {"kind": kind, "count": count, "datatype": datatype, "op": op}
    given |= {"root": root, "in_place": in_place}
    from collplan.specs.collectives.collective import COLLECTIVES, validate_collective

    known = COLLECTIVES[kind].model_fields
    with explaining():
        collective = validate_collective({k: v for k, v in given.items() if k in known})
        return PlanSpec(machine=machine, collective=collective), count // unit


class _ChunkMemory:
    """Location of MSCCL's chunks in the buffers of a plan."""

    def __init__(self, schedule: Schedule, name: str, spec: PlanSpec | None, elements: int) -> None:
        self.schedule, self.name, self.spec, self.elements = schedule, name, spec, elements
        chunks = [schedule.chunks[gpu] for gpu in range(schedule.n_gpus)]
        scratch = [elements * one["s"] for one in chunks]
        if spec is None:
            sizes = [[elements * one["i"], elements * one["o"]] for one in chunks]
            self.sizes = np.column_stack((np.array(sizes).reshape(-1, 2), scratch))
            return
        self.sizes = np.column_stack((*buffer_sizes(spec.collective, schedule.n_gpus), scratch))

    def find(self, gpu: int, place: Place, count: int, line: int) -> tuple[int, int, int]:
        """Return the buffer, offset and number of elements of some chunks.

        Raises
        ------
        MscclError
            If the buffer of the collective does not have these elements.
        """
        buffer, chunk = place
        where, offset, length = Buffer.SCRATCH, chunk * self.elements, count * self.elements
        if buffer != "s":
            where = Buffer.SEND if buffer == "i" else Buffer.RECV
            if self.spec is not None and buffer == "i":
                collective = self.spec.collective
                if collective.in_place or collective.kind == "bcast":
                    where = Buffer.RECV
                if collective.in_place and collective.kind == "allgather":
                    offset += gpu * collective.count
            if offset + length > self.sizes[gpu, where]:
                raise MscclError(
                    f"{self.name}:{line}: chunk {chunk + count - 1} of buffer '{buffer}' of gpu "
                    f"{gpu} lies outside of what {self.schedule.collective} has there; stay "
                    f"inside, or correct nchunksperloop"
                )
        return int(where), offset, length


class _Builder:
    """Tasks of the steps of a schedule, in an order in which they can run."""

    def __init__(
        self,
        schedule: Schedule,
        order: Order,
        memory: _ChunkMemory,
        machine: Machine,
        landed: frozenset[tuple[int, int, int]],
    ) -> None:
        self.schedule, self.order, self.memory, self.machine = schedule, order, memory, machine
        self.landed = landed
        self.scratch = memory.sizes[:, Buffer.SCRATCH].astype(np.int64)
        self.columns: dict[str, list[int]] = defaultdict(list)
        self.accesses: tuple[list[list[tuple[int, int, int]]], ...] = ([], [])
        self.tags: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
        self.messages = schedule.messages()

    def plan(self) -> Plan:
        for at, (place, number) in enumerate(self.order.steps):
            self._add_step(at, place, number)
        reads, writes = (self._pieces(side) for side in self.accesses)
        columns: dict[str, Any] = {
            name: np.array(self.columns[name], dtype=np.int64)
            for name in ("op", "rank", "peer", "tag", "round", "at")
        }
        at = columns.pop("at")
        placement, spec = RankPlaces.of(self.machine), self.memory.spec
        derived = derive_dependencies(columns["rank"], reads, writes, placement.node)
        sizes = self.memory.sizes.copy()
        sizes[:, Buffer.SCRATCH] = self.scratch
        name = _UNSAID.sub("_", self.schedule.name)[:_LONGEST_NAME] or "msccl"
        kind = self.schedule.collective if spec is None else spec.collective.kind
        return assemble(
            placement,
            columns,
            reads,
            writes,
            self._kept(derived, at),
            buffer_sizes=sizes,
            itemsize=1 if spec is None else spec.collective.itemsize,
            origin=None if spec is None else KnownSpec(spec),
            phases=(Phase(_UNSAID.sub("_", kind)[:_LONGEST_NAME], name),),
        )

    def _pieces(self, side: list[list[tuple[int, int, int]]]) -> Pieces:
        indptr = csr.running_total(np.array([len(one) for one in side], dtype=np.int64))
        flat = np.array([piece for one in side for piece in one], dtype=np.int64).reshape(-1, 3)
        buffer, offset, count = flat.T.copy()
        return contiguous(indptr, buffer.astype(np.int8), offset, count)

    def _kept(self, derived: Dependencies, at: Ints) -> Dependencies:
        """Return the derived dependencies that the schedule also enforces; others are races."""
        after, before = at[derived.owner()], at[derived.task]
        steps = np.array(self.order.steps, dtype=np.int64).reshape(-1, 2)
        block, number = steps[before].T
        kept: Bools = self.order.clocks[after, block] >= number
        indptr = csr.indptr_of(derived.owner()[kept], len(at))
        return Dependencies(indptr, derived.task[kept], derived.kind[kept])

    def _add_step(self, at: int, place: int, number: int) -> None:
        block = self.schedule.blocks[place]
        step = block.steps[number]
        if step.kind == "nop":
            return
        gpu = block.gpu
        source = self._chunks(gpu, step, step.source, is_used=step.kind not in ("r", "rcs"))
        dest = self._chunks(gpu, step, step.dest, is_used=step.kind not in ("s", "rrs"))
        if step.kind in ("cpy", "re"):
            self._add_local(at, place, number, source, dest)
            return
        sent = source
        if step.kind in RECEIVES:
            sent = self._receive(at, gpu, step, source, dest, self.messages[place, number])
        if step.kind in SENDS:
            message = self.messages[-1 - place, number]
            self._add(at, Op.SEND, gpu, [sent], [], message[1], self._tag(message))

    def _add_local(
        self,
        at: int,
        place: int,
        number: int,
        source: tuple[int, int, int],
        dest: tuple[int, int, int],
    ) -> None:
        """Add a copy or a reduction; a copy that is joined to a reduction adds nothing."""
        block = self.schedule.blocks[place]
        if block.steps[number].kind == "re":
            left = dest
            if number and self.schedule.is_joined(place, number - 1):
                copied = block.steps[number - 1]
                left = self._chunks(block.gpu, copied, copied.source, is_used=True)
            self._add(at, Op.REDUCE, block.gpu, [left, source], [dest])
        elif source != dest and not self.schedule.is_joined(place, number):
            self._add(at, Op.COPY, block.gpu, [source], [dest])

    def _receive(
        self,
        at: int,
        gpu: int,
        step: Step,
        source: tuple[int, int, int],
        dest: tuple[int, int, int],
        message: tuple[int, int, int, int],
    ) -> tuple[int, int, int]:
        """Add the tasks by which a step receives and processes data; return the result's place."""
        tag, reduces = self._tag(message), "rr" in step.kind
        # If the result does not overlap the operand, the data may be received in its place.
        aside = reduces and (step.kind == "rrs" or _overlap(source, dest))
        lands = aside or (message[0], message[1], tag) in self.landed
        place = dest
        if lands:
            length = step.n_chunks * self.memory.elements
            place = (int(Buffer.SCRATCH), int(self.scratch[gpu]), length)
            self.scratch[gpu] += length
        self._add(at, Op.RECV, gpu, [], [place], message[0], tag)
        result = place if step.kind == "rrs" else dest
        if reduces:
            self._add(at, Op.REDUCE, gpu, [source, place], [result])
        elif lands:
            self._add(at, Op.COPY, gpu, [place], [dest])
        return result

    def _chunks(self, gpu: int, step: Step, place: Place, *, is_used: bool) -> tuple[int, int, int]:
        if not is_used:
            return (NONE, 0, 0)
        return self.memory.find(gpu, place, step.n_chunks, step.line)

    def _add(
        self,
        at: int,
        op: Op,
        rank: int,
        reads: list[tuple[int, int, int]],
        writes: list[tuple[int, int, int]],
        peer: int = NONE,
        tag: int = NONE,
    ) -> None:
        values = {
            "op": int(op),
            "rank": rank,
            "peer": peer,
            "tag": tag,
            "round": self.order.depth[at],
            "at": at,
        }
        for name, value in values.items():
            self.columns[name].append(value)
        for side, pieces in zip(self.accesses, (reads, writes), strict=True):
            side.append(pieces)

    def _tag(self, message: tuple[int, int, int, int]) -> int:
        """Return the tag of a message, which is unique among the messages of the pair of ranks."""
        source, dest, channel, number = message
        tags = self.tags[source, dest]
        tag = tags.setdefault((channel, number), len(tags))
        if tag >= MAX_TAGS:
            raise MscclError(
                f"{self.memory.name}: gpu {source} sends more than {MAX_TAGS} messages to gpu "
                f"{dest}; send larger ones"
            )
        return tag


def _overlap(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[1] + other[2] and other[1] < one[1] + one[2]
