"""From messages and local steps to tasks: rows, columns, landing places, dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.lowering.bounce import arrivals, plan_landings
from collplan.planner.lowering.lower import LocalTable, MessageTable
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.hazards import derive_dependencies
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.pieces import Pieces, running_total
from collplan.planner.plan.plan import NONE, Op, Plan
from collplan.planner.plan.tags import Edges, chain_streams, join_edges, joint_key, number_messages

if TYPE_CHECKING:
    from collplan.planner.arrays import Ints
    from collplan.specs import Machine, PlanSpec


@dataclass(frozen=True)
class Placement:
    """Where ranks live, as arrays by rank."""

    node: Ints
    lane: Ints
    core: Ints
    n_nodes: int

    @classmethod
    def of(cls, machine: Machine) -> Placement:
        """Return the placement a machine spec describes."""
        return cls(
            node=np.array(machine.rank_to_node, dtype=np.int32),
            lane=np.array(machine.rank_to_lane, dtype=np.int16),
            core=np.array(machine.rank_to_core, dtype=np.int32),
            n_nodes=machine.nodes,
        )


@dataclass
class TaskTable:
    """Tasks in any order, one row each.

    `order` sorts rows within a round: sends, receives and what follows from
    their arrival, then local steps.
    """

    op: Ints
    order: Ints
    phase: Ints
    round: Ints
    rank: Ints
    peer: Ints
    tag: Ints
    stream: Ints
    reads: Pieces
    writes: Pieces

    @classmethod
    def stack(cls, tables: list[TaskTable]) -> TaskTable:
        """Return the rows of all tables, one table after another."""
        names = list(vars(tables[0]))
        columns = {name: [getattr(table, name) for table in tables] for name in names}
        stacked: dict[str, Any] = {
            name: csr.stack(parts) if isinstance(parts[0], Pieces) else np.concatenate(parts)
            for name, parts in columns.items()
        }
        return cls(**stacked)

    def take(self, rows: Ints) -> TaskTable:
        """Return the given rows, in the given order."""
        taken: dict[str, Any] = {
            name: column.take(rows) if isinstance(column, Pieces) else column[rows]
            for name, column in vars(self).items()
        }
        return TaskTable(**taken)


def build(
    messages: MessageTable,
    steps: LocalTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec,
    phases: Sequence[Phase],
    only_rank: int | None = None,
    only_node: int | None = None,
    shared_sizes: Ints | None = None,
) -> Plan:
    """Build the plan of lowered components.

    Rows are ordered by round; within a round all sends, then all receives,
    then local steps. A message that would overwrite what its receiver still
    sends or combines in the same round lands in scratch. A rank that only
    receives makes do with a few landing slots: its later receives come after
    the combinations that empty them.

    Parameters
    ----------
    messages, steps : MessageTable, LocalTable
        What `lower` returned.
    placement : Placement
        Where ranks live.
    buffer_sizes : ndarray of int64, shape (n_ranks, 3)
        Elements of the buffers; scratch grows by the landing slots.
    spec : PlanSpec
        Kept with the plan.
    phases : sequence of Phase
        The components.
    only_rank : int, optional
        Build this rank's rows only.
    only_node : int, optional
        Build the rows of this node's ranks only.
    shared_sizes : ndarray of int64, shape (n_nodes,), optional
        Elements of the nodes' shared buffers, where `messages` or `steps` touch them.
    """
    tag, stream = number_messages(messages.source, messages.dest, len(placement.node))
    landing = plan_landings(messages, buffer_sizes)
    arrived = arrivals(messages, landing)
    place: Ints = np.arange(len(placement.node)) if only_node is None else placement.node
    only = only_rank if only_node is None else only_node
    sending = _rows_of(place[messages.source], only)
    receiving = _rows_of(place[messages.dest], only)
    arriving = _rows_of(place[arrived.rank], only)
    send_order = np.zeros_like(landing.recv_order)
    tasks = TaskTable.stack(
        [
            _message_tasks(Op.SEND, messages, send_order, tag, stream, messages.read, sending),
            _message_tasks(
                Op.RECV, messages, landing.recv_order, tag, stream, landing.received, receiving
            ),
            _local_tasks(arrived, landing.arrival_order).take(arriving),
            _local_tasks(steps, np.full(len(steps.rank), landing.last_order)),
        ]
    )
    position = tasks.round.astype(np.int64) * (landing.last_order + 1) + tasks.order
    by_row = np.argsort(position, kind="stable")
    row_of = np.empty_like(by_row)
    row_of[by_row] = np.arange(len(by_row))
    intents = _ordered_after(
        messages, sending, receiving, row_of[: len(sending)], row_of[len(sending) :]
    )
    tasks = tasks.take(by_row)
    del arrived, position, by_row, row_of  # millions of rows each: their room is needed now
    plan = _assemble(tasks, placement, landing.buffer_sizes, spec, phases, only_rank, intents)
    return plan if shared_sizes is None else plan.replace(shared_sizes=shared_sizes)


def _assemble(
    tasks: TaskTable,
    placement: Placement,
    buffer_sizes: Ints,
    spec: PlanSpec,
    phases: Sequence[Phase],
    only_rank: int | None,
    intents: Edges,
) -> Plan:
    """Give tasks in row order their places, lanes, priorities and dependencies.

    `intents` are edges (before, after, kind) between rows that are kept
    beside the hazards; messages of one stream are chained by their starts.
    """
    is_message = tasks.op <= Op.RECV
    peer = np.where(is_message, tasks.peer, tasks.rank)
    dest = np.where(tasks.op == Op.SEND, peer, tasks.rank)
    crosses = placement.node[tasks.rank] != placement.node[peer]
    chains = chain_streams(tasks.op, tasks.rank, tasks.peer, tasks.stream)
    edges = join_edges(chains, intents)
    reads, writes, patterns = csr.to_extents(tasks.reads, tasks.writes)
    n = len(tasks.op)
    return Plan(
        op=tasks.op,
        rank=tasks.rank,
        peer=tasks.peer,
        tag=tasks.tag,
        node=placement.node[tasks.rank],
        lane=np.where(crosses, placement.lane[dest], NONE),
        core=placement.core[tasks.rank],
        phase=tasks.phase,
        round=tasks.round,
        stream=tasks.stream,
        priority=np.where(crosses, 0, 1),
        stage=np.ones(n, dtype=np.int8),
        duration_ns=np.zeros(n, dtype=np.int64),
        reads=reads,
        writes=writes,
        deps=derive_dependencies(tasks.rank, tasks.reads, tasks.writes, placement.node, edges),
        patterns=patterns,
        buffer_sizes=buffer_sizes,
        shared_sizes=np.zeros(placement.n_nodes, dtype=np.int64),
        rank_node=placement.node,
        rank_lane=placement.lane,
        rank_core=placement.core,
        itemsize=spec.collective.itemsize,
        spec=spec,
        only_rank=only_rank,
        phases=tuple(phases),
    )


def _rows_of(place: Ints, only: int | None) -> Ints:
    return np.arange(len(place)) if only is None else np.flatnonzero(place == only)


def _message_tasks(
    op: Op,
    messages: MessageTable,
    order: Ints,
    tag: Ints,
    stream: Ints,
    extents: Pieces,
    rows: Ints,
) -> TaskTable:
    n = len(rows)
    own, other = messages.source[rows], messages.dest[rows]
    if op is Op.RECV:
        own, other = other, own
    moved, nothing = extents.take(rows), csr.empty(n)
    return TaskTable(
        op=np.full(n, op, dtype=np.int8),
        order=order[rows],
        phase=messages.phase[rows],
        round=messages.round[rows],
        rank=own,
        peer=other,
        tag=tag[rows],
        stream=stream[rows],
        reads=moved if op is Op.SEND else nothing,
        writes=nothing if op is Op.SEND else moved,
    )


def _local_tasks(steps: LocalTable, order: Ints) -> TaskTable:
    none = np.full(len(steps.rank), NONE, dtype=np.int32)
    return TaskTable(
        op=steps.op,
        order=order,
        phase=steps.phase,
        round=steps.round,
        rank=steps.rank,
        peer=none,
        tag=none,
        stream=none,
        reads=steps.read,
        writes=steps.write,
    )


def _ordered_after(
    messages: MessageTable, sending: Ints, receiving: Ints, send_row: Ints, recv_row: Ints
) -> Edges:
    """Make every ordered send wait for what its rank received in earlier rounds."""
    send_row = send_row[messages.ordered[sending]]
    sending = sending[messages.ordered[sending]]
    is_ordered = messages.ordered[receiving]
    recv_row = recv_row[: len(receiving)][is_ordered]
    receiving = receiving[is_ordered]
    n_rounds = int(messages.round.max(initial=0)) + 1
    arrival = joint_key(messages.dest[receiving], messages.round[receiving], n_rounds)
    order = np.argsort(arrival, kind="stable")
    rank = joint_key(messages.source[sending], np.zeros_like(sending), n_rounds)
    first = np.searchsorted(arrival[order], rank)
    n = np.searchsorted(arrival[order], rank + messages.round[sending]) - first
    starts = running_total(n)
    index = np.repeat(first - starts[:-1], n) + np.arange(starts[-1])
    before, after = recv_row[order[index]], np.repeat(send_row, n)
    return before, after, np.zeros(len(before), dtype=np.int8)
