"""Exchanges: alltoalls in which ranks stage their blocks in the shared memory of their node.

All ranks of a node copy the blocks that they send into the shared send buffer of the node. Leaders
send them from there to other nodes and receive into a shared receive buffer. All ranks copy their
own blocks out of it.

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
"""Forms of alltoall through shared memory. In ``staged``, each leader serves some of the ranks of
its node. In the others, each leader serves some of the peer nodes; with ``matrix``, ranks copy
received blocks only after all blocks have arrived."""
DEFAULT_FOR = ("hierarchical", "multi_leader")
"""Decompositions whose alltoall is staged by default if ranks share memory."""


class NodeBlocks(NamedTuple):
    """Blocks that nodes send to each other, one per step, receiving node and part with ranks.

    Parameters
    ----------
    step : ndarray of int64, shape (n_blocks,)
        Step in which the block is sent, from 1.
    source, dest : ndarray of int64, shape (n_blocks,)
        Nodes that send and receive the block, as indices of `Exchange.rows`.
    part : ndarray of int64, shape (n_blocks,)
        Part of the receiving node.
    team : ndarray of int64, shape (n_blocks,)
        Number of ranks that the part serves.
    sender, receiver : ndarray of int64, shape (n_blocks,)
        Leaders that send and receive for the nodes, as indices of `Exchange.ranks`.
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
    counts : ndarray of int64, shape (n_ranks, n_ranks)
        Number of elements.
    given, received : ndarray of int64, shape (n_ranks, n_ranks)
        Displacements in the sender's and in the receiver's buffer, in elements.
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
        Ranks of every node that has ranks.
    leaders : int
        Number of leaders per node. A node with fewer ranks has as many leaders as ranks.
    count : int
        Elements per block if all blocks have the same size, otherwise elements of all blocks.
    is_in_place : bool
        Whether blocks are sent from the receive buffer.
    shares_peers : bool
        Whether one leader serves each peer node, with leaders taking turns. Otherwise, each
        leader receives from all peer nodes the blocks for the ranks that it serves.
    is_overlapped : bool
        Whether a rank copies the blocks from each node when they arrive. Otherwise, it copies
        all blocks at the end.
    is_coalesced : bool
        Whether the data of a node for a part of another node are one message, instead of one
        message per source rank.
    is_remapped : bool
        Whether the data of such a message are staged in one interval.
    pairs : Pairs or None
        Counts and displacements of blocks if they differ in size.
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
        """Return the same exchange with one message per part of a pair of nodes.

        The pass `coalesce_requests` makes the same messages from one message per source rank.
        On large machines, there would be too many of the latter to compile them first.

        Parameters
        ----------
        staging : str
            The option of the pass. With ``"remap"``, the data of a message are staged in one
            interval.
        """
        return replace(self, is_coalesced=True, is_remapped=staging == "remap")

    @property
    def n_rows(self) -> int:
        """Return the number of nodes that have ranks."""
        return len(self.rows)

    @cached_property
    def sizes(self) -> Ints:
        """Number of ranks of every node, shape (n_rows,)."""
        return np.array([len(row) for row in self.rows], dtype=np.int64)

    @cached_property
    def first(self) -> Ints:
        """Offsets of the nodes in `ranks`, followed by the end of the last node."""
        return csr.running_total(self.sizes)

    @cached_property
    def ranks(self) -> Ints:
        """All ranks, sorted by node."""
        return np.concatenate(self.rows).astype(np.int64)

    @cached_property
    def n_leaders(self) -> Ints:
        """Number of leaders of every node."""
        return np.minimum(self.leaders, self.sizes)

    @property
    def n_parts(self) -> int:
        """Return the number of parts into which the block of a pair of nodes is split."""
        return 1 if self.shares_peers else self.leaders

    @cached_property
    def is_direct(self) -> Bools:
        """Mask of nodes with one rank, which can send and receive in its own buffers."""
        return np.asarray(self.sizes == 1)

    @cached_property
    def is_even(self) -> bool:
        """True if all nodes have the same number of ranks, so that all do the same."""
        return len(np.unique(self.sizes)) == 1

    @cached_property
    def stages(self) -> Bools:
        """Mask of nodes whose ranks stage their blocks.

        In place, all nodes stage, because received blocks would overwrite blocks to be sent.
        """
        return ~self.is_direct | self.is_in_place

    @cached_property
    def row(self) -> Ints:
        """Node of every rank, in the order of `ranks`."""
        return csr.row_numbers(self.first)

    @cached_property
    def part(self) -> Ints:
        """Part that serves every rank, in the order of `ranks`."""
        place = np.arange(len(self.row)) - self.first[self.row]
        return place % self.n_leaders[self.row] if self.n_parts > 1 else 0 * place

    def blocks_of(self, rows: Ints, *, sent: bool = False) -> NodeBlocks:
        """Return the blocks that some nodes receive, sorted by step, receiving node and part.

        Parameters
        ----------
        rows : ndarray of int64
            Nodes, as indices of `rows`.
        sent : bool
            Whether the blocks that these nodes send are returned, too.
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
        return NodeBlocks(step, source, dest, part, teams[dest, part], *ends)

    def served(self, blocks: NodeBlocks, block: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the ranks that blocks serve.

        Parameters
        ----------
        blocks : NodeBlocks
        block : ndarray of int64
            Selected blocks, as indices.

        Returns
        -------
        each : ndarray of int64, shape (n_served,)
            Block that serves the rank.
        number : ndarray of int64, shape (n_served,)
            Number of the rank among those that the block serves.
        place : ndarray of int64, shape (n_served,)
            The rank, as an index of `ranks`.
        """
        entry, number = csr.expand(blocks.team[block])
        each = block[entry]
        row = blocks.dest[each]
        stride = self.n_leaders[row] if self.n_parts > 1 else 1
        return each, number, self.first[row] + blocks.part[each] + number * stride

    def team_sizes(self) -> Ints:
        """Return the number of ranks that each part serves on every node, shape (n_rows, n_parts).

        Ranks are assigned to leaders in turn. On nodes with fewer leaders than parts, later parts
        are empty.
        """
        if self.n_parts == 1:
            return self.sizes[:, None].copy()
        part = np.arange(self.n_parts)
        n = self.n_leaders[:, None]
        return np.where(part < n, -(-(self.sizes[:, None] - part) // n), 0)

    @property
    def n_messages(self) -> int:
        """Return the number of messages if no block is empty.

        Every part of a node receives one message per rank of other nodes, or, if messages are
        coalesced, one per other node. Empty blocks, which cause no message, are counted, too.
        """
        n_parts = (self.team_sizes() > 0).sum(axis=1)
        n_each = np.ones_like(self.sizes) if self.is_coalesced else self.sizes
        return int(n_each.sum() * n_parts.sum() - (n_each * n_parts).sum())

    def source(self, row: Ints, step: Ints) -> Ints:
        """Return the nodes from which nodes receive in a step.

        These are ``row ^ step`` if the number of nodes is a power of two, otherwise
        ``(row - step) % n_rows``.
        """
        return self.dest(row, -step) if self.n_rows & (self.n_rows - 1) else self.dest(row, step)

    def dest(self, row: Ints, step: Ints) -> Ints:
        """Return the nodes to which nodes send in a step.

        These are ``row ^ step`` if the number of nodes is a power of two, otherwise
        ``(row + step) % n_rows``.
        """
        if self.n_rows & (self.n_rows - 1):
            return np.asarray((row + step) % self.n_rows)
        return np.asarray(row ^ step)


def exchange_of(spec: PlanSpec, chosen: Decomposition) -> Exchange | None:
    """Return the exchange by which a decomposition computes a spec's collective.

    Parameters
    ----------
    spec : PlanSpec
    chosen : Decomposition

    Returns
    -------
    Exchange or None
        None if the decomposition computes the collective without an exchange.

    Raises
    ------
    AlgorithmError
        If the decomposition names a form of exchange that the spec does not allow.
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
    """Return the number of leaders per row, which is at most the length of the longest row."""
    longest = max(len(row) for row in rows)
    wanted = {"hierarchical": 1, "full_lane": longest}.get(chosen.name, chosen.leaders)
    assert wanted is not None
    return min(wanted, longest)


def _refusal(spec: PlanSpec, chosen: Decomposition) -> str | None:
    """Return the reason why a spec does not allow an exchange, or None if it does."""
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
