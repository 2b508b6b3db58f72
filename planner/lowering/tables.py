"""A blueprint's messages and local steps, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.lowering.exchange import exchange_tables
from collplan.planner.lowering.lower import LocalTable, MessageTable, Stated, lower
from collplan.planner.lowering.select import state
from collplan.planner.plan.pieces import Pieces


def coalesced(messages: MessageTable) -> MessageTable:
    """Return messages of one source, destination, phase and round as one, as the pass of requests.

    What they read and write is neither packed nor put in order.
    """
    keys = (messages.source, messages.dest, messages.phase, messages.round)
    order = np.lexsort((np.arange(len(messages.round)), *keys))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = False
    for key in keys:
        is_first[1:] |= key[order[1:]] != key[order[:-1]]
    bounds = np.append(np.flatnonzero(is_first), len(order))
    merged = messages.take(order[bounds[:-1]])
    for name in ("read", "write", "combine"):
        taken = getattr(messages, name).take(order)
        setattr(merged, name, Pieces(taken.indptr[bounds], *taken.columns()))
    return merged.take(np.argsort(merged.round, kind="stable"))


def tables_of(
    blueprint: Blueprint,
    parts: Sequence[Stated] | None = None,
    only_ranks: Sequence[int] | None = None,
) -> tuple[MessageTable, LocalTable]:
    """Return what all ranks send, and what they copy and reduce, in program order.

    Parameters
    ----------
    blueprint : Blueprint
    parts : sequence of Stated, optional
        Some of its components with their algorithms; all where it is left out.
    only_ranks : sequence of int, optional
        Leave out what does not concern these ranks, or, in an exchange through
        shared memory, the node of the first of them.

    Raises
    ------
    AlgorithmError
        If the spec names an algorithm that is unknown, cannot serve, or that
        no component can take.
    """
    spec, exchange = blueprint.spec, blueprint.exchange
    if exchange is not None:
        rank_node = np.array(spec.machine.rank_to_node)
        rank = None if only_ranks is None else only_ranks[0]
        return exchange_tables(exchange, rank_node, spec.machine.nodes, rank)[:2]
    n_ranks, commutative = spec.machine.n_ranks, spec.collective.is_commutative
    parts = state(blueprint) if parts is None else parts
    return lower(parts, n_ranks, blueprint.n_scratch, commutative, only_ranks)[:2]
