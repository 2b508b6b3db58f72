"""The registry of algorithms, with their traits and limits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from collplan.planner.algorithms.closed_forms import Traffic, circulant_filling_rounds
from collplan.planner.algorithms.rounds import Copy, Group, Reduce, Round, Rounds
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.phases import NATIVE

Parts = Literal["whole", "halves", "size", "power_of_two", "blocks"]
Use = Literal["short", "long", "shared", "uneven"]
"""Short vectors, vectors of `LONG_BYTES` and more, ranks that share memory, and blocks of which
one is much larger than the mean."""
BLOCKS: Final = "blocks"
"""Option of algorithms that cut a vector, or each block, into as many chunks."""
Role = Literal["flat", "part"]
"""All ranks' algorithm, and that of some of them in a decomposition."""
PER_NODE: Final = "ranks_per_node"
"""Option of algorithms that go by nodes: how many ranks one after another are on the same node."""
Where = Literal["inside", "across"]
"""Inside nodes, and between them."""
REDUCTIONS: Final = ("reduce", "allreduce", "reduce_scatter_block")
"""Collectives whose result on one rank is its own operand."""
KINDS: Final = (
    "allgather",
    "allreduce",
    "reduce_scatter_block",
    "bcast",
    "reduce",
    "alltoall",
    "barrier",
    "scan",
    "exscan",
    "gather",
    "scatter",
)
"""Collectives in the order in which their algorithms are listed."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm.

    Parameters
    ----------
    kind, name : str
        The collective it computes and its name in specs.
    rounds : callable
        ``rounds(group)`` yields its rounds.
    parts : str
        Into how many chunks a vector is cut: "whole" (1), "halves" (2), "size" (times its option
        `blocks`, if it has that), "power_of_two" (the greatest not above size), or
        "blocks" (as its option of that name says, where "auto" takes the best by a
        closed form). Collectives on blocks have a chunk per rank; with "blocks" each
        block is cut, and the first chunks of all ranks come before their second ones.
    commutative_only, power_of_two_only, even_only, regular_only : bool
        What it cannot do without: it raises then. Regular means that all
        blocks have one size.
    most_ranks, only_ranks : int, optional
        The most ranks that it serves, or the one number of ranks that it does.
    tree : {"binomial", "knomial", "any"} or None
        Messages go along the edges of one tree, to its root or from it; an
        allreduce's, a scan's and an exscan's to the root, then from it. A k-nomial tree
        has the option `radix`.
    rounds_up : callable, optional
        ``rounds_up(size)`` returns how many of the rounds that send messages go up the tree
        before the others go down; left out, these are as many.
    best_for, next_best_for : tuple of {"short", "long", "shared", "uneven"}
        Where ``auto`` takes it: for the fewest rounds, the fewest bytes, or the
        fewest waits among ranks that share memory; for blocks of which one is much
        larger than the mean; and where it does if the best cannot serve.
    streams : bool
        Long data move whole, or in turn, so that segments pay.
    pipelines : tuple of {"inside", "across"}
        Where its segments follow each other closely: inside nodes, and between them.
    per_pair : float
        Messages per ordered pair of ranks, if it sends p(p - 1) times as many.
    forwards : bool
        Each rank passes on what it receives, so that messages follow one another.
    at_once : bool
        Its messages wait for nothing but what comes before the collective.
    by_counts : bool
        It decides by `Group.counts`, so that groups of unlike counts run one by one.
        Its number of rounds may not depend on them.
    tried_as : tuple of {"flat", "part"}
        Where `compare` and `tune` try it unless they are told to: not where others that they
        try send the same messages, or fewer.
    filling_rounds : callable
        If it cuts vectors into blocks, ``filling_rounds(size)`` returns about how many rounds only
        fill and drain the pipeline, per round that each block takes.
    unlike_ns : callable, optional
        ``unlike_ns(traffic)`` returns about how long it takes on blocks of unlike sizes.
        There ``auto`` takes the least of all algorithms of the kind that state it.
    options : mapping
        Its options with their defaults.
    """

    kind: str
    name: str
    rounds: Callable[[Group], Rounds]
    parts: Parts = "whole"
    commutative_only: bool = False
    power_of_two_only: bool = False
    even_only: bool = False
    regular_only: bool = False
    most_ranks: int | None = None
    only_ranks: int | None = None
    tree: Literal["binomial", "knomial", "any"] | None = None
    rounds_up: Callable[[int], int] | None = None
    best_for: tuple[Use, ...] = ()
    next_best_for: tuple[Use, ...] = ()
    streams: bool = False
    pipelines: tuple[Where, ...] = ()
    per_pair: float = 0.0
    forwards: bool = False
    at_once: bool = False
    by_counts: bool = False
    tried_as: tuple[Role, ...] = ("flat", "part")
    filling_rounds: Callable[[int], float] = circulant_filling_rounds
    unlike_ns: Callable[[Traffic], float] | None = None
    options: Mapping[str, Any] | None = field(default=None, hash=False)

    def steps(self, group: Group) -> Rounds:
        """Generate the rounds on a group; who is alone with a reduction copies its own operand."""
        if group.size == 1 and self.kind in REDUCTIONS:
            return _copy(group)
        return self.rounds(group)

    @property
    def is_native(self) -> bool:
        """Return whether it calls the MPI library's own collective, whatever that does."""
        return self.name == NATIVE

    @property
    def summary(self) -> str:
        """Return the first line of its docstring."""
        return (inspect.getdoc(self.rounds) or "").partition("\n")[0]

    def n_parts(self, size: int, options: Mapping[str, Any]) -> int:
        """Return the chunks a vector is cut into for `size` ranks."""
        if self.parts in ("whole", "halves"):
            return 1 if self.parts == "whole" else 2
        if self.parts == BLOCKS:
            return int(options[BLOCKS])
        if self.parts == "size":
            return size * int(options.get(BLOCKS, 1))
        return 1 << (size.bit_length() - 1)

    def refusal(self, size: int, commutative: bool, is_regular: bool = True) -> str | None:
        """Say why it cannot serve `size` ranks, such an operation or blocks; None where it can."""
        if self.power_of_two_only and size & (size - 1):
            return f"{size} ranks is not a power of two"
        if self.even_only and size % 2 and size > 1:
            return f"{size} ranks is odd"
        if self.most_ranks and size > self.most_ranks:
            return f"{size} ranks is more than {self.most_ranks}"
        if self.only_ranks is not None and size != self.only_ranks:
            return f"{size} ranks are not the {self.only_ranks} that it was made for"
        if self.commutative_only and not commutative:
            return "it exchanges operands, and the operation is not commutative"
        if self.regular_only and not is_regular:
            return "the blocks differ in size"
        return None


def _copy(group: Group) -> Rounds:
    """Copy the input to the output."""
    yield Round(Copy(0, group.whole(group.input), group.whole(group.output)))


def _reduce(group: Group) -> Rounds:
    """Combine the input, as the left operand, with the output."""
    result = group.whole(group.output)
    yield Round(Reduce(0, group.whole(group.input), result, result))


LOCAL: Final = {
    "copy": Algorithm("copy", "local", _copy),
    "local_reduce": Algorithm("local_reduce", "local", _reduce),
}
"""The algorithms of copies and reductions between components, by kind; specs don't choose them."""


class Registry:
    """All algorithms, by collective and name, in the order of registration.

    Parameters
    ----------
    kinds : iterable of str
        Collectives that are listed first.
    """

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self._algorithms: dict[str, dict[str, Algorithm]] = {kind: {} for kind in kinds}

    def add(self, algorithm: Algorithm) -> None:
        """Register `algorithm` once.

        Raises
        ------
        AlgorithmError
            If the collective has one of that name.
        """
        names = self._algorithms.setdefault(algorithm.kind, {})
        if algorithm.name in names:
            raise AlgorithmError(
                f"algorithms: {algorithm.kind} has a {algorithm.name!r} already; give yours "
                "another name"
            )
        names[algorithm.name] = algorithm

    def kinds(self) -> tuple[str, ...]:
        """Return the collectives that have algorithms."""
        return tuple(self._algorithms)

    def of(self, kind: str) -> tuple[Algorithm, ...]:
        """Return the algorithms of a collective, without the MPI library's own."""
        found = self._algorithms.get(kind, {}).values()
        return tuple(one for one in found if not one.is_native)

    def tried(self, kind: str, role: Role) -> tuple[Algorithm, ...]:
        """Return the algorithms that are candidates for all ranks, or for a part of them."""
        return tuple(one for one in self.of(kind) if role in one.tried_as)

    def find(self, kind: str, name: str) -> Algorithm:
        """Return algorithm `name` of collective `kind`.

        Raises
        ------
        AlgorithmError
            Naming the algorithms there are.
        """
        names = self._algorithms.get(kind, {})
        if name not in names:
            raise AlgorithmError(
                f"algorithms: {kind} has no {name!r}; use one of "
                f"{', '.join(one.name for one in self.of(kind))} or auto"
            )
        return names[name]

    def preferred(self, kind: str, use: Use) -> tuple[Algorithm, ...]:
        """Return the algorithms that ``auto`` takes for a use, the best first."""
        found = self.of(kind)
        best = [one for one in found if use in one.best_for]
        return (*best, *(one for one in found if use in one.next_best_for))

    def pipelining(self, kind: str, where: Where) -> str:
        """Return the algorithm whose segments follow each other closely, or else the first one."""
        found = [one.name for one in self.of(kind) if where in one.pipelines]
        return [*found, self.of(kind)[0].name][0]

    def quick(self, kind: str) -> str:
        """Return the algorithm that ``auto`` takes for long vectors if p rounds are too many."""
        found = (*self.preferred(kind, "long"), *self.preferred(kind, "short"))
        return next(one.name for one in found if not one.per_pair)

    def legal(
        self, kind: str, size: int, commutative: bool, is_regular: bool = True
    ) -> tuple[Algorithm, ...]:
        """Return the algorithms of `kind` that can serve such ranks, operations and blocks."""
        return tuple(a for a in self.of(kind) if a.refusal(size, commutative, is_regular) is None)

    def require(
        self, algorithm: Algorithm, size: int, commutative: bool, is_regular: bool = True
    ) -> None:
        """Raise `AlgorithmError`, with alternatives, where `algorithm` cannot serve."""
        refusal = algorithm.refusal(size, commutative, is_regular)
        if refusal is not None:
            legal = self.legal(algorithm.kind, size, commutative, is_regular)
            others = " or ".join(repr(other.name) for other in legal)
            raise AlgorithmError(f"{algorithm.kind}/{algorithm.name}: {refusal}; use {others}")


registry = Registry(KINDS)


def algorithm(
    kind: str, name: str, **promises: Any
) -> Callable[[Callable[[Group], Rounds]], Callable[[Group], Rounds]]:
    """Register the decorated generator as algorithm `name` of `kind`; see `Algorithm`."""

    def register(rounds: Callable[[Group], Rounds]) -> Callable[[Group], Rounds]:
        registry.add(Algorithm(kind, name, rounds, **promises))
        return rounds

    return register
