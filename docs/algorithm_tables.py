"""Tables of algorithms for pages: ours, and those of MPI libraries beside them.

The first is made from the registry and measured plans, the second from the table of libraries.
"""

from __future__ import annotations

import inspect
from typing import Final

from collplan.libraries.counterparts import algorithms_of, library_names
from collplan.planner import compile_plan
from collplan.planner.algorithms import Algorithm, registry
from collplan.planner.metrics import measure
from collplan.specs import parse_spec
from collplan.specs.collectives.collective import traits_of

SIZES: Final = (7, 8)
COUNT: Final = 840  # a multiple of every size, so that chunks are equal
ITEMSIZE: Final = 4


def table() -> str:
    """Return the tables of all collectives as Markdown."""
    parts = []
    for kind in sorted(registry.kinds()):
        header = ["algorithm", "rounds and bytes", *(f"p = {p}" for p in SIZES), "needs"]
        rows = [header, ["---"] * len(header)]
        rows += [_row(algorithm) for algorithm in sorted(registry.of(kind), key=lambda a: a.name)]
        parts.append(f"### {kind}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def libraries() -> str:
    """Return the tables of all libraries as Markdown."""
    parts = []
    for name in library_names():
        library = algorithms_of(name)
        rows = [["collective", library.title, "collplan", "remarks"], ["---"] * 4]
        rows += [
            [row.collective, f"`{row.title}`", row.ours_text and f"`{row.ours_text}`", row.remark]
            for row in library.rows
        ]
        lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        parts.append(f"### {library.title}\n\nRead: {library.source}.\n\n{lines}")
    return "\n\n".join(parts)


def names() -> str:
    """Return the names of all algorithms by collective as a table in Markdown."""
    kinds: dict[str, list[str]] = {}
    for kind in registry.kinds():
        kinds.setdefault(", ".join(sorted(one.name for one in registry.of(kind))), []).append(kind)
    rows = ["| collective | algorithms |", "|---|---|"]
    return "\n".join([*rows, *(f"| {', '.join(of)} | {found} |" for found, of in kinds.items())])


def _row(algorithm: Algorithm) -> list[str]:
    options = ", ".join(f"{name} = {value}" for name, value in (algorithm.options or {}).items())
    name = f"`{algorithm.name}`" + (f" ({options})" if options else "")
    notes = inspect.cleandoc(algorithm.rounds.__doc__ or "").partition("Notes\n-----\n")[2]
    notes = " ".join(notes.partition("\n\n")[0].split())
    return [
        name,
        f"{algorithm.summary} {notes}",
        *(_measured(algorithm, size) for size in SIZES),
        ", ".join(algorithm.needs),
    ]


def _measured(algorithm: Algorithm, size: int) -> str:
    """Return rounds and the busiest rank's bytes, in units of the count's, of a real plan.

    Nodes of packed algorithms are linked in a ring.
    """
    if algorithm.refusal(size, commutative=True, has_topology=True) is not None:
        return "no"
    collective: dict[str, object] = {"kind": algorithm.kind, "count": COUNT, "datatype": "int32"}
    if algorithm.kind == "barrier":
        collective = {"kind": "barrier"}
    if traits_of(algorithm.kind).has_edges:
        collective["graph"] = {"grid": [size], "periodic": True}
    ring = {"topology": {"kind": "torus", "dimensions": [size], "bandwidth": "10GB/s"}}
    spec = {
        "machine": {"nodes": size, "network": ring}
        if algorithm.is_packed
        else {"ranks_per_node": size},
        "collective": collective,
        "algorithms": algorithm.name,
    }
    metrics = measure(compile_plan(parse_spec(spec)))
    return f"{metrics.n_rounds}, {metrics.bytes_sent_per_rank / (COUNT * ITEMSIZE):.3g}c"
