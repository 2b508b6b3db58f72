"""Sentences on the results of a search, for reports and files."""

from __future__ import annotations

from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import Problem
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
