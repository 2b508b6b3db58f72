"""Who exchanges what with whom, when ranks stage their blocks in their node's memory.

All ranks of a node copy what they send into the node's shared send buffer;
leaders send it from there to other nodes and receive into a shared receive
buffer; all ranks copy what is theirs out of it.

References
----------
Tran et al., "OHIO: Improving RDMA Network Scalability in MPI_Alltoall through
Optimized Hierarchical and Intra/Inter-Node Communication Overlap Design",
2024: one leader a node.
Khorassani et al., "Adaptive and Hierarchical Large Message All-to-all
Communication Algorithms for Large-scale Dense GPU Systems", CCGrid 2021: all
ranks lead.
Chochia, Solt, Hursey, "Applying on Node Aggregation Methods to MPI Alltoall
Collectives: Matrix Block Aggregation Algorithm", EuroMPI 2022: all ranks share
the peer nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collplan.planner.arrays import Bools, Ints
from collplan.planner.arrays.csr import running_total
from collplan.planner.blueprint.groups import Rows, rows_by
from collplan.planner.errors import AlgorithmError
from collplan.specs import Decomposition, PlanSpec
from collplan.specs.request import AUTO

FORMS = ("staged", "node_aware", "matrix")
"""Forms of alltoall through shared memory: leaders serve destinations, or peer nodes,
or peer nodes without copies while others are under way."""
DEFAULT_FOR = ("hierarchical", "multi_leader")
"""Decompositions whose alltoall is staged where ranks share memory and nothing else is said."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """An alltoall of equal blocks through shared memory.

    Parameters
    ----------
    rows : list of ndarray
        Ranks of every node.
    leaders : int
        Leaders a node, where it has as many ranks.
    count : int
        Elements of a block.
    is_in_place : bool
        Whether blocks lie in the receive buffer.
    shares_peers : bool
        Whether every peer node has one leader, in turn; otherwise each leader
        talks with its like on all peers, about the ranks that one serves.
    is_overlapped : bool
        Whether a rank copies each node's block as it comes; otherwise all in the end.
    is_coalesced : bool
        Whether what one node has for a part of another is one message: what the pass
        `coalesce_requests` makes of a message a rank, but where ranks are many, those
        are too many to be made first.
    is_remapped : bool
        Whether such a message lies in one interval where it is staged.
    """

    rows: Rows
    leaders: int
    count: int
    is_in_place: bool
    shares_peers: bool
    is_overlapped: bool
    is_coalesced: bool = False
    is_remapped: bool = False

    @property
    def n_rows(self) -> int:
        """Return the number of nodes that have ranks."""
        return len(self.rows)

    @cached_property
    def sizes(self) -> Ints:
        """Ranks of every node, shape (n_rows,)."""
        return np.array([len(row) for row in self.rows], dtype=np.int64)

    @cached_property
    def first(self) -> Ints:
        """Where the ranks of every node begin in `ranks`, and their end."""
        return running_total(self.sizes)

    @cached_property
    def ranks(self) -> Ints:
        """All ranks, node by node."""
        return np.concatenate(self.rows).astype(np.int64)

    @cached_property
    def n_leaders(self) -> Ints:
        """Leaders of every node."""
        return np.minimum(self.leaders, self.sizes)

    @property
    def n_parts(self) -> int:
        """Return into how many parts the block of a pair of nodes is split."""
        return 1 if self.shares_peers else self.leaders

    @cached_property
    def is_direct(self) -> Bools:
        """Nodes of one rank, which needs no staging: it sends and receives in its own buffers."""
        return np.asarray(self.sizes == 1)

    @cached_property
    def stages(self) -> Bools:
        """Nodes whose ranks stage; in place, what is sent must be kept from what is received."""
        return ~self.is_direct | self.is_in_place

    def team_sizes(self) -> Ints:
        """Return how many ranks each part serves on every node, shape (n_rows, n_parts).

        Ranks are dealt to leaders in turn; where there are fewer, later parts are empty.
        """
        if self.n_parts == 1:
            return self.sizes[:, None].copy()
        part = np.arange(self.n_parts)
        n = self.n_leaders[:, None]
        return np.where(part < n, -(-(self.sizes[:, None] - part) // n), 0)

    @property
    def n_messages(self) -> int:
        """Return how many messages there are, one a rank of the source for every part."""
        n_parts = (self.team_sizes() > 0).sum(axis=1)
        return int(self.sizes.sum() * n_parts.sum() - (self.sizes * n_parts).sum())

    def leader(self, row: Ints, step: Ints, part: Ints) -> Ints:
        """Return the ranks that talk for nodes: of a part, or in a step."""
        turn = step - 1 if self.shares_peers else part
        return self.ranks[self.first[row] + turn % self.n_leaders[row]]

    def source(self, row: Ints, step: Ints) -> Ints:
        """Return the nodes that others receive from: XOR on powers of two, else the left."""
        if self.n_rows & (self.n_rows - 1):
            return np.asarray((row - step) % self.n_rows)
        return np.asarray(row ^ step)


def exchange_of(spec: PlanSpec, chosen: Decomposition) -> Exchange | None:
    """Return the exchange by which a decomposition computes a spec's collective, if it does.

    Raises
    ------
    AlgorithmError
        If such a form is named where it cannot serve.
    """
    if not spec.collective.is_pairwise or chosen.name not in (*DEFAULT_FOR, "full_lane"):
        return None
    refusal = _refusal(spec, chosen)
    if chosen.form not in FORMS:
        is_default = chosen.form is None and chosen.name in DEFAULT_FOR and refusal is None
        if not is_default:
            return None
    elif refusal is not None:
        raise AlgorithmError(f"decomposition.form: {chosen.form} {refusal}")
    rows = rows_by(np.array(spec.machine.rank_to_node))
    longest = max(len(row) for row in rows)
    leaders = {"hierarchical": 1, "full_lane": longest}.get(chosen.name, chosen.leaders)
    assert leaders is not None
    return Exchange(
        rows,
        min(leaders, longest),
        spec.collective.count,
        spec.collective.in_place,
        shares_peers=chosen.form in ("node_aware", "matrix"),
        is_overlapped=chosen.form != "matrix",
        is_coalesced=_coalesces(spec) is not None,
        is_remapped=_coalesces(spec) == "remap",
    )


def _coalesces(spec: PlanSpec) -> str | None:
    """Return the staging if the first pass makes one message of each block, without copies."""
    first = spec.passes[0] if spec.passes else None
    if first is None or first.name != "coalesce_requests" or first.options.keys() - {"staging"}:
        return None
    staging = first.options.get("staging", "remap")
    return str(staging) if staging in ("remap", "layout") else None


def _refusal(spec: PlanSpec, chosen: Decomposition) -> str | None:
    """Say why an exchange cannot serve; None where it can."""
    roles = spec.transport.shared_roles
    if roles is not None and "node" not in roles:
        return "goes through memory that the ranks of a node share; write transport: shared"
    if chosen.node is not None or chosen.lane is not None or chosen.by != "node":
        return "has no parts to split, and takes nodes as they are; leave out node, lane and by"
    if spec.algorithms != AUTO:
        return f"takes no algorithms, and algorithms says {spec.algorithms}; leave them out"
    if spec.collective.pair_counts(spec.machine.n_ranks) is not None:
        return "moves blocks of one size, and these differ; use collect"
    return None
