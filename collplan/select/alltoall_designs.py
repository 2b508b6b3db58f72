"""Alltoall as OHIO's authors designed it, and the designs they compare it with, as specs.

References
----------
Tran et al., "OHIO: Improving RDMA Network Scalability in MPI_Alltoall through
Optimized Hierarchical and Intra/Inter-Node Communication Overlap Design",
2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        kind = spec.collective.kind
        if kind != "alltoall":
            raise AlgorithmError(
                f"collective.kind: {self.name} is a design of alltoall, not of {kind}; "
                "give an alltoall"
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
        Design("pairwise", "one partner a round", {"algorithms": "pairwise"}),
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
        Design("ohio_v1", "leaders exchange, a message a rank", _shared("hierarchical")),
        Design("ohio_v2", "a message a peer node", _shared("hierarchical", "coalesce_requests")),
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
