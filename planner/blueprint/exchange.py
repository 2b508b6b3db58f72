"""Exchanges: alltoalls in which ranks stage their blocks in their node's memory.

All ranks of a node copy what they send into the node's shared send buffer;
leaders send it from there to other nodes and receive into a shared receive
buffer; all ranks copy what is theirs out of it.

References
----------
Tran et al., "OHIO: Improving RDMA Network Scalability in MPI_Alltoall through
Optimized Hierarchical and Intra/Inter-Node Communication Overlap Design",
2024: one leader per node.
Khorassani et al., "Adaptive and Hierarchical Large Message All-to-all
Communication Algorithms for Large-scale Dense GPU Systems", CCGrid 2021: all
ranks lead.
Chochia, Solt, Hursey, "Applying on Node Aggregation Methods to MPI Alltoall
Collectives: Matrix Block Aggregation Algorithm", EuroMPI 2022: all ranks share
the peer nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from collplan.planner.arrays import Bools, Ints, csr
from collplan.planner.blueprint.groups import Rows, rows_by
from collplan.planner.errors import AlgorithmError
from collplan.specs import Decomposition, PlanSpec
from collplan.specs.request import AUTO

FORMS = ("staged", "node_aware", "matrix")
"""Forms of alltoall through shared memory: leaders serve destinations, or peer nodes,
or peer nodes without copies while others are under way."""
DEFAULT_FOR = ("hierarchical", "multi_leader")
"""Decompositions whose alltoall is staged where ranks share memory and nothing else is said."""


class Blocks(NamedTuple):
    """Blocks that nodes send each other: one per step, receiving node and part that has ranks.

    Parameters
    ----------
    step, source, dest, part : ndarray of int64, shape (n_blocks,)
    team : ndarray of int64, shape (n_blocks,)
        Ranks that the part serves.
    sender, receiver : ndarray of int64, shape (n_blocks,)
        Leaders that talk for the nodes, as places in `Exchange.ranks`.
    """

    step: Ints
    source: Ints
    dest: Ints
    part: Ints
    team: Ints
    sender: Ints
    receiver: Ints


class Pairs(NamedTuple):
    """Blocks of unequal size, for every sender (row) and receiver (column).

    Parameters
    ----------
    counts, given, received : ndarray of int64, shape (n_ranks, n_ranks)
        Elements, their place in the sender's buffer, and in the receiver's.
    """

    counts: Ints
    given: Ints
    received: Ints


@dataclass(frozen=True, eq=False)
class Exchange:
    """An alltoall through shared memory.

    Parameters
    ----------
    rows : list of ndarray
        Ranks of every node.
    leaders : int
        Leaders per node, where it has as many ranks.
    count : int
        Elements of a block where all are equal, else of all blocks together.
    is_in_place : bool
        Whether blocks lie in the receive buffer.
    shares_peers : bool
        Whether every peer node has one leader, in turn; otherwise each leader
        talks with its like on all peers, about the ranks that one serves.
    is_overlapped : bool
        Whether a rank copies each node's block as it comes; otherwise all in the end.
    is_coalesced : bool
        Whether what one node has for a part of another is one message, instead of one
        message per rank.
    is_remapped : bool
        Whether such a message lies in one interval where it is staged.
    pairs : Pairs or None
        The blocks, where they differ in size.
    """

    rows: Rows
    leaders: int
    count: int
    is_in_place: bool
    shares_peers: bool
    is_overlapped: bool
    is_coalesced: bool = False
    is_remapped: bool = False
    pairs: Pairs | None = None

    def coalesced(self, staging: str) -> Exchange:
        """Return the same exchange in one message per part of a pair of nodes.

        These are the messages that the pass `coalesce_requests` makes of one message per
        rank; on large machines those would be too many to be made first.
        """
        return replace(self, is_coalesced=True, is_remapped=staging == "remap")

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
        """Offsets of the nodes in `ranks`, and the end of the last."""
        return csr.running_total(self.sizes)

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
    def is_even(self) -> bool:
        """True if all nodes have equally many ranks: then all do the same."""
        return len(np.unique(self.sizes)) == 1

    @cached_property
    def stages(self) -> Bools:
        """Nodes whose ranks stage; in place, what is sent must be kept from what is received."""
        return ~self.is_direct | self.is_in_place

    @cached_property
    def row(self) -> Ints:
        """The node of every rank, in the order of `ranks`."""
        return csr.row_numbers(self.first)

    @cached_property
    def part(self) -> Ints:
        """The part that serves every rank, in the order of `ranks`."""
        place = np.arange(len(self.row)) - self.first[self.row]
        return place % self.n_leaders[self.row] if self.n_parts > 1 else 0 * place

    def blocks_of(self, rows: Ints, *, sent: bool = False) -> Blocks:
        """Return the blocks that some nodes receive, by step, then receiving node, then part.

        With `sent` also those that they send.
        """
        teams, step = self.team_sizes(), np.arange(1, self.n_rows)[:, None]
        dests = np.tile(rows, (len(step), 1))
        if sent:
            dests = np.hstack((dests, self.dest(rows, step)))
        step, dest = np.divmod(csr.sorted_unique((step * self.n_rows + dests).ravel()), self.n_rows)
        entry, part = np.nonzero(teams[dest] > 0)
        step, dest = step[entry], dest[entry]
        source, turn = self.source(dest, step), step - 1 if self.shares_peers else part
        ends = (self.first[row] + turn % self.n_leaders[row] for row in (source, dest))
        return Blocks(step, source, dest, part, teams[dest, part], *ends)

    def served(self, blocks: Blocks, block: Ints) -> tuple[Ints, Ints, Ints]:
        """Return block, number in its team and place in `ranks` of all whom blocks serve.

        Parameters
        ----------
        blocks : Blocks
        block : ndarray of int64
            Which of them.
        """
        entry, number = csr.expand(blocks.team[block])
        each = block[entry]
        row = blocks.dest[each]
        stride = self.n_leaders[row] if self.n_parts > 1 else 1
        return each, number, self.first[row] + blocks.part[each] + number * stride

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
        """Return the number of messages: for every part of a node, one per rank elsewhere.

        Coalesced, it is one per node elsewhere. Blocks of unequal size may be empty, and cause
        no message then.
        """
        n_parts = (self.team_sizes() > 0).sum(axis=1)
        n_each = np.ones_like(self.sizes) if self.is_coalesced else self.sizes
        return int(n_each.sum() * n_parts.sum() - (n_each * n_parts).sum())

    def source(self, row: Ints, step: Ints) -> Ints:
        """Return the nodes that others receive from: XOR on powers of two, else the left."""
        return self.dest(row, -step) if self.n_rows & (self.n_rows - 1) else self.dest(row, step)

    def dest(self, row: Ints, step: Ints) -> Ints:
        """Return the nodes that others send to: XOR on powers of two, else the right."""
        if self.n_rows & (self.n_rows - 1):
            return np.asarray((row + step) % self.n_rows)
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
    layout = spec.collective.pair_layout(spec.machine.n_ranks)
    return Exchange(
        rows,
        count_leaders(chosen, rows),
        spec.collective.count,
        spec.collective.in_place,
        shares_peers=chosen.form in ("node_aware", "matrix"),
        is_overlapped=chosen.form != "matrix",
        pairs=None if layout is None else Pairs(*layout),
    )


def count_leaders(chosen: Decomposition, rows: Rows) -> int:
    """Return the leaders per row that a decomposition through leaders asks for."""
    longest = max(len(row) for row in rows)
    wanted = {"hierarchical": 1, "full_lane": longest}.get(chosen.name, chosen.leaders)
    assert wanted is not None
    return min(wanted, longest)


def _refusal(spec: PlanSpec, chosen: Decomposition) -> str | None:
    """Say why an exchange cannot serve; None where it can."""
    roles = spec.transport.shared_roles
    if roles is not None and "node" not in roles:
        return "goes through memory that the ranks of a node share; write transport: shared"
    if chosen.node is not None or chosen.lane is not None or chosen.by != "node":
        return "has no parts to split, and takes nodes as they are; leave out node, lane and by"
    if chosen.shares != "equal":
        return "moves whole blocks; leave out shares, or use collect"
    if spec.algorithms != AUTO:
        return f"takes no algorithms, and algorithms says {spec.algorithms}; leave them out"
    return None
