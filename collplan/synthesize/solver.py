"""The constraint solver: Boolean models of messages with limits."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final, Literal

from collplan.specs.errors import CollplanError
from collplan.synthesize.bounds import scale_of
from collplan.synthesize.graph import Pair, RankGraph

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Literal_ = Any
"""A Boolean variable of the solver, its negation, or a Python bool."""
Status = Literal["found", "impossible", "unknown"]
SEED: Final = 1
_POLL_S: Final = 0.2


def require_solver() -> str:
    """Return the name and version of the solver.

    Raises
    ------
    CollplanError
        If the solver is not installed.
    """
    try:
        return f"OR-tools CP-SAT {version('ortools')}"
    except PackageNotFoundError:
        raise CollplanError(
            "synthesize: needs OR-tools, which is not installed; "
            "run: pip install 'collplan[synthesize]'"
        ) from None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of the solver.

    Parameters
    ----------
    status : {"found", "impossible", "unknown"}
        Result: a solution, a proof that there is none, or neither in time.
    least : int
        Proved lower bound on `Model.bytes` of solutions of the model; 0 without one.
    """

    status: Status
    least: int = 0


class Model:
    """A model of messages on a graph, round by round.

    Parameters
    ----------
    graph : RankGraph
        Graph of the ranks.
    n_rounds : int
        Number of rounds.
    is_rotational : bool
        Whether messages are the same on all ranks, so that only those of rank 0 are variables.
    """

    def __init__(self, graph: RankGraph, n_rounds: int, *, is_rotational: bool = False) -> None:
        from ortools.sat.python import cp_model

        self.graph, self.n_rounds, self.is_rotational = graph, n_rounds, is_rotational
        self.cp = cp_model.CpModel()
        self._loads: dict[tuple[Pair, int], list[Literal_]] = {}
        self._messages: dict[tuple[Pair, int], Literal_] = {}
        self._solver: cp_model.CpSolver | None = None
        self.bytes: Any = None

    def boolean(self) -> Literal_:
        """Return a new Boolean variable."""
        return self.cp.new_bool_var("")

    def require(self, *literals: Literal_) -> None:
        """Require that at least one literal is true; Python's bools are constants."""
        if True not in [one for one in literals if isinstance(one, bool)]:
            self.cp.add_bool_or([one for one in literals if not isinstance(one, bool)])

    def carry(self, pair: Pair, turn: int, literal: Literal_) -> None:
        """Add a chunk that moves between a pair in a round if a literal is true."""
        n = self.graph.n_ranks
        for shift in range(n) if self.is_rotational else (0,):
            moved = (pair[0] + shift) % n, (pair[1] + shift) % n
            self._loads.setdefault((moved, turn), []).append(literal)
        if self.graph.ports is not None:
            message = self._message(pair, turn)
            self.require(negated(literal), message)

    def _message(self, pair: Pair, turn: int) -> Literal_:
        key = (self._canonical(pair), turn)
        if key not in self._messages:
            self._messages[key] = self.boolean()
        return self._messages[key]

    def _canonical(self, pair: Pair) -> Pair:
        n = self.graph.n_ranks
        return (0, (pair[1] - pair[0]) % n) if self.is_rotational else pair

    def limit_ports(self) -> None:
        """Limit the partners of every rank in every round."""
        ports = self.graph.ports
        if ports is None:
            return
        for end in (0, 1):
            by_rank: dict[tuple[int, int], list[Literal_]] = {}
            for (pair, turn), message in self._messages.items():
                by_rank.setdefault((pair[end] * (not self.is_rotational), turn), []).append(message)
            for messages in by_rank.values():
                self.cp.add(sum(messages) <= ports)

    def limit_bytes(self, most: int | None, least: int) -> None:
        """Define the bytes of the schedule, and limit them to `least` to `most`.

        On links, the bytes are the sum of chunk times over all rounds. The chunk time of a
        round is the load of its busiest link, divided by the width of the link. Without links,
        they are the load of the busiest rank or lane over all rounds, relative to its lower
        bound; see `scale_of`.
        """
        highest = sum(len(loads) for loads in self._loads.values())
        if self.graph.has_links:
            times = [self.cp.new_int_var(0, highest, "") for _ in range(self.n_rounds)]
            for (pair, turn), loads in self._loads.items():
                self.cp.add(sum(loads) <= self.graph.widths[pair] * times[turn])
            self.bytes = sum(times)
        else:
            scale = scale_of(self.graph)
            self.bytes = self.cp.new_int_var(0, highest * scale, "")
            for one in self.graph.resources:
                loads = [
                    v for (pair, _), on in self._loads.items() if pair in one.pairs for v in on
                ]
                if one.bound and loads:
                    self.cp.add(sum(loads) * (scale // one.bound) <= self.bytes)
        self.cp.add(self.bytes >= least)
        if most is not None:
            self.cp.add(self.bytes <= most)

    def solve(self, seconds: float, *, minimizes: bool = False) -> Outcome:
        """Solve the model with one worker and a fixed seed, for a limited time."""
        from ortools.sat.python import cp_model

        if minimizes:
            self.cp.minimize(self.bytes)
        solver = self._solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = SEED
        solver.parameters.linearization_level = 0  # pure clause learning is faster here
        solver.parameters.max_time_in_seconds = max(seconds, 0.01)
        solver.parameters.catch_sigint_signal = False
        status = _interruptibly(solver, self.cp)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return Outcome("found", int(solver.best_objective_bound) if minimizes else 0)
        return Outcome("impossible" if status == cp_model.INFEASIBLE else "unknown")

    def value(self, literal: Literal_) -> bool:
        """Return whether a literal is true in the solution."""
        assert self._solver is not None
        return literal if isinstance(literal, bool) else bool(self._solver.value(literal))


def _interruptibly(solver: cp_model.CpSolver, model: cp_model.CpModel) -> Any:
    """Solve a model in a thread, so that an interrupt can stop the solver."""
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(solver.solve(model)))
    worker.start()
    try:
        while worker.is_alive():
            worker.join(_POLL_S)
    except KeyboardInterrupt:
        solver.stop_search()
        worker.join()
        raise
    return found[0]


def negated(literal: Literal_) -> Literal_:
    """Return the negation of a literal or a Python bool."""
    return not literal if isinstance(literal, bool) else literal.negated()
