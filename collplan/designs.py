"""What designs of alltoall need of a node: counted in their plans, beside the tables' formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from collplan.output import format_bytes, print_line, print_table
from specs.errors import CollplanError

if TYPE_CHECKING:
    from planner.alltoall_bounds import NodeCounts
    from planner.metrics import Metrics
    from specs import PlanSpec

PAIRS_A_TASK = 8
"""A plan that is made of all pairs of ranks takes about as long as one of so many fewer tasks."""


@dataclass(frozen=True, slots=True)
class DesignRow:
    """A design at one size: what its plan needs of a node, and what the tables say.

    Parameters
    ----------
    design : str
    block_bytes : int
    metrics : Metrics or None
        None where the plan is too large to be compiled.
    n_tasks : int
        Of the plan, or about what it would have.
    paper : NodeCounts or None
        None where the tables don't have the design.
    """

    design: str
    block_bytes: int
    metrics: Metrics | None
    n_tasks: int
    paper: NodeCounts | None


def count_designs(
    specs: Sequence[PlanSpec], max_tasks: int, patterns: Sequence[str] = ()
) -> list[DesignRow]:
    """Compile every design at every size, and count.

    Parameters
    ----------
    specs : sequence of PlanSpec
        An alltoall on a machine, in several sizes.
    max_tasks : int
        Larger plans are not compiled.
    patterns : sequence of str
        Only designs whose names are like one of these; all without any.

    Raises
    ------
    CollplanError
        If the specs are not for alltoall, or no design is called like that.
    """
    from planner import compile_plan
    from planner.alltoall_bounds import node_counts
    from planner.alltoall_designs import DESIGNS
    from planner.metrics import measure

    names = [n for n in DESIGNS if not patterns or any(fnmatchcase(n, one) for one in patterns)]
    if not names:
        raise CollplanError(
            f"--candidates: no design is called {' or '.join(patterns)}; use {', '.join(DESIGNS)}"
        )
    rows = []
    for spec in specs:
        machine = spec.machine
        fullest = max(machine.node_to_n_ranks)
        for name in names:
            block_bytes = spec.collective.count * spec.collective.itemsize
            design = DESIGNS[name].of(spec)
            paper = node_counts(name, machine.nodes, fullest, block_bytes)
            n_tasks, metrics = _least_tasks(name, machine.nodes, fullest, machine.n_ranks), None
            if n_tasks <= max_tasks:
                plan = compile_plan(design)
                n_tasks, metrics = plan.n_tasks, measure(plan)
            rows.append(DesignRow(name, block_bytes, metrics, n_tasks, paper))
    return rows


def _least_tasks(design: str, nodes: int, fullest: int, n_ranks: int) -> int:
    """Return about how many tasks are made on the way to a design's plan."""
    if design in ("pairwise", "scatter_destination"):
        return n_ranks * (2 * n_ranks - 1)
    if design in ("bruck", "traeff_rougier", "full_lane"):
        return n_ranks**2 // PAIRS_A_TASK
    each = fullest if design == "khorassani" else 1
    return n_ranks * (2 + nodes - 1) + 2 * nodes * (nodes - 1) * fullest * each


def to_json(rows: Sequence[DesignRow]) -> list[dict[str, Any]]:
    """Return rows, ready for JSON: counts as of ``compile``, `paper` the same by formula."""
    keys = ("queue_pairs_per_node", "posted_sends_per_node", "scratch_bytes_per_node")
    found = []
    for row in rows:
        own = {key: None if row.metrics is None else getattr(row.metrics, key) for key in keys}
        paper = None
        if row.paper is not None:
            counts = (row.paper.queue_pairs, row.paper.posted_sends, row.paper.memory_bytes)
            paper = dict(zip(keys, counts, strict=True)) | {"is_estimate": row.paper.is_estimate}
        line = {"design": row.design, "bytes": row.block_bytes, "n_tasks": row.n_tasks}
        found.append(line | own | {"paper": paper})
    return found


def print_designs(spec: PlanSpec, rows: Sequence[DesignRow]) -> None:
    """Print a table a size, and what there is to say of it."""
    machine = spec.machine
    fullest = max(machine.node_to_n_ranks)
    for size in dict.fromkeys(row.block_bytes for row in rows):
        there = [row for row in rows if row.block_bytes == size]
        print_line(
            f"{machine.nodes} x {fullest} ranks, blocks of {format_bytes(size)}; a node needs"
        )
        columns = ["design", "queue pairs", "paper", "posted sends", "paper", "memory", "paper"]
        print_table(columns, [_cells(row) for row in there])
    for line in _remarks(machine.node_to_n_ranks, rows):
        print_line(line)


def _cells(row: DesignRow) -> list[str]:
    own, paper = row.metrics, row.paper
    estimate = " at most" if paper is not None and paper.is_estimate else ""
    return [
        row.design,
        f"{own.queue_pairs_per_node:,}" if own else "",
        f"{paper.queue_pairs:,.0f}{estimate}" if paper else "",
        f"{own.posted_sends_per_node:,}" if own else "",
        f"{paper.posted_sends:,.0f}{estimate}" if paper else "",
        format_bytes(own.scratch_bytes_per_node) if own else "",
        "" if paper is None or paper.memory_bytes is None else format_bytes(paper.memory_bytes),
    ]


def _remarks(sizes: Sequence[int], rows: Sequence[DesignRow]) -> list[str]:
    lines = []
    large = [row for row in rows if row.metrics is None]
    if large:
        names = ", ".join(dict.fromkeys(row.design for row in large))
        least = min(row.n_tasks for row in large)
        lines.append(
            f"too large: {names}, of about {least:,} tasks and more: not compiled; "
            "--max-tasks sets the limit"
        )
    if min(sizes) != max(sizes):
        lines.append("nodes differ: formulas are of the fullest, and what is needed at most")
    if any(row.design == "ohio_v3" for row in rows):
        lines.append(
            "ohio_v3: memory by the paper's text, M*N*PPN^2 + 2*M*PPN^2; see docs/alltoall.md"
        )
    return lines
