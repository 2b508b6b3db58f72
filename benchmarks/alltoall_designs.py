"""Predictions of the model for every design of alltoall: times, PCIe reads, queue pairs.

Sweeps 2 to 128 nodes of the presets ohio-a and ohio-b, blocks of 1 B to 4 KiB. Flat exchanges of
too many tasks are not compiled: for them stands what no order of their messages beats, in closed
form. Run: ``python benchmarks/alltoall_designs.py [--preset ohio-a]
[--nodes 2,4,8] [--out FILE.jsonl]``, then with ``--show FILE.jsonl [--plot FILE.svg]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.memory import keep_freed_memory
from collplan.planner.plan.plan import Op, Plan
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.plots import Series, plot_by_ranks
from collplan.select.alltoall_designs import DESIGNS, node_counts
from collplan.specs import Network, PlanSpec

Row = dict[str, Any]

SIZES: Final = (1, 16, 256, 1024, 4096)
NODES: Final = (2, 4, 8, 16, 32, 64, 128)
FLAT: Final = ("pairwise", "scatter_destination")
BY_MESSAGES: Final = "traeff_rougier, by messages"
"""That design where ranks of a node send each other messages, too."""
NAMES: Final = (*DESIGNS, BY_MESSAGES)
TRANSPORTS: Final = ("rc", "dc", "ud")
MOST_TASKS: Final = 3_000_000


def spec_of(name: str, preset: str, nodes: int) -> PlanSpec:
    """Return a design's spec, a byte per block."""
    collective = {"kind": "alltoall", "count": 1, "datatype": "uint8"}
    machine = {"preset": preset, "nodes": nodes}
    plain = PlanSpec.model_validate({"machine": machine, "collective": collective})
    if name == BY_MESSAGES:
        chosen = {"name": "hierarchical", "form": "collect"}
        return plain.replace(
            decomposition=chosen, algorithms={"node": "linear", "lane": "pairwise"}
        )
    return DESIGNS[name].of(plain)


def least_ns(network: Network, nodes: int, ranks: int, block_bytes: int) -> tuple[float, int]:
    """Return what a flat exchange takes at least, and what its adapters read at least.

    A lane passes all messages of its node, and a core all of its rank. If queue pairs
    do not fit, only those of the start before that fit are not read again.
    """
    assert network.nic is not None
    link, nic = network.network, network.nic
    peers = (nodes - 1) * ranks
    sends = peers * ranks
    pairs = sends if nic.transport == "rc" else ranks
    reads = max(0, pairs - nic.connections)
    holds = nic.miss_ns
    if nic.transport == "dc":
        reads, holds = sends, nic.reconnect_ns
    more = block_bytes - 1
    lane = sends * (link.g_ns + more * link.G_ns_per_byte) + reads * holds / nic.reads_at_once
    packets = -(-block_bytes // nic.packet_bytes) * nic.packet_ns * (nic.transport == "ud")
    core = 2 * peers * (link.o_ns + more * link.O_ns_per_byte + packets)
    return max(lane, core), reads * nodes


def queue_pairs(plan: Plan, transport: str) -> int:
    """Return the queue pairs at the adapter that has most."""
    sends = np.flatnonzero(plan.op == Op.SEND)
    source, dest = plan.rank[sends].astype(np.int64), plan.peer[sends]
    crosses = plan.rank_node[source] != plan.rank_node[dest]
    ends = source[crosses] * plan.n_ranks
    if transport == "rc":
        ends = ends + dest[crosses]
    owner = np.unique(ends) // plan.n_ranks
    return int(np.bincount(plan.rank_node[owner]).max(initial=0))


def rows_of(name: str, preset: str, nodes: int, sizes: tuple[int, ...]) -> Iterator[Row]:
    """Generate what is known of a design on a machine."""
    spec = spec_of(name, preset, nodes)
    network, ranks = spec.machine.network, spec.machine.node_to_n_ranks[0]
    assert network.nic is not None
    place = {"preset": preset, "nodes": nodes, "ranks": ranks, "design": name}
    plan = None
    n_messages = (nodes * ranks) ** 2
    if name not in FLAT or 2 * n_messages <= MOST_TASKS:
        plan = compile_plan(spec)
    for transport in TRANSPORTS:
        own = network.replace(nic=network.nic.replace(transport=transport))
        for size in sizes if transport == "rc" else [n for n in sizes if n in (512, 1024)]:
            row: Row = place | {"transport": transport, "bytes": size}
            if plan is None:
                counts = node_counts(name, nodes, ranks, size)
                assert counts is not None
                least, reads = least_ns(own, nodes, ranks, size)
                pairs = int(counts.queue_pairs) if transport == "rc" else ranks
                row |= {"makespan_s": None, "at_least_s": least / 1e9}
                yield row | {"pcie_reads": reads, "queue_pairs": pairs}
                continue
            timeline = simulate(plan.replace(itemsize=size), own)
            assert timeline.pcie_reads is not None
            row |= {"makespan_s": timeline.makespan_s, "at_least_s": None}
            row |= {"pcie_reads": int(timeline.pcie_reads.sum())}
            yield row | {"queue_pairs": queue_pairs(plan, transport)}


def show(rows: list[Row]) -> None:
    """Print a table for every machine, and one of transports."""
    for preset, nodes in sorted({(row["preset"], row["nodes"]) for row in rows}):
        mine = [row for row in rows if (row["preset"], row["nodes"]) == (preset, nodes)]
        sizes = sorted({row["bytes"] for row in mine})
        ranks = mine[0]["ranks"]
        print(f"\n{preset}: {nodes} x {ranks} = {nodes * ranks:,} ranks\n")
        titles = (*map(format_bytes, sizes), "queue pairs", "PCIe reads")
        print("| design | " + " | ".join(titles) + " |")
        print("|---" * (3 + len(sizes)) + "|")
        for name in NAMES:
            own = {r["bytes"]: r for r in mine if r["design"] == name and r["transport"] == "rc"}
            if own:
                one = next(iter(own.values()))
                cells = [_time(own[size]) if size in own else "" for size in sizes]
                cells += [f"{one['queue_pairs']:,}", _reads(one)]
                print(f"| {name} | " + " | ".join(cells) + " |")
        for name in NAMES:
            for row in mine:
                if row["design"] == name and row["transport"] != "rc":
                    print(
                        f"  {name} over {row['transport']}, {format_bytes(row['bytes'])}: "
                        f"{_time(row)}, {row['queue_pairs']:,} queue pairs, {_reads(row)} reads"
                    )


def _time(row: Row) -> str:
    if row["makespan_s"] is None:
        return f"≥ {format_seconds(row['at_least_s'])}"
    return str(format_seconds(row["makespan_s"]))


def _reads(row: Row) -> str:
    return f"{'≥ ' if row['makespan_s'] is None else ''}{row['pcie_reads']:,}"


def plot(path: Path, rows: list[Row], preset: str, size: int) -> None:
    """Plot times by ranks, a line a design."""
    series = []
    names = ("pairwise", "bruck", "full_lane", "traeff_rougier", "chochia", "ohio_v1", "ohio_v3")
    for name in names:
        own = sorted(
            (row["nodes"] * row["ranks"], row["makespan_s"] or row["at_least_s"])
            for row in rows
            if (row["preset"], row["design"], row["bytes"]) == (preset, name, size)
            and row["transport"] == "rc"
        )
        series.append(Series(name, [ranks for ranks, _ in own], [took for _, took in own]))
    title = f"alltoall of {format_bytes(size)} on {preset}, simulated"
    plot_by_ranks(path, series, title=title)


def main() -> None:
    """Sweep, or show what a sweep found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="ohio-a")
    parser.add_argument("--nodes", default=",".join(map(str, NODES)))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--designs", default=";".join(NAMES))
    parser.add_argument("--out", type=Path, help="where to append what is found, a line each")
    parser.add_argument("--show", type=Path, help="print what such a file holds")
    parser.add_argument("--plot", type=Path, help="with --show: a picture of 256 B blocks")
    options = parser.parse_args()
    keep_freed_memory()  # as the command line does
    if options.show is not None:
        rows = [json.loads(line) for line in options.show.read_text().splitlines()]
        show(rows)
        if options.plot is not None:
            plot(options.plot, rows, options.preset, 256)
        return
    sizes = tuple(map(int, options.sizes.split(",")))
    found = []
    for nodes in map(int, options.nodes.split(",")):
        for name in options.designs.split(";"):
            begin = time.perf_counter()
            rows = list(rows_of(name, options.preset, nodes, sizes))
            sys.stderr.write(f"{nodes} {name}: {time.perf_counter() - begin:.1f} s\n")
            found += rows
            if options.out is not None:
                with options.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
    if options.out is None:
        show(found)


if __name__ == "__main__":
    main()
