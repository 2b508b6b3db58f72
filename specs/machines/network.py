"""Communication costs: LogGPS parameters for each class of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from collplan.specs.syntax.base import ShortModel, SpecModel, described
from collplan.specs.syntax.numbers import Bytes, Flag, Nanoseconds, Positive, PositiveBytes, Seconds
from collplan.specs.topology import Topology

LINKS: Final = ("core", "numa", "node", "network")
"""Classes of links, from the nearest to the farthest."""


class Link(SpecModel):
    """LogGPS parameters of one class of link.

    Parameters
    ----------
    L_ns : float
        Latency: from the end of the sender's overhead to the message's arrival.
    o_ns : float
        Overhead: the time for which a core is busy with sending or receiving one message.
    g_ns : float
        Gap: the shortest time between two messages on a lane in one direction.
    G_ns_per_byte : float
        Gap per byte: the inverse of the lane's bandwidth.
    O_ns_per_byte : float
        Overhead per byte: the time for which a core is busy with each byte of a message.
    offload : bool
        Whether the adapter writes incoming bytes to memory by itself. Then G occupies only
        the lane. Otherwise G also occupies the core of the receiver, as in LogGOPSim.
    """

    # In a network, parameters that are left out have the defaults of their class of links.
    model_config = described(lambda own: {key: own[key] for key in own if key != "required"})

    L_ns: Nanoseconds
    o_ns: Nanoseconds
    g_ns: Nanoseconds
    G_ns_per_byte: Nanoseconds
    O_ns_per_byte: Nanoseconds = 0.0
    offload: Flag = False


class Nic(SpecModel):
    """Cache of queue pairs in an adapter, and the transport of the adapter.

    Parameters
    ----------
    connections : int
        Number of queue pairs that fit, per lane of a node. The least recently used is
        evicted first.
    miss_ns : float
        Time to read a queue pair over PCIe that is not in the cache.
    reads_at_once : int
        Number of reads that an adapter can have in progress. One read occupies the lane
        for this fraction of its time, while its message waits for the whole read.
    transport : "rc", "dc" or "ud"
        Type of connection between ranks. Reliable connections (rc) have one queue pair per
        pair of ranks. Dynamic connections (dc) have one queue pair per rank, which is
        connected again when its peer changes. Unreliable datagrams (ud) have one queue pair
        per rank; the cores of the ranks order and acknowledge packets.
    reconnect_ns : float
        Time to connect the queue pair of a rank to another peer (dc).
    packet_ns : float
        Overhead per packet at each end (ud): the time to order it, to acknowledge it, and
        to copy it out of the buffer in which it arrived.
    packet_bytes : int
        Size of the largest packet (ud).
    warm : bool
        Whether adapters start with the queue pairs that the previous start of the plan used
        last, in the order of the plan's rows, as in a loop. Otherwise caches start empty.
    """

    connections: Positive
    miss_ns: Nanoseconds
    reads_at_once: Positive = 1
    transport: Literal["rc", "dc", "ud"] = "rc"
    reconnect_ns: Nanoseconds = 0.0
    packet_ns: Nanoseconds = 0.0
    packet_bytes: PositiveBytes = 4096
    warm: Flag = False


class Network(ShortModel):
    """Links by distance between two ranks, and the costs of memory.

    The defaults are estimates for a current two-socket node with one 100 Gbit/s
    adapter: 1 µs and 12.5 GB/s between nodes, 0.3 to 0.5 µs and 6 to 10 GB/s
    through shared memory. They suffice to rank algorithms, but do not predict the
    times of a specific machine.

    Parameters
    ----------
    core : Link
        Link between two ranks on one core. Parameters that are left out have their defaults.
    numa : Link
        Link between two cores of one NUMA domain.
    node : Link
        Link between two NUMA domains of one node.
    network : Link
        Link between two nodes.
    eager_limit_bytes : int
        Size of the largest eager message, S of LogGPS. Longer ones wait for their receive
        (rendezvous).
    handshake : bool
        Whether a rendezvous asks the receiver first. Its bytes then leave o + L after the
        receive is posted and the request, which takes o + L too, has arrived.
    turn_bytes : int or None
        Number of bytes after which messages that leave a node by the same lane take turns,
        as TCP connections share an adapter. None sends one message after another.
    burst_bytes : int
        Number of bytes that pass at once over a lane that has been idle, as a token bucket
        permits.
    copy_ns_per_byte : float
        Time that a core takes to copy a byte within memory.
    reduce_ns_per_byte : float
        Time that a core takes to combine a byte of two operands.
    strided_ns_per_byte : float
        Additional time of a core per byte of data that is not contiguous: in a copy, a
        reduction, or at the end of a message with a derived datatype.
    cache_bytes : int or None
        Share of the caches per core. None is a cache that holds everything.
    uncached_ns_per_byte : float
        Additional time per byte of a copy or reduction whose working set is larger than
        `cache_bytes`. The working set has all of the rank's buffers that the task touches,
        and the shared memory that the rank's tasks of the same phase touch.
    memory_ns_per_byte : float
        Time per byte for which a node's memory is busy when its cores copy, reduce, or send
        each other data. With 0, the memory limits nothing.
    processors : int or None
        Number of physical processors that run the cores of all nodes together, as on an
        emulated cluster; None for one processor per core.
    nic : Nic or None
        Cache of queue pairs of the adapters; None for a cache that holds all queue pairs.
    switch_s : float
        Time in seconds (not ns) of a context switch: the change of a core from the tasks of
        one rank to those of another, as when progress threads share the core.
    topology : FatTree, Dragonfly, Torus, Graph or None
        Links between adapters; None if adapters share no links.
    """

    core: Link = Link(L_ns=100, o_ns=100, g_ns=0, G_ns_per_byte=0.08)
    numa: Link = Link(L_ns=200, o_ns=100, g_ns=20, G_ns_per_byte=0.1)
    node: Link = Link(L_ns=350, o_ns=150, g_ns=40, G_ns_per_byte=0.16)
    network: Link = Link(L_ns=1000, o_ns=300, g_ns=100, G_ns_per_byte=0.08)
    eager_limit_bytes: Bytes = 16384
    handshake: Flag = False
    turn_bytes: PositiveBytes | None = None
    burst_bytes: Bytes = 0
    copy_ns_per_byte: Nanoseconds = 0.1
    reduce_ns_per_byte: Nanoseconds = 0.2
    strided_ns_per_byte: Nanoseconds = 0.0
    cache_bytes: Bytes | None = None
    uncached_ns_per_byte: Nanoseconds = 0.0
    memory_ns_per_byte: Nanoseconds = 0.0
    processors: Positive | None = None
    nic: Nic | None = None
    switch_s: Seconds = 0.0
    topology: Topology | None = None

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields, with defaults for the parameters that a link leaves out."""
        completed = {
            name: {**cls.model_fields[name].default.model_dump(), **fields[name]}
            for name in LINKS
            if isinstance(fields.get(name), Mapping)
        }
        completed = {**fields, **completed}
        # Files of earlier versions state the model of contention that is now the only one.
        if completed.pop("contention", "hybrid") != "hybrid":
            raise ValueError(
                "contention is no longer a field; leave it out, and set network.g_ns and "
                "network.G_ns_per_byte to 0, so that messages share all links of their routes"
            )
        return completed

    @property
    def joins_nodes(self) -> bool:
        """Return whether a cache, processors, or a topology couples the costs of the nodes."""
        return bool(self.nic or self.processors or self.topology)
