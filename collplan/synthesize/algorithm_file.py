"""Python files with a schedule, which register it as an algorithm when they are imported."""

from __future__ import annotations

from collplan import __version__
from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import ROOTED, Problem
from collplan.synthesize.reporting import describe_bytes, describe_bytes_proof, describe_rounds
from collplan.synthesize.search import Found

_COMBINING = ("reduce", "allreduce", "reduce_scatter_block")
_WIDTH = 96

_TEMPLATE = '''"""{title}

Written by collplan {version} with {solver}. Import it with --import, and name the
algorithm in specs:

    algorithms: {name}
"""

from collplan.planner.algorithms.building_blocks.stated_messages import stated_rounds
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Group, Rounds

# Every line is a message of its round: its sender, its receiver, and the chunks that it carries.
# {chunks}
SCHEDULE = (
{schedule}
)


@algorithm(
    {arguments},
)
def {name}(group: Group) -> Rounds:
    """{summary}

    Notes
    -----
{notes}

    References
    ----------
    Cai et al., "Synthesizing optimal collective algorithms", PPoPP 2021: the formulation.
    """
    return stated_rounds({call})
'''


def file_text(name: str, problem: Problem, graph: RankGraph, found: Found) -> str:
    """Return the text of a Python file that registers a schedule.

    Parameters
    ----------
    name : str
        Name of the algorithm, which must be an identifier.
    problem : Problem
        Problem of the collective itself.
    graph : RankGraph
        Graph for which the schedule was found.
    found : Found
        Schedule and its proofs.
    """
    kind, size, parts = problem.kind, graph.n_ranks, problem.n_parts
    arguments = [f'"{kind}"', f'"{name}"', f"only_ranks={size}"]
    call = ["group", f'"{kind}"', "SCHEDULE"]
    if kind == "alltoall":
        arguments.append("by_counts=True")
    else:
        arguments += ['parts="blocks"', f'options={{"blocks": {parts}}}']
        call.append(f"n_parts={parts}")
    if kind in _COMBINING:
        arguments.append("commutative_only=True")
    if kind in ROOTED:
        call += [f"root={problem.root}", f"rotates={graph.is_rotational}"]
    notes = [
        f"{describe_rounds(found)}.",
        f"{describe_bytes(found, problem, graph)}; {describe_bytes_proof(found)}.",
    ]
    if found.is_rotational:
        notes.append("Every rank does the same, relative to its own number.")
    if kind in ROOTED:
        more = "others take it with all ranks shifted" if graph.is_rotational else "no other root"
        notes.append(f"For root {problem.root}; {more}.")
    title = f"A schedule of {kind} for {graph.name}, found by a solver."
    return _TEMPLATE.format(
        title=title,
        version=__version__,
        solver=found.solver,
        name=name,
        chunks=_about_chunks(problem),
        schedule="\n".join(_lines(found)),
        arguments=",\n    ".join(arguments),
        summary=f"Move chunks in {found.n_rounds} rounds on {graph.name}.",
        notes="\n".join(_wrapped(" ".join(notes), "    ")),
        call=", ".join(call),
    )


def _about_chunks(problem: Problem) -> str:
    size = problem.n_ranks
    if problem.kind == "alltoall":
        return f"Chunk {size}*a + b is the block of rank a for rank b."
    if problem.kind in ("bcast", "reduce", "allreduce"):
        return f"Chunk i is part i of the vector, of {problem.n_parts}."
    return f"Chunk {size}*i + r is part i of rank r's block, of {problem.n_parts}."


def _lines(found: Found) -> list[str]:
    lines = []
    for number, messages in enumerate(found.rounds):
        lines.append(f"    (  # round {number}")
        lines += [f"        ({a}, {b}, {_tuple(chunks)})," for a, b, chunks in messages]
        lines.append("    ),")
    return lines


def _tuple(chunks: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, chunks))}{',' * (len(chunks) == 1)})"


def _wrapped(text: str, indent: str) -> list[str]:
    import textwrap

    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
