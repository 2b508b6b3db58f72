"""``collplan synthesize``: search an optimal schedule of a collective on a small machine."""

from __future__ import annotations

import keyword
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.inputs import open_spec
from collplan.cli.options import Json, Options, Spec, flag, option, output_file
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import print_line, print_result
from collplan.specs.errors import CollplanError, show_value

if TYPE_CHECKING:
    from collplan.specs import PlanSpec
    from collplan.synthesize.graph import RankGraph
    from collplan.synthesize.problem import Problem
    from collplan.synthesize.search import Found

MAX_CHUNKS: Final = 256
MAX_PORTS: Final = 15
_TRY: Final = "try fewer --chunks"


class SynthesizeOptions(Options):
    """Options of ``collplan synthesize``."""

    spec: Spec
    output: Path = output_file("Write the algorithm here.", "-o", "--output", metavar="FILE.py",
                               default=...)  # fmt: skip
    links: str | None = option(
        "NAME|FILE",
        "Links between ranks: dgx1, or a YAML, JSON or GraphML file. By default all ranks of the "
        "spec's machine may talk, through ports and lanes.",
    )
    ports: int | None = option(
        "PORTS",
        "Partners that a rank sends to, and receives from, in a round; 1 by default, any number "
        "with --links.",
        min=1,
        max=MAX_PORTS,
    )
    chunks: int = option(
        "PARTS", "Parts into which each block, or the vector, is cut.", default=1, min=1,
        max=MAX_CHUNKS,
    )  # fmt: skip
    rounds: int | None = option("ROUNDS", "Rounds; by default the fewest.", min=1, max=64)
    within: str | None = option(
        "FACTOR",
        "Search the fewest rounds with at most FACTOR times the lower bound of bytes, instead of "
        "the fewest bytes for the fewest rounds.",
    )
    compose: bool = flag(
        "--compose", "For allreduce: a reduce-scatter and an allgather, which are found sooner."
    )
    name: str | None = option("NAME", "Name of the algorithm; the file's by default.")
    time_limit: float = option("SECONDS", "Stop the search after this long.", default=300, min=1)
    as_json: Json = False


def command(options: SynthesizeOptions) -> None:
    """Search a schedule with the fewest rounds, then bytes, on a small machine; prove its bounds.

    The output is a Python file with the schedule as an algorithm, which --import makes known.
    """
    from collplan.synthesize.algorithm_file import file_text
    from collplan.synthesize.search import SearchProblem, search, search_composed
    from collplan.synthesize.solver import require_solver

    spec, name = open_spec(options.spec), _name_of(options)
    require_solver()
    problem = _problem(spec, options)
    searched = _half_of(problem) if options.compose else problem
    graph = _graph(spec, searched, options)
    question = SearchProblem(searched, graph, options.rounds, _within(options), options.time_limit)
    found = search_composed(question) if options.compose else search(question)
    write_text(options.output, file_text(name, problem, graph, found))
    document = _document(options, name, problem, graph, found)
    print_result(document, _print, as_json=options.as_json)


def _name_of(options: SynthesizeOptions) -> str:
    from collplan.planner.algorithms import registry

    if options.output.suffix != ".py":
        raise CollplanError(f"-o: {options.output} is not a Python file; give one that ends in .py")
    name = options.output.stem if options.name is None else options.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise CollplanError(
            f"--name: {show_value(name)} is not a name of a Python function; use letters, digits "
            f"and _"
        )
    if any(one.name == name for kind in registry.kinds() for one in registry.of(kind)):
        raise CollplanError(f"--name: {name} is an algorithm already; give another name")
    return name


def _problem(spec: PlanSpec, options: SynthesizeOptions) -> Problem:
    from collplan.synthesize.graph import MAX_RANKS
    from collplan.synthesize.problem import KINDS, state_problem

    collective, n_ranks = spec.collective, spec.machine.n_ranks
    kind = collective.planned_kind
    if kind not in KINDS:
        raise CollplanError(
            f"collective.kind: {collective.kind} is not searched; use one of {', '.join(KINDS)}"
        )
    if not 2 <= n_ranks <= MAX_RANKS:
        raise CollplanError(
            f"machine: {n_ranks} ranks; the search is for 2 to {MAX_RANKS}, as of a node or of one "
            f"rank per node"
        )
    if collective.regular is not None:
        raise CollplanError(
            f"collective.kind: {collective.kind} has counts that differ per rank, the search takes "
            f"blocks of one size; use {kind}"
        )
    if kind == "alltoall" and options.chunks > 1:
        raise CollplanError("--chunks: blocks of alltoall move whole; leave --chunks out")
    if options.compose and kind != "allreduce":
        raise CollplanError(f"--compose: is for allreduce, not for {kind}; leave it out")
    if options.compose and options.chunks % n_ranks:
        raise CollplanError(
            f"--compose: {options.chunks} chunks are not a multiple of the {n_ranks} ranks; give "
            f"--chunks {n_ranks}, or a multiple of it"
        )
    if options.compose and (options.rounds or 0) % 2:
        raise CollplanError(
            f"--compose: {options.rounds} rounds are not two halves; give an even number"
        )
    return state_problem(kind, n_ranks, options.chunks, collective.root or 0)


def _graph(spec: PlanSpec, problem: Problem, options: SynthesizeOptions) -> RankGraph:
    from collplan.planner.collective.bounds import lower_bounds
    from collplan.specs import PlanSpec
    from collplan.synthesize.graph import link_graph, machine_graph
    from collplan.synthesize.links import read_links
    from collplan.synthesize.problem import ROOTED

    machine = spec.machine
    if options.links is not None:
        graph = link_graph(options.links, read_links(options.links), machine.n_ranks, options.ports)
    else:
        # The size of a chunk is counted as one byte.
        collective = {"kind": problem.kind, "count": problem.n_parts, "datatype": "int8"}
        if problem.kind in ROOTED:
            collective["root"] = problem.root
        counted = PlanSpec.model_validate({"machine": machine, "collective": collective})
        graph = machine_graph(machine, options.ports or 1, lower_bounds(counted))
    return graph.reversed() if problem.is_backwards else graph


def _half_of(problem: Problem) -> Problem:
    """Return the problem of the allgather in an allreduce of reduce-scatter and allgather."""
    from collplan.synthesize.problem import state_problem

    return state_problem("allgather", problem.n_ranks, problem.n_parts // problem.n_ranks, 0)


def _within(options: SynthesizeOptions) -> Fraction | None:
    if options.within is None:
        return None
    try:
        within = Fraction(options.within)
    except (ValueError, ZeroDivisionError):
        within = Fraction(0)
    if within < 1:
        raise CollplanError(
            f"--within: {show_value(options.within)} is not a factor; give 1 or more, as in 1.02"
        )
    return within


def _document(
    options: SynthesizeOptions, name: str, problem: Problem, graph: RankGraph, found: Found
) -> dict[str, Any]:
    from collplan.synthesize.algorithm_file import (
        busiest,
        describe_bytes,
        describe_bytes_proof,
        describe_rounds,
    )

    return {
        "output": str(options.output),
        "name": name,
        "kind": problem.kind,
        "graph": graph.name,
        "n_ranks": graph.n_ranks,
        "n_chunks": problem.n_parts,
        "n_rounds": found.n_rounds,
        "least_rounds": found.rounds_proof.least,
        "rounds": describe_rounds(found),
        "chunk_times": found.n_bytes if graph.has_links else None,
        "least_chunk_times": found.bytes_proof.least if graph.has_links else None,
        "busiest": busiest(found, problem, graph),
        "bytes_over_bound": found.n_bytes / max(1, found.bytes_proof.least),
        "bytes": f"{describe_bytes(found, problem, graph)}; {describe_bytes_proof(found)}",
        "is_rotational": found.is_rotational,
        "solver": found.solver,
        "seconds": found.seconds,
    }


def _print(document: dict[str, Any]) -> None:
    lines = [
        f"{document['kind']} on {document['graph']}",
        f"{document['rounds']}.",
        f"{document['bytes']}.",
    ]
    if document["is_rotational"]:
        lines.append("Every rank does the same, relative to its own number.")
    output, name = document["output"], document["name"]
    lines.append(f"wrote {output} in {document['seconds']:.1f} s; use it by: ")
    lines[-1] += f"collplan --import {output} ... with algorithms: {name}"
    print_line("\n".join(lines))
