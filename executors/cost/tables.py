"""The simulator's tables: what its kernels read and change, and where resources are in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Floats, Ints
from collplan.planner.arrays.jit import compile_with
from collplan.planner.plan.plan import Plan
from collplan.specs import Network

Records = npt.NDArray[Any]
"""An array of one of the tables' row types."""

inner = compile_with(is_inner=True, _nrt=False)
"""Compile into the simulator's loop, without reference counts: they would take nine tenths of
its time.

Such a function cannot allocate; its arrays are its caller's.
"""

inlined = compile_with(is_inner=True, _nrt=False, forceinline=True)
"""The same, in place of every call: passing a dozen arrays would take longer than the work."""

TASK: Final = np.dtype(
    [
        ("work", "f8"),  # bytes, or the ns of a computation
        ("start", "f8"),  # until the task runs: the time its predecessors allow
        ("end", "f8"),
        ("queue", "i4"),
        ("partner", "i4"),  # the other end of a message
        ("far_queue", "i4"),  # the queue of the other end
        ("pending", "i4"),  # predecessors it waits for
        ("successors", "i4"),  # where its successors begin
        ("end_successors", "i4"),
        ("stamp", "i4"),  # order of readiness; of a send that has run: of its message
        ("following", "i4"),  # next in the queue; of a message taken in: what it waited for
        ("cause", "i4"),
        ("op", "i1"),
        ("link", "i1"),
        ("state", "u1"),
    ],
    align=True,
)
"""A task: one line of a processor's cache."""
CLOCK: Final = np.dtype(
    [
        ("time", "f8"),
        ("busy", "f8"),
        ("event_time", "f8"),  # of the event of the line, infinite where it has none
        ("event_stamp", "i4"),
        ("first", "i4"),  # the line: queues that wait for this lane, by stamp
        ("last", "i4"),
        ("candidate", "i4"),  # of the line: the queue whose event it has
        ("holder", "i4"),
        ("rank", "i4"),  # of the last task of a core, where changing it costs anything
        ("unused", "i8", 2),
    ],
    align=True,
)
"""A core, one direction of a lane or port, a memory, or a processor.

`holder` is the row that moved the clock last, or ``-2 - row`` where the match
of rendezvous send `row` did; -1 before anything did.
"""
QUEUE: Final = np.dtype(
    [
        ("pace", "f8"),  # how many times as long a byte takes as on the fastest lane
        ("core", "i4"),  # that does the work
        ("awaits", "i4"),  # the clock that has to be free: the core, or none
        ("lane", "i4"),
        ("rank", "i4"),
        ("node", "i4"),
        ("first", "i4"),  # tasks, linked by `following`
        ("last", "i4"),
        ("stamp", "i4"),  # of the first task
        ("next", "i4"),  # in the line of the lane
        ("previous", "i4"),
        ("unused", "i8", 2),
    ],
    align=True,
)
"""Tasks of a rank that wait for one core and one direction of a lane."""
ENTRY: Final = np.dtype([("time", "f8"), ("stamp", "i4"), ("event", "i4")])
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


_LINE: Final = 64
"""Bytes of a line of a processor's cache."""


def table_of(n_rows: int, dtype: np.dtype[Any]) -> Records:
    """Return a table of zeros that begins where a line of the cache does."""
    space = np.zeros(n_rows * dtype.itemsize + _LINE, dtype=np.uint8)
    begin = -space.ctypes.data % _LINE
    return space[begin : begin + n_rows * dtype.itemsize].view(dtype)


def copy_of(rows: Records) -> Records:
    """Return the same rows in a table of their own, which begins where a line does."""
    table = table_of(len(rows), rows.dtype)
    table[:] = rows
    return table


class Simulation(NamedTuple):
    """The tables of one simulation.

    Parameters
    ----------
    tasks : ndarray of TASK
        A row per task, or per piece of one.
    successors : ndarray of int32
        Tasks that wait for others, as of `link_dependencies`.
    clocks, queues : ndarray of CLOCK and QUEUE
        Resources, and tasks that wait for them.
    runs, entries : ndarray of RUN and ENTRY
        The event queue, as of `make_event_queue`.
    counters : ndarray of int64, shape (2,)
        Stamps given, and tasks done.
    recent : ndarray of int32, shape (N_RECENT,)
        The sends that ran last, in turns.
    layout : Clocks
        Where each kind of resource begins among the clocks.
    links, costs : ndarray of records
        As of `link_table` and `cost_table`.
    connections, adapters : ndarray of CONNECTION and ADAPTER
        As of `make_connections`.
    request_delays : ndarray of float64
        Time that a send's request, and its answer, take over a topology besides L, in ns;
        empty where they take none.
    """

    tasks: Records
    successors: Ints
    clocks: Records
    queues: Records
    runs: Records
    entries: Records
    counters: Ints
    recent: Ints
    layout: Clocks
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
        What it is.
    place : int
        The node of a core or lane, the rank of a port, 0 for a processor.
    index : int
        Which core or lane of the node.
    direction : "out", "in" or ""
        Of a lane or port.
    """

    kind: Literal["core", "lane", "port", "processor"]
    place: int
    index: int = 0
    direction: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return its kind, and node and core, node, lane and direction, or rank and direction."""
        where: dict[str, dict[str, Any]] = {
            "core": {"node": self.place, "core": self.index},
            "lane": {"node": self.place, "lane": self.index, "direction": self.direction},
            "port": {"rank": self.place, "direction": self.direction},
        }
        return {"kind": self.kind} | where.get(self.kind, {})


class Clocks(NamedTuple):
    """Offset of each kind of resource in the table.

    Parameters
    ----------
    n_nodes, n_cores, n_lanes, n_ranks : int
        Nodes, cores and lanes per node, ranks.
    lane_out, lane_in : int
        First clock of the lanes' sending and receiving side; cores come before, by node.
    port_out, port_in : int
        First clock of the ranks' ports into their node, and out of it.
    memory, processor : int
        First clock of the nodes' memories, and of the processors that all cores share, of
        which there are none where each core is one.
    unused : int
        The last clock, which never moves, for what needs no core or no lane.
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
    def of(cls, plan: Plan, network: Network | None = None) -> Clocks:
        """Return what a plan uses of a machine."""
        nodes, ranks = plan.n_nodes, plan.n_ranks
        n_cores = 1 + int(max(plan.core.max(initial=0), plan.rank_core.max(initial=0)))
        n_lanes = 1 + int(max(plan.lane.max(initial=0), plan.rank_lane.max(initial=0)))
        # Cores run one task at a time: more processors than cores are never waited for.
        n_processors = min((network and network.processors) or 0, nodes * n_cores)
        lanes = nodes * n_lanes
        sizes = (nodes * n_cores, lanes, lanes, ranks, ranks, nodes, n_processors)
        return cls(nodes, n_cores, n_lanes, ranks, *accumulate(sizes))

    def resource(self, clock: int) -> Resource:
        """Return what a clock belongs to; memories and processors are one kind."""
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
        """Return all clocks at 0."""
        clocks = table_of(self.unused + 1, CLOCK)
        clocks["holder"] = clocks["first"] = clocks["rank"] = -1
        clocks["event_time"] = np.inf
        return clocks

    def pace(self, plan: Plan) -> Floats:
        """Return for every clock how many times as long a byte takes as on the fastest lane.

        Lanes that the machine of the plan's spec does not have are as fast as that.
        """
        pace = np.ones(self.unused + 1)
        if plan.spec is not None:
            known = plan.spec.machine.lane_slowness[: self.n_lanes]
            slowness = np.ones(self.n_lanes)
            slowness[: len(known)] = known
            pace[self.lane_out : self.port_out] = np.tile(slowness, 2 * self.n_nodes)
        return pace

    def make_queues(self, plan: Plan, slots: Ints, *, offload: bool) -> Records:
        """Return the empty queues of every slot: without a lane, then out, then in.

        Parameters
        ----------
        plan : Plan
            Whose ranks they are.
        slots : ndarray of int64
            Ranks on cores, as ``rank * n_cores + core``.
        offload : bool
            Whether what arrives over a lane waits for the lane only.
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
    clocks : Clocks
        Where each kind of resource begins among the clocks.
    tasks : ndarray of TASK
        As `place` returns them: work, link and state of each task, and its queue.
    queues : ndarray of QUEUE
        As of `Clocks.make_queues`.
    """

    clocks: Clocks
    tasks: Records
    queues: Records

    def take(self, rows: Ints) -> Places:
        """Return the places of some tasks."""
        return Places(self.clocks, self.tasks[rows], self.queues)

    @property
    def core(self) -> Ints:
        """Return the clock of the core of each task: nodes have theirs one after another."""
        return np.asarray(self.queues["core"][self.tasks["queue"]], dtype=np.int64)

    @property
    def lane(self) -> Ints:
        """Return the clock of the lane or port of each message, the unused one for other tasks."""
        return np.asarray(self.queues["lane"][self.tasks["queue"]], dtype=np.int64)
