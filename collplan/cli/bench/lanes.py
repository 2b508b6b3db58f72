"""``collplan bench lane-pattern`` and ``multi-collective``: benchmarks of the lanes of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from collplan.cli.inputs import open_spec
from collplan.cli.options import BenchmarkOptions, Repetitions, n_ranks, option
from collplan.cli.ranks import Advance, Benchmark, count_repetitions, run_benchmark
from collplan.reports.measured import plot_rows, print_statistics
from collplan.reports.output import Document, print_line, print_result
from collplan.select.sizes import parse_sizes
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.errors import CollplanError, show_value, suggest

SIZES: Final = "4KiB,64KiB,1MiB"
"""Default sizes."""


class LaneOptions(BenchmarkOptions):
    """Common options of both benchmarks of lanes."""

    sizes: str
    ranks: int | None = n_ranks()
    repetitions: Repetitions = 80
    nodes_from: Path | None = option(
        "SPEC",
        "Take the node of each rank from this spec's machine; by default, ask MPI which ranks "
        "share a node.",
    )


class PatternOptions(LaneOptions):
    """Options of ``collplan bench lane-pattern``."""

    sizes: str = option("SIZE,...", "Bytes that leave a node in an exchange.", default=SIZES)
    inner: int = option(None, "Exchanges back to back that make a repetition.", default=100, min=1)
    compared: ClassVar = "speedup"
    """Key of the ratio between the time of a row and that of one lane."""
    size_label: ClassVar = "bytes out of each node"

    @property
    def title(self) -> str:
        """Description of a repetition."""
        return f"{self.inner} exchanges of the lane pattern"


class CollectiveOptions(LaneOptions):
    """Options of ``collplan bench multi-collective``."""

    collective: str = option("KIND", "The native collective that lanes run.", default="alltoall")
    sizes: str = option(
        "SIZE,...", "Bytes of each lane: of the vector, or of all blocks together.", default=SIZES
    )
    compared: ClassVar = "slowdown"
    size_label: ClassVar = "bytes of each lane"

    @property
    def title(self) -> str:
        """Description of a repetition."""
        return f"{self.collective} on each lane"


AnyOptions = PatternOptions | CollectiveOptions


def lane_pattern(options: PatternOptions) -> int:
    """Time how much faster k ranks per node send data than one rank.

    Every node sends SIZE bytes to the next one on a ring, and receives as many,
    divided over its first k ranks, for k = 1, 2, 4 and so on. With k' lanes,
    expect a speed-up of k' from k = k' on. If nodes have different numbers of
    ranks, the smallest number takes part on each.
    """
    return run_benchmark(partial(_prepare, options), options.timeout, options.progress)


def multi_collective(options: CollectiveOptions) -> int:
    """Time the same native collective on k lane communicators at once.

    A lane communicator has one rank of each node. Each of the first k handles
    SIZE bytes of int32, for k = 1, 2, 4 and so on, so that k lanes move k times
    as much. With k' lanes, expect no slow-down up to k = k', and a slow-down of
    k / k' beyond.
    """
    return run_benchmark(partial(_prepare, options), options.timeout, options.progress)


def _prepare(options: AnyOptions) -> Benchmark:
    """Return the benchmark for the options, after checking them.

    Raises
    ------
    CollplanError
        If an option is invalid, or options contradict each other.
    """
    ranks, source = options.ranks, options.nodes_from
    if isinstance(options, CollectiveOptions):
        _check_collective(options.collective)
    rank_to_node = None
    if source is not None:
        rank_to_node = open_spec(source).machine.rank_to_node
        if ranks not in (None, len(rank_to_node)):
            raise CollplanError(
                f"-n: {ranks} ranks, but the machine of {source} has {len(rank_to_node)}; "
                f"leave -n out"
            )
        ranks = len(rank_to_node)
    of_elements = (4, "int32") if isinstance(options, CollectiveOptions) else ()
    sizes = parse_sizes(options.sizes, *of_elements)

    def measure(comm: Any, advance: Advance) -> Document:
        from collplan.measure.lanes import lane_pattern, multi_collective, split_lanes
        from collplan.measure.timing import library_name

        lanes = split_lanes(comm, rank_to_node)
        asked = {"repetitions": options.repetitions}
        if isinstance(options, CollectiveOptions):
            run = partial(multi_collective, comm, lanes, options.collective)
        else:
            run = partial(lane_pattern, comm, lanes, inner=options.inner)
            asked["inner"] = options.inner
        times = run(sizes=sizes, repetitions=options.repetitions, advance=advance)
        one = {entry.bytes: entry.summary.median_s for entry in times if entry.lanes == 1}
        rows = []
        for entry in times:
            row = {"bytes": entry.bytes, "lanes": entry.lanes, **entry.summary.to_json()}
            slowdown = entry.summary.median_s / one[entry.bytes]
            row[options.compared] = slowdown if options.compared == "slowdown" else 1 / slowdown
            rows.append(row)
        document = {
            "library": library_name(),
            "ranks": comm.size,
            "nodes": lanes.n_nodes,
            "ranks_per_node": lanes.ranks_per_node,
            "idle_ranks": lanes.n_idle,
            "rows": rows,
            **asked,
        }
        lanes.free()
        return document

    return Benchmark(
        measure,
        partial(_show, options),
        ranks,
        partial(count_repetitions, len(sizes), options.repetitions),
    )


def _check_collective(kind: str) -> None:
    kinds = [
        name for name, model in COLLECTIVES.items() if model.has_data and model.regular is None
    ]
    if kind in kinds:
        return
    if kind in COLLECTIVES and COLLECTIVES[kind].regular:
        raise CollplanError(
            f"--collective: the blocks of lanes are equal, those of {kind} are not; give "
            f"{COLLECTIVES[kind].regular}"
        )
    problem = f"{show_value(kind)} is not a collective; {suggest(kind, kinds)}"
    if kind in COLLECTIVES:
        problem = f"a {kind} moves nothing over the lanes; "
    raise CollplanError(f"--collective: {problem}valid: {', '.join(kinds)}")


def _show(options: AnyOptions, document: Document) -> None:
    rows = document["rows"]
    names = ["1 lane" if row["lanes"] == 1 else f"{row['lanes']} lanes" for row in rows]
    print_result(document, partial(_print, options, names), as_json=options.as_json)
    if options.plot is not None:
        title = f"{options.title}, {document['library']}"
        plot_rows(options.plot, rows, names, title=title, size_label=options.size_label)


def _print(options: AnyOptions, names: Sequence[str], document: Document) -> None:
    rows = document["rows"]
    print_line(
        f"{options.title}: {document['nodes']} nodes, {document['ranks']} ranks, "
        f"{document['library']}"
    )
    if document["idle_ranks"]:
        print_line(
            f"nodes have different numbers of ranks: {document['ranks_per_node']} of each take "
            f"part; idle: {document['idle_ranks']} of {document['ranks']}"
        )
    compared = {options.compared: lambda row: f"{row[options.compared]:.2f}"}
    for size in sorted({row["bytes"] for row in rows}):
        print_statistics(size, rows, names, compared)
    print_line(f"{options.repetitions} repetitions; the slowest rank of each counts")
