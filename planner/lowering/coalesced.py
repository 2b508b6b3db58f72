"""Where blocks lie that ranks stage so that each message is one interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.arrays.csr import running_total
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.plan import pieces as csr
from collplan.planner.plan.pieces import Pieces
from collplan.planner.plan.plan import Buffer


@dataclass(frozen=True, eq=False)
class Coalesced:
    """The part of a node's shared buffer that is sent from, message by message.

    A *team* is the ranks of a node that one of its parts serves. Messages lie in the
    order of the first rank of their teams, in a message the blocks of one source rank
    after another. What ranks of the node have for each other comes behind, source
    by source; but what the first has for ranks before those of other nodes, first.

    Parameters
    ----------
    exchange : Exchange
    team : ndarray of int64, shape (n_ranks,)
        Team of every rank.
    place : ndarray of int64, shape (n_ranks,)
        Its place in that.
    sizes, before : ndarray of int64, shape (n_teams,)
        Ranks of every team, and of all teams whose first rank is lower.
    """

    exchange: Exchange
    team: Ints
    place: Ints
    sizes: Ints
    before: Ints

    @classmethod
    def of(cls, exchange: Exchange, n_ranks: int) -> Coalesced:
        """Return the layout of all nodes' buffers."""
        row = np.repeat(np.arange(exchange.n_rows), exchange.sizes)
        turn = np.arange(n_ranks) - exchange.first[row]
        part = turn % exchange.n_leaders[row] if exchange.n_parts > 1 else np.zeros_like(turn)
        team, place = np.empty_like(row), np.empty_like(row)
        team[exchange.ranks] = row * exchange.n_parts + part
        place[exchange.ranks] = turn // exchange.n_leaders[row] if exchange.n_parts > 1 else turn
        n_teams = exchange.n_rows * exchange.n_parts
        sizes = np.bincount(team, minlength=n_teams)
        first = np.full(n_teams, n_ranks)
        np.minimum.at(first, team, np.arange(n_ranks))
        order = np.argsort(first, kind="stable")
        before = np.empty(n_teams, dtype=np.int64)
        before[order] = running_total(sizes[order])[:-1]
        return cls(exchange, team, place, sizes, before)

    def _ahead(self, row: Ints) -> Ints:
        """Return how many blocks lie before the first message of nodes."""
        ranks, first, n_ranks = self.exchange.ranks, self.exchange.first, len(self.team)
        found = []
        for one in row.tolist():
            own = np.sort(ranks[first[one] : first[one + 1]])
            # Ranks 0 to k - 1 are the node's own, k is not.
            differs = np.flatnonzero(own != np.arange(len(own)))
            found.append(int(differs[0]) if len(differs) else min(len(own), n_ranks))
        return np.array(found, dtype=np.int64)

    def _own_before(self, row: Ints, team: Ints) -> Ints:
        """Return how many ranks of nodes are in teams that lie before others."""
        n_parts = self.exchange.n_parts
        own = row[:, None] * n_parts + np.arange(n_parts)
        is_before = self.before[own] < self.before[team][:, None]
        return np.asarray((self.sizes[own] * is_before).sum(axis=1))

    def begin(self, row: Ints, team: Ints) -> Ints:
        """Return where the messages of nodes to teams begin, in blocks."""
        rows, inverse = np.unique(row, return_inverse=True)
        others = self.before[team] - self._own_before(row, team)
        return np.asarray(self._ahead(rows)[inverse] + self.exchange.sizes[row] * others)

    def _begins(self, row: int) -> Ints:
        """Return where every block lies, shape (ranks of the node, n_ranks)."""
        exchange, n_ranks = self.exchange, len(self.team)
        n = int(exchange.sizes[row])
        source = np.arange(n)[:, None]
        teams = np.arange(len(self.sizes))
        begin = self.begin(np.full(len(teams), row), teams)
        place = begin[self.team] + source * self.sizes[self.team] + self.place
        own = np.sort(exchange.ranks[exchange.first[row] : exchange.first[row + 1]])
        number = source * n + np.arange(n)
        ahead = int(self._ahead(np.array([row]))[0])
        place[:, own] = np.where(number < ahead, number, n * (n_ranks - n) + number)
        return np.asarray(place)

    def staged(self, row: int, count: int) -> Pieces:
        """Return where the ranks of a node stage what they send, a row a rank."""
        place = self._begins(row)
        n, n_ranks = place.shape
        return _blocks(place.ravel(), np.arange(n + 1) * n_ranks, count)

    def own(self, row: int, count: int) -> Pieces:
        """Return where lies what a node's ranks have for each other, a row a receiver."""
        exchange = self.exchange
        own = exchange.ranks[exchange.first[row] : exchange.first[row + 1]]
        place = self._begins(row)[:, own].T
        return _blocks(place.ravel(), np.arange(len(own) + 1) * len(own), count)


def _blocks(place: Ints, indptr: Ints, count: int) -> Pieces:
    buffer = np.full(len(place), Buffer.SHARED, dtype=np.int8)
    return csr.contiguous(indptr, buffer, place * count, np.full(len(place), count))
