"""Lower bounds of the makespan of any plan on the cost model.

A bound holds for every plan of a collective on a machine, whatever its algorithms, decomposition,
passes and transport. It is the greatest of several terms, each of which follows from one resource:

- **spread**: A rank knows nothing of another before a message or a flag has told it. A node that
  knows of a rank passes this on by one message after another: each holds a core for o and a lane
  for g, and is known 2o + L later. The time until all nodes know is that of the greedy schedule,
  which is optimal (Karp, Sahay, Santos, Schauser 1993).
- **lanes**: Bytes that must enter or leave a node pass its lanes at their rates. The last message
  ends 2o + L after its lane has carried all others.
- **spread after lanes**: In a broadcast, some element leaves the node of the root after all
  others. It must then spread over all nodes. A reduction is a broadcast backwards.
- **links**: On a topology, bytes between groups, or between switches, use links of these classes.
- **cuts**: On a topology, bytes that must leave a set of nodes and switches use the links out of
  it. The term is that of the slowest set (see `planner.packing.bounds`).
- **results**: A rank's result must be written: by cores, which copy or receive, or by adapters.
- **sources**: What a rank has for others leaves its memory: by cores, which copy it to the memory
  that the node shares, by the rank's port, or by the lanes of its node.
- **reductions**: p operands of an element take p - 1 reductions, and cores of all nodes share
  them. Where all ranks need a complete result, or both their prefix and that of the next rank,
  each rank but one or two writes once more.

References
----------
Richard Karp, Abhijit Sahay, Eunice Santos, Klaus Erik Schauser, "Optimal broadcast and summation
in the LogP model", SPAA 1993.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from collplan.planner.arrays import Floats, Ints
from collplan.planner.collective.bounds import (
    ARGUMENTS,
    crossing,
    fastest_lane_bytes,
    most_partners,
    usable_lanes,
)
from collplan.planner.packing.bounds import cut_bound
from collplan.planner.topology import fabric_of
from collplan.planner.topology.links import GLOBAL, HOST
from collplan.specs import Collective, Link, Machine, Network, PlanSpec
from collplan.specs.topology import FatTree


class Term(NamedTuple):
    """A lower bound of the makespan that follows from one resource.

    Parameters
    ----------
    name : str
        Name of the term, as in the table of the module.
    time_ns : float
        Time in ns.
    what : str
        A plural noun phrase for that which takes this time.
    """

    name: str
    time_ns: float
    what: str


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A lower bound of the makespan of any plan, and its terms.

    Parameters
    ----------
    time_s : float
        The greatest term in seconds.
    name, what : str
        Name of this term, and a noun phrase for that which takes the time.
    terms : dict of str to float
        All terms in seconds, by name.
    """

    time_s: float
    name: str
    what: str
    terms: dict[str, float]

    def to_json(self) -> dict[str, object]:
        """Return the bound as values for JSON."""
        return {
            "time_s": self.time_s,
            "name": self.name,
            "what": self.what,
            "terms_s": self.terms,
        }


_SECONDS: Final = 1e-9 * (1 - 1e-9)
"""Seconds per ns, less what sums of floats in another order may differ by."""
NO_BOUND: Final = TimeBound(0.0, "none", "nothing", {})
"""Bound of collectives of which no bound is known, or that move nothing."""


def time_bound(
    spec: PlanSpec, network: Network | None = None, *, allocated: bool = False
) -> TimeBound:
    """Return a lower bound of the makespan of any plan of a collective on a machine.

    Parameters
    ----------
    spec : PlanSpec
        Spec, of which only the machine and the collective matter.
    network : Network, optional
        Network instead of the machine's.
    allocated : bool
        Whether buffers may be allocated such that copies take no time.

    Returns
    -------
    TimeBound
        Its time is 0 if no bound is known, or if nothing has to move.

    Examples
    --------
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"nodes": 8}, "collective": {"kind": "bcast", "count": 1024}})
    >>> bound = time_bound(spec)
    >>> bound.name, round(bound.time_s * 1e9)
    ('spread', 3200)
    """
    if network is not None:
        spec = spec.replace(machine=spec.machine.replace(network=network))
    terms: dict[str, Term] = {}
    for term in _terms(spec, allocated=allocated):
        if term.time_ns > max(0.0, terms[term.name].time_ns if term.name in terms else 0.0):
            terms[term.name] = term
    if not terms:
        return NO_BOUND
    most = max(terms.values(), key=lambda term: term.time_ns)
    seconds = {name: float(term.time_ns) * _SECONDS for name, term in terms.items()}
    return TimeBound(seconds[most.name], most.name, most.what, seconds)


def _terms(spec: PlanSpec, *, allocated: bool) -> Iterator[Term]:
    """Yield the terms; those of work that the collective does not have are 0 or missing."""
    machine, collective = spec.machine, spec.collective
    reached = most_partners(collective, np.array(machine.rank_to_node))
    others = most_partners(collective, np.arange(machine.n_ranks))
    if collective.planned_kind not in ARGUMENTS or (not others and machine.n_ranks > 1):
        return
    hop_ns = _hop_ns(machine)
    if machine.nodes > 1:
        yield from _between_nodes(spec, reached)
    elif others:
        yield Term("spread", hop_ns, "latencies between ranks")
    if collective.has_data and not allocated:
        yield _results(collective, machine, hop_ns)
        yield _sources(collective, machine, hop_ns)
    if collective.has_op:
        yield _reductions(collective, machine, hop_ns, allocated=allocated)


def _between_nodes(spec: PlanSpec, reached: int) -> Iterator[Term]:
    """Yield the terms of messages between nodes."""
    machine, collective = spec.machine, spec.collective
    message_ns = _message_ns(machine.network.network)
    is_full = reached == machine.nodes - 1
    inside_ns = _inside_ns(machine) if is_full else 0.0
    spread_ns = spread(1 + reached, _senders(machine, reached), message_ns)
    yield Term(
        "spread", spread_ns + inside_ns, f"messages until {1 + reached} nodes know of a rank"
    )
    if not collective.has_data:
        return
    n_bytes = fastest_lane_bytes(spec, 2 * machine.network.burst_bytes)
    on_lanes = _lane_ns(n_bytes, collective.itemsize, machine)
    place = "lane" if len(set(machine.lane_rates)) == 1 else "and fastest lane"
    if n_bytes > 0:
        what = f"{round(n_bytes)} B through the busiest {place} and a latency"
        yield Term("lanes", on_lanes + message_ns, what)
    yield from _links(spec)
    if collective.has_blocks or collective.is_pairwise or not is_full:
        return
    whole_ns = _lane_ns(_vector_bytes(spec), collective.itemsize, machine)
    lanes_alone = np.arange(float(reached)) // machine.n_lanes * machine.network.network.g_ns
    after_ns = spread(1 + reached, _senders(machine, reached), message_ns, first=lanes_alone)
    yield Term(
        "spread after lanes",
        whole_ns + after_ns + inside_ns,
        f"the vector on the lanes of a node and messages of its end to {1 + reached} nodes",
    )


def _vector_bytes(spec: PlanSpec) -> float:
    """Return the least bytes of the fastest lane if one vector enters or leaves a node."""
    machine, collective = spec.machine, spec.collective
    rates = np.array(machine.lane_rates) / max(machine.lane_rates)
    burst = 2 * machine.network.burst_bytes * machine.n_lanes
    return max(0.0, (collective.count * collective.itemsize - burst) / float(rates.sum()))


def _lane_ns(n_bytes: float, itemsize: int, machine: Machine) -> float:
    """Return the least time in ns between the first and the last message of a lane.

    Messages have at least one element. n messages of s bytes in total take (s - n)·G + (n - 1)·g,
    which is least for one message or for the most messages. If lanes have different rates, the
    bytes are those of the fastest lane, and every lane is as busy.
    """
    link, slowest = machine.network.network, max(machine.lane_slowness)
    gap_ns = link.g_ns / slowest
    first_ns = slowest * min(link.G_ns_per_byte, gap_ns)
    return max(0.0, n_bytes * _per_byte(link.G_ns_per_byte, gap_ns, itemsize) - first_ns)


def _per_byte(per_byte: float, per_message: float, itemsize: int) -> float:
    """Return the least time in ns per byte of messages, each of which has at least one element.

    The first byte of a message takes `per_message`, if that is less, and every other `per_byte`.
    """
    return per_byte + min(0.0, per_message - per_byte) / itemsize


def _message_ns(link: Link) -> float:
    """Return the time of the shortest message from its start until it is received."""
    return link.o_ns + link.L_ns + link.o_ns


def _hop_ns(machine: Machine) -> float:
    """Return the least time in ns until a rank knows of another: a latency of shared memory."""
    network = machine.network
    latencies = [network.network.o_ns + network.network.L_ns] if machine.nodes > 1 else []
    if max(machine.node_to_n_ranks) > 1:
        latencies.append(_flag_ns(machine))
    return min(latencies, default=0.0)


def _flag_ns(machine: Machine) -> float:
    """Return the least latency in ns between two cores of a node that work for different ranks."""
    return min(link.L_ns for link in _links_inside(machine))


def _links_inside(machine: Machine) -> list[Link]:
    """Return the classes of links between cores of a node that work for different ranks."""
    network, links = machine.network, [machine.network.numa]
    if machine.numa_domains > 1:
        links.append(network.node)
    if machine.cores_per_node > min(machine.node_to_n_ranks):
        links.append(network.core)  # passes may let several ranks share a free core
    return links


def _inside_ns(machine: Machine) -> float:
    """Return the least time in ns from the first to the last rank of the last node that knows.

    The others learn it through memory, or each by a message of its own.
    """
    n_messages = -(-min(machine.node_to_n_ranks) // machine.n_lanes)
    if n_messages == 1:
        return 0.0
    return min(_flag_ns(machine), (n_messages - 1) * machine.network.network.g_ns)


def _senders(machine: Machine, n_messages: int) -> Floats:
    """Return the earliest times of a node's messages after one of its ranks knows, ascending.

    The cores that work for this rank send at once, all others after a latency of shared memory.
    """
    link, n = machine.network.network, np.arange(max(1, n_messages))
    n_cores = machine.cores_per_node
    n_first = 1 + n_cores - min(machine.node_to_n_ranks)
    at_once = n // n_first * link.o_ns
    later = n // max(1, n_cores - n_first) * link.o_ns + _flag_ns(machine)
    cores = np.sort(np.concatenate((at_once, later if n_cores > n_first else at_once[:0])))
    return np.asarray(np.maximum(cores[: len(n)], n // machine.n_lanes * link.g_ns))


def spread(n_places: int, starts: Floats, message_ns: float, first: Floats | None = None) -> float:
    """Return the least time in which one place lets all places know, by messages.

    Parameters
    ----------
    n_places : int
        Number of places.
    starts : ndarray of float64, shape (n_places - 1,)
        Earliest times of a place's messages after it knows, ascending.
    message_ns : float
        Time from the start of a message until its receiver knows.
    first : ndarray of float64, optional
        The same as `starts` for the first place.

    Returns
    -------
    float
        Time in ns.

    Examples
    --------
    >>> spread(4, np.array([0.0, 100.0, 200.0]), 1000.0)
    1200.0
    >>> spread(16, 1000.0 * np.arange(15), 1000.0)
    4000.0
    """
    if n_places == 1 or message_ns <= 0:
        return 0.0
    offsets = [starts if first is None else first]  # of each class of places that know at one time
    waiting, n_alike = [(float(offsets[0][0]) + message_ns, 0, 0)], [1]
    n_known, began, now = 1, [0.0], 0.0
    while n_known < n_places:
        now, n_new = waiting[0][0], 0
        while waiting and waiting[0][0] <= now:
            _, which, place = heapq.heappop(waiting)
            n_new += n_alike[which]
            if place + 1 < len(offsets[which]):
                next_ns = began[which] + float(offsets[which][place + 1]) + message_ns
                heapq.heappush(waiting, (next_ns, which, place + 1))
        n_known += n_new
        heapq.heappush(waiting, (now + float(starts[0]) + message_ns, len(began), 0))
        began.append(now)
        n_alike.append(n_new)
        offsets.append(starts)
    return now


def _links(spec: PlanSpec) -> Iterator[Term]:
    """Yield the time of the bytes between groups, and between switches, over the links of these."""
    fabric = fabric_of(spec.machine)
    if fabric is None:
        return
    node = np.array(spec.machine.rank_to_node)
    # Routes of a fat tree go up and down again, over two links of a class.
    times = 2 if isinstance(fabric.topology, FatTree) else 1
    for name, places, least in (
        ("groups", fabric.node_group, GLOBAL),
        ("switches", fabric.node_switch, HOST + 1),
    ):
        needed = crossing(spec.collective, np.unique(places[node], return_inverse=True)[1])
        n_elements = max(needed.total, sum(needed.into), sum(needed.out))
        rate = float(fabric.bandwidth[fabric.link_class >= least].sum())
        n_bytes = n_elements * spec.collective.itemsize
        if n_bytes and rate:
            yield Term("links", times * n_bytes / rate * 1e9, f"{n_bytes} B between {name}")
    found = cut_bound(spec.machine, spec.collective)
    if found is not None:
        yield Term("cuts", *found)


def _results(collective: Collective, machine: Machine, hop_ns: float) -> Term:
    """Return the time in which the busiest node or rank writes its results."""
    n_ranks, place = machine.n_ranks, np.array(machine.rank_to_node)
    foreign = np.zeros(n_ranks)
    if not collective.has_op:
        foreign = np.array(crossing(collective, np.arange(n_ranks)).into, dtype=np.float64)
    every = foreign + _own_elements(collective, n_ranks)
    has_lane = usable_lanes(machine)[0]
    speeds = (has_lane / np.array(machine.lane_slowness)).sum(axis=1)
    n_cores, size = machine.cores_per_node, collective.itemsize
    node_rates = np.array([_written_per_ns(machine, size, n_cores, lane) for lane in speeds])
    own_lane = 1 / np.array(machine.lane_slowness)[list(machine.rank_to_lane)]
    if machine.nodes == 1:
        own_lane[:] = 0.0
    pairs = np.stack((_own_cores(machine), own_lane), axis=1)
    kinds, inverse = np.unique(pairs, axis=0, return_inverse=True)
    rates = np.array([_written_per_ns(machine, size, *kind) for kind in kinds])
    rank_rates = rates[inverse.reshape(-1)]
    most, free = 0.0, _burst_bytes(machine)
    for elements, before in ((foreign, hop_ns), (every, 0.0)):
        by_node = np.bincount(place, elements, minlength=machine.nodes)
        ends = (by_node, node_rates), (elements, rank_rates)
        longest = max(((some * size - free) / rate).max(initial=0.0) for some, rate in ends)
        most = max(most, longest + before * (longest > 0))
    return Term("results", most, "writes of the results")


def _sources(collective: Collective, machine: Machine, hop_ns: float) -> Term:
    """Return the time in which the ranks' own elements leave their memory."""
    network = machine.network
    out = np.array(crossing(collective, np.arange(machine.n_ranks)).out, dtype=np.float64)
    links = [network.network] * machine.n_lanes * (machine.nodes > 1)
    if max(machine.node_to_n_ranks) > 1:
        links.append(min(_links_inside(machine), key=lambda link: link.G_ns_per_byte))
    size, per_byte = collective.itemsize, network.copy_ns_per_byte
    by_links = sum(_per_ns(link, size) for link in links)
    rates = by_links + (_own_cores(machine) / per_byte if per_byte > 0 else math.inf)
    longest = float(((out * size - _burst_bytes(machine)) / rates).max(initial=0.0))
    return Term("sources", longest + hop_ns * (longest > 0), "reads of what other ranks need")


def _burst_bytes(machine: Machine) -> int:
    """Return the most bytes that all lanes of a node, at both ends, transfer in no time."""
    return 2 * machine.network.burst_bytes * machine.n_lanes * (machine.nodes > 1)


def _own_cores(machine: Machine) -> Floats:
    """Return the number of cores that may work for each rank: its own, and those without ranks."""
    n_free = machine.cores_per_node - np.array(machine.node_to_n_ranks)
    return np.asarray(1.0 + n_free[list(machine.rank_to_node)])


def _own_elements(collective: Collective, n_ranks: int) -> Floats:
    """Return the number of elements that each rank copies from its own buffer to its result."""
    own = np.zeros(n_ranks)
    if collective.in_place or not collective.has_data or collective.kind == "bcast":
        return own
    if collective.has_op:
        return own + collective.count * (n_ranks == 1 and collective.planned_kind != "exscan")
    if collective.is_pairwise:
        layout = collective.pair_layout(n_ranks)
        return own + collective.count if layout is None else np.diag(layout[0]).astype(np.float64)
    edges = collective.edge_layout(n_ranks)
    if edges is not None:
        is_own = edges.source == edges.dest
        np.add.at(own, edges.dest[is_own], edges.counts[is_own])
        return own
    blocks: Ints = collective.block_layout(n_ranks)[0]
    if collective.root is None:
        return blocks.astype(np.float64)
    own[collective.root] = blocks[collective.root]
    return own


def _written_per_ns(machine: Machine, itemsize: int, n_cores: float, lanes: float) -> float:
    """Return the most bytes per ns that cores and lanes write into results.

    Cores copy, or receive messages from inside the node; all of these use the memory of the node.
    Lanes bring messages from other nodes, which keep cores, too, unless adapters write to memory.
    """
    network, far = machine.network, machine.network.network
    inside = [network.copy_ns_per_byte]
    if max(machine.node_to_n_ranks) > 1:
        if any(link.offload for link in _links_inside(machine)):
            return math.inf
        inside += [_core_ns(link, itemsize) for link in _links_inside(machine)]
    inside_ns, limit = min(inside), math.inf
    if network.memory_ns_per_byte > 0:
        limit = 1 / network.memory_ns_per_byte
    arrives = lanes * _per_ns(far, itemsize) if lanes > 0 else 0.0
    ways = sorted([(inside_ns, limit), (_core_ns(far, itemsize), arrives)])
    written, left = 0.0, n_cores
    for core_ns, most in ways:  # the way that keeps cores least comes first
        amount = most if core_ns == 0 else min(most, left / core_ns)
        written, left = written + amount, left - (amount * core_ns if core_ns else 0.0)
    return written


def _per_ns(link: Link, itemsize: int) -> float:
    """Return the most bytes per ns of a lane or a port; messages have at least one element."""
    per_byte = _per_byte(link.G_ns_per_byte, link.g_ns, itemsize)
    return 1 / per_byte if per_byte > 0 else math.inf


def _core_ns(link: Link, itemsize: int) -> float:
    """Return the least time in ns per byte for which a message keeps its receiver's core."""
    per_byte = link.O_ns_per_byte if link.offload else max(link.O_ns_per_byte, link.G_ns_per_byte)
    return _per_byte(per_byte, link.o_ns, itemsize)


def _reductions(
    collective: Collective, machine: Machine, hop_ns: float, *, allocated: bool
) -> Term:
    """Return the time of all reductions, and of further writes of the kind, on all cores."""
    n_ranks, network, kind = machine.n_ranks, machine.network, collective.planned_kind
    n_elements, n_operands = int(collective.count), n_ranks
    if collective.has_blocks:
        n_elements = int(collective.block_layout(n_ranks)[0].sum())
    if kind == "exscan":
        n_operands = max(1, n_ranks - 1)
    work_ns, n_cores = (n_operands - 1) * network.reduce_ns_per_byte, float(machine.nodes)
    n_cores *= machine.cores_per_node
    if network.processors is not None:
        n_cores = min(n_cores, network.processors)
    # A reduction writes one place. A tree of them writes the result of one rank, a chain the
    # prefix that the next rank needs or that of its own rank.
    n_more = {"allreduce": n_ranks - 1, "scan": n_ranks - 2}.get(kind, 0)
    if n_more > 0 and not allocated:
        size, far = collective.itemsize, network.network
        inside = _written_per_ns(machine, size, 1.0, 0.0)
        inside_ns = min(network.reduce_ns_per_byte, 1 / inside)
        if machine.nodes > 1 and (saved_ns := inside_ns - _core_ns(far, size)) > 0:
            n_lanes = machine.n_lanes * machine.nodes
            n_cores += saved_ns * n_lanes * _per_ns(far, size)
        work_ns += n_more * inside_ns
    longest = n_elements * collective.itemsize * work_ns / n_cores
    return Term("reductions", longest + hop_ns * (longest > 0), "reductions on all cores")
