"""Simulation of a plan without a machine, on cores, lanes and links.

The simulation of a folded plan covers only its first node. The other nodes take the same times,
because the order of simultaneous tasks is the same on nodes that do the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NoReturn

import numpy as np

from collplan.executors.cost.connections import make_connections
from collplan.executors.cost.event_queue import make_event_queue
from collplan.executors.cost.flows import Flows, Routes, find_routes, make_flows
from collplan.executors.cost.kernel import run
from collplan.executors.cost.lane_sharing import TaskPieces, take_turns
from collplan.executors.cost.layout import (
    core_to_numa,
    link_dependencies,
    place,
    serving_order,
)
from collplan.executors.cost.occupancy import IS_LONG, IS_UNCACHED
from collplan.executors.cost.parameters import cost_table, link_table
from collplan.executors.cost.prefetching import N_RECENT
from collplan.executors.cost.tables import ClockOffsets, Places, Records, Simulation, copy_of
from collplan.executors.cost.working_sets import is_uncached
from collplan.planner.arrays import Bools, Floats, Ints
from collplan.planner.compiler.ranks import without_native
from collplan.planner.errors import AsymmetricError, DeadlockError
from collplan.planner.machine_code.compile_time import Stopwatch
from collplan.planner.plan.format_check import check_ranges
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.views import view
from collplan.planner.topology import Fabric, fabric_of
from collplan.specs import Machine, Network
from collplan.specs.explaining import explaining


@dataclass(frozen=True, eq=False)
class Timeline:
    """Start and end of every task of a plan, and the cause of its wait.

    Parameters
    ----------
    start_ns, end_ns : ndarray of float64, shape (n_tasks,)
        Start and end of each task in ns. A receive starts when it is posted. It ends when its
        message has arrived and the core has finished with it. A send ends when its core is free
        again; above the eager limit, it ends when its receive has matched.
    core_busy_ns : ndarray of float64, shape (n_nodes, n_cores)
        Busy time of each core in ns.
    lane_busy_ns : ndarray of float64, shape (n_nodes, n_lanes, 2)
        Time in ns for which each lane sends, and for which it receives.
    simulate_s : float
        Wall-clock time of the simulation in seconds, including preparation, but not the
        compilation of kernels.
    cause, reason : ndarray of int32 and int8, shape (n_tasks,)
        Task that each task waited for before `start_ns`, and what of it: one of `STARTED`,
        `ENDED`, `HELD`, `MATCHED` and `POSTED` in `tables`. The cause is -1 if the task starts at
        0. The request of a send with a handshake waits for its cause, too.
    is_rendezvous : ndarray of bool, shape (n_tasks,)
        Whether the task is a send that ended when its receive matched.
    is_asking : ndarray of bool, shape (n_tasks,)
        Whether the task is a send with a handshake.
    partner : ndarray of int32, shape (n_tasks,)
        Row of the other end of every message.
    plan : Plan
        Plan that was simulated, with MPI's own collectives replaced by tasks.
    places : Places
        The simulator's tables of tasks, and of the clocks that they hold.
    flags_ns : tuple of float
        Delays in ns after which a task of another rank on the same core, in the same NUMA domain
        and on the same node sees that a task has ended. They are the latencies of these links.
    is_allocated : bool
        Whether copies of buffers to their mirrors took no time.
    pcie_reads : ndarray of int64, shape (n_nodes, n_lanes), or None
        Number of reads of queue pairs over PCIe by each adapter: reads of queue pairs that were
        not in its cache, and of those that were connected to another peer. None if the network
        has no `nic`, so that adapters hold all queue pairs.
    routes : Routes or None
        Messages between nodes and the links of their routes; None without a topology.
    delays_ns, alone_ns : ndarray of float64, shape (n_tasks,), or None
        Latency of every message's route, and transfer time of its bytes over the slowest link of
        the route, in ns; 0 for other tasks. None without a topology.
    flows_ns : tuple of two ndarray of float64, or None
        Times in ns at which the bytes of each message of `routes` begin and end to flow.
    """

    start_ns: Floats
    end_ns: Floats
    core_busy_ns: Floats
    lane_busy_ns: Floats
    simulate_s: float
    cause: Ints
    reason: Ints
    is_rendezvous: Bools
    is_asking: Bools
    partner: Ints
    plan: Plan
    places: Places
    flags_ns: tuple[float, float, float] = (0.0, 0.0, 0.0)
    is_allocated: bool = False
    pcie_reads: Ints | None = None
    routes: Routes | None = None
    delays_ns: Floats | None = None
    alone_ns: Floats | None = None
    flows_ns: tuple[Floats, Floats] | None = None

    def __repr__(self) -> str:
        """Return the number of tasks and the makespan, because the arrays are too long to show."""
        return f"<Timeline: {len(self.start_ns):,} tasks in {self.makespan_ns:,.1f} ns>"

    def _repr_svg_(self) -> str | None:
        """Return cores, lanes, messages and the critical path for notebooks."""
        drawn: str | None = view("timeline_svg", self)
        return drawn

    @cached_property
    def makespan_s(self) -> float:
        """Time from the start of the simulation to the end of the last task, in seconds."""
        return self.makespan_ns / 1e9

    @cached_property
    def makespan_ns(self) -> float:
        """Makespan in ns, which is a whole number and exact if all parameters are whole."""
        return float(self.end_ns.max(initial=0.0))

    @property
    def arrival_ns(self) -> Floats:
        """Time in ns at which the message of each receive arrives; NaN for other tasks.

        If the message waits for a core or lane, it arrives when the resource takes it.
        """
        return np.where(self.plan.op == Op.RECV, self.places.tasks["arrival"], np.nan)

    @property
    def arrival_cause(self) -> Ints:
        """Task that the message of each send waited for at the receiver.

        It is the holder of the core or lane, ``-2 - s`` if send s held it until it matched, or the
        send itself if its message did not wait. Other tasks have any numbers.
        """
        return np.asarray(self.places.tasks["following"])

    def flag_ns(self, before: int, row: int) -> float:
        """Return the delay in ns until the core of task `row` sees that task `before` has ended.

        Parameters
        ----------
        before, row : int
            Rows of the plan: a task, and a task that depends on it.

        Returns
        -------
        float
            0 if both tasks belong to the same rank.
        """
        plan = self.plan
        if plan.rank[before] == plan.rank[row]:
            return 0.0
        one, other = int(plan.core[before]), int(plan.core[row])
        if one == other:
            return self.flags_ns[0]
        return self.flags_ns[1 if self._numa[one] == self._numa[other] else 2]

    @cached_property
    def _numa(self) -> Ints:
        return core_to_numa(self.plan)


_NAMED: Final = 3
"""Maximum number of waiting tasks in the message about a deadlock."""


def simulate(plan: Plan, network: Network | None = None, allocated: bool = False) -> Timeline:
    """Simulate a plan under LogGPS with a clock for each core, lane and direction.

    Parameters
    ----------
    plan : Plan
        Plan of all ranks. MPI's own collectives are replaced by MPICH's algorithms.
    network : Network or None
        Costs of communication. If None, they are those of the spec's machine, or the defaults of
        `Network` for a plan without a spec.
    allocated : bool
        Whether buffers lie at their mirrors in shared memory, as a bound plan's ``allocate()``
        provides them. If so, copies to the mirrors take no time.

    Returns
    -------
    Timeline

    Raises
    ------
    PlanFormatError
        If an entry names a rank, node, task or row that does not exist.
    MatchError
        If sends and receives do not match.
    DeadlockError
        If some tasks can never run.
    AsymmetricError
        If the plan is folded and the network has a `nic`, `processors` or a `topology`.

    Notes
    -----
    With one rank per node, one lane and no copies, the model is LogGPS with the ordering rules
    of LogGOPSim [1]_. Operations that wait for busy resources, or that become ready at the same
    time, are served in the order in which they became ready. If they became ready together,
    sends come first, then receives, then other operations; each kind is ordered by priority and
    then by row. Each node numbers what becomes ready or leaves at the same time, and messages of
    several nodes are ordered by these numbers. A plan without a spec has one count of all nodes.

    The model extends LogGPS as follows. Messages between nodes use the lane in their `lane`
    column at both ends. Messages inside a node use the ports of the two ranks. Copies, reductions
    and computations hold the core; the durations of copies and reductions are rounded to whole
    nanoseconds. If the predecessor of a task ran on another core, the task becomes ready when the
    predecessor ends. If the predecessor belongs to another rank, which signals through shared
    memory, the task becomes ready one latency L later, the time until it sees the flag. A message
    or flag inside a node uses the link between the cores of its two tasks. If the previous task
    of a core belonged to another rank, the core first switches for `Network.switch_s`; tasks
    without a duration need no switch.

    The simulation uses 64 bytes of memory per task, 4 bytes per dependency, and a heap.

    References
    ----------
    .. [1] T. Hoefler, T. Schneider, A. Lumsdaine: LogGOPSim: simulating
       large-scale applications in the LogGOPS model, LSAP 2010.
    """
    watch = Stopwatch()
    plan = without_native(plan)
    if network is None:
        network = Network() if plan.machine is None else plan.machine.network
    return _simulate(plan, network, _Prepared.of(plan, allocated), watch)


def simulate_each(
    plan: Plan, networks: Iterable[Network], allocated: bool = False
) -> Iterator[Timeline]:
    """Simulate a plan on several networks, and prepare its tables only once.

    Parameters
    ----------
    plan : Plan
        Plan of all ranks.
    networks : iterable of Network
        Costs of communication.
    allocated : bool
        Whether buffers lie at their mirrors; see `simulate`.

    Yields
    ------
    Timeline
        One timeline per network, as `simulate` returns it. Its `simulate_s` does not include the
        preparation.
    """
    plan = without_native(plan)
    prepared = _Prepared.of(plan, allocated)
    for network in networks:
        watch = Stopwatch()
        yield _simulate(plan, network, replace(prepared, tasks=copy_of(prepared.tasks)), watch)


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """Tables of a plan that do not depend on the network; a simulation changes only the tasks."""

    tasks: Records
    slots: Ints
    successors: Ints
    initial: Ints
    is_allocated: bool

    @classmethod
    def of(cls, plan: Plan, is_allocated: bool) -> _Prepared:
        check_ranges(plan)
        tasks, slots = place(plan, ClockOffsets.of(plan), allocated=is_allocated)
        successors, initial = link_dependencies(plan, serving_order(plan), tasks)
        return cls(tasks, slots, successors, initial, is_allocated)


def _require_own_resources(plan: Plan, network: Network) -> None:
    """Raise AsymmetricError if the nodes of a folded plan share resources other than messages."""
    for field in ("nic", "processors", "topology"):
        if plan.folding is not None and getattr(network, field) is not None:
            raise AsymmetricError(
                f"fold: network.{field} depends on more than one node; price the plan of all ranks"
            )


def _fabric(plan: Plan, network: Network, n_lanes: int) -> Fabric | None:
    """Return the links between the nodes of a plan, or None if the network has no topology."""
    if network.topology is None:
        return None
    machine = plan.machine or Machine(nodes=plan.n_nodes)
    if machine.network == network and machine.n_lanes >= n_lanes:
        return fabric_of(machine)
    with explaining(Machine, before="machine: "):
        priced = machine.replace(network=network, lanes=max(machine.n_lanes, n_lanes))
    fabric = fabric_of(priced)
    if fabric is None or machine.n_lanes < n_lanes:
        return fabric
    # The rates of lanes are those of another network, but lanes differ as they say.
    return replace(fabric, lane_slowness=machine.lane_slowness)


def _simulate(plan: Plan, network: Network, prepared: _Prepared, watch: Stopwatch) -> Timeline:
    _require_own_resources(plan, network)
    layout = ClockOffsets.of(plan, network)
    tasks, successors, initial = prepared.tasks, prepared.successors, prepared.initial
    is_long = (plan.op == Op.SEND) & (tasks["work"] > network.eager_limit_bytes)
    tasks["state"][is_long] |= IS_LONG
    if network.cache_bytes is not None:
        tasks["state"][is_uncached(plan, network.cache_bytes)] |= IS_UNCACHED
    queues = layout.make_queues(plan, prepared.slots, offload=network.network.offload)
    places = Places(layout, tasks, queues)
    pieces = None
    connections, adapters = make_connections(plan, places, network.nic)
    if network.turn_bytes is not None:
        pieces, places, successors, initial, connections = take_turns(
            plan, places, successors, initial, connections, network.turn_bytes
        )
    tasks, queues = places.tasks, places.queues
    clocks, costs = layout.make(), cost_table(network)
    # Lanes are idle before a plan starts, so each of them can pass a burst.
    lanes = slice(layout.lane_out, layout.port_out)
    clocks["time"][lanes] = -costs["burst"] * layout.pace(plan)[lanes]
    # At most, all tasks wait to become ready, and as many messages are in flight.
    runs, entries = make_event_queue(len(queues), 2 * len(queues) + 2 * len(tasks))
    fabric = _fabric(plan, network, layout.n_lanes)
    routes = None if fabric is None else find_routes(places, fabric)
    flows = None if routes is None else make_flows(routes, places, network)
    sim = Simulation(
        tasks=tasks,
        successors=successors,
        clocks=clocks,
        queues=queues,
        runs=runs,
        entries=entries,
        counters=np.zeros(4, dtype=np.int64),
        stamps=np.zeros(layout.n_nodes, dtype=np.int32),
        is_by_node=plan.machine is not None,
        recent=np.zeros(N_RECENT, dtype=np.int32),
        layout=layout,
        links=link_table(network),
        costs=costs,
        connections=connections,
        adapters=adapters,
        request_delays=np.zeros(0) if routes is None else routes.delays,
    )
    n_done = run(sim, initial, flows)
    n_left = len(tasks) - n_done
    if pieces is not None:
        tasks = pieces.join(tasks, handshake=network.handshake)
    if n_left:
        _raise_deadlock(plan, tasks)
    timeline = _timeline(plan, network, Places(layout, tasks, queues), sim, watch)
    timeline = replace(timeline, is_allocated=prepared.is_allocated)
    if routes is None or flows is None:
        return timeline
    return _with_routes(timeline, network, (routes, flows), pieces)


def _with_routes(
    timeline: Timeline, network: Network, found: tuple[Routes, Flows], pieces: TaskPieces | None
) -> Timeline:
    """Return a timeline with the delays and flows of messages over a topology."""
    routes, flows = found
    task = routes.sends if pieces is None else pieces.task[routes.sends]
    delays, alone = (np.zeros(len(timeline.end_ns)) for _ in range(2))
    np.add.at(alone, task, routes.alone_ns)
    delays[task] = routes.delays[routes.sends]
    for column in (delays, alone):
        column[timeline.partner[task]] = column[task]
    pace = timeline.places.queues["pace"][timeline.places.tasks["queue"][task]]
    takes = routes.n_bytes * network.network.G_ns_per_byte * pace
    # A message that shares no link flows at the rate of its lane.
    has_flowed = flows.states["ends"] >= 0
    begins = np.where(has_flowed, flows.states["begins"], timeline.start_ns[task] + delays[task])
    ends = np.where(has_flowed, flows.states["ends"], begins + takes)
    return replace(
        timeline, routes=routes, delays_ns=delays, alone_ns=alone, flows_ns=(begins, ends)
    )


def _timeline(
    plan: Plan, network: Network, places: Places, sim: Simulation, watch: Stopwatch
) -> Timeline:
    tasks, layout = places.tasks, places.clocks
    is_long = (tasks["state"] & IS_LONG).astype(np.bool_)
    busy, reads = sim.clocks["busy"].copy(), sim.adapters["reads"].astype(np.int64)
    for column in (tasks, busy, reads):
        column.flags.writeable = False
    lanes = busy[layout.lane_out : layout.port_out].reshape(2, layout.n_nodes, layout.n_lanes)
    return Timeline(
        plan=plan,
        places=places,
        start_ns=tasks["start"],
        end_ns=tasks["end"],
        core_busy_ns=busy[: layout.lane_out].reshape(layout.n_nodes, layout.n_cores),
        lane_busy_ns=np.moveaxis(lanes, 0, 2),
        cause=tasks["cause"],
        reason=tasks["reason"],
        is_rendezvous=is_long & (not network.handshake),
        is_asking=is_long & network.handshake,
        partner=tasks["partner"],
        flags_ns=(network.core.L_ns, network.numa.L_ns, network.node.L_ns),
        simulate_s=watch.work_s,
        pcie_reads=reads.reshape(layout.n_nodes, layout.n_lanes) if network.nic else None,
    )


def _raise_deadlock(plan: Plan, tasks: Records) -> NoReturn:
    waiting = np.flatnonzero((tasks["pending"] > 0) | (tasks["end"] < 0))
    named = "; ".join(str(plan.task(int(row))) for row in waiting[:_NAMED])
    more = f"; and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    raise DeadlockError(
        f"{len(waiting)} of {plan.n_tasks} tasks can never run: {named}{more}; "
        f"verify the plan for the cycle they wait in"
    )
