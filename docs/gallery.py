"""The page of the gallery: a picture of every algorithm on 8 ranks, rounds from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.planner import compile_plan
from collplan.planner.algorithms import Algorithm, registry
from collplan.planner.draw.style import lane_color
from collplan.planner.metrics import unit_times
from collplan.planner.plan.plan import Op, Plan
from collplan.specs import parse_spec
from collplan.specs.collectives.collective import traits_of

FOLDER: Final = Path(__file__).with_name("gallery")
MACHINE: Final = {"nodes": 2, "ranks_per_node": 4}
TORUS: Final = {
    "nodes": 8,
    "network": {"topology": {"kind": "torus", "dimensions": [4, 2], "bandwidth": "10GB/s"}},
}
"""Machine of algorithms that are packed into the links of a topology."""
COUNT: Final = 840
"""Elements: 8 ranks, and up to 7 blocks, divide them."""
GRAPH: Final = {"grid": [4, 2], "periodic": True}
"""Neighbors of neighborhood collectives."""
BLOCKS: Final = 4
"""Number of blocks of algorithms that cut vectors into as many as wanted."""
COLUMN: Final = 22
ROW: Final = 20
MARGIN: Final = 14
PER_ROW: Final = 3
"""Pictures in a row of the page."""
INTRODUCTION: Final = """# Pictures of all algorithms

Each picture shows one algorithm on 8 ranks, two nodes of four, with root 0. Columns are ranks,
and time goes down. Lines are messages, and their rows are the rounds in which messages go if a rank
sends one and receives one at a time. Thick lines have more bytes. Lines between the two nodes have
another color. Algorithms with `blocks` that `auto` chooses have {blocks} of them. Nodes of `packed`
have one rank each and are linked as a 4 × 2 torus. Neighbors are those of a 4 × 2 grid. `make
pages` makes this page from compiled plans. Another page explains [the algorithms](algorithms.md).
"""


def spec_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the spec of an algorithm's picture."""
    collective: dict[str, Any] = {"kind": algorithm.kind}
    if algorithm.kind != "barrier":
        collective |= {"count": COUNT, "datatype": "int32"}
    if traits_of(algorithm.kind).has_edges:
        collective |= {"graph": GRAPH}
    choice: dict[str, Any] = {"name": algorithm.name}
    if (algorithm.options or {}).get("blocks") == "auto":
        choice["blocks"] = BLOCKS
    machine = TORUS if algorithm.is_packed else MACHINE
    return {"machine": machine, "collective": collective, "algorithms": choice}


def picture(plan: Plan) -> str:
    """Return the messages of a plan as SVG, a row per round."""
    sends = np.flatnonzero(plan.op == Op.SEND)
    rounds, n_bytes = unit_times(plan)[sends], plan.elements[sends]
    n_rounds = int(rounds.max(initial=0))
    width, height = COLUMN * (plan.n_ranks - 1) + 2 * MARGIN, ROW * n_rounds + 2 * MARGIN
    x = [MARGIN + COLUMN * rank for rank in range(plan.n_ranks)]
    y = [MARGIN + 4 + ROW * number for number in range(n_rounds + 1)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="9" '
        'text-anchor="middle">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    grid = [f"M{x[0]} {row}H{x[-1]}" for row in y] + [f"M{at} {y[0]}V{y[-1]}" for at in x]
    parts.append(f'<path d="{"".join(grid)}" stroke="#dddddd" stroke-width="0.6"/>')
    parts += [f'<text x="{at}" y="11">{rank}</text>' for rank, at in enumerate(x)]
    most, looks = max(1, int(n_bytes.max(initial=1))), {}
    for row, number, size in zip(sends, rounds.tolist(), n_bytes.tolist(), strict=True):
        source, dest = int(plan.rank[row]), int(plan.peer[row])
        crosses = source // 4 != dest // 4
        thick = f"{0.8 + 1.7 * size / most:.1f}"
        line = f"M{x[source]} {y[number - 1]}L{x[dest]} {y[number]}"
        looks.setdefault((lane_color(0 if crosses else -1), thick), []).append(line)
    for (color, thick), lines in sorted(looks.items()):
        parts.append(
            f'<path d="{"".join(sorted(lines))}" fill="none" stroke="{color}" '
            f'stroke-width="{thick}"/>'
        )
    return "\n".join([*parts, "</svg>", ""])


def pictures() -> Iterator[tuple[Algorithm, str]]:
    """Yield all algorithms with their pictures, by collective and name."""
    for kind in sorted(registry.kinds()):
        for algorithm in sorted(registry.of(kind), key=lambda one: one.name):
            yield algorithm, picture(compile_plan(parse_spec(spec_of(algorithm))))


def page() -> str:
    """Return the page's text."""
    parts = [INTRODUCTION.format(blocks=BLOCKS)]
    for kind in sorted(registry.kinds()):
        parts.append(f"## {kind}\n")
        found = sorted(registry.of(kind), key=lambda one: one.name)
        cells = [f"`{one.name}`<br>![{kind} {one.name}](gallery/{file_of(one)})" for one in found]
        rows = [cells[i : i + PER_ROW] for i in range(0, len(cells), PER_ROW)]
        parts.append(f"|{' |' * PER_ROW}\n|{'---|' * PER_ROW}")
        parts += [f"| {' | '.join(row + [''] * (PER_ROW - len(row)))} |" for row in rows]
        parts.append("")
    return "\n".join(parts)


def file_of(algorithm: Algorithm) -> str:
    """Return the name of an algorithm's picture."""
    return f"{algorithm.kind}_{algorithm.name}.svg"
