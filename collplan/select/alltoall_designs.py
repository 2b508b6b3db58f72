"""Designs of alltoall as specs: OHIO, and the designs to which its authors compare it.

`node_counts` returns the resources that a design needs per node, in closed form, if N nodes of P
ranks exchange blocks of M bytes. If nodes have different numbers of ranks, P is the largest
number, and the results are upper bounds.

References
----------
Tran et al., "OHIO: Improving RDMA Network Scalability in MPI_Alltoall through
Optimized Hierarchical and Intra/Inter-Node Communication Overlap Design",
2024: tables I and III.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any, Final

from collplan.planner.errors import AlgorithmError
from collplan.specs import PlanSpec


@dataclass(frozen=True)
class Design:
    """A design of alltoall, as fields of a spec.

    Parameters
    ----------
    name : str
        Name in tables.
    summary : str
        Description in one line.
    fields : mapping of str to object
        Fields of the spec, other than machine and collective.
    """

    name: str
    summary: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def of(self, spec: PlanSpec) -> PlanSpec:
        """Return a spec with the machine and the collective of `spec`, and with this design.

        Raises
        ------
        AlgorithmError
            If the spec is for another collective.
        """
        if spec.collective.planned_kind != "alltoall":
            raise AlgorithmError(
                f"collective.kind: {self.name} is a design of alltoall, not of "
                f"{spec.collective.kind}; give an alltoall or alltoallv"
            )
        own = spec.model_dump(mode="json", include={"machine", "collective"})
        fields = dict(self.fields)
        if isinstance(fields.get("algorithms"), dict):
            # A machine with one node has no lane components, and a machine with one rank per node
            # has no node components.
            machine = spec.machine
            exists = {
                "node": max(machine.node_to_n_ranks) > 1,
                "lane": len(set(machine.rank_to_node)) > 1,
            }
            named = fields["algorithms"].items()
            fields["algorithms"] = {key: one for key, one in named if exists[key]} or "auto"
        return PlanSpec.model_validate(own | fields)


def _shared(decomposition: object, *passes: object) -> dict[str, Any]:
    return {"decomposition": decomposition, "transport": "shared", "passes": list(passes)}


DESIGNS: Final = {
    design.name: design
    for design in (
        Design("bruck", "by the digits of the distance", {"algorithms": "bruck"}),
        Design("scatter_destination", "all blocks at the same time", {"algorithms": "linear"}),
        Design("pairwise", "one partner per round", {"algorithms": "pairwise"}),
        Design(
            "traeff_rougier",
            "gather, exchange and scatter by leaders, with datatypes",
            _shared(
                {"name": "hierarchical", "form": "matrix"},
                {"name": "coalesce_requests", "staging": "layout"},
            ),
        ),
        Design(
            "chochia",
            "ranks share the peer nodes, and copy when all has come",
            _shared({"name": "full_lane", "form": "matrix"}, "coalesce_requests"),
        ),
        Design(
            "khorassani",
            "all ranks lead, and copy while others are on their way",
            _shared({"name": "full_lane", "form": "staged"}, "coalesce_requests"),
        ),
        Design(
            "full_lane",
            "exchange on nodes, then along every lane",
            {
                "decomposition": {"name": "full_lane", "form": "collect"},
                "algorithms": {"node": "linear", "lane": "pairwise"},
            },
        ),
        Design(
            "node_aware",
            "ranks share the peer nodes, and copy as blocks come",
            _shared({"name": "full_lane", "form": "node_aware"}, "coalesce_requests"),
        ),
        Design("ohio_v1", "leaders exchange, a message per rank", _shared("hierarchical")),
        Design(
            "ohio_v2", "one message per peer node", _shared("hierarchical", "coalesce_requests")
        ),
        Design(
            "ohio_v3",
            "and two receive blocks in turn",
            _shared("hierarchical", "coalesce_requests", "double_buffer"),
        ),
    )
}
"""All designs by name."""


def find_design(name: str) -> Design:
    """Return the design with a name.

    Raises
    ------
    AlgorithmError
        If there is no such design. The message names the valid designs.
    """
    if name not in DESIGNS:
        raise AlgorithmError(f"design: there is no {name!r}; use one of {', '.join(DESIGNS)}")
    return DESIGNS[name]


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Resources that a design needs per node.

    Parameters
    ----------
    queue_pairs, posted_sends : float
        Number of connections to ranks of other nodes, and number of messages to these ranks.
        They are integers, except for estimates.
    memory_bytes : int or None
        Memory in bytes in addition to the buffers of callers; None if the paper's tables do not
        state it.
    is_estimate : bool
        Whether the counts are upper estimates. This is the case only for Bruck's algorithm,
        which also sends messages within nodes.
    """

    queue_pairs: float
    posted_sends: float
    memory_bytes: int | None = None
    is_estimate: bool = False


def node_counts(design: str, nodes: int, ranks: int, block_bytes: int) -> NodeCounts | None:
    """Return the resources that a design needs per node; None if the tables do not list it.

    Parameters
    ----------
    design : str
        Name in `DESIGNS`.
    nodes, ranks : int
        Number of nodes, and number of ranks per node.
    block_bytes : int
        Size in bytes of the block that each rank sends to each other rank.

    Examples
    --------
    >>> node_counts("ohio_v3", 128, 56, 8)
    NodeCounts(queue_pairs=127, posted_sends=127, memory_bytes=3261440, is_estimate=False)
    >>> node_counts("pairwise", 128, 56, 8).queue_pairs
    398272
    >>> node_counts("bruck", 16, 56, 8).queue_pairs
    549.2...
    """
    peers, shared_bytes = nodes - 1, block_bytes * nodes * ranks**2
    match design:
        case "bruck":
            count = ranks * log2(nodes * ranks) if nodes > 1 else 0.0
            return NodeCounts(count, count, is_estimate=True)
        case "scatter_destination" | "pairwise":
            return NodeCounts(peers * ranks**2, peers * ranks**2)
        case "traeff_rougier" | "chochia":
            return NodeCounts(peers, peers)
        case "khorassani":
            return NodeCounts(peers * ranks, peers * ranks)
        case "ohio_v1":
            return NodeCounts(peers, peers * ranks, 2 * shared_bytes)
        case "ohio_v2":
            return NodeCounts(peers, peers, 2 * shared_bytes)
        case "ohio_v3":
            # The paper prints (M + 2)·N·P². With no choice of units is this the size of the
            # buffers that the text and figure 6 describe: a shared send buffer of M·N·P² bytes,
            # and two receive blocks of M·P² bytes.
            return NodeCounts(peers, peers, shared_bytes + 2 * block_bytes * ranks**2)
    return None
