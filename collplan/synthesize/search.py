"""The search for the fewest rounds, and then for the fewest bytes, with proofs of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from collplan.reports.progress import spinner
from collplan.specs.errors import CollplanError
from collplan.synthesize.bounds import least_chunk_times, least_rounds, scale_of
from collplan.synthesize.combining import CombiningModel, ElementModel
from collplan.synthesize.graph import RankGraph
from collplan.synthesize.moving import MovingModel
from collplan.synthesize.problem import Problem, Rounds, turned_around
from collplan.synthesize.solver import Model, require_solver

MAX_MOVES: Final = 1_000_000
"""Largest number of variables of a model; larger ones take minutes to build, and are not solved."""
MORE_ROUNDS: Final = 24
"""Number of rounds beyond the lower bound that are tried."""
ROTATION_SHARE: Final = 0.25
"""Fraction of the time for schedules that are the same on all ranks, which are found sooner."""


@dataclass(frozen=True, slots=True)
class SearchProblem:
    """A problem on a graph, and limits of the search.

    Parameters
    ----------
    problem : Problem
        Chunks of the collective.
    graph : RankGraph
        Graph of the ranks.
    n_rounds : int, optional
        Number of rounds of the schedule; the fewest by default.
    within : Fraction, optional
        Largest number of bytes, as a multiple of their lower bound. Without it, the search
        minimizes the bytes for the number of rounds.
    seconds : float
        Time limit in s.
    """

    problem: Problem
    graph: RankGraph
    n_rounds: int | None
    within: Fraction | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """A lower bound and its reason.

    Parameters
    ----------
    least : int
        Lower bound.
    why : str
        Reason for the bound.
    scope : str
        Description of the schedules for which the bound holds; empty for all schedules.
    """

    least: int
    why: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule and its proofs.

    Parameters
    ----------
    rounds : tuple
        Schedule of the collective itself.
    n_bytes : int
        Number of chunk times on links. Without links, the load of the busiest rank or lane,
        in a scale in which its lower bound is `unit`.
    unit : int
        Unit of `n_bytes`, which is 1 on links.
    rounds_proof, bytes_proof : Proof
        Proof of a lower bound on rounds, and of one on bytes for this number of rounds.
    is_rotational : bool
        Whether every rank does the same.
    solver : str
        Name and version of the solver.
    seconds : float
        Time of the search in s.
    """

    rounds: Rounds
    n_bytes: int
    unit: int
    rounds_proof: Proof
    bytes_proof: Proof
    is_rotational: bool
    solver: str
    seconds: float

    @property
    def n_rounds(self) -> int:
        """Return the number of rounds."""
        return len(self.rounds)


@dataclass
class _Search:
    """The state of a search."""

    question: SearchProblem
    least_bytes: int
    most_bytes: int | None
    unit: int
    end: float
    solver: str

    @property
    def left(self) -> float:
        """Return the remaining time in s."""
        return self.end - time.monotonic()


def search(question: SearchProblem) -> Found:
    """Search for a schedule.

    Raises
    ------
    CollplanError
        If there is no schedule, or none was found in time.
    """
    begin = time.monotonic()
    graph, problem = question.graph, question.problem
    if graph.has_links:
        least, unit = least_chunk_times(problem, graph), 1
    else:
        least = unit = scale_of(graph)
    most = None if question.within is None else int(question.within * least)
    state = _Search(question, least, most, unit, begin + question.seconds, require_solver())
    model, rounds_proof = _fewest_rounds(state)
    found = _fewest_bytes(state, model, rounds_proof)
    return replace(found, seconds=time.monotonic() - begin)


def _fewest_rounds(state: _Search) -> tuple[Model, Proof]:
    """Return a solved model with the fewest rounds, or the given number, and a proof."""
    question = state.question
    least, why = least_rounds(question.problem, question.graph)
    first = question.n_rounds or least
    if first < least:
        raise CollplanError(f"--rounds: {first} rounds are too few, as {why}; give {least} or more")
    _require_small(question, first)
    last = question.n_rounds or least + MORE_ROUNDS
    if question.n_rounds is None and question.graph.has_links and state.most_bytes is not None:
        last = min(last, state.most_bytes)  # a round takes at least one chunk time
    is_proved, proof = True, Proof(least, why)
    for n_rounds in range(first, last + 1):
        model = _found(state, n_rounds)
        if isinstance(model, Model):
            return model, proof
        is_proved = is_proved and model is not None
        if model is not None and is_proved:
            bytes_too = "" if state.most_bytes is None else " for so few bytes"
            why = f"{n_rounds} rounds are not enough{bytes_too}, proved by {state.solver}"
            proof = Proof(n_rounds + 1, why, model)
        if state.left <= 0:
            break
    if is_proved:
        raise CollplanError(f"--rounds: no schedule has {_numbers(first, last)}; {_way_out(state)}")
    raise CollplanError(
        f"--time-limit: no schedule was found in {question.seconds:g} s; give more time, fewer "
        f"--chunks, or more --rounds"
    )


def _require_small(question: SearchProblem, n_rounds: int) -> None:
    """Raise `CollplanError` if a model has too many variables.

    The model of an allreduce has variables for each operand, too.
    """
    problem, graph = question.problem, question.graph
    combines = problem.kind == "allreduce"
    n_chunks = problem.n_parts * graph.n_ranks if combines else len(problem.chunks)
    n_moves = n_chunks * len(graph.widths) * n_rounds
    if n_moves > MAX_MOVES:
        raise CollplanError(
            f"--chunks: {problem.n_parts} chunks may move in {n_moves} ways, more than the "
            f"{MAX_MOVES} that are searched; give fewer chunks"
        )


def _numbers(first: int, last: int) -> str:
    return f"{first} rounds" if first == last else f"{first} to {last} rounds"


def _way_out(state: _Search) -> str:
    return "give more" if state.most_bytes is None else "give more, or a greater --within"


def _found(state: _Search, n_rounds: int) -> Model | str | None:
    """Return a solved model for a number of rounds, or a proof that there is no schedule.

    Returns
    -------
    Model, str or None
        Solved model; or, if it is proved that no schedule exists, the class of schedules of the
        proof, as in `Proof.scope`; or None if neither was found in time.
    """
    question = state.question
    for is_rotational, build in _builders(question, n_rounds):
        model = build()
        model.limit_bytes(state.most_bytes, state.least_bytes)
        share = ROTATION_SHARE if is_rotational else 1.0
        if question.n_rounds is None and question.problem.kind == "allreduce":
            share = 0.5
        with spinner(f"searching schedules of {n_rounds} rounds"):
            status = model.solve(state.left * share).status
        if status == "found":
            return model
        if status == "impossible" and not is_rotational:
            return _impossible_for(state, n_rounds)
    return None


def _impossible_for(state: _Search, n_rounds: int) -> str:
    """Return the class of schedules that are impossible; for allreduce, try to prove it for all."""
    question = state.question
    problem = question.problem
    if problem.kind != "allreduce":
        return _class_of(problem)
    model = ElementModel(problem.n_parts, question.graph, n_rounds, state.most_bytes)
    with spinner(f"proving that {n_rounds} rounds are not enough"):
        is_proved = model.solve(state.left * 0.5).status == "impossible"
    return "" if is_proved else _class_of(problem)


def _class_of(problem: Problem) -> str:
    """Return a description of the schedules for which the solver's bounds hold."""
    parts = f"{problem.n_parts} parts" if problem.n_parts > 1 else "whole blocks"
    if problem.kind != "allreduce":
        return f"schedules of {parts}"
    parts = parts.replace("blocks", "vectors")
    return f"schedules of {parts} with one partial result per rank and part"


def _builders(
    question: SearchProblem, n_rounds: int
) -> list[tuple[bool, Callable[[], MovingModel | CombiningModel]]]:
    """Return constructors of models to try, each with whether it has only rotational schedules."""
    problem, graph = question.problem, question.graph
    if problem.kind == "allreduce":
        return [(False, lambda: CombiningModel(problem.n_parts, graph, n_rounds))]
    models: list[tuple[bool, Callable[[], MovingModel | CombiningModel]]] = [
        (False, lambda: MovingModel(problem, graph, n_rounds))
    ]
    if problem.rotates and graph.is_rotational:
        turning = (True, lambda: MovingModel(problem, graph, n_rounds, is_rotational=True))
        models.insert(0, turning)
    return models


def _fewest_bytes(state: _Search, model: Model, rounds_proof: Proof) -> Found:
    """Return the schedule of a solved model, or one with fewer bytes and as many rounds."""
    best = _result(state, model, rounds_proof)
    if state.most_bytes is not None:
        return best
    least, problem = state.least_bytes, state.question.problem
    for is_rotational, build in _builders(state.question, best.n_rounds):
        # A model limited to the lower bound is solved sooner than one that minimizes.
        for minimizes in (False, True):
            if best.n_bytes <= least or state.left <= 0:
                return best
            model = build()
            model.limit_bytes(best.n_bytes if minimizes else least, least)
            share = ROTATION_SHARE if is_rotational or not minimizes else 1.0
            with spinner(f"searching the fewest bytes of {best.n_rounds} rounds"):
                outcome = model.solve(state.left * share, minimizes=minimizes)
            if outcome.status == "found":
                found = _result(state, model, rounds_proof)
                best = found if found.n_bytes < best.n_bytes else best
                if minimizes and not is_rotational and outcome.least > least:
                    proof = Proof(outcome.least, f"by {state.solver}", _class_of(problem))
                    best = replace(best, bytes_proof=proof)
    return best


def _result(state: _Search, model: Model, rounds_proof: Proof) -> Found:
    assert isinstance(model, MovingModel | CombiningModel)
    question, schedule = state.question, model.schedule()
    n_bytes = count_bytes(schedule, question.graph)
    if question.problem.is_backwards:
        schedule = turned_around(schedule)
    return Found(
        rounds=schedule,
        n_bytes=n_bytes,
        unit=state.unit,
        rounds_proof=rounds_proof,
        bytes_proof=Proof(state.least_bytes, "what must enter or leave ranks"),
        is_rotational=model.is_rotational,
        solver=state.solver,
        seconds=0.0,
    )


def count_bytes(schedule: Rounds, graph: RankGraph) -> int:
    """Return the bytes of a schedule, in the unit of `Found.n_bytes`.

    Examples
    --------
    >>> from collplan.synthesize.graph import link_graph
    >>> wide = link_graph("wide", {(0, 1): 2, (1, 0): 2}, 2, None)
    >>> count_bytes((((0, 1, (0, 1, 2)),), ((1, 0, (3,)),)), wide)
    3
    """
    if graph.has_links:
        return sum(
            max((-(-len(c) // graph.widths[a, b]) for a, b, c in messages), default=0)
            for messages in schedule
        )
    scale = scale_of(graph)
    sent = [(a, b, len(chunks)) for messages in schedule for a, b, chunks in messages]
    return max(
        sum(n for a, b, n in sent if (a, b) in one.pairs) * scale // one.bound
        for one in graph.resources
        if one.bound
    )


def search_composed(question: SearchProblem) -> Found:
    """Search for an allreduce that is a reduce-scatter followed by an allgather.

    Each half is searched separately. The vector has one block per rank, which is cut into
    parts; `SearchProblem.problem` is the allgather of these blocks.

    References
    ----------
    Cai et al., "Synthesizing optimal collective algorithms", PPoPP 2021, section 3.5.
    """
    half = None if question.n_rounds is None else question.n_rounds // 2
    share = replace(question, n_rounds=half, seconds=question.seconds / 2)
    gathered = search(share)
    graph = question.graph.reversed()
    backwards = gathered
    if graph.widths != question.graph.widths or graph.resources != question.graph.resources:
        backwards = search(replace(share, graph=graph, n_rounds=gathered.n_rounds))
    scope = "schedules made of these two halves"
    return Found(
        rounds=turned_around(backwards.rounds) + gathered.rounds,
        n_bytes=backwards.n_bytes + gathered.n_bytes,
        unit=gathered.unit,
        rounds_proof=Proof(
            backwards.rounds_proof.least + gathered.rounds_proof.least,
            f"in each half, {gathered.rounds_proof.why}",
            scope,
        ),
        bytes_proof=Proof(
            backwards.bytes_proof.least + gathered.bytes_proof.least,
            f"in each half, {gathered.bytes_proof.why}",
            scope,
        ),
        is_rotational=gathered.is_rotational,
        solver=gathered.solver,
        seconds=gathered.seconds + (backwards.seconds if backwards is not gathered else 0.0),
    )
