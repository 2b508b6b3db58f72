"""Resources per node of alltoall designs: counts from plans, and from published formulas."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.compiler.ranks import compile_node
from collplan.planner.metrics import count_node, measure
from collplan.reports.output import format_bytes, print_line, print_table
from collplan.select.alltoall_designs import DESIGNS, NodeCounts, node_counts
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError

_COUNTS: Final = ("queue_pairs_per_node", "posted_sends_per_node", "scratch_bytes_per_node")
"""Counts of a plan by which designs are compared, in the order of `NodeCounts`."""
PAIRS_A_TASK = 8
"""Approximate number of pairs of ranks that take as long to process as one task."""


Row = dict[str, Any]


def count_designs(
    specs: Sequence[PlanSpec], max_tasks: int, patterns: Sequence[str] = ()
) -> list[Row]:
    """Compile every design at every size, and count the resources per node.

    Parameters
    ----------
    specs : sequence of PlanSpec
        Specs of an alltoall on one machine, one for each size.
    max_tasks : int
        Number of tasks above which a plan is not compiled.
    patterns : sequence of str
        Patterns of names of designs to count, such as ``ohio*``; all designs if empty.

    Returns
    -------
    list of dict
        A row for each design at each size: ``{design, bytes, n_tasks, is_one_node, paper,
        pcie_reads, are_reads_least}`` and the counts per node, which are None if the plan is too
        large to be compiled. `n_tasks` is then an estimate. `is_one_node` is True if only the
        program of one node was compiled, because all nodes are alike. `paper` has the published
        counts and `is_estimate`; None if the design is not published. `pcie_reads` is the
        simulated number of reads over PCIe by the adapters of the busiest node, or a lower bound
        of it if `are_reads_least` is True; None if it is unknown.

    Raises
    ------
    CollplanError
        If the specs are not for alltoall, or a pattern fits no design.
    """
    for one in patterns:
        if not any(fnmatchcase(name, one) for name in DESIGNS):
            raise CollplanError(
                f"--candidates: no design is called {one}; use {', '.join(DESIGNS)}"
            )
    names = [n for n in DESIGNS if not patterns or any(fnmatchcase(n, one) for one in patterns)]
    rows = []
    for spec in specs:
        machine = spec.machine
        fullest = max(machine.node_to_n_ranks)
        for name in names:
            block_bytes = spec.collective.count * spec.collective.itemsize
            own, n_tasks, is_one_node, reads = _count(DESIGNS[name].of(spec), name, max_tasks)
            paper = node_counts(name, machine.nodes, fullest, block_bytes)
            known, is_least = own or paper, False
            if reads is None and known is not None and not known.is_estimate:
                reads = _least_reads(machine, known, fullest)
                is_least = bool(reads)
            published = paper and _by_name(paper) | {"is_estimate": paper.is_estimate}
            rows.append(
                {"design": name, "bytes": block_bytes, "n_tasks": n_tasks}
                | {"is_one_node": is_one_node, **_by_name(own), "paper": published}
                | {"pcie_reads": reads, "are_reads_least": is_least}
            )
    return rows


def _by_name(counts: NodeCounts | None) -> Row:
    if counts is None:
        return dict.fromkeys(_COUNTS)
    values = counts.queue_pairs, counts.posted_sends, counts.memory_bytes
    return dict(zip(_COUNTS, values, strict=True))


def _least_reads(machine: Machine, counts: NodeCounts, ranks: int) -> int | None:
    """Return a lower bound of the reads of queue pairs by the adapters of a node.

    Each start of the plan uses every queue pair. At the start, the caches of warm adapters
    hold at most as many queue pairs as fit, and those of cold ones none. With datagrams and
    dynamic connections, a rank has one queue pair. Return None if the machine has no adapters.
    """
    nic = machine.network.nic
    if nic is None:
        return None
    pairs = int(counts.queue_pairs) if nic.transport == "rc" else ranks
    return max(0, pairs - nic.connections * machine.n_lanes) if nic.warm else pairs


def _count(
    spec: PlanSpec, name: str, max_tasks: int
) -> tuple[NodeCounts | None, int, bool, int | None]:
    """Return the counts per node, the number of tasks, whether one node was compiled, and reads.

    The counts are None if the plan is too large. The PCIe reads are None if not simulated.
    """
    machine = spec.machine
    sizes = machine.node_to_n_ranks
    n_tasks = _least_tasks(name, machine.nodes, max(sizes), machine.n_ranks)
    if n_tasks <= max_tasks:
        plan = compile_plan(spec)
        found, reads = measure(plan), None
        if machine.network.nic is not None:
            reads = simulate(plan, machine.network).pcie_reads
        most = None if reads is None else int(reads.sum(axis=1).max(initial=0))
        counts = NodeCounts(*(getattr(found, name) for name in _COUNTS))
        return counts, plan.n_tasks, False, most
    # Designs that use shared memory can be compiled node by node.
    is_alike = spec.transport.name == "shared" and min(sizes) == max(sizes)
    if not is_alike or n_tasks // machine.nodes > max_tasks:
        return None, n_tasks, False, None
    node = machine.rank_to_node[0]
    return NodeCounts(*count_node(compile_node(spec, node), node)), n_tasks, True, None


def _least_tasks(design: str, nodes: int, fullest: int, n_ranks: int) -> int:
    """Return the approximate number of tasks that the compilation of a design creates."""
    blocks = nodes * (nodes - 1)
    if design in ("pairwise", "scatter_destination"):
        return n_ranks * (2 * n_ranks - 1)
    if design == "bruck":
        return n_ranks**2 // PAIRS_A_TASK
    if design == "full_lane":
        return 2 * n_ranks * (fullest + nodes)
    if design in ("khorassani", "traeff_rougier", "ohio_v1"):
        return n_ranks + 3 * blocks * fullest
    return n_ranks * (nodes + 1) + 2 * blocks


def print_designs(spec: PlanSpec, document: Row) -> None:
    """Print the ``metrics`` of a document: one table per size, and remarks on all sizes."""
    rows = document["metrics"]
    machine = spec.machine
    fullest = max(machine.node_to_n_ranks)
    for size in dict.fromkeys(row["bytes"] for row in rows):
        there = [row for row in rows if row["bytes"] == size]
        print_line(
            f"{machine.nodes} x {fullest} ranks, blocks of {format_bytes(size)}; a node needs"
        )
        columns = ["design", "queue pairs", "paper", "posted sends", "paper", "memory", "paper"]
        lines = [_cells(row) for row in there]
        if any(row["pcie_reads"] is not None for row in there):
            columns.insert(5, "PCIe reads")
            for cells, row in zip(lines, there, strict=True):
                cells.insert(5, _reads(row))
        print_table(columns, lines)
    for line in _remarks(machine.node_to_n_ranks, rows):
        print_line(line)


def _reads(row: Row) -> str:
    if row["pcie_reads"] is None:
        return ""
    return f"{'≥ ' if row['are_reads_least'] else ''}{row['pcie_reads']:,}"


def _cells(row: Row) -> list[str]:
    paper = row["paper"] or {}
    at_most = " at most" if paper.get("is_estimate") else ""
    cells = [row["design"]]
    for name in _COUNTS:
        cells += [_shown(name, row[name]), _shown(name, paper.get(name), at_most)]
    return cells


def _shown(name: str, count: float | None, mark: str = "") -> str:
    if count is None:
        return ""
    return (format_bytes(count) if "bytes" in name else f"{count:,.0f}") + mark


def _remarks(sizes: Sequence[int], rows: Sequence[Row]) -> list[str]:
    lines = []
    large = [row for row in rows if row[_COUNTS[0]] is None]
    if large:
        names = ", ".join(dict.fromkeys(row["design"] for row in large))
        least = min(row["n_tasks"] for row in large)
        lines.append(
            f"too large: {names}, of about {least:,} tasks and more: not compiled; "
            "--max-tasks sets the limit"
        )
    if any(row["is_one_node"] for row in rows):
        names = ", ".join(dict.fromkeys(row["design"] for row in rows if row["is_one_node"]))
        lines.append(f"counted in one node's program, as all nodes are alike: {names}")
    if any(row["are_reads_least"] for row in rows):
        lines.append("≥: not simulated; the adapters' caches cannot hold that many queue pairs")
    if min(sizes) != max(sizes):
        lines.append("nodes differ: formulas are of the fullest, and what is needed at most")
    if any(row["design"] == "ohio_v3" for row in rows):
        lines.append(
            "ohio_v3: memory by the paper's text, M*N*PPN^2 + 2*M*PPN^2; see docs/alltoall.md"
        )
    return lines
