"""Search schedules of published optima, prove each, and print the tables of docs/synthesis.md.

    python benchmarks/synthesis.py [--seconds 300] [links|ports|lanes ...]

links: allgathers on the NVLink links of a DGX-1, beside those of Cai et al., PPoPP 2021, table 4;
other collectives there. ports: allgather and bcast of up to 16 ranks with 1 to 3 ports. lanes:
an allreduce on 2 nodes of 4 ranks with 2 lanes. Times are processor seconds of the search.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collplan import compile, load_spec, verify
from collplan.cli.main import main as collplan
from collplan.own_algorithms import ask_for, import_own
from collplan.planner.metrics import measure

PUBLISHED = [(1, 2, 2), (2, 2, 3), (2, 3, 3), (3, 4, 4), (4, 5, 5), (5, 6, 6), (6, 7, 7), (6, 3, 7)]
"""Chunks, steps and rounds of the publication, which are our chunks, rounds and chunk times."""
OTHERS = [
    ("reduce_scatter_block", ["--chunks", "6", "--within", "1"]),
    ("bcast", ["--chunks", "6", "--rounds", "3"]),
    ("reduce", ["--chunks", "6", "--rounds", "3"]),
    ("gather", ["--chunks", "6", "--within", "1"]),
    ("scatter", ["--chunks", "6", "--within", "1"]),
    ("alltoall", []),
    ("allreduce", ["--chunks", "48", "--within", "1", "--compose"]),
]
"""Other collectives on these links."""


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of each search")
    parser.add_argument("tables", nargs="*", help="links, ports, lanes; all by default")
    options = parser.parse_args()
    tables = {"links": links, "ports": ports, "lanes": lanes}
    wrong = [name for name in options.tables if name not in tables]
    if wrong:
        parser.error(f"{wrong[0]} is not a table; name links, ports or lanes")
    for name, table in tables.items():
        if name in options.tables or not options.tables:
            table(options.seconds)


def found(machine: dict[str, Any], kind: str, words: list[str], seconds: float) -> dict[str, Any]:
    """Search a schedule, prove a plan with it, and return what the command and the plan say."""
    with TemporaryDirectory() as folder:
        found.n += 1  # type: ignore[attr-defined]
        name = f"searched_{found.n}"  # type: ignore[attr-defined]
        collective = {"kind": kind, "count": 5040, "datatype": "int32"}
        spec = {"machine": machine, "collective": collective, "algorithms": name}
        source, output = Path(folder, "spec.json"), Path(folder, f"{name}.py")
        source.write_text(json.dumps(spec | {"algorithms": "auto"}))
        begin, text = time.process_time(), StringIO()
        with redirect_stdout(text):
            limit = ["--time-limit", str(seconds), "--json"]
            status = collplan(["synthesize", str(source), "-o", str(output), *words, *limit])
        if status:
            return {}
        document: dict[str, Any] = json.loads(text.getvalue())
        document["seconds"] = time.process_time() - begin
        ask_for([output])
        import_own()
        source.write_text(json.dumps(spec))
        plan = compile(load_spec(source))
        verify(plan)
        document["metrics"] = measure(plan)
        return document


found.n = 0  # type: ignore[attr-defined]


def row(*cells: object) -> None:
    """Print a row of a table."""
    print("|", " | ".join(str(cell) for cell in cells), "|")
    sys.stdout.flush()


def links(seconds: float) -> None:
    """Print allgathers on a DGX-1's links, beside the published ones."""
    machine = {"ranks_per_node": 8}
    row("chunks", "published steps, rounds", "rounds, chunk times", "fewest of both", "s")
    row(*["---"] * 5)
    for chunks, steps, times in PUBLISHED:
        words = ["--links", "dgx1", "--chunks", str(chunks), "--rounds", str(steps)]
        one = found(machine, "allgather", words, seconds)
        fewest = found(
            machine,
            "allgather",
            ["--links", "dgx1", "--chunks", str(chunks), "--within", "1"],
            seconds,
        )
        ours = f"{one['n_rounds']}, {one['chunk_times']}"
        least = f"{fewest['n_rounds']}, {fewest['chunk_times']}"
        row(chunks, f"{steps}, {times}", ours, least, f"{one['seconds'] + fewest['seconds']:.1f}")
    print()
    row("collective", "chunks", "rounds", "at least", "chunk times", "at least", "s")
    row(*["---"] * 7)
    for kind, words in OTHERS:
        one = found(machine, kind, ["--links", "dgx1", *words], seconds)
        names = "n_chunks", "n_rounds", "least_rounds", "chunk_times", "least_chunk_times"
        row(kind, *(one[name] for name in names), f"{one['seconds']:.1f}")
    print()


def ports(seconds: float) -> None:
    """Print the rounds of allgather and bcast for up to 16 ranks, of which each has ports."""
    numbers = range(2, 17)
    row("collective", "ports", *numbers, "s")
    row(*["---"] * (len(numbers) + 3))
    for kind in ("allgather", "bcast"):
        for n_ports in (1, 2, 3):
            cells, total = [], 0.0
            for size in numbers:
                words = ["--ports", str(n_ports)]
                one = found({"nodes": size}, kind, words, min(seconds, 10.0))
                least = math.ceil(math.log(size, n_ports + 1) - 1e-9)
                total += one.get("seconds", 0.0)
                cells.append(
                    f"{one['n_rounds']}" if one and one["n_rounds"] == least else f"? ({least})"
                )
            row(kind, n_ports, *cells, f"{total:.0f}")
    print()


def lanes(seconds: float) -> None:
    """Print an allreduce with the fewest bytes, and those with fewer rounds."""
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    row("search", "rounds", "at least", "bytes per rank / bound", "lane bytes / bound", "s")
    row(*["---"] * 6)
    for asked in (
        ["--chunks", "4", "--within", "1.02"],
        ["--chunks", "4", "--rounds", "4"],
        ["--chunks", "1", "--rounds", "3"],
    ):
        one = found(machine, "allreduce", asked, seconds)
        metrics = one["metrics"]
        ratios = [
            f"{getattr(metrics, name) / getattr(metrics.bounds, name):.3f}"
            for name in ("bytes_sent_per_rank", "lane_bytes")
        ]
        rounds = metrics.n_rounds, one["least_rounds"]
        row(f"`{' '.join(asked)}`", *rounds, *ratios, f"{one['seconds']:.1f}")
    print()


if __name__ == "__main__":
    main()
