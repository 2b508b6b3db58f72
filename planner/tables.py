"""A blueprint's messages and local steps, whatever it is made of."""

from __future__ import annotations

import numpy as np

from planner.blueprint import Blueprint
from planner.choice import state
from planner.decompose import is_commutative
from planner.exchange.tables import exchange_tables
from planner.lowering import LocalTable, MessageTable, lower


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
