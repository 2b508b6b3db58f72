"""What communication costs: LogGPS parameters for each class of link."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.base import SpecModel
from specs.sizes import Bytes

Nanoseconds = Annotated[float, Field(ge=0)]


class Link(SpecModel):
    """LogGPS parameters of one class of link.

    Parameters
    ----------
    L_ns : float
        Latency: from the end of the sender's overhead to the message's arrival.
    o_ns : float
        Overhead: the time a core is busy with sending or receiving one message.
    g_ns : float
        Gap: the least time between two messages on one lane and direction.
    G_ns_per_byte : float
        Gap a byte: the inverse of the lane's bandwidth.
    O_ns_per_byte : float
        Overhead a byte: the time a core is busy with each byte of a message.
    """

    L_ns: Nanoseconds
    o_ns: Nanoseconds
    g_ns: Nanoseconds
    G_ns_per_byte: Nanoseconds
    O_ns_per_byte: Nanoseconds = 0.0


class Network(SpecModel):
    """Links by the distance of two ranks, and the costs of memory.

    The defaults are estimates for a current two-socket node on one 100 Gbit/s
    adapter: 1 µs and 12.5 GB/s between nodes, 0.3 to 0.5 µs and 6 to 10 GB/s
    through shared memory. They rank algorithms sensibly; they predict no
    machine's times.

    Parameters
    ----------
    core : Link
        Both ranks on one core.
    numa : Link
        Different cores of one NUMA domain.
    node : Link
        Different NUMA domains of one node.
    network : Link
        Different nodes.
    eager_limit_bytes : int
        Messages above this many bytes wait for their receive (rendezvous): LogGPS's S.
    copy_ns_per_byte : float
        Time a core takes to copy a byte within memory.
    reduce_ns_per_byte : float
        Time a core takes to combine a byte of two operands.
    """

    core: Link = Link(L_ns=100, o_ns=100, g_ns=0, G_ns_per_byte=0.08)
    numa: Link = Link(L_ns=200, o_ns=100, g_ns=20, G_ns_per_byte=0.1)
    node: Link = Link(L_ns=350, o_ns=150, g_ns=40, G_ns_per_byte=0.16)
    network: Link = Link(L_ns=1000, o_ns=300, g_ns=100, G_ns_per_byte=0.08)
    eager_limit_bytes: Bytes = 16384
    copy_ns_per_byte: Nanoseconds = 0.1
    reduce_ns_per_byte: Nanoseconds = 0.2
