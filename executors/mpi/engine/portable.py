"""Programs for processes without Python, which contain all that the compiled loop needs.

Such a program contains no addresses. The process that receives it adds the addresses of its own
memory and functions, and its handles of MPI.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.executors.mpi.engine.loop_memory import LoopMemory
from collplan.executors.mpi.engine.node_memory import LINE_BYTES, WORD_BYTES, layout_of
from collplan.executors.mpi.errors import UnsupportedPlanError
from collplan.executors.mpi.host.cores import Crowding
from collplan.executors.mpi.host.waiting import sleep_between_polls
from collplan.executors.mpi.loop.records import CALL, IDLING, STATE, TASK, words
from collplan.executors.mpi.program.calls import calls_in_order, check_counts, n_elements
from collplan.executors.mpi.program.local_tasks import LEFT_STAGE, RIGHT_STAGE
from collplan.executors.mpi.program.messages import LARGEST_COUNT
from collplan.executors.mpi.program.program import Program
from collplan.planner.arrays import Array, Longs
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.ragged import Extents
from collplan.planner.plan.tags import MAX_TAGS

MESSAGE: Final = words("task", "spans", "first_extent", "n_extents")
"""Record of a message that is not contiguous: its task, whether it spans buffers, and its parts."""
PART: Final = words(
    *("buffer", "offset", "outer_repeat", "inner_repeat", "count", "outer_stride", "inner_stride")
)
"""Record of an extent of such a message.

`count` is the number of contiguous elements, and the repeats are numbers, too. The offset and the
strides are in bytes.
"""
HEAD: Final = words(
    *("image_bytes", "n_relocations", "n_messages", "n_parts"),
    *("item_bytes", "sent_bytes", "received_bytes", "scratch_bytes"),
    *("skip_bytes", "largest_tag", "shares"),
    *("shared_bytes", "buffer_at", "own_counter", "own_flags", "n_sharing"),
    *("n_calls", "n_members"),
)
"""Head of a portable program.

It is followed by relocations, messages, parts, native calls, members of their groups, and the
image, whose sizes it contains.
"""
NATIVE_CALL: Final = words(
    *("row", "kind", "root", "first_member", "n_members"),
    *("n_read", "n_written", "has_sent", "has_received"),
)
"""Record of a call of MPI's own collective: its row in the table of calls, its kind in
`NATIVE_KINDS`, the position of its root or -1, its group, and the numbers of elements that this
rank reads and writes."""
NATIVE_KINDS: Final = (
    *("barrier", "bcast", "reduce", "allreduce", "gather", "scatter", "allgather"),
    *("alltoall", "reduce_scatter_block", "scan", "exscan"),
)
"""Kinds of such calls, in the order of their numbers in the library.

The numbers of the kinds with counts per rank follow; see `collplan.preload.helper.KINDS`.
"""
_FIXED_FIELDS: Final = (
    *("tasks", "before", "n_before", "on_start", "on_completion", "bases"),
    *("messages", "local", "held", "first_messages", "first_local", "first_held"),
    *("requests", "active", "finished", "statuses", "waiting", "first_waiting", "next_wait"),
    *("probed", "locals", "reads", "writes", "cursors", "stage_extents", "now", "sleep"),
    *("idling", "caller_idling", "thread_idling", "deadline", "hold_until", "waits", "calls"),
)
"""Fields of the loop's state that contain addresses in its own arrays."""


@dataclass(frozen=True, slots=True)
class Node:
    """The ranks of a node that share memory in a plan.

    Parameters
    ----------
    ranks : sequence of int
        Ranks of the node, ascending.
    awaited : sequence of int
        Number of awaited tasks of each rank.
    """

    ranks: Sequence[int]
    awaited: Sequence[int]


def portable(
    plan: Plan,
    program: Program,
    rank: int,
    node: Node | None,
    crowding: Crowding,
    skip_bytes: int,
) -> bytes:
    """Return a rank's program in a form for processes without Python.

    Parameters
    ----------
    plan : Plan
        Plan of all ranks, or this rank's program.
    program : Program
        This rank's tasks.
    rank : int
        This rank.
    node : Node, optional
        Ranks of the node that share memory, if the plan uses shared memory.
    crowding : Crowding
        Sharing of cores by ranks.
    skip_bytes : int
        Offset of the rank's input in the receive buffer in bytes, for MPI_IN_PLACE.

    Raises
    ------
    UnsupportedPlanError
        If the plan requires Python.
    """
    memory = LoopMemory(program)
    calls, members = _describe_calls(memory, plan, program)
    memory.set_idling(sleep_between_polls(crowding.ranks_per_core), crowding.yields_help)
    head = np.zeros(1, HEAD)
    sizes = plan.buffer_sizes[rank] * plan.itemsize
    head["sent_bytes"], head["received_bytes"], head["scratch_bytes"] = sizes.tolist()
    head["item_bytes"], head["skip_bytes"] = plan.itemsize, skip_bytes
    head["largest_tag"] = int(program.tag.max(initial=0))
    flags: Longs = np.zeros(0, np.int64)
    if node is not None:
        flags = _share(memory, head, plan, program, rank, node)
    messages, parts = _describe(memory, program)
    image = memory.image(*_FIXED_FIELDS)
    relocations = [image.relocations]
    bases = image.places[memory.get("bases")]
    for number in (LEFT_STAGE, RIGHT_STAGE):
        relocations.append(
            np.array([[bases + 8 * number, image.places[memory.bases[number]]]], np.int64)
        )
    # A negative target stands for an offset in the memory that the ranks of the node share.
    waits = image.places[memory.get("waits")] if node is not None else 0
    places = waits + WORD_BYTES * np.arange(len(flags))
    relocations.append(np.stack([places, -1 - flags], axis=1))
    everything = np.concatenate(relocations).astype(np.int64)
    head["image_bytes"], head["n_relocations"] = len(image.memory), len(everything)
    head["n_messages"], head["n_parts"] = len(messages), len(parts)
    head["n_calls"], head["n_members"] = len(calls), len(members)
    pieces = head, everything, messages, parts, calls, members, image.memory
    return b"".join(piece.tobytes() for piece in pieces)


def header() -> str:
    """Return declarations in C of the records and constants that C and Python share."""
    structs = {
        "cp_state": STATE,
        "cp_task": TASK,
        "cp_message": MESSAGE,
        "cp_part": PART,
        "cp_head": HEAD,
        "cp_idling": IDLING,
        "cp_native_call": NATIVE_CALL,
        "cp_native_row": CALL,
    }
    lines = ["#include <stdint.h>", f"#define CP_MAX_TAGS {MAX_TAGS}"]
    for name, dtype in structs.items():
        lines.append(f"struct {name} {{")
        fields: Any = dtype.fields
        lines += [f"    int{8 * fields[one][0].itemsize}_t {one};" for one in dtype.names or ()]
        lines.append("};")
        lines.append(f'_Static_assert(sizeof(struct {name}) == {dtype.itemsize}, "{name}");')
    return "\n".join(lines) + "\n"


def _share(
    memory: LoopMemory, head: Array, plan: Plan, program: Program, rank: int, node: Node
) -> Longs:
    """Lay out the shared memory of the node; return the offsets of awaited flags in bytes."""
    flags_at, buffer_at = layout_of(node.awaited)
    position = list(node.ranks).index(rank)
    own_node = plan.rank_node[rank]
    size = int(plan.shared_sizes[own_node]) * plan.itemsize
    head["shares"], head["n_sharing"] = 1, len(node.ranks)
    head["buffer_at"] = buffer_at
    head["shared_bytes"] = -(-(buffer_at + size) // mmap.PAGESIZE) * mmap.PAGESIZE
    head["own_counter"], head["own_flags"] = position * LINE_BYTES, flags_at[position]
    memory.set(n_sharing=len(node.ranks))
    place = np.searchsorted(node.ranks, program.sharing.rank)
    flags: Longs = flags_at[place] + program.sharing.flag * WORD_BYTES
    memory.place(waits=np.zeros(len(flags), np.int64))
    return flags


def _describe_calls(memory: LoopMemory, plan: Plan, program: Program) -> tuple[Array, Longs]:
    """Place the table of native calls in memory; return their records and groups."""
    check_counts(program)
    made = calls_in_order(plan, program)
    table = np.zeros(len(made), CALL)
    table["sent_at"] = table["received_at"] = NONE
    found, members = np.zeros(len(made), NATIVE_CALL), list[int]()
    for record, (row, task, kind, call) in zip(found, made, strict=True):
        root = int(program.peer[task])
        record["row"], record["kind"] = row, NATIVE_KINDS.index(kind)
        record["root"] = NONE if root == NONE else call.members.index(root)
        record["first_member"], record["n_members"] = len(members), len(call.members)
        members += call.members
        for side, place, number in (
            (program.reads, "sent", "n_read"),
            (program.writes, "received", "n_written"),
        ):
            record[number] = n_elements(side, task)
            begin, end = side.indptr[task : task + 2].tolist()
            record[f"has_{place}"] = begin < end
            if begin < end:
                table[f"{place}_buffer"][row] = side.buffer[begin]
                table[f"{place}_offset"][row] = side.offset[begin] * program.itemsize
    if made:
        memory.call(table)
    return found, np.array(members, np.int64)


def _describe(memory: LoopMemory, program: Program) -> tuple[Array, Array]:
    """Fill in the fields of contiguous messages; return the other messages and their parts."""
    rows, itemsize = memory.tasks, program.itemsize
    rows["peer"][:-1], rows["tag"][:-1] = program.peer, program.tag
    messages: list[tuple[int, ...]] = []
    parts: list[tuple[int, ...]] = []
    for op, extents in ((Op.SEND, program.reads), (Op.RECV, program.writes)):
        for task in np.flatnonzero(program.op == op).tolist():
            own = _parts_of(extents, task, program.patterns, itemsize)
            _refuse_large(own)
            buffers = {part[0] for part in own}
            first = own[0] if own else (0, 0, 1, 1, 0, 0, 0)
            rows["buffer"][task], rows["offset"][task] = first[:2]
            if len(own) <= 1 and first[2:4] == (1, 1):
                rows["count"][task] = first[4]
                continue
            rows["count"][task] = 1
            messages.append((task, int(len(buffers) > 1), len(parts), len(own)))
            parts += own
    return np.array(messages, MESSAGE), np.array(parts, PART)


def _parts_of(extents: Extents, task: int, patterns: Any, itemsize: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for i in range(int(extents.indptr[task]), int(extents.indptr[task + 1])):
        if extents.count[i] > 0:
            stride0, repeat0, stride1, repeat1 = patterns[extents.pattern[i]].tolist()
            place = int(extents.buffer[i]), int(extents.offset[i]) * itemsize
            strides = stride1 * itemsize, stride0 * itemsize
            found.append((*place, repeat1, repeat0, int(extents.count[i]), *strides))
    return found


def _refuse_large(parts: list[tuple[int, ...]]) -> None:
    most = max((max(part[2:5]) for part in parts), default=0)
    if most > LARGEST_COUNT:
        raise UnsupportedPlanError(f"a message has {most} elements, more than an int counts")
