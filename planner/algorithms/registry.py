"""Registry of algorithms with their properties and limits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, get_args

from collplan.planner.algorithms.checking import checked
from collplan.planner.algorithms.closed_forms import Traffic, circulant_filling_rounds
from collplan.planner.algorithms.rounds import Copy, Group, Reduce, Round, Rounds
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.phases import NATIVE
from collplan.specs.collectives.collective import traits_of
from collplan.specs.collectives.collective_base import Reproducible
from collplan.specs.errors import show_value, suggest
from collplan.specs.syntax.calling import explains_calls

Tree = Literal["binomial", "knomial", "any"]
Parts = Literal["whole", "halves", "size", "power_of_two", "blocks"]
Use = Literal["short", "long", "shared", "uneven"]
"""Uses of an algorithm: short vectors, vectors of at least `LONG_BYTES`, ranks that share memory,
and blocks one of which is much larger than the mean."""
BLOCKS: Final = "blocks"
"""Name of the option for the number of chunks into which a vector, or each block, is cut."""
Role = Literal["flat", "part"]
"""Roles of an algorithm: for all ranks, or for some of them in a decomposition."""
PER_NODE: Final = "ranks_per_node"
"""Name of the option for the number of consecutive ranks that are on the same node."""
Where = Literal["inside", "across"]
"""Places of messages: inside nodes, or between nodes."""
REDUCTIONS: Final = ("reduce", "allreduce", "reduce_scatter_block")
"""Collectives whose result in a group of one rank is the rank's own operand."""
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
    "neighbor_alltoall",
)
"""Collectives in the order in which their algorithms are listed."""
_OURS: Final = "collplan."
"""Beginning of the names of modules with built-in algorithms."""
_NAME: Final = re.compile(r"[\w.+-]{1,80}")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A registered algorithm.

    Parameters
    ----------
    kind, name : str
        Collective that it computes, and its name in specs.
    rounds : callable
        Generator of its rounds, called as ``rounds(group)``.
    parts : str
        Number of chunks into which a vector is cut: "whole" (1), "halves" (2), "size" (times the
        option `blocks`, if there is one), "power_of_two" (the greatest one up to size), or
        "blocks" (the option of that name, for which "auto" takes the best number by a
        closed form). Collectives on blocks have a chunk per rank. With "blocks", each
        block is cut, and the first chunks of all ranks precede their second chunks.
    commutative_only, power_of_two_only, even_only, regular_only : bool
        Requirements without which it raises an error: a commutative operation, a number of
        ranks that is a power of two, one that is even, or blocks of equal size.
    unlike_bits : callable, optional
        Function of `size` and the options that returns whether ranks combine operands in different
        orders, so that they get results of different bits if the operation rounds. It then raises
        an error for such operations.
    in_rank_tree : callable, optional
        Function of `size` and the options that returns whether each result is combined in the
        rank tree (see `building_blocks.rank_tree`) if operands must keep the order of ranks. By
        default, no result is.
    is_uniform : bool, optional
        Whether all elements of a vector are combined in the same tree, whatever their number. By
        default, this is so if the vector is one chunk.
    is_packed : bool
        Whether its messages are packed into the links of a topology, so that its rounds depend on
        the places of ranks (see `Group.schedule`).
    most_ranks, only_ranks : int, optional
        Greatest number of ranks, or only number of ranks, for which it works.
    tree : {"binomial", "knomial", "any"} or None
        Tree along whose edges all messages are sent, to its root or from it. Messages of
        allreduce, scan and exscan are sent to the root and then from it. An algorithm on
        a k-nomial tree has the option `radix`. None if messages do not follow one tree.
    rounds_up : callable, optional
        Function of `size` that returns the number of rounds with messages up the tree, which
        precede the rounds down the tree. By default, both numbers are equal.
    best_for, next_best_for : tuple of {"short", "long", "shared", "uneven"}
        Uses for which ``auto`` takes it, and uses for which ``auto`` takes it if the best
        algorithm does not work. It should have the fewest rounds for "short", the fewest
        bytes for "long", and the fewest waits for "shared".
    streams : bool
        Whether long data are sent whole or one part after another, so that segments are faster.
    pipelines : tuple of {"inside", "across"}
        Places, inside nodes and between nodes, at which its segments follow each other closely.
    per_pair : float
        Number of messages per ordered pair of ranks, of which there are p(p - 1); 0 if
        not all pairs send the same number of messages.
    forwards : bool
        Whether each rank passes on the data that it receives, so that messages are pipelined.
    at_once : bool
        Whether its messages wait only for events before the collective.
    by_counts : bool
        Whether its decisions depend on `Group.counts`, so that groups with different counts
        are run one by one. The number of rounds must not depend on counts.
    tried_as : tuple of {"flat", "part"}
        Roles in which `compare` and `tune` try it by default. A role is left out if another
        algorithm that they try sends the same messages or fewer messages.
    filling_rounds : callable
        Function of `size`, for algorithms that cut vectors into blocks. It returns the
        approximate number of rounds that only fill and drain the pipeline, divided by the
        number of rounds per block.
    unlike_ns : callable, optional
        Function of a `Traffic` that returns the approximate time in ns on blocks of different
        sizes. For such blocks, ``auto`` takes the algorithm with the shortest time.
    options : mapping
        Default values of its options by name.
    """

    kind: str
    name: str
    rounds: Callable[[Group], Rounds]
    parts: Parts = "whole"
    commutative_only: bool = False
    power_of_two_only: bool = False
    even_only: bool = False
    regular_only: bool = False
    unlike_bits: Callable[[int, Mapping[str, Any]], bool] | None = None
    most_ranks: int | None = None
    only_ranks: int | None = None
    tree: Tree | None = None
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
    in_rank_tree: Callable[[int, Mapping[str, Any]], bool] | None = None
    is_uniform: bool | None = None
    is_packed: bool = False

    def steps(self, group: Group) -> Rounds:
        """Generate the rounds on a group; a reduction on a single rank copies its operand."""
        if group.size == 1 and self.kind in REDUCTIONS:
            return _copy(group)
        if self.is_own and group.motion is None:
            return checked(f"{self.kind}/{self.name}", self.rounds, group)
        return self.rounds(group)

    @property
    def is_own(self) -> bool:
        """Return whether it is a user's, so that its rounds are checked."""
        return not getattr(self.rounds, "__module__", "").startswith(_OURS)

    @property
    def is_native(self) -> bool:
        """Return whether it calls the collective of the MPI library."""
        return self.name == NATIVE

    @property
    def has_many_rounds(self) -> bool:
        """Return whether it has about as many rounds as ranks."""
        return self.forwards or self.per_pair > 0

    @property
    def summary(self) -> str:
        """Return the first line of the docstring of `rounds`."""
        return (inspect.getdoc(self.rounds) or "").partition("\n")[0]

    @property
    def needs(self) -> list[str]:
        """Return what it needs of ranks, machines, counts and operations, in a few words each."""
        found = {
            "a commutative op": self.commutative_only,
            "2^k ranks": self.power_of_two_only,
            "even ranks": self.even_only,
            "a topology": self.is_packed,
            "an op that does not round": self.unlike_bits is not None,
            "equal counts": self.regular_only,
            f"at most {self.most_ranks} ranks": self.most_ranks is not None,
            f"{self.only_ranks} ranks": self.only_ranks is not None,
        }
        return [text for text, is_needed in found.items() if is_needed]

    def n_parts(self, size: int, options: Mapping[str, Any]) -> int:
        """Return the number of chunks into which a vector is cut for `size` ranks."""
        if self.parts in ("whole", "halves"):
            return 1 if self.parts == "whole" else 2
        if self.parts == BLOCKS:
            return int(options[BLOCKS])
        if self.parts == "size":
            return size * int(options.get(BLOCKS, 1))
        return 1 << (size.bit_length() - 1)

    def refusal(
        self,
        size: int,
        commutative: bool,
        is_regular: bool = True,
        *,
        level: Reproducible | None = None,
        options: Mapping[str, Any] | None = None,
        has_topology: bool = False,
    ) -> str | None:
        """Return the reason why it does not work for these inputs, or None if it does.

        `level` is that of the collective, None if its operation does not round, and `options` are
        those that a spec names. At the level "placements", no operation commutes. `has_topology`
        says whether the machine has a topology.
        """
        if self.is_packed and not has_topology:
            return "the machine has no topology with links into which messages can be packed"
        if self.power_of_two_only and size & (size - 1):
            return f"{size} ranks is not a power of two"
        if self.even_only and size % 2 and size > 1:
            return f"{size} ranks is odd"
        if self.most_ranks and size > self.most_ranks:
            return f"{size} ranks is more than {self.most_ranks}"
        if self.only_ranks is not None and size != self.only_ranks:
            return f"{size} ranks are not the {self.only_ranks} that it was made for"
        if self.regular_only and not is_regular:
            return "the blocks differ in size"
        if level is not None and self.combines and (why := self._unlike(size, level, options)):
            return why
        if self.commutative_only and not commutative:
            if level == "placements":
                return "collective.reproducible is placements, and it exchanges operands"
            return "it exchanges operands, and the operation is not commutative"
        return None

    @property
    def combines(self) -> bool:
        """Return whether it computes a collective with an operation."""
        return traits_of(self.kind).has_op

    def _unlike(
        self, size: int, level: Reproducible, options: Mapping[str, Any] | None
    ) -> str | None:
        """Return how its association of operands contradicts a level of reproducibility."""
        known = {**(self.options or {}), **(options or {})}
        if self.unlike_bits is not None and self.unlike_bits(size, known):
            return (
                "the operation rounds, and each rank combines operands in its own order, so "
                "that ranks would get different bits"
            )
        if level != "ranks" and self.is_native:
            return (
                f"collective.reproducible is {level}, and the MPI library decides in which order "
                "it combines operands"
            )
        if level == "placements" and size > 2 and not self.keeps_rank_tree(size, known):
            return (
                "collective.reproducible is placements, and it does not combine operands in the "
                f"rank tree of {size} ranks"
            )
        return None

    def keeps_rank_tree(self, size: int, options: Mapping[str, Any]) -> bool:
        """Return whether each result is combined in the rank tree of `size` ranks."""
        return self.in_rank_tree is not None and self.in_rank_tree(size, options)

    @property
    def has_one_tree(self) -> bool:
        """Return whether all elements of a vector are combined in the same tree."""
        return self.parts == "whole" if self.is_uniform is None else self.is_uniform


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
"""Algorithms of local copies and reductions by kind; specs cannot choose them."""


class Registry:
    """All algorithms, by collective and name, in the order of registration.

    Parameters
    ----------
    kinds : iterable of str
        Collectives that are listed before others.
    """

    def __init__(self, kinds: Iterable[str] = ()) -> None:
        self._algorithms: dict[str, dict[str, Algorithm]] = {kind: {} for kind in kinds}

    def add(self, algorithm: Algorithm) -> None:
        """Register `algorithm`.

        Raises
        ------
        AlgorithmError
            If the collective already has an algorithm of this name, or if it is no name.
        """
        for what, name in (("a collective", algorithm.kind), ("an algorithm", algorithm.name)):
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise AlgorithmError(
                    f"algorithms: {show_value(name)} is no name of {what}; use letters, digits, "
                    f"and _ . + -"
                )
        names = self._algorithms.setdefault(algorithm.kind, {})
        if algorithm.name in names:
            raise AlgorithmError(
                f"algorithms: {algorithm.kind} has a {show_value(algorithm.name)} already; "
                "give yours another name"
            )
        names[algorithm.name] = algorithm

    def kinds(self) -> tuple[str, ...]:
        """Return the collectives that have algorithms."""
        return tuple(self._algorithms)

    def of(self, kind: str) -> tuple[Algorithm, ...]:
        """Return the algorithms of a collective, except calls of the MPI library."""
        found = self._algorithms.get(kind, {}).values()
        return tuple(one for one in found if not one.is_native)

    def is_own(self, kind: str, name: str) -> bool:
        """Return whether a collective has an algorithm of this name that is a user's."""
        found = self._algorithms.get(kind, {}).get(name)
        return found is not None and found.is_own

    def tried(
        self, kind: str, role: Role, level: Reproducible | None = None
    ) -> tuple[Algorithm, ...]:
        """Return the algorithms that `compare` and `tune` try by default in a role.

        At the level "placements", these are also all that combine in the rank tree, even if others
        send the same messages.
        """
        return tuple(
            one
            for one in self.of(kind)
            if role in one.tried_as or (level == "placements" and one.in_rank_tree is not None)
        )

    def find(self, kind: str, name: str) -> Algorithm:
        """Return algorithm `name` of collective `kind`.

        Raises
        ------
        AlgorithmError
            If the collective has no such algorithm. The message lists its algorithms.
        """
        names = self._algorithms.get(kind, {})
        if name not in names:
            there = [one.name for one in self.of(kind)]
            raise AlgorithmError(
                f"algorithms: {kind} has no {show_value(name)}; {suggest(name, there)}use one of "
                f"{', '.join(there)} or auto"
            )
        return names[name]

    def preferred(self, kind: str, use: Use) -> tuple[Algorithm, ...]:
        """Return the algorithms that ``auto`` takes for a use, in order of preference."""
        found = self.of(kind)
        best = [one for one in found if use in one.best_for]
        return (*best, *(one for one in found if use in one.next_best_for))

    def pipelining(self, kind: str, where: Where) -> str:
        """Return the first algorithm that pipelines segments there, or else the first of all."""
        found = [one.name for one in self.of(kind) if where in one.pipelines]
        return [*found, self.of(kind)[0].name][0]

    def quick(self, kind: str) -> str:
        """Return the preferred algorithm for long vectors, or else for short ones.

        Algorithms with messages between all pairs of ranks are left out.
        """
        found = (*self.preferred(kind, "long"), *self.preferred(kind, "short"))
        return next(one.name for one in found if not one.per_pair)

    def legal(
        self, kind: str, size: int, commutative: bool, is_regular: bool = True, **more: Any
    ) -> tuple[Algorithm, ...]:
        """Return the algorithms of `kind` that work for inputs as of `Algorithm.refusal`."""
        found = self.of(kind)
        return tuple(a for a in found if a.refusal(size, commutative, is_regular, **more) is None)

    def require(
        self,
        algorithm: Algorithm,
        size: int,
        commutative: bool,
        is_regular: bool = True,
        *,
        level: Reproducible | None = None,
        options: Mapping[str, Any] | None = None,
        has_topology: bool = False,
    ) -> None:
        """Raise `AlgorithmError`, with alternatives, if `algorithm` does not work."""
        limits = size, commutative, is_regular
        refusal = algorithm.refusal(
            *limits, level=level, options=options, has_topology=has_topology
        )
        if refusal is not None:
            legal = self.legal(algorithm.kind, *limits, level=level)
            others = " or ".join(repr(other.name) for other in legal)
            raise AlgorithmError(f"{algorithm.kind}/{algorithm.name}: {refusal}; use {others}")


registry = Registry(KINDS)


_PROMISES: Final = {one.name: one.type for one in fields(Algorithm)[3:]}
"""Parameters of `algorithm` beside the collective and the name, with their types."""
_VALID: Final = {
    "parts": get_args(Parts),
    "tree": (*get_args(Tree), None),
    "best_for": get_args(Use),
    "next_best_for": get_args(Use),
    "pipelines": get_args(Where),
    "tried_as": get_args(Role),
}
"""Valid values of parameters that are names, or tuples of names."""


def _check_promises(before: str, promises: Mapping[str, Any]) -> None:
    """Raise `AlgorithmError` if a parameter of `algorithm` has a value that means nothing."""
    for name, value in promises.items():
        valid = _VALID.get(name, ())
        for one in value if isinstance(value, tuple) else (value,):
            if valid and one not in valid:
                hint = suggest(one, [word for word in valid if word])
                words = ", ".join(map(str, valid))
                raise AlgorithmError(f"{before}{name} has {show_value(one)}; {hint}use {words}")
    options = promises.get("options")
    if options is not None and not isinstance(options, Mapping):
        raise AlgorithmError(
            f"{before}options is {show_value(options)}; give a mapping of names to default values"
        )


@explains_calls("algorithm", options=_PROMISES)
def algorithm(
    kind: str, name: str, **promises: Any
) -> Callable[[Callable[[Group], Rounds]], Callable[[Group], Rounds]]:
    """Register the decorated generator as algorithm `name` of `kind`.

    Parameters
    ----------
    kind, name : str
        Collective that it computes, and its name in specs.
    **promises
        Other parameters of `Algorithm`.

    Raises
    ------
    AlgorithmError
        If a parameter is unknown or has a wrong value, or if what is decorated is no function; when
        the function is registered, also as for `Registry.add`.
    """

    before = f"algorithms: {kind}/{name}: "
    _check_promises(before, promises)

    def register(rounds: Callable[[Group], Rounds]) -> Callable[[Group], Rounds]:
        if not callable(rounds):
            raise AlgorithmError(
                f"{before}{show_value(rounds)} is no function; decorate one that yields rounds"
            )
        registry.add(Algorithm(kind, name, rounds, **promises))
        return rounds

    return register
