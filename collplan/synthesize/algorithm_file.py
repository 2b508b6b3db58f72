"""Python files with a schedule, which register it as an algorithm when they are imported."""

from __future__ import annotations

from collplan import __version__
from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import ROOTED, Problem
from collplan.synthesize.search import Found, Proof


def describe_rounds(found: Found) -> str:
    """Return the number of rounds in words, and whether fewer are possible."""
    proof = found.rounds_proof
    if found.n_rounds <= proof.least:
        return f"{found.n_rounds} rounds, the fewest {_scope(proof)} ({proof.why})"
    more = f" for {proof.scope}" if proof.scope else ""
    return f"{found.n_rounds} rounds; at least {proof.least} are necessary{more} ({proof.why})"


def _scope(proof: Proof) -> str:
    return f"of all {proof.scope}" if proof.scope else "possible"


def unit_of_bytes(problem: Problem) -> str:
    """Return the name of the data that the schedule cuts into parts.

    Examples
    --------
    >>> from collplan.synthesize.problem import state_problem
    >>> unit_of_bytes(state_problem("bcast", 4, 2, 0))
    'the vector'
    """
    return "the vector" if problem.kind in ("bcast", "reduce", "allreduce") else "a block"


def busiest(found: Found, problem: Problem, graph: RankGraph) -> dict[str, int]:
    """Return the number of chunks that the busiest rank and lane carry in one direction.

    The schedule is that of the collective itself. The graph is that of the search, which is
    reversed for the collectives of `BACKWARDS`.
    """
    graph = graph.reversed() if problem.is_backwards else graph
    sent = [(a, b, len(chunks)) for messages in found.rounds for a, b, chunks in messages]
    most: dict[str, int] = {}
    for one in graph.resources:
        load = sum(n for a, b, n in sent if (a, b) in one.pairs)
        most[one.name] = max(load, most.get(one.name, 0))
    return most


def describe_bytes(found: Found, problem: Problem, graph: RankGraph) -> str:
    """Return the load of the links, or of the busiest rank and lane, in words."""
    share = f"1/{problem.n_parts} of " if problem.n_parts > 1 else ""
    about = f"(a chunk is {share}{unit_of_bytes(problem)})"
    if graph.has_links:
        return f"The links take the time of {_chunks(found.n_bytes)} {about}"
    loads = busiest(found, problem, graph)
    text = f"The busiest rank carries {_chunks(loads['rank'])}"
    text += f" and the busiest lane {loads['lane']}" if "lane" in loads else ""
    return f"{text} {about}"


def _chunks(n: int) -> str:
    return f"{n} chunks" if n != 1 else "1 chunk"


def describe_bytes_proof(found: Found) -> str:
    """Return the ratio of the bytes to their lower bound for this number of rounds, in words."""
    proof = found.bytes_proof
    if found.n_bytes <= proof.least:
        return f"the fewest {_scope(proof)} in {found.n_rounds} rounds ({proof.why})"
    ratio = found.n_bytes / max(1, proof.least)
    more = f" for {proof.scope}" if proof.scope else ""
    return f"{ratio:.3g} times the lower bound{more} ({proof.why})"


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
