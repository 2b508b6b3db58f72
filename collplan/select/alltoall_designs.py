"""Alltoall as OHIO's authors designed it, and the designs they compare it with, as specs.

`node_counts` says what a design needs of a node, in closed form: N nodes of P ranks
exchange blocks of M bytes. Where nodes differ, P is the fullest one's, and the formulas
are what is needed at most.

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
    """A way to do an alltoall: what a spec has to say for it.

    Parameters
    ----------
    name : str
        What tables call it.
    summary : str
        In a line.
    fields : dict
        Fields of a spec beside its machine and collective.
    """

    name: str
    summary: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def of(self, spec: PlanSpec) -> PlanSpec:
        """Return a spec's alltoall in this design.

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
            # One node has no lanes, and a rank alone on each no inside.
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
        Design(
            "scatter_destination", "all blocks straight away, at once", {"algorithms": "linear"}
        ),
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
    """Return design `name`.

    Raises
    ------
    AlgorithmError
        Naming the designs there are.
    """
    if name not in DESIGNS:
        raise AlgorithmError(f"design: there is no {name!r}; use one of {', '.join(DESIGNS)}")
    return DESIGNS[name]


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Demands of a design on a node.

    Parameters
    ----------
    queue_pairs, posted_sends : float
        Connections to ranks of other nodes, and messages to them. Whole
        numbers but for an estimate.
    memory_bytes : int or None
        Memory beside the callers' buffers; None where the tables say nothing.
    is_estimate : bool
        Whether the counts are an upper estimate: of Bruck's algorithm only, which
        also sends within nodes.
    """

    queue_pairs: float
    posted_sends: float
    memory_bytes: int | None = None
    is_estimate: bool = False


def node_counts(design: str, nodes: int, ranks: int, block_bytes: int) -> NodeCounts | None:
    """Return what a design needs of a node; None where the tables do not have it.

    Parameters
    ----------
    design : str
        As in `DESIGNS`.
    nodes, ranks : int
        Nodes, and ranks per node.
    block_bytes : int
        What every rank has for every other.

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
            # Printed is (M + 2)·N·P², which no choice of units makes the shared send
            # buffer and two blocks of P² that the text and its figure 6 describe.
            return NodeCounts(peers, peers, shared_bytes + 2 * block_bytes * ranks**2)
    return None
