"""``collplan bench lane-pattern`` and ``multi-collective``: how many lanes a machine has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.inputs import open_spec
from collplan.cli.options import (
    BenchmarkOptions,
    Ranks,
    Repetitions,
    option,
    options_class,
    parse_sizes,
)
from collplan.cli.ranks import Advance, Document, run_benchmark
from collplan.reports.measured import plot_rows, print_statistics
from collplan.reports.output import print_json, print_line
from collplan.specs.collective import COLLECTIVES
from collplan.specs.errors import CollplanError, suggest

if TYPE_CHECKING:
    from collplan.measure.lanes import Lanes, LaneTimes

SIZES: Final = "4KiB,64KiB,1MiB"
"""Sizes where none are asked for."""


@options_class
class LaneOptions(BenchmarkOptions):
    """Options of both benchmarks of lanes."""

    sizes: str
    ranks: Ranks = None
    repetitions: Repetitions = 80
    nodes_from: Path | None = option(
        "SPEC",
        "Let ranks stand for nodes as this spec's machine says; by default MPI says "
        "who shares a node.",
    )


@options_class
class PatternOptions(LaneOptions):
    """Options of ``collplan bench lane-pattern``."""

    sizes: str = option("SIZE,...", "Bytes that leave a node in an exchange.", default=SIZES)
    inner: int = option(None, "Exchanges back to back that make a repetition.", default=100, min=1)


@options_class
class CollectiveOptions(LaneOptions):
    """Options of ``collplan bench multi-collective``."""

    collective: str = option("KIND", "The native collective that lanes run.", default="alltoall")
    sizes: str = option(
        "SIZE,...", "Bytes of each lane: of the vector, or of all blocks together.", default=SIZES
    )


@dataclass(frozen=True, slots=True)
class LaneBenchmark:
    """Traffic over one lane and over several, to be timed.

    Parameters
    ----------
    options : LaneOptions
    sizes : list of int
        Bytes.
    n_ranks : int, optional
        How many ranks it must be.
    rank_to_node : tuple of int, optional
        The node of every rank, where it is not MPI that says.
    inner : int
        Exchanges in a repetition of the lane pattern.
    collective : str, optional
        Which collective; None for the lane pattern.
    """

    options: LaneOptions
    sizes: list[int]
    n_ranks: int | None
    rank_to_node: tuple[int, ...] | None
    inner: int = 1
    collective: str | None = None

    @property
    def n_steps(self) -> int:
        """Return the number of repetitions, warm-ups included."""
        from collplan.measure.timing import WARM_UPS

        return len(self.sizes) * (WARM_UPS + self.options.repetitions)

    @property
    def compared(self) -> str:
        """Return what a row says of its time beside that of one lane."""
        return "speedup" if self.collective is None else "slowdown"

    def measure(self, comm: Any, advance: Advance) -> Document:
        """Measure on the ranks of a communicator; return the same on all."""
        from collplan.measure.lanes import split_lanes
        from collplan.measure.timing import library_name

        lanes = split_lanes(comm, self.rank_to_node)
        asked = {"repetitions": self.options.repetitions}
        if self.collective is None:
            asked["inner"] = self.inner
        document = {
            "library": library_name(),
            "ranks": comm.size,
            "nodes": lanes.n_nodes,
            "ranks_per_node": lanes.ranks_per_node,
            "idle_ranks": lanes.n_idle,
            "rows": self._rows(self._times(comm, lanes, advance)),
            **asked,
        }
        lanes.free()
        return document

    def _times(self, comm: Any, lanes: Lanes, advance: Advance) -> list[LaneTimes]:
        from collplan.measure.lanes import lane_pattern, multi_collective

        if self.collective is None:
            run = partial(lane_pattern, comm, lanes, inner=self.inner)
        else:
            run = partial(multi_collective, comm, lanes, self.collective)
        return run(sizes=self.sizes, repetitions=self.options.repetitions, advance=advance)

    def _rows(self, times: Sequence[LaneTimes]) -> list[Document]:
        one = {entry.bytes: entry.summary.median_s for entry in times if entry.lanes == 1}
        rows = []
        for entry in times:
            slowdown = entry.summary.median_s / one[entry.bytes]
            row = {"bytes": entry.bytes, "lanes": entry.lanes, **entry.summary.to_json()}
            row[self.compared] = slowdown if self.collective else 1 / slowdown
            rows.append(row)
        return rows

    def show(self, document: Document) -> None:
        """Print what was measured, and plot it if asked to."""
        if self.options.as_json:
            print_json(document)
        else:
            self._print(document)
        if self.options.plot is not None:
            names = [_name(row["lanes"]) for row in document["rows"]]
            label = "bytes of each lane" if self.collective else "bytes out of each node"
            title = f"{self._title}, {document['library']}"
            plot_rows(self.options.plot, document["rows"], names, title=title, size_label=label)

    @property
    def _title(self) -> str:
        if self.collective is not None:
            return f"{self.collective} on each lane"
        return f"{self.inner} exchanges of the lane pattern"

    def _print(self, document: Document) -> None:
        print_line(
            f"{self._title}: {document['nodes']} nodes, {document['ranks']} ranks, "
            f"{document['library']}"
        )
        if document["idle_ranks"]:
            print_line(
                f"nodes have different numbers of ranks: {document['ranks_per_node']} of each take "
                f"part; idle: {document['idle_ranks']} of {document['ranks']}"
            )
        for size in self.sizes:
            print_statistics(
                size,
                document["rows"],
                [_name(row["lanes"]) for row in document["rows"]],
                {self.compared: lambda row: f"{row[self.compared]:.2f}"},
            )
        print_line(f"{self.options.repetitions} repetitions; the slowest rank of each counts")


def _name(n_lanes: int) -> str:
    return "1 lane" if n_lanes == 1 else f"{n_lanes} lanes"


def lane_pattern(options: PatternOptions) -> int:
    """Time how much faster k ranks per node send data than one rank.

    Every node sends SIZE bytes to the next one on a ring, and receives as many,
    divided over its first k ranks, for k = 1, 2, 4 and so on. With k' lanes,
    expect a speed-up of k' from k = k' on. If nodes have different numbers of
    ranks, the smallest number takes part on each.
    """
    return run_benchmark(options, _prepare)


def multi_collective(options: CollectiveOptions) -> int:
    """Time the same native collective on k lane communicators at once.

    A lane communicator has one rank of each node. Each of the first k handles
    SIZE bytes of int32, for k = 1, 2, 4 and so on, so that k lanes move k times
    as much. With k' lanes, expect no slow-down up to k = k', and a slow-down of
    k / k' beyond.
    """
    return run_benchmark(options, _prepare)


def _prepare(options: LaneOptions) -> LaneBenchmark:
    """Read what the options say.

    Raises
    ------
    CollplanError
        If they don't make sense, alone or together.
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
    if isinstance(options, CollectiveOptions):
        sizes = parse_sizes(options.sizes, 4, "int32")
        return LaneBenchmark(options, sizes, ranks, rank_to_node, collective=options.collective)
    assert isinstance(options, PatternOptions)
    sizes = parse_sizes(options.sizes)
    return LaneBenchmark(options, sizes, ranks, rank_to_node, inner=options.inner)


def _check_collective(kind: str) -> None:
    kinds = [name for name, model in COLLECTIVES.items() if model.has_data]
    if kind in kinds:
        return
    if kind in COLLECTIVES:
        raise CollplanError(
            f"--collective: a {kind} moves nothing over the lanes; valid: {', '.join(kinds)}"
        )
    hint = suggest(kind, kinds)
    raise CollplanError(
        f"--collective: {kind!r} is not a collective; {hint}valid: {', '.join(kinds)}"
    )
