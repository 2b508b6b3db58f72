"""Use of a topology's links by a plan: bytes over each, and which is the busiest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.topology.fabric import Fabric, fabric_of
from collplan.planner.topology.links import GLOBAL


@dataclass(frozen=True, eq=False)
class LinkUse:
    """Bytes over links.

    Parameters
    ----------
    fabric : Fabric
    n_bytes : ndarray of int64, shape (n_links,)
        Bytes over every link, the same bytes on every link of their route.
    global_bytes : int
        Bytes of messages that cross a global link; each counts once.
    """

    fabric: Fabric
    n_bytes: Ints
    global_bytes: int

    @cached_property
    def busiest(self) -> int:
        """The link whose bytes take it the longest."""
        return int((self.n_bytes / self.fabric.bandwidth).argmax())

    @property
    def busiest_s(self) -> float:
        """Return how long the busiest link takes for its bytes, in seconds."""
        return float(self.n_bytes[self.busiest] / self.fabric.bandwidth[self.busiest])


def link_use(plan: Plan) -> LinkUse | None:
    """Return what a plan of all ranks sends over the links of its topology; None without one.

    Parameters
    ----------
    plan : Plan
        With a spec, and not folded.

    Examples
    --------
    >>> from collplan.planner import compile_plan
    >>> from collplan.specs import parse_spec
    >>> tree = {"kind": "fat_tree", "down": [2, 2]}
    >>> plan = compile_plan(parse_spec({
    ...     "machine": {"nodes": 4, "network": {"topology": tree}}, "algorithms": "ring",
    ...     "collective": {"kind": "allgather", "count": 10, "datatype": "uint8"},
    ... }))
    >>> use = link_use(plan)
    >>> use.global_bytes, int(use.n_bytes[use.busiest])
    (60, 30)
    """
    fabric = None if plan.spec is None else fabric_of(plan.spec.machine)
    if fabric is None:
        return None
    rows = np.flatnonzero((plan.op == Op.SEND) & plan.crosses)
    source, dest = (plan.rank_node[ranks[rows]] for ranks in (plan.rank, plan.peer))
    begin, links = fabric.node_routes(source, dest, plan.lane[rows])
    sent = plan.elements[rows] * plan.itemsize
    message = csr.row_numbers(begin)
    n_bytes = np.bincount(links, sent[message], fabric.n_links).astype(np.int64)
    is_global = np.zeros(len(rows), dtype=np.bool_)
    is_global[message[fabric.link_class[links] == GLOBAL]] = True
    return LinkUse(fabric, n_bytes, int(sent[is_global].sum()))
