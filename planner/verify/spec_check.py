"""Check that the columns of a plan agree with its spec."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints, csr
from collplan.planner.collective.buffers import buffer_sizes
from collplan.planner.plan.format_check import contradict, require_range
from collplan.planner.plan.plan import Buffer, Plan
from collplan.specs import PlanSpec


def check_spec(plan: Plan, spec: PlanSpec) -> None:
    """Raise `PlanFormatError` where columns do not fit the machine of the spec."""
    machine = spec.machine
    for name, stored, meant, field in (
        ("number of ranks", plan.n_ranks * plan.n_copies, machine.n_ranks, "machine"),
        ("number of nodes", plan.n_nodes * plan.n_copies, machine.nodes, "machine.nodes"),
    ):
        if stored != meant:
            contradict(name, stored, field, meant)
    # Passes that reserve cores for communication move ranks, so any core of the machine is valid.
    require_range("rank_core", plan.rank_core, 0, machine.cores_per_node)
    require_range("core", plan.core, 0, machine.cores_per_node)
    # A folded plan has the ranks of the first node.
    _compare("rank_node", plan.rank_node, machine.rank_to_node[: plan.n_ranks], "machine")
    _compare("rank_lane", plan.rank_lane, machine.rank_to_lane[: plan.n_ranks], "machine.lanes")


def check_buffers(plan: Plan, spec: PlanSpec) -> None:
    """Raise `PlanFormatError` where the sizes of buffers do not fit the collective of the spec."""
    meant = buffer_sizes(spec.collective, plan.n_ranks)
    for buffer, sizes in zip((Buffer.SEND, Buffer.RECV), meant, strict=True):
        name = f"size of the {buffer.name.lower()} buffer"
        _compare(name, plan.buffer_sizes[:, buffer], sizes, "collective")


def _compare(name: str, column: Ints, meant: npt.ArrayLike, field: str) -> None:
    """Raise `PlanFormatError` where a column with a row per rank does not agree with the spec."""
    values = np.asarray(meant)
    differs = np.asarray(column != values)
    if (rank := csr.first_true(differs)) >= 0:
        contradict(f"{name} of rank {rank}", column[rank], field, values[rank])
