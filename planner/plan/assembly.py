"""Plans of tasks: columns that follow from where ranks are on the machine are filled in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.plan.pieces import Pieces, to_extents
from collplan.planner.plan.plan import COLUMNS, NONE, Op, Plan, Stage
from collplan.planner.plan.ragged import Dependencies

if TYPE_CHECKING:
    from collplan.specs.machines.machine import Machine


@dataclass(frozen=True)
class RankPlaces:
    """Node, NUMA domain, lane and core of every rank, as read-only arrays of shape (n_ranks,)."""

    node: Ints
    numa: Ints
    lane: Ints
    core: Ints
    n_nodes: int

    @staticmethod
    @lru_cache(maxsize=4)
    def of(machine: Machine) -> RankPlaces:
        """Return the placement that a machine spec describes."""
        columns: dict[str, Ints] = {
            "node": np.array(machine.rank_to_node, dtype=np.int32),
            "numa": np.array(machine.rank_to_numa, dtype=np.int32),
            "lane": np.array(machine.rank_to_lane, dtype=np.int16),
            "core": np.array(machine.rank_to_core, dtype=np.int32),
        }
        for column in columns.values():
            column.flags.writeable = False
        return RankPlaces(**columns, n_nodes=machine.nodes)

    @staticmethod
    def one_per_node(n_ranks: int) -> RankPlaces:
        """Return the placement of ranks that have a node with one lane each."""
        nothing = np.zeros(n_ranks, dtype=np.int16)
        return RankPlaces(np.arange(n_ranks), nothing, nothing, nothing, n_ranks)


def assemble(
    placement: RankPlaces,
    columns: dict[str, Ints],
    reads: Pieces,
    writes: Pieces,
    deps: Dependencies,
    **tables: Any,
) -> Plan:
    """Return the plan of some tasks.

    Parameters
    ----------
    placement : RankPlaces
    columns : dict of ndarray, shape (n_tasks,)
        Columns of a plan: at least `op`, `rank`, `peer`, `tag` and `round`. By default, tasks run
        in the background on the core of their rank, in the only phase. Without `lane`, messages
        between nodes have the lane of their destination and come before other tasks.
    reads, writes : Pieces
        One row per task.
    deps : Dependencies
    **tables
        Other fields of `Plan`: at least `buffer_sizes` and `itemsize`.
    """
    op, rank = columns["op"], columns["rank"]
    constant = {"phase": 0, "stream": NONE, "stage": Stage.BACKGROUND, "duration_ns": 0}
    filled: dict[str, Any] = {
        name: csr.repeated(np.array([value], dtype=COLUMNS[name]), len(op))
        for name, value in constant.items()
    }
    filled["core"] = placement.core[rank]
    if "lane" not in columns:
        other = np.where(op <= Op.RECV, columns["peer"], rank)
        crosses = placement.node[rank] != placement.node[other]
        dest = np.where(op == Op.SEND, other, rank)
        filled["lane"] = np.where(crosses, placement.lane[dest], NONE)
        filled["priority"] = usual_priority(crosses)
    read_extents, write_extents, patterns = to_extents(reads, writes)
    fields = {"shared_sizes": np.zeros(placement.n_nodes, dtype=np.int64), **tables}
    return Plan(
        **{**filled, **columns},
        reads=read_extents,
        writes=write_extents,
        deps=deps,
        patterns=patterns,
        rank_node=placement.node,
        rank_lane=placement.lane,
        rank_core=placement.core,
        **fields,
    )


def usual_priority(crosses: Any) -> Any:
    """Return the priority of a task unless a pass sets it: messages between nodes come first.

    Parameters
    ----------
    crosses : bool, or ndarray of bool
        Whether it is a message between nodes.
    """
    return np.where(crosses, 0, 1)
