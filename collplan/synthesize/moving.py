"""Search for schedules that move chunks without combining them.

References
----------
Cai et al., "Synthesizing optimal collective algorithms", PPoPP 2021: k-synchronous schedules in
which a rank receives each chunk at most once (section 3.4).
"""

from __future__ import annotations

from collections import defaultdict

from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import Chunk, Problem, Rounds
from collplan.synthesize.solver import Literal_, Model, negated

Move = tuple[Chunk, int, int, int]
"""Chunk, sender, receiver, and round."""


class MovingModel(Model):
    """A model of all moves of all chunks of a problem.

    Parameters
    ----------
    problem : Problem
        Chunks to move.
    graph : RankGraph
        Graph of the ranks.
    n_rounds : int
        Number of rounds.
    is_rotational : bool
        Whether every rank does the same. If so, only chunks that start at rank 0 are modeled.
    """

    def __init__(
        self, problem: Problem, graph: RankGraph, n_rounds: int, *, is_rotational: bool = False
    ) -> None:
        super().__init__(graph, n_rounds, is_rotational=is_rotational)
        self.problem = problem
        self._moves: dict[Move, Literal_] = {}
        for chunk in problem.chunks:
            if chunk.start == 0 or not is_rotational:
                self._add(chunk)
        self.limit_ports()

    def _add(self, chunk: Chunk) -> None:
        """Add the moves of a chunk: only ranks that have it send it, and no rank gets it twice."""
        graph, distance = self.graph, self.graph.distance
        has: dict[tuple[int, int], Literal_] = {}
        arrivals: dict[int, list[Literal_]] = defaultdict(list)
        for turn in range(self.n_rounds):
            for rank in range(graph.n_ranks):
                has[rank, turn] = self._has(chunk, rank, turn, arrivals[rank])
            for rank in range(graph.n_ranks):
                if rank == chunk.start or not self._helps(chunk, rank, turn):
                    continue
                for source in graph.sources[rank]:
                    if (distance[chunk.start][source] or 0) <= turn:
                        move = self._moves[chunk, source, rank, turn] = self.boolean()
                        self.require(negated(move), has[source, turn])
                        self.carry((source, rank), turn, move)
                        arrivals[rank].append(move)
        for rank, moves in arrivals.items():
            if rank in chunk.wanted_by:
                self.cp.add_exactly_one(moves)
            else:
                self.cp.add_at_most_one(moves)

    def _has(self, chunk: Chunk, rank: int, turn: int, arrivals: list[Literal_]) -> Literal_:
        """Return a literal that is true if a rank has a chunk before a round."""
        if rank == chunk.start:
            return True
        if not arrivals:
            return False
        has = self.boolean()
        self.cp.add(sum(arrivals) == has)
        return has

    def _helps(self, chunk: Chunk, rank: int, turn: int) -> bool:
        """Return whether a chunk that a rank receives in a round can still reach a destination."""
        left = self.n_rounds - 1 - turn
        return any((self.graph.distance[rank][end] or 0) <= left for end in chunk.wanted_by)

    def schedule(self) -> Rounds:
        """Return the schedule of the solution without moves that are not needed."""
        used = [move for move, literal in self._moves.items() if self.value(literal)]
        used.sort(key=lambda move: -move[3])
        needed: set[tuple[Chunk, int]] = set()
        kept: list[Move] = []
        for chunk, source, rank, turn in used:
            if rank in chunk.wanted_by or (chunk, rank) in needed:
                needed.add((chunk, source))
                kept.append((chunk, source, rank, turn))
        n = self.graph.n_ranks
        shifts = range(n) if self.is_rotational else (0,)
        messages: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for chunk, source, rank, turn in kept:
            for by in shifts:
                ends = (source + by) % n, (rank + by) % n
                messages[turn, *ends].append(
                    self.problem.turn(chunk, by).name if by else chunk.name
                )
        rounds: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in range(self.n_rounds)]
        for (turn, source, rank), chunks in sorted(messages.items()):
            rounds[turn].append((source, rank, tuple(sorted(chunks))))
        return tuple(map(tuple, rounds))
