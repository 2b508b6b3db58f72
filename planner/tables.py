"""A blueprint's messages and local steps, whatever it is made of."""

from __future__ import annotations

import numpy as np

from planner.blueprint import Blueprint
from planner.choice import state
from planner.decompose import is_commutative
from planner.exchange.tables import exchange_tables
from planner.lowering import LocalTable, MessageTable, lower
from planner.pieces import Pieces


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


def tables_of(blueprint: Blueprint) -> tuple[MessageTable, LocalTable]:
    """Return what all ranks send, and what they copy and reduce, in program order.

    Raises
    ------
    AlgorithmError
        If the spec names an algorithm that is unknown, cannot serve, or that
        no component can take.
    """
    spec, exchange = blueprint.spec, blueprint.exchange
    if exchange is not None:
        rank_node = np.array(spec.machine.rank_to_node)
        return exchange_tables(exchange, rank_node, spec.machine.nodes)[:2]
    n_ranks = spec.machine.n_ranks
    return lower(state(blueprint), n_ranks, blueprint.n_scratch, is_commutative(spec))[:2]
