"""``collplan bench guideline``: comparison of a native collective with its decompositions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from collplan.cli.inputs import open_spec, resize
from collplan.cli.options import BenchmarkOptions, CountSizes, Spec, n_ranks, option
from collplan.cli.ranks import Advance, Benchmark, count_repetitions, run_benchmark
from collplan.reports.measured import plot_rows, print_statistics
from collplan.reports.output import Document, pick, print_line, print_result
from collplan.select.sizes import counts_of
from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError, show_value
from collplan.tables.sweep import counts_in_words

STANDARD: Final = (
    *("native", "hierarchical", "full_lane", "best"),
    *("hierarchical native", "full_lane native"),
)
"""Names of the standard candidates."""


class GuidelineOptions(BenchmarkOptions):
    """Options of ``collplan bench guideline``."""

    source: Spec
    ranks: int | None = n_ranks()
    sizes: CountSizes = None
    candidate: list[str] | None = option(
        "NAME=SPEC", "Another spec of the same collective; may be given several times."
    )


def command(options: GuidelineOptions) -> int:
    """Time the native collective beside its decompositions.

    Candidates are hierarchical, full_lane, and best, which is what the planner
    chooses, of collplan's algorithms; and hierarchical and full_lane made of
    the library's own collectives. Where one of these is faster than native,
    and the 95 % intervals of the medians do not overlap, that is a violation,
    as the library could have done the same. A violation is a finding, and exit
    status 0; a candidate's wrong result is 1.
    """
    return run_benchmark(partial(_prepare, options), options.timeout, options.progress)


def _prepare(options: GuidelineOptions) -> Benchmark:
    """Return the benchmark for the options, after checking them.

    Raises
    ------
    CollplanError
        If an option is invalid, or options contradict each other.
    """
    spec = resize(open_spec(options.source), options.ranks)
    counts = counts_of(options.sizes, spec)
    named: dict[str, PlanSpec] = {}
    for text in options.candidate or ():
        name, other = _read_candidate(text, spec)
        if name in STANDARD or name in named:
            raise CollplanError(
                f"--candidate: there is a {show_value(name)} already; give it another name"
            )
        named[name] = other

    def measure(comm: Any, advance: Advance) -> Document:
        from collplan.measure.guideline import measure_guideline, standard_candidates
        from collplan.measure.lanes import node_of_ranks
        from collplan.measure.timing import library_name

        found = measure_guideline(
            comm,
            spec,
            standard_candidates(spec) | named,
            counts,
            repetitions=options.repetitions,
            advance=advance,
        )
        return {
            "library": library_name(),
            "collective": spec.collective.kind,
            "ranks": comm.size,
            "nodes": len(set(node_of_ranks(comm))),
            "repetitions": options.repetitions,
            "rows": [row.to_json() for row in found.rows],
            "refused": [pick(entry, "bytes candidate reason") for entry in found.refused],
            "violations": sum(row.violation for row in found.rows),
            "correct": found.is_correct,
            "checked_against": found.checked_against,
        }

    return Benchmark(
        measure,
        partial(_show, options, spec.machine.nodes),
        spec.machine.n_ranks,
        partial(count_repetitions, len(counts), options.repetitions),
    )


def _read_candidate(text: str, spec: PlanSpec) -> tuple[str, PlanSpec]:
    name, separator, path = text.partition("=")
    if not (name and separator and path):
        raise CollplanError(
            f"--candidate: {show_value(text)} is not a NAME=SPEC; give it as mine=mine.yaml"
        )
    other = open_spec(Path(path))
    is_same = other.collective.with_count(0) == spec.collective.with_count(0)
    if not is_same or counts_in_words(other.collective) != counts_in_words(spec.collective):
        raise CollplanError(
            f"--candidate: {path} is of another collective than the guideline's; "
            f"let them differ in count only"
        )
    if other.machine.n_ranks != spec.machine.n_ranks:
        raise CollplanError(
            f"--candidate: {path} is for {other.machine.n_ranks} ranks, the guideline for "
            f"{spec.machine.n_ranks}; make them the same"
        )
    return name, other


def _show(options: GuidelineOptions, n_nodes: int, document: Document) -> None:
    print_result(document, partial(_print, n_nodes), as_json=options.as_json)
    if options.plot is not None:
        title = f"{document['collective']} on {document['ranks']} ranks, {document['library']}"
        names = [row["candidate"] for row in document["rows"]]
        label = "bytes of the count"
        plot_rows(options.plot, document["rows"], names, title=title, size_label=label)


def _print(n_nodes: int, document: Document) -> None:
    on = f"{document['nodes']} node" + ("s" if document["nodes"] > 1 else "")
    planned = "" if n_nodes == document["nodes"] else f" (the spec says {n_nodes})"
    print_line(
        f"{document['collective']} on {document['ranks']} ranks, {on}{planned}, "
        f"{document['library']}"
    )
    for size in sorted({row["bytes"] for row in document["rows"]}):
        print_statistics(
            size,
            document["rows"],
            [row["candidate"] for row in document["rows"]],
            {"native/it": lambda row: f"{row['factor']:.2f}", "finding": _finding},
        )
        for row in document["rows"]:
            if row["bytes"] == size and row["candidate"] == "best":
                print_line(f"best: {row['plan']}")
        for refusal in document["refused"]:
            if refusal["bytes"] == size:
                print_line(f"refused: {refusal['candidate']}: {refusal['reason']}")
    print_line(
        f"{document['repetitions']} repetitions in turns; the slowest rank of each counts; "
        f"violations: {document['violations']}"
    )


def _finding(row: Mapping[str, Any]) -> str:
    if row["wrong"] is not None:
        return f"WRONG: {row['wrong']}"
    if not row["faster"]:
        return ""
    return f"{'violation' if row['violation'] else 'faster'} x{row['factor']:.2f}"
