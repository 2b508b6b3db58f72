"""Tables of the simulator, which its kernels read and modify."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Floats, Ints
from collplan.planner.machine_code.kernel import compile_with
from collplan.planner.plan.plan import Plan
from collplan.specs import Network

Records = npt.NDArray[Any]
"""An array of one of the tables' row types."""

inner = compile_with(is_inner=True, _nrt=False)
"""Compile a function for the simulator's loop, without reference counts.

Reference counts would take nine tenths of the time. Compiled functions cannot allocate arrays.
"""

inlined = compile_with(is_inner=True, _nrt=False, forceinline=True)
"""Compile like `inner`, and inline every call, as passing many arrays would dominate its cost."""

_TASK: Final = np.dtype(
    [
        ("work", "f8"),  # bytes, or ns for a computation
        ("start", "f8"),  # before the task runs: the time from which predecessors allow it
        ("end", "f8"),
        ("queue", "i4"),
        ("partner", "i4"),  # the other end of a message
        ("far_queue", "i4"),  # the queue of the other end
        ("following", "i4"),  # next task in the queue; after a send, the message's cause of waiting
        ("pending", "i4"),  # number of predecessors that are not done
        ("successors", "i4"),  # range of its entries in the table of successors
        ("end_successors", "i4"),
        ("stamp", "i4"),  # order of readiness; after a send has run, that of its message
        ("cause", "i4"),  # the task for which it waited; -1 if it did not wait
        ("reason", "i1"),  # what of that task it waited for
        ("op", "i1"),
        ("link", "i1"),
        ("state", "u1"),
    ],
    align=True,
)
_FIELDS: Final[dict[str, Any]] = dict(_TASK.fields or {})
TASK: Final = np.dtype(
    {
        "names": [*_FIELDS, "arrival"],
        "formats": [*(field[0] for field in _FIELDS.values()), "f8"],
        "offsets": [*(field[1] for field in _FIELDS.values()), _FIELDS["far_queue"][1]],
        "itemsize": _TASK.itemsize,
    },
    align=True,
)
"""A task, which fills one cache line.

Receives are in no queue, so the time at which their message arrives has the place of `far_queue`
and `following`.
"""
STARTED, ENDED, HELD, MATCHED, POSTED = range(5)
"""Reasons: the start or the completion of a predecessor; the core or lane that a task held, or
that a send held until its match; the posting of the receive that answered a request to send."""
CLOCK: Final = np.dtype(
    [
        ("time", "f8"),
        ("busy", "f8"),
        ("event_time", "f8"),  # time of the line's event, infinite if it has none
        ("event_stamp", "i4"),
        ("first", "i4"),  # ends of the line: queues that wait for this lane, by stamp
        ("last", "i4"),
        ("candidate", "i4"),  # queue of the line's event
        ("holder", "i4"),
        ("rank", "i4"),  # rank of a core's last task, if switching between ranks has a cost
        ("unused", "i8", 2),
    ],
    align=True,
)
"""A core, one direction of a lane or port, a memory, or a processor.

`holder` is the row of the task that advanced the clock last, or ``-2 - row`` if this was the match
of rendezvous send `row`; it is -1 initially.
"""
QUEUE: Final = np.dtype(
    [
        ("pace", "f8"),  # time per byte relative to the fastest lane
        ("core", "i4"),  # clock of the core that does the work
        ("awaits", "i4"),  # clock that has to be free: that of the core, or the unused one
        ("lane", "i4"),
        ("rank", "i4"),
        ("node", "i4"),
        ("first", "i4"),  # ends of the list of tasks, linked by `following`
        ("last", "i4"),
        ("stamp", "i4"),  # stamp of the first task
        ("next", "i4"),  # neighbors in the line of the lane
        ("previous", "i4"),
        ("unused", "i8", 2),
    ],
    align=True,
)
"""Tasks of a rank that wait for one core and one direction of a lane."""
ENTRY: Final = np.dtype([("time", "f8"), ("key", "i8")])
"""An event of the event queue; the key consists of its stamp and its id."""
RUN: Final = np.dtype(
    [
        ("head_time", "f8"),
        ("tail_time", "f8"),
        ("head_stamp", "i4"),
        ("tail_stamp", "i4"),
        ("first", "i8"),
        ("length", "i8"),
        ("capacity", "i8"),
    ],
    align=True,
)
"""A sorted run of events in a ring buffer, or the heap."""


_LINE: Final = 64
"""Size of a cache line in bytes."""


def table_of(n_rows: int, dtype: np.dtype[Any]) -> Records:
    """Return a table of zeros that is aligned to cache lines."""
    space = np.zeros(n_rows * dtype.itemsize + _LINE, dtype=np.uint8)
    begin = -space.ctypes.data % _LINE
    return space[begin : begin + n_rows * dtype.itemsize].view(dtype)


def copy_of(rows: Records) -> Records:
    """Return a copy of rows that is aligned to cache lines."""
    table = table_of(len(rows), rows.dtype)
    table[:] = rows
    return table


class Simulation(NamedTuple):
    """The tables of one simulation.

    Parameters
    ----------
    tasks : ndarray of TASK
        One row per task, or per piece of a task.
    successors : ndarray of int32
        Successors of tasks, see `link_dependencies`.
    clocks, queues : ndarray of CLOCK and QUEUE
        Resources, and tasks that wait for them.
    runs, entries : ndarray of RUN and ENTRY
        Event queue, see `make_event_queue`.
    counters : ndarray of int64, shape (4,)
        Counters of the event loop.
    stamps : ndarray of int32, shape (n_nodes,)
        Last stamp of each node. If all nodes share one count, only the first entry is used.
    is_by_node : bool
        Whether each node counts its own stamps, so that nodes that do the same get equal stamps.
    recent : ndarray of int32, shape (N_RECENT,)
        Ring buffer of the last sends.
    layout : ClockOffsets
        Offset of each kind of resource in `clocks`.
    links, costs : ndarray of records
        Tables of `link_table` and `cost_table`.
    connections, adapters : ndarray of CONNECTION and ADAPTER
        Tables of `make_connections`.
    request_delays : ndarray of float64
        Additional latency of each send's request, and of its answer, over a topology, in ns;
        empty if there is none.
    """

    tasks: Records
    successors: Ints
    clocks: Records
    queues: Records
    runs: Records
    entries: Records
    counters: Ints
    stamps: Ints
    is_by_node: bool
    recent: Ints
    layout: ClockOffsets
    links: Records
    costs: Records
    connections: Records
    adapters: Records
    request_delays: Floats


@dataclass(frozen=True, slots=True)
class Resource:
    """A core, one direction of a lane of a node or of a rank's port, or a shared processor.

    Parameters
    ----------
    kind : "core", "lane", "port" or "processor"
        Kind of the resource.
    place : int
        Node of a core or lane, rank of a port, 0 for a processor.
    index : int
        Index of a core or lane on its node.
    direction : "out", "in" or ""
        Direction of a lane or port.
    """

    kind: Literal["core", "lane", "port", "processor"]
    place: int
    index: int = 0
    direction: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields that apply to the kind, as values for JSON."""
        fields: dict[str, dict[str, Any]] = {
            "core": {"node": self.place, "core": self.index},
            "lane": {"node": self.place, "lane": self.index, "direction": self.direction},
            "port": {"rank": self.place, "direction": self.direction},
        }
        return {"kind": self.kind} | fields.get(self.kind, {})


class ClockOffsets(NamedTuple):
    """Offset of each kind of resource in the table of clocks.

    Parameters
    ----------
    n_nodes, n_cores, n_lanes, n_ranks : int
        Number of nodes, cores per node, lanes per node, and ranks.
    lane_out, lane_in : int
        First clock of the sending and of the receiving sides of lanes. The clocks of cores
        precede them, by node.
    port_out, port_in : int
        First clock of the sending and of the receiving sides of the ranks' ports, for messages
        inside a node.
    memory, processor : int
        First clock of the memories of nodes, and of the processors that all cores share. There
        are none if each core has a processor of its own.
    unused : int
        Last clock, which never advances, for tasks without a core or a lane.
    """

    n_nodes: int
    n_cores: int
    n_lanes: int
    n_ranks: int
    lane_out: int
    lane_in: int
    port_out: int
    port_in: int
    memory: int
    processor: int
    unused: int

    @classmethod
    def of(cls, plan: Plan, network: Network | None = None) -> ClockOffsets:
        """Return the clocks for the resources that a plan uses.

        Parameters
        ----------
        plan : Plan
        network : Network or None
            Network whose processors the cores share; None if each core has a processor of its own.

        Returns
        -------
        ClockOffsets
        """
        nodes, ranks = plan.n_nodes, plan.n_ranks
        n_cores = 1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0)))
        n_lanes = 1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0)))
        # A core runs one task at a time, so more processors than cores make no difference.
        n_processors = min((network and network.processors) or 0, nodes * n_cores)
        lanes = nodes * n_lanes
        sizes = (nodes * n_cores, lanes, lanes, ranks, ranks, nodes, n_processors)
        return cls(nodes, n_cores, n_lanes, ranks, *accumulate(sizes))

    def resource(self, clock: int) -> Resource:
        """Return the resource of a clock; a memory is returned as a processor."""
        if clock < self.lane_out:
            return Resource("core", *divmod(clock, self.n_cores))
        if clock < self.port_out:
            side, lane = divmod(clock - self.lane_out, self.lane_in - self.lane_out)
            return Resource("lane", *divmod(lane, self.n_lanes), ("out", "in")[side])
        if clock < self.memory:
            side, rank = divmod(clock - self.port_out, self.n_ranks)
            return Resource("port", rank, 0, ("out", "in")[side])
        return Resource("processor", 0)

    def make(self) -> Records:
        """Return the table of all clocks, which are at 0."""
        clocks = table_of(self.unused + 1, CLOCK)
        clocks["holder"] = clocks["first"] = clocks["rank"] = -1
        clocks["event_time"] = np.inf
        return clocks

    def pace(self, plan: Plan) -> Floats:
        """Return the time per byte of every clock, relative to the fastest lane.

        It is 1 for lanes that the machine of the plan's spec does not have.

        Parameters
        ----------
        plan : Plan

        Returns
        -------
        ndarray of float64, shape (n_clocks,)
        """
        pace = np.ones(self.unused + 1)
        if plan.machine is not None:
            known = plan.machine.lane_slowness[: self.n_lanes]
            slowness = np.ones(self.n_lanes)
            slowness[: len(known)] = known
            pace[self.lane_out : self.port_out] = np.tile(slowness, 2 * self.n_nodes)
        return pace

    def make_queues(self, plan: Plan, slots: Ints, *, offload: bool) -> Records:
        """Return the empty queues of every slot.

        Each slot has a queue without a lane. The queues of the lanes and of the port follow,
        first for the sending side and then for the receiving side.

        Parameters
        ----------
        plan : Plan
        slots : ndarray of int64, shape (n_slots,)
            Ranks on cores, as ``rank * n_cores + core``.
        offload : bool
            Whether messages that arrive over a lane wait only for the lane, and not for the core.
        """
        rank, core = np.divmod(slots, self.n_cores)
        node = plan.rank_node[rank].astype(np.int64)
        lanes = np.arange(self.n_lanes)
        lane = np.column_stack(
            (
                np.full(len(slots), self.unused),
                self.lane_out + node[:, None] * self.n_lanes + lanes,
                self.port_out + rank,
                self.lane_in + node[:, None] * self.n_lanes + lanes,
                self.port_in + rank,
            )
        )
        core = np.repeat((node * self.n_cores + core)[:, None], lane.shape[1], axis=1)
        queues = table_of(lane.size, QUEUE)
        queues["lane"] = lane.ravel()
        queues["pace"] = self.pace(plan)[queues["lane"]]
        queues["core"] = core.ravel()
        if offload:
            core[:, -1 - self.n_lanes : -1] = self.unused
        queues["awaits"] = core.ravel()
        queues["rank"] = np.repeat(rank, lane.shape[1])
        queues["node"] = np.repeat(node, lane.shape[1])
        queues["first"] = queues["last"] = -1
        return queues


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """The clocks that tasks of a plan hold.

    Parameters
    ----------
    clocks : ClockOffsets
        Offset of each kind of resource in the table of clocks.
    tasks : ndarray of TASK
        Work, link, state and queue of each task, see `place`.
    queues : ndarray of QUEUE
        Queues, see `ClockOffsets.make_queues`.
    """

    clocks: ClockOffsets
    tasks: Records
    queues: Records

    def take(self, rows: Ints) -> Places:
        """Return the places of some tasks."""
        return Places(self.clocks, self.tasks[rows], self.queues)

    @property
    def core(self) -> Ints:
        """Clock of the core of each task."""
        return np.asarray(self.queues["core"][self.tasks["queue"]], dtype=np.int64)

    @property
    def lane(self) -> Ints:
        """Clock of the lane or port of each message, and the unused clock for other tasks."""
        return np.asarray(self.queues["lane"][self.tasks["queue"]], dtype=np.int64)
