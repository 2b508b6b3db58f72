"""Where algorithms say what they are and what they cannot do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from collplan.planner.algorithms.rounds import Group, Rounds
from collplan.planner.errors import AlgorithmError

Parts = Literal["whole", "size", "power_of_two"]


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
        Into how many chunks a vector is cut: "whole" (1), "size", or
        "power_of_two" (the greatest not above size). Collectives on blocks
        always have a chunk a rank.
    commutative_only, power_of_two_only, even_only, regular_only : bool
        What it cannot do without: it raises then. Regular means that all
        blocks have one size.
    tree : bool
        Messages go along the edges of one tree, to its root or from it; an
        allreduce's to the root, then from it in as many rounds.
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
    tree: bool = False
    options: Mapping[str, Any] | None = None

    @property
    def summary(self) -> str:
        """Return the first line of its docstring."""
        return (inspect.getdoc(self.rounds) or "").partition("\n")[0]

    def n_parts(self, size: int) -> int:
        """Return the chunks a vector is cut into for `size` ranks."""
        if self.parts == "whole":
            return 1
        return size if self.parts == "size" else 1 << (size.bit_length() - 1)

    def refusal(self, size: int, commutative: bool, is_regular: bool = True) -> str | None:
        """Say why it cannot serve `size` ranks, such an operation or blocks; None where it can."""
        if self.power_of_two_only and size & (size - 1):
            return f"{size} ranks is not a power of two"
        if self.even_only and size % 2 and size > 1:
            return f"{size} ranks is odd"
        if self.commutative_only and not commutative:
            return "it exchanges operands, and the operation is not commutative"
        if self.regular_only and not is_regular:
            return "the blocks differ in size"
        return None


class Registry:
    """All algorithms, by collective and name, in the order of registration."""

    def __init__(self) -> None:
        self._algorithms: dict[str, dict[str, Algorithm]] = {}

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
        """Return the algorithms of a collective."""
        return tuple(self._algorithms.get(kind, {}).values())

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
                f"algorithms: {kind} has no {name!r}; use one of {', '.join(names)} or auto"
            )
        return names[name]

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


registry = Registry()


def algorithm(
    kind: str, name: str, **promises: Any
) -> Callable[[Callable[[Group], Rounds]], Callable[[Group], Rounds]]:
    """Register the decorated generator as algorithm `name` of `kind`; see `Algorithm`."""

    def register(rounds: Callable[[Group], Rounds]) -> Callable[[Group], Rounds]:
        registry.add(Algorithm(kind, name, rounds, **promises))
        return rounds

    return register
