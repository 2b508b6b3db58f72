"""Bytes over global links: Bine algorithms beside binomial ones, counted message by message.

Counted as in the paper's own tool: a message whose ends are in different groups counts once with
all its bytes, whatever its route. In Fugaku's torus, which has no groups, bytes count once per
link that they cross. Jobs are the first hosts of a system, and random ones in ascending order.

Usage: python benchmarks/bine.py [--nodes 256,512,1024,2048] [--jobs N] [--system NAME ...]
       python benchmarks/bine.py --allocation FILE ...

A file has the group of every rank, one per line: then its job is counted, in bytes per byte of
the vector.

References
----------
De Sensi et al., "Bine trees: enhancing collective operations by optimizing communication
locality", SC 2025 (arXiv 2508.17311). Its data are in github.com/HLC-Lab/pico.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.decompose import draft
from collplan.planner.lowering.program import program_of
from collplan.planner.topology import fabric_of
from collplan.specs import Machine, parse_spec
from collplan.specs.topology import Torus

SYSTEMS = ("leonardo", "lumi", "marenostrum5", "fugaku")


class Pair(NamedTuple):
    """A collective's Bine algorithm and the one that the paper compares it with."""

    kind: str
    bine: Any
    other: Any


class Messages(NamedTuple):
    """Messages of an algorithm, with their parts of a vector."""

    source: Ints
    dest: Ints
    n_bytes: Any


PAIRS = {
    "allreduce, short": Pair("allreduce", {"name": "swing", "whole": True}, "recursive_doubling"),
    "allreduce": Pair("allreduce", "bine", "rabenseifner"),
    "allgather": Pair("allgather", "bine", None),
    "reduce_scatter": Pair("reduce_scatter_block", "bine", "butterfly"),
    "bcast": Pair("bcast", "bine", "binomial"),
}
"""The allgather of the paper's comparison is the reduce-scatter's messages backwards."""


@cache
def messages_of(name: str, is_bine: bool, n_ranks: int) -> Messages:
    """Return the messages of a collective on as many nodes, one rank each."""
    pair = PAIRS[name]
    algorithm = pair.bine if is_bine else pair.other
    if algorithm is None:
        backwards = messages_of("reduce_scatter", False, n_ranks)
        return Messages(backwards.dest, backwards.source, backwards.n_bytes)
    count = n_ranks if pair.kind in ("allreduce", "bcast") else 1
    spec = parse_spec(
        {
            "machine": {"nodes": n_ranks},
            "collective": {"kind": pair.kind, "count": count, "datatype": "uint8"},
            "algorithms": algorithm,
        }
    )
    sent = program_of(draft(spec)).tables().messages
    source, dest = sent.source.astype(np.int64), sent.dest.astype(np.int64)
    # Between two ranks bytes add up, so that jobs are counted quickly.
    key, place = np.unique(source * n_ranks + dest, return_inverse=True)
    parts = np.bincount(place, sent.read.elements) / n_ranks
    return Messages(key // n_ranks, key % n_ranks, parts)


def crossing(messages: Messages, group: Ints) -> float:
    """Return the bytes between groups, per byte of the vector."""
    crosses = group[messages.source] != group[messages.dest]
    return float(messages.n_bytes[crosses].sum())


def over_links(messages: Messages, machine: Machine) -> float:
    """Return the bytes over all links, per byte of the vector."""
    fabric = fabric_of(machine)
    assert fabric is not None
    begin, _ = fabric.node_routes(messages.source, messages.dest)
    return float((np.diff(begin) * messages.n_bytes).sum())


def count(name: str, is_bine: bool, machine: Machine) -> float:
    """Return what is counted of a collective on a job's nodes."""
    messages, fabric = messages_of(name, is_bine, machine.nodes), fabric_of(machine)
    assert fabric is not None
    if isinstance(machine.network.topology, Torus):
        return over_links(messages, machine)
    return crossing(messages, fabric.node_group)


def reduction(name: str, machine: Machine) -> float | None:
    """Return by how much Bine's count is below the other one, in percent; None for none at all."""
    bine, other = (count(name, is_bine, machine) for is_bine in (True, False))
    return 100 * (1 - bine / other) if other else None


def job(system: str, n_nodes: int, seed: int | None = None) -> Machine:
    """Return a system's first nodes, one rank each, or a random job's."""
    placement = {} if seed is None else {"placement": {"random": seed}}
    fields = {"preset": system, "nodes": n_nodes, "ranks_per_node": 1, **placement}
    return Machine.model_validate(fields)


def print_system(system: str, sizes: Sequence[int], n_jobs: int) -> None:
    """Print the reductions on a system: on its first nodes, and on random jobs."""
    for n_nodes in sizes:
        topology = job(system, 1).network.topology
        assert topology is not None
        if n_nodes > topology.n_hosts:
            print(f"{system:14}{n_nodes:6}  has {topology.n_hosts} hosts")
            continue
        seeds = range(0 if isinstance(topology, Torus) else n_jobs)
        jobs = [job(system, n_nodes, seed) for seed in seeds]
        cells = []
        for name in PAIRS:
            first = reduction(name, job(system, n_nodes))
            found = [one for each in jobs if (one := reduction(name, each)) is not None]
            text = "   -" if first is None else f"{first:4.0f}"
            text += f" {fmean(found):4.0f} ({min(found):.0f} to {max(found):.0f})" if found else ""
            cells.append(f"{text:>21}")
        print(f"{system:14}{n_nodes:6}", *cells, flush=True)


def print_allocation(file: Path) -> None:
    """Print what algorithms send between the groups of a job, per byte of the vector."""
    group = np.array([int(line) for line in file.read_text().split()])
    print(f"{file}: {len(group)} ranks in {len(np.unique(group))} groups")
    for name in PAIRS:
        bine, other = (
            crossing(messages_of(name, is_bine, len(group)), group) for is_bine in (True, False)
        )
        saved = f"{100 * (1 - bine / other):5.1f} %" if other else "    -"
        print(f"  {name:18} {PAIRS[name].kind:22} bine {bine:12.4f}  other {other:12.4f}  {saved}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", default="256,512,1024,2048")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--system", nargs="*", default=SYSTEMS)
    parser.add_argument("--allocation", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    for file in options.allocation:
        print_allocation(file)
    if options.allocation:
        return
    print("Percent fewer bytes over global links: first hosts, mean of random jobs (min to max)")
    print(f"{'system':14}{'nodes':>6}", *(f"{name:>21}" for name in PAIRS))
    for system in options.system:
        print_system(system, [int(n) for n in options.nodes.split(",")], options.jobs)


if __name__ == "__main__":
    main()
