"""Blocks of algorithms beside segments of passes, on the model: which takes less time when.

Algorithms with the option `blocks` cut vectors themselves, so that each block has its own way. The
pass `segment` cuts the messages of a finished plan. For every algorithm with blocks and every size
this prints the makespan of whole vectors, of `blocks: auto`, of the best number of blocks, of one
block in the best segments, and of `blocks: auto` in the best segments, in µs:

    python benchmarks/blocks.py [--nodes 36]
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from collplan.reports.output import format_bytes
from collplan.select.candidates import SEGMENTS, segmented
from collplan.select.sweep import price
from collplan.specs import PlanSpec

CASES: Final = (
    ("bcast", "circulant"), ("bcast", "two_tree"), ("reduce", "circulant"), ("reduce", "two_tree"),
    ("allreduce", "circulant"), ("allreduce", "two_tree"), ("allreduce", "dual_root"),
    ("allgather", "circulant"), ("reduce_scatter_block", "circulant"), ("scan", "in_order_tree"),
)  # fmt: skip
SIZES: Final = (16 << 10, 256 << 10, 1 << 20, 4 << 20)
BLOCKS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of blocks among which the best is looked for."""
FEW: Final = (1, 2, 4, 8)
"""The same where every rank's part of the vector is cut."""
OF_BLOCKS: Final = ("allgather", "reduce_scatter_block")


def makespan_us(spec: PlanSpec, blocks: Any, name: str, segment: int | None = None) -> float:
    """Return the time of an algorithm in µs."""
    passes = () if segment is None else segmented(segment)
    chosen = spec.replace(algorithms={"name": name, "blocks": blocks}, passes=passes)
    found = price(chosen).makespan_s
    assert found is not None
    return found * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=36)
    options = parser.parse_args()
    machine = {"preset": "hydra", "nodes": options.nodes, "ranks_per_node": 1}
    print("| collective, algorithm | bytes | whole | `blocks: auto` | best `blocks` | whole, best "
          "`segment` | `blocks: auto`, best `segment` |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    for kind, name in CASES:
        for n_bytes in SIZES:
            count = n_bytes // 4 // (options.nodes if kind in OF_BLOCKS else 1)
            collective = {"kind": kind, "count": count, "datatype": "float32"}
            spec = PlanSpec.model_validate({"machine": machine, "collective": collective})
            cuts = [size for size in SEGMENTS if size < n_bytes]
            is_cut = kind in OF_BLOCKS or (kind, name) == ("allreduce", "circulant")
            by_blocks = {n: makespan_us(spec, n, name) for n in (FEW if is_cut else BLOCKS)}
            n_best = min(by_blocks, key=lambda n: by_blocks[n])
            whole = {size: makespan_us(spec, 1, name, size) for size in cuts}
            auto = {size: makespan_us(spec, "auto", name, size) for size in cuts}
            cut, both = min(whole, key=lambda n: whole[n]), min(auto, key=lambda n: auto[n])
            cells = [
                f"{by_blocks[1]:.1f}", f"{makespan_us(spec, 'auto', name):.1f}",
                f"{by_blocks[n_best]:.1f} ({n_best})",
                f"{whole[cut]:.1f} ({format_bytes(cut)})",
                f"{auto[both]:.1f} ({format_bytes(both)})",
            ]  # fmt: skip
            print(f"| {kind} {name} | {format_bytes(n_bytes)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
