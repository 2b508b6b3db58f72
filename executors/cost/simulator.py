"""Simulation of a plan without a machine, on cores, lanes and links.

Of a folded plan one node is simulated. Its times may differ from those of the plan of all ranks
where messages from several nodes reach a lane at the same time: with all ranks they are served
in the order of their ranks, which is another one on each node.
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
from collplan.executors.cost.tables import Clocks, Places, Records, Simulation, copy_of
from collplan.executors.cost.working_sets import is_uncached
from collplan.planner.arrays import Bools, Floats, Ints
from collplan.planner.arrays.compile_time import Stopwatch
from collplan.planner.compiler import without_native
from collplan.planner.errors import AsymmetricError, DeadlockError
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
        A receive starts when it is posted and ends when the message is in and
        the core is done with it. A send ends when its core is free again, or,
        above the eager limit, when its receive has matched.
    core_busy_ns : ndarray of float64, shape (n_nodes, n_cores)
        Time each core is held.
    lane_busy_ns : ndarray of float64, shape (n_nodes, n_lanes, 2)
        Time each lane sends, and receives.
    simulate_s : float
        Seconds the simulation took, preparation included, compiling of kernels not.
    cause : ndarray of int32, shape (n_tasks,)
        The task that let each task start at `start_ns`: a predecessor, or the
        one that held its core or lane before; -1 for those that start at 0,
        ``-2 - s`` for one whose core or lane send s held until it matched.
    arrival_cause : ndarray of int32, shape (n_tasks,)
        For every send, what its message waited for at the receiver: the task
        that held the core or lane (as in `cause`), or the send itself where
        nothing did.
    is_rendezvous : ndarray of bool, shape (n_tasks,)
        Sends that ended when their receive matched.
    is_asking : ndarray of bool, shape (n_tasks,)
        Sends that had to ask their receiver first. `cause` is ``-2 - c`` for one
        that set out as soon as the answer was there: c is the predecessor of its
        request, -1 where it had none, or its receive, if that was posted late.
    partner : ndarray of int32, shape (n_tasks,)
        The other end of every message.
    places : Places
        The simulator's tables of tasks and of the clocks that they hold.
    flags_ns : tuple of float
        After how long another rank's task on the same core, in the same NUMA domain
        and on the same node sees that a task is done: the latencies of those links.
    is_allocated : bool
        Whether copies of buffers to their mirrors took no time.
    pcie_reads : ndarray of int64, shape (n_nodes, n_lanes), or None
        How often each adapter read a queue pair over PCIe: for those not in its
        cache, and for those connected to another peer. None where the network
        has no `nic`: adapters hold all.
    routes : Routes or None
        Messages between nodes and the links that they take; None without a topology.
    delays_ns, alone_ns : ndarray of float64, shape (n_tasks,), or None
        The latency of every message's route, and the time that its bytes take over the
        slowest link of it; 0 for other tasks. None without a topology.
    flows_ns : tuple of two ndarray of float64, or None
        When the bytes of each message of `routes` begin and end to flow over links.
    """

    start_ns: Floats
    end_ns: Floats
    core_busy_ns: Floats
    lane_busy_ns: Floats
    simulate_s: float
    cause: Ints
    arrival_cause: Ints
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
        """Return its makespan and size in words: its arrays are too long to read."""
        return f"<Timeline: {len(self.start_ns):,} tasks in {self.makespan_ns:,.1f} ns>"

    def _repr_svg_(self) -> str | None:
        """Return cores, lanes, messages and the critical path for notebooks."""
        drawn: str | None = view("timeline_svg", self)
        return drawn

    @cached_property
    def makespan_s(self) -> float:
        """Seconds from the start to the end of the last task."""
        return self.makespan_ns / 1e9

    @cached_property
    def makespan_ns(self) -> float:
        """The same in ns: whole and exact where the parameters are whole."""
        return float(self.end_ns.max(initial=0.0))

    def flag_ns(self, before: int, row: int) -> float:
        """Return after how long the core of task `row` sees that task `before` is done."""
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
        A plan of all ranks. What MPICH chooses takes the place of MPI's own collectives.
    network : Network or None
        What communication costs; None takes the spec's machine, or the
        defaults of `Network` for a plan without a spec.
    allocated : bool
        Buffers lie at their mirrors, as a bound plan's ``allocate()`` provides them: what
        only copies them there takes no time.

    Returns
    -------
    Timeline

    Raises
    ------
    PlanFormatError
        Where an entry names a rank, node, task or row that is not there.
    MatchError
        Where sends and receives do not pair up.
    DeadlockError
        Where tasks are left that can never run.
    AsymmetricError
        Where a plan is folded, and the network has a `nic` or `processors`.

    Notes
    -----
    With one rank per node, one lane and no copies this is LogGPS, with
    LogGOPSim's [1]_ rules for order: an operation whose resources are busy
    waits; waiting and same-time operations are served in the order they became
    ready; those that become ready together are ordered sends, receives, then
    the rest, then by priority, then by row.

    Beyond that: messages between nodes take the lane of their `lane` column at
    both ends; messages inside a node take the ports of the two ranks; copies,
    reductions and computations hold the core (for whole nanoseconds). A task
    whose predecessor ran on another core becomes ready at its end; one whose
    predecessor is another rank's, through shared memory, the latency L of the
    link between the two cores later, as it takes that long to see a flag. The
    link of a message or flag inside a node is that of the cores its two tasks
    run on. A core that runs a task of another rank than before turns to it first,
    for `Network.switch_s`; what takes no time by itself needs no turning.

    A task takes 64 bytes of memory, and each of its dependencies 4; a heap is reserved
    besides, of which irregular plans use some pages.

    References
    ----------
    .. [1] T. Hoefler, T. Schneider, A. Lumsdaine: LogGOPSim: simulating
       large-scale applications in the LogGOPS model, LSAP 2010.
    """
    watch = Stopwatch()
    plan = without_native(plan)
    if network is None:
        network = Network() if plan.spec is None else plan.spec.machine.network
    return _simulate(plan, network, _Prepared.of(plan, allocated), watch)


def simulate_each(
    plan: Plan, networks: Iterable[Network], allocated: bool = False
) -> Iterator[Timeline]:
    """Simulate a plan on one network after another; what they share is prepared once.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks.
    networks : iterable of Network
        What communication costs.
    allocated : bool
        As of `simulate`.

    Yields
    ------
    Timeline
        As `simulate` returns it, one a network. Its `simulate_s` leaves the
        preparation out.
    """
    plan = without_native(plan)
    prepared = _Prepared.of(plan, allocated)
    for network in networks:
        watch = Stopwatch()
        yield _simulate(plan, network, replace(prepared, tasks=copy_of(prepared.tasks)), watch)


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """The kernel's tables of a plan, the same for any network; a run changes the tasks."""

    tasks: Records
    slots: Ints
    successors: Ints
    initial: Ints
    is_allocated: bool

    @classmethod
    def of(cls, plan: Plan, is_allocated: bool) -> _Prepared:
        check_ranges(plan)
        tasks, slots = place(plan, Clocks.of(plan), allocated=is_allocated)
        successors, initial = link_dependencies(plan, serving_order(plan), tasks)
        return cls(tasks, slots, successors, initial, is_allocated)


def _require_own_resources(plan: Plan, network: Network) -> None:
    """Raise where the nodes of a folded plan would have more in common than messages."""
    for field in ("nic", "processors", "topology"):
        if plan.folding is not None and getattr(network, field) is not None:
            raise AsymmetricError(
                f"fold: network.{field} depends on more than one node; price the plan of all ranks"
            )


def _fabric(plan: Plan, network: Network, n_lanes: int) -> Fabric | None:
    """Return the links between the plan's nodes, None where the network has no topology."""
    if network.topology is None:
        return None
    machine = Machine(nodes=plan.n_nodes) if plan.spec is None else plan.spec.machine
    if machine.network != network or machine.n_lanes < n_lanes:
        lanes = machine.lanes if machine.n_lanes >= n_lanes else n_lanes
        with explaining(Machine, before="machine: "):
            machine = machine.replace(network=network, lanes=lanes)
    return fabric_of(machine)


def _simulate(plan: Plan, network: Network, prepared: _Prepared, watch: Stopwatch) -> Timeline:
    _require_own_resources(plan, network)
    layout = Clocks.of(plan, network)
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
    # Before a plan starts lanes are idle: all may pass a burst.
    lanes = slice(layout.lane_out, layout.port_out)
    clocks["time"][lanes] = -costs["burst"] * layout.pace(plan)[lanes]
    # At most all tasks wait to become ready, and as many messages are on their way.
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
        counters=np.zeros(2, dtype=np.int64),
        recent=np.zeros(N_RECENT, dtype=np.int32),
        layout=layout,
        links=link_table(network),
        costs=costs,
        connections=connections,
        adapters=adapters,
        request_delays=np.zeros(0)
        if routes is None or network.contention == "fluid"
        else routes.delays,
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
    """Return a timeline with what is known of messages over a topology."""
    routes, flows = found
    task = routes.sends if pieces is None else pieces.task[routes.sends]
    delays, alone = (np.zeros(len(timeline.end_ns)) for _ in range(2))
    np.add.at(alone, task, routes.alone_ns)
    delays[task] = routes.delays[routes.sends]
    for column in (delays, alone):
        column[timeline.partner[task]] = column[task]
    pace = timeline.places.queues["pace"][timeline.places.tasks["queue"][task]]
    takes = routes.n_bytes * network.network.G_ns_per_byte * pace
    # What shares no link flows as fast as its lane sends it.
    has_flowed = flows.states["ends"] >= 0
    begins = np.where(has_flowed, flows.states["begins"], timeline.start_ns[task] + delays[task])
    ends = np.where(has_flowed, flows.states["ends"], begins + takes)
    lanes = timeline.lane_busy_ns
    if network.contention == "fluid":
        # Lanes are links, which are as busy as their bytes make them.
        layout = timeline.places.clocks
        busy = np.zeros(layout.unused + 1)
        for lane in (routes.out_lane, routes.in_lane):
            np.add.at(busy, lane, takes)
        shape = (2, layout.n_nodes, layout.n_lanes)
        lanes = np.moveaxis(busy[layout.lane_out : layout.port_out].reshape(shape), 0, 2)
    return replace(
        timeline,
        routes=routes,
        delays_ns=delays,
        alone_ns=alone,
        flows_ns=(begins, ends),
        lane_busy_ns=lanes,
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
        arrival_cause=tasks["following"],
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
