"""Models of allreduce: one to search for schedules, and a relaxation to prove bounds."""

from __future__ import annotations

import math
from collections import defaultdict

from collplan.synthesize.bounds import scale_of
from collplan.synthesize.graph import RankGraph
from collplan.synthesize.problem import Rounds
from collplan.synthesize.solver import Literal_, Model, negated


class CombiningModel(Model):
    """A model of allreduce in which a rank keeps one partial result per part of the vector.

    A rank combines a partial result that it receives with its own if they have no common
    operand. If it receives the result itself, this replaces its own. A rank receives each
    part at most once per round, and does not receive a part again after its result.

    Parameters
    ----------
    n_parts : int
        Number of parts of the vector.
    graph : RankGraph
        Graph of the ranks.
    n_rounds : int
        Number of rounds.
    """

    def __init__(self, n_parts: int, graph: RankGraph, n_rounds: int) -> None:
        super().__init__(graph, n_rounds)
        self._sent: dict[tuple[int, int, int, int], Literal_] = {}
        for part in range(n_parts):
            self._add(part)
        self.limit_ports()

    def _add(self, part: int) -> None:
        ranks = range(self.graph.n_ranks)
        held = [[[rank == operand for operand in ranks] for rank in ranks]]
        is_result: list[list[Literal_]] = [[False for _ in ranks]]
        for turn in range(self.n_rounds):
            is_last = turn + 1 == self.n_rounds
            after = [
                [True if is_last or rank == one else self.boolean() for one in ranks]
                for rank in ranks
            ]
            for rank in ranks:
                self._receive(part, turn, rank, held[turn], after, is_result[turn])
            held.append(after)
            is_result.append([self._all(operands) for operands in after])

    def _all(self, literals: list[Literal_]) -> Literal_:
        """Return a literal that is true if and only if all of `literals` are true."""
        open_ones = [one for one in literals if not isinstance(one, bool)]
        if not open_ones:
            return all(literals)
        both = self.boolean()
        for one in open_ones:
            self.require(negated(both), one)
        self.require(both, *map(negated, open_ones))
        return both

    def _receive(
        self,
        part: int,
        turn: int,
        rank: int,
        held: list[list[Literal_]],
        after: list[list[Literal_]],
        is_result: list[Literal_],
    ) -> None:
        """Add the constraints on a rank's operands after a round, given its messages."""
        moves = {source: self.boolean() for source in self.graph.sources[rank]}
        self.cp.add_at_most_one(moves.values())
        for source, move in moves.items():
            self._sent[part, turn, source, rank] = move
            self.carry((source, rank), turn, move)
            self.require(negated(move), negated(is_result[rank]))
        for operand, (before, then) in enumerate(zip(held[rank], after[rank], strict=True)):
            self.require(negated(before), then)
            self.require(negated(then), before, *moves.values())
            for source, move in moves.items():
                comes = held[source][operand]
                self.require(negated(move), negated(comes), then)
                self.require(negated(move), comes, before, negated(then))
                twice = (negated(comes), negated(before))
                self.require(negated(move), *twice, is_result[source])

    def schedule(self) -> Rounds:
        """Return the schedule of the solution."""
        messages: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for (part, turn, source, rank), literal in self._sent.items():
            if self.value(literal):
                messages[turn, source, rank].append(part)
        rounds: list[list[tuple[int, int, tuple[int, ...]]]] = [[] for _ in range(self.n_rounds)]
        for (turn, source, rank), parts in sorted(messages.items()):
            rounds[turn].append((source, rank, tuple(sorted(parts))))
        return tuple(map(tuple, rounds))


class ElementModel(Model):
    """A relaxation of allreduce to one element: the operands that each rank may know by round.

    Every schedule, whatever partial results it keeps, gives a solution for each element. A
    limit of F times the bounds of ranks and lanes becomes a limit on one element, as follows.
    Divide the element's messages by the bounds of all ranks together, and its messages between
    nodes by the bounds of all lanes together. The mean over all elements of the sum of both
    ratios is at most 2·F, so that some element has at most 2·F.

    Parameters
    ----------
    n_parts : int
        Number of parts of the vector on which the bounds of the graph are based.
    graph : RankGraph
        Graph of the ranks.
    n_rounds : int
        Number of rounds.
    most : int or None
        Largest number of bytes, as `Model.limit_bytes` counts them; None for no limit.
    """

    def __init__(self, n_parts: int, graph: RankGraph, n_rounds: int, most: int | None) -> None:
        super().__init__(graph, n_rounds)
        ranks = range(graph.n_ranks)
        self._sent: dict[tuple[int, int, int], Literal_] = {}
        known: list[list[Literal_]] = [[rank == operand for operand in ranks] for rank in ranks]
        for turn in range(n_rounds):
            is_last = turn + 1 == n_rounds
            after = [
                [True if is_last or rank == one else self.boolean() for one in ranks]
                for rank in ranks
            ]
            for rank in ranks:
                self._hear(turn, rank, known, after[rank])
            known = after
        self.limit_ports()
        if most is not None and not graph.has_links:
            self._limit_means(n_parts, most)

    def _hear(
        self, turn: int, rank: int, known: list[list[Literal_]], after: list[Literal_]
    ) -> None:
        moves = {source: self.boolean() for source in self.graph.sources[rank]}
        for source, move in moves.items():
            self._sent[turn, source, rank] = move
            self.carry((source, rank), turn, move)
        for operand, then in enumerate(after):
            heard = [self._all_of(move, known[source][operand]) for source, move in moves.items()]
            self.require(negated(then), known[rank][operand], *heard)

    def _all_of(self, move: Literal_, comes: Literal_) -> Literal_:
        if isinstance(comes, bool):
            return move if comes else False
        both = self.boolean()
        self.require(negated(both), move)
        self.require(negated(both), comes)
        return both

    def _limit_means(self, n_parts: int, most: int) -> None:
        """Limit the messages of the element by the mean over all elements."""
        rooms: dict[str, int] = defaultdict(int)
        for one in self.graph.resources:
            rooms[one.name] += one.bound
        rooms = {name: room for name, room in rooms.items() if room}
        all_rooms = math.prod(rooms.values())
        total = 0
        for (_, *pair), move in self._sent.items():
            uses = [one.name for one in self.graph.resources if tuple(pair) in one.pairs]
            total += move * sum(all_rooms // rooms[name] for name in uses if name in rooms)
        # For one kind of resource, the mean is at most room * most / scale / n_parts.
        self.cp.add(total * n_parts * scale_of(self.graph) <= len(rooms) * all_rooms * most)
