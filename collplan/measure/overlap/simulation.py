"""Simulation of split trees that overlap with computation, plan by plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.executors.cost import Timeline, simulate
from collplan.executors.cost.traces.states import CoreStates, simulated_states
from collplan.measure.overlap.model import (
    OverlapTable,
    check_cores,
    checked_shape,
    n_trees_of,
    overlap_model,
)
from collplan.measure.overlap.sweep import (
    BLOCKING,
    OverlapMethod,
    OverlapSweep,
    node_spec,
    overlap_row,
)
from collplan.planner import compile_plan
from collplan.planner.passes.add_compute import add_compute
from collplan.planner.passes.progress.split_tree import split_tree
from collplan.planner.passes.progress.tree_model import shape_of, tree_height
from collplan.planner.plan.plan import Plan
from collplan.specs import Link, Machine, Network
from collplan.specs.explaining import explaining

MOST_CORES: Final = 256
"""Largest number of cores for which all plans can be simulated within a minute or two."""
TRANSFER_BYTES: Final = 2**21
"""Bytes of a transfer by default, as measured in the paper."""
UNIT_NS: Final = 10**9
"""Duration of a transfer in ns on a network where nothing else takes time."""
_UNIT_BYTES: Final = 10**6
"""Bytes of a transfer of one unit: enough that the first byte, which LogGP omits, is negligible."""
_BY_MESSAGES: Final = ("gather", "scatter", "allreduce")


@dataclass(frozen=True, eq=False)
class SimulatedOverlap:
    """A table of simulated times, with a description of the simulation.

    Parameters
    ----------
    table : OverlapTable
        Simulated times in transfers, like those of the model.
    machine : str or None
        Name of the machine; None if it has no name, or if a transfer takes one unit and
        nothing else takes time.
    transport : "shared" or "messages"
        Means by which ranks of the node exchange data.
    transfer_bytes : int
        Bytes of a transfer: of the buffer, or of one rank's block.
    transfer_s : float
        Time of a transfer in s: that of the collective alone on two ranks, or half of it
        for an allreduce.
    """

    table: OverlapTable
    machine: str | None
    transport: str
    transfer_bytes: int
    transfer_s: float


def simulate_overlap(
    collective: str,
    n_cores: int,
    machine: Machine | None = None,
    transfer_bytes: int = TRANSFER_BYTES,
    name: str | None = None,
    transport: str | None = None,
    radix: int = 2,
) -> SimulatedOverlap:
    """Simulate a split tree for every number of ranks and levels, alone and with computation.

    Parameters
    ----------
    collective : str
        Kind of the collective, one of `N_TREES`.
    n_cores : int
        Number of cores of the node, 2 to `MOST_CORES`.
    machine : Machine, optional
        Machine with the node to simulate, its links and its memory. Without it, a transfer
        takes one unit, and nothing else takes any time.
    transfer_bytes : int
        Bytes of a transfer; used only with a machine.
    name : str, optional
        Name of the machine.
    transport : "shared" or "messages", optional
        Means by which ranks exchange data. The default is shared memory for reduce and
        bcast, and messages for the others: in shared memory, ranks read the blocks of a
        gather or scatter in place, without a tree, and an allreduce needs extra copies.
    radix : int
        Radix of the tree, as for `overlap_model`.

    Returns
    -------
    SimulatedOverlap

    Raises
    ------
    CollplanError
        If there is no model of the collective or its tree, or the number of cores is out of range.

    Notes
    -----
    Buffers are those of ``allocate()``. The computation takes as many transfers as in the model.
    """
    checked_shape(collective, radix)
    check_cores(n_cores, MOST_CORES, "simulating all plans")
    if transport is None:
        transport = "messages" if collective in _BY_MESSAGES else "shared"
    if machine is None:
        network = _unit_network(transport)
        machine, transfer_bytes = Machine(cores=n_cores, network=network), _UNIT_BYTES
    trees = _Trees(collective, machine, n_cores, transfer_bytes, transport, radix)
    unit_ns = trees.time_ns(trees.plan(2)) / n_trees_of(collective)
    return SimulatedOverlap(
        table=trees.table(unit_ns),
        machine=name,
        transport=transport,
        transfer_bytes=transfer_bytes,
        transfer_s=unit_ns / 1e9,
    )


def _unit_network(transport: str) -> Network:
    """Return a network on which a transfer occupies one core for one unit, and all else is free.

    The transfer is a copy in shared memory, or the arrival of a message.
    """
    per_byte = UNIT_NS / _UNIT_BYTES
    is_message = transport == "messages"
    link = Link(L_ns=0, o_ns=0, g_ns=0, G_ns_per_byte=per_byte if is_message else 0.0)
    return Network(
        core=link,
        numa=link,
        node=link,
        network=link,
        eager_limit_bytes=MOST_CORES * _UNIT_BYTES,
        copy_ns_per_byte=0.0 if is_message else per_byte,
        reduce_ns_per_byte=0.0 if is_message else per_byte,
    )


@dataclass(frozen=True, slots=True)
class _Trees:
    """The trees of one collective on one node, for any number of ranks."""

    collective: str
    machine: Machine
    n_cores: int
    transfer_bytes: int
    transport: str
    radix: int

    def plan(self, n_ranks: int) -> Plan:
        kind, n_bytes = self.collective, self.transfer_bytes
        collective: dict[str, Any] = {"kind": kind, "count": n_bytes, "datatype": "uint8"}
        if shape_of(kind).grows:
            # The root's copy of its own block is not a transfer.
            collective["in_place"] = True
        with explaining():
            spec = node_spec(
                self.machine, self.n_cores, n_ranks, collective, self.transport, radix=self.radix
            )
        return compile_plan(spec)

    def time_ns(self, plan: Plan) -> float:
        return simulate(plan, self.machine.network, allocated=True).makespan_ns

    def table(self, unit_ns: float) -> OverlapTable:
        n, height = self.n_cores, int(tree_height(self.n_cores, self.radix))
        compute_ns = np.rint(overlap_model(self.collective, n, self.radix).compute * unit_ns)
        blocking_ns = np.zeros(n - 1)
        alone_ns, both_ns = np.zeros((2, n - 1, height + 1))
        for row in range(n - 1):
            n_ranks = row + 1
            plan = self.plan(n_ranks)
            blocking_ns[row] = self.time_ns(plan)
            own_height = int(tree_height(n_ranks, self.radix))
            for levels in range(own_height + 1):
                split = split_tree(plan, levels) if plan.n_tasks else plan
                beside = add_compute(split, int(compute_ns[row]))
                alone_ns[row, levels], both_ns[row, levels] = map(self.time_ns, (split, beside))
            # A tree with fewer levels has no further levels to split off.
            for table in (alone_ns, both_ns):
                table[row, own_height + 1 :] = table[row, own_height]
        return OverlapTable(
            collective=self.collective,
            n_cores=n,
            blocking=blocking_ns / unit_ns,
            compute=compute_ns / unit_ns,
            communication=alone_ns / unit_ns,
            overlapped=both_ns / unit_ns,
            radix=self.radix,
        )


def blocking_s(sweep: OverlapSweep) -> float:
    """Return T_blocking(N_proc), the simulated time of the collective on all cores, in s."""
    return _simulate(sweep, sweep.n_cores, BLOCKING).makespan_s


def simulate_sweep(
    sweep: OverlapSweep, on_all_cores_s: float
) -> Iterator[tuple[dict[str, Any], CoreStates | None]]:
    """Generate the rows of a sweep, with the states of the cores in each overlapped run.

    Buffers are those that ``allocate()`` provides.

    Parameters
    ----------
    sweep : OverlapSweep
        Collective, numbers of ranks and methods.
    on_all_cores_s : float
        C(N_proc), the time of the computation on all cores in s.

    Yields
    ------
    row : dict
        Number of ranks, method, times in s and overlap ratio.
    states : CoreStates or None
        States of the cores; None for the blocking collective, after which the computation
        runs.
    """
    for n_ranks in sweep.ranks:
        computation_s = sweep.computation_s(n_ranks, on_all_cores_s)
        for method in sweep.methods(n_ranks):
            communication_s = _simulate(sweep, n_ranks, method).makespan_s
            total_s, states = communication_s + computation_s, None
            if not method.blocking:
                both = _simulate(sweep, n_ranks, method, round(computation_s * 1e9))
                total_s, label = both.makespan_s, f"simulated, {n_ranks} ranks, {method.name}"
                states = simulated_states(both, sweep.machine.network, label)
            yield overlap_row(n_ranks, method, communication_s, computation_s, total_s), states


def _simulate(
    sweep: OverlapSweep, n_ranks: int, method: OverlapMethod, compute_ns: int | None = None
) -> Timeline:
    return simulate(compile_plan(sweep.spec(n_ranks, method, compute_ns)), allocated=True)
