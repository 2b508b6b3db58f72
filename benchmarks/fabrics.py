"""Schedules that are packed into links, beside the bound and other algorithms.

Messages take time only on links: latencies, overheads, copies and reductions take none. The others
are all algorithms, flat and in meshes of two dimensions. With --large, only the searches for an
allgather on grids and tori of 256 and 1,024 nodes are timed, without plans.

python benchmarks/fabrics.py [--large] [--json] [--page]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.packing.bounds import cut_bound
from collplan.planner.packing.schedule import KINDS, Demand, pack
from collplan.select.shapes import every_mesh
from collplan.specs import Decomposition, Machine, PlanSpec

PAGE: Final = Path(__file__).parents[1] / "docs" / "networks.md"
BEGIN: Final = "<!-- fabrics: python benchmarks/fabrics.py --page -->"
END: Final = "<!-- end of fabrics -->"
BLOCK: Final = 1 << 20
"""Bytes of a block; a vector has 64 of them."""
FREE: Final = {"L_ns": 0, "o_ns": 0, "g_ns": 0, "G_ns_per_byte": 0}
SHOWN: Final = ("allgather", "reduce_scatter_block", "allreduce", "bcast", "scatter", "alltoall")
"""Collectives of the page's table."""


def machine_on(topology: dict[str, Any], n_nodes: int) -> Machine:
    """Return a machine of one rank per host whose messages take time only on links."""
    network = {
        "network": FREE,
        "copy_ns_per_byte": 0,
        "reduce_ns_per_byte": 0,
        "topology": {"bandwidth": "50GB/s", **topology},
    }
    return Machine.model_validate({"nodes": n_nodes, "network": network})


def grid(*dimensions: int, wrap: bool = False) -> Machine:
    """Return a grid, or a torus."""
    topology = {"kind": "torus", "dimensions": dimensions, "wrap": wrap}
    return machine_on(topology, int(np.prod(dimensions)))


def ring_with_chords(n: int) -> Machine:
    """Return a ring in which every second host is also linked to the one five places further."""
    links = [{"source": str(i), "target": str((i + 1) % n)} for i in range(n)]
    links += [{"source": str(i), "target": str((i + 5) % n)} for i in range(0, n, 2)]
    return machine_on({"kind": "graph", "hosts": n, "links": links}, n)


def boxes(n_boxes: int, n_each: int) -> Machine:
    """Return boxes with a switch that is eight times as fast as the links between boxes."""
    hosts = [(f"box{box}", f"{box}.{i}") for box in range(n_boxes) for i in range(n_each)]
    links = [{"source": host, "target": box, "bandwidth": "400GB/s"} for box, host in hosts]
    links += [{"source": host, "target": "all", "bandwidth": "50GB/s"} for _, host in hosts]
    topology = {"kind": "graph", "hosts": [host for _, host in hosts], "links": links}
    return machine_on(topology, len(hosts))


def fabrics() -> dict[str, Machine]:
    """Return the fabrics of the table by name."""
    tree = {"kind": "fat_tree", "down": [8, 4], "oversubscription": 2}
    return {
        "grid 8 × 8": grid(8, 8),
        "torus 8 × 8": grid(8, 8, wrap=True),
        "grid 6 × 5": grid(6, 5),
        "torus 4 × 6": grid(4, 6, wrap=True),
        "grid 3 × 3 × 3": grid(3, 3, 3),
        "hypercube of 16": grid(2, 2, 2, 2),
        "ring of 16 with chords": ring_with_chords(16),
        "2:1 fat tree, 4 × 8": machine_on(tree, 32),
        "2 boxes of 8": boxes(2, 8),
        "4 boxes of 8": boxes(4, 8),
    }


def spec_of(machine: Machine, kind: str) -> PlanSpec:
    """Return the spec of a collective."""
    has_op = kind in ("allreduce", "reduce", "reduce_scatter_block")
    count = BLOCK * (64 if kind in ("bcast", "reduce", "allreduce") else 1)
    collective = {"kind": kind, "count": count, "datatype": "uint8"}
    collective |= {"op": "sum"} if has_op else {}
    return PlanSpec.model_validate({"machine": machine, "collective": collective})


def others(spec: PlanSpec) -> Iterator[PlanSpec]:
    """Yield specs of all other algorithms, and of meshes."""
    kind, n_ranks = spec.collective.planned_kind, spec.machine.n_ranks
    for one in registry.legal(kind, n_ranks, commutative=True):
        yield spec.replace(algorithms=one.name)
    for shape in every_mesh(n_ranks, 2):
        yield spec.replace(decomposition=Decomposition(name="mesh", shape=shape))


def cell(name: str, machine: Machine, kind: str) -> dict[str, Any]:
    """Return the makespans of one collective on one fabric, and the time of the search."""
    spec = spec_of(machine, kind)
    found = cut_bound(machine, spec.collective)
    assert found is not None
    n, n_bytes = machine.n_ranks, float(spec.collective.count)
    demand = Demand(kind, np.arange(n), np.array([0, n]), np.zeros(1, dtype=np.int64), n_bytes)
    pack(grid(2), Demand(kind, np.arange(2), np.array([0, 2]), demand.roots, n_bytes), 1)
    begin = time.perf_counter()
    pack(machine, demand, None)
    seconds = time.perf_counter() - begin
    packed = simulate(compile_plan(spec.replace(algorithms="packed"))).makespan_ns
    best = min(simulate(compile_plan(other)).makespan_ns for other in others(spec))
    return {
        "fabric": name,
        "kind": kind,
        "bound_s": found[0] * 1e-9,
        "packed_s": packed * 1e-9,
        "others_s": best * 1e-9,
        "packed_over_bound": packed / found[0],
        "others_over_bound": best / found[0],
        "search_s": seconds,
    }


def large() -> Iterator[dict[str, Any]]:
    """Yield the times of searches for an allgather on many nodes."""
    for side, wrap in ((16, False), (16, True), (32, False), (32, True)):
        machine = grid(side, side, wrap=wrap)
        n = machine.nodes
        found = cut_bound(machine, spec_of(machine, "allgather").collective)
        assert found is not None
        roots = np.zeros(1, dtype=np.int64)
        begin = time.perf_counter()
        demand = Demand("allgather", np.arange(n), np.array([0, n]), roots, float(BLOCK))
        packing = pack(machine, demand, 1)
        seconds = time.perf_counter() - begin
        name = f"{'torus' if wrap else 'grid'} {side} × {side}"
        yield {"fabric": name, "packed_over_bound": packing.ns / found[0], "search_s": seconds}


def table(cells: list[dict[str, Any]]) -> str:
    """Return the table of the page: ratios to the bound, packed and others."""
    rows = [["fabric", *SHOWN, "search, s"], ["---"] * (len(SHOWN) + 2)]
    for name in dict.fromkeys(one["fabric"] for one in cells):
        own = {one["kind"]: one for one in cells if one["fabric"] == name}
        ratios = [
            f"{own[kind]['packed_over_bound']:.2f}, {own[kind]['others_over_bound']:.2f}"
            for kind in SHOWN
        ]
        rows.append([name, *ratios, f"{own['allgather']['search_s']:.2f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the table, or write it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="search on 256 and 1,024 nodes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--page", action="store_true", help="write the table to docs/networks.md")
    options = parser.parse_args()
    if options.large:
        cells = list(large())
    else:
        kinds = KINDS if options.json else SHOWN
        cells = [cell(name, one, kind) for name, one in fabrics().items() for kind in kinds]
    if options.json:
        print(json.dumps(cells, indent=1))
    elif options.large:
        for one in cells:
            print(f"{one['fabric']:<14} {one['packed_over_bound']:.4f}  {one['search_s']:.2f} s")
    elif options.page:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(cells)}\n\n{END}{rest.partition(END)[2]}")
    else:
        print(table(cells))


if __name__ == "__main__":
    main()
