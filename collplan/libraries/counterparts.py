"""Algorithms of MPI libraries with their collplan counterparts.

One table, ``counterparts.yaml``, serves exports, commands and documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final

from collplan.planner.algorithms import registry
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.errors import CollplanError, suggest
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.specs.syntax.documents import parse_yaml

ANY: Final = "any"
"""Value of an option that may have any value, as the library's algorithm has it as a parameter."""
_FIELDS: Final = {"title", "source", "missing"}
"""Fields of a library in the table that are not collectives."""


@dataclass(frozen=True)
class Counterpart:
    """An algorithm of a library, with its collplan counterpart if there is one.

    The strings `options` and `setting` may have the placeholders ``{radix}`` and the like for
    options of the collplan algorithm, ``{segment}`` for the segment size in bytes, and
    ``{others}`` for the number of other ranks.

    Parameters
    ----------
    collective, name : str
        Kind of the collective, and the library's name of the algorithm.
    options : str
        Options of the algorithm in a tuning file, or its parameters.
    setting : str
        Variable and value, without which the library runs the algorithm in another form.
    number : int, optional
        Number of the algorithm in classic rules of Open MPI.
    ours : AlgorithmChoice, optional
        Collplan algorithm with the same messages.
    plan : str
        Other fields of the spec, in words, such as a decomposition.
    segment : {"never", "may", "always"}
        Whether the library cuts messages into segments.
    only : {"", "power_of_two", "power_of_radix"}
        Numbers of ranks for which messages are the same; empty for all.
    reorders : bool
        Whether a rule runs the algorithm also for non-commutative operations, with wrong results.
    commutes : bool
        Whether the library refuses non-commutative operations.
    rule : bool
        Whether tuning files can name the algorithm for calls that collplan tunes.
    differs : str
        Difference from the messages of `ours`, which is then only the nearest algorithm.
    none : str
        Reason why there is no collplan algorithm.
    """

    collective: str
    name: str
    options: str = ""
    setting: str = ""
    number: int | None = None
    ours: AlgorithmChoice | None = None
    plan: str = ""
    segment: str = "never"
    only: str = ""
    reorders: bool = False
    commutes: bool = False
    rule: bool = True
    differs: str = ""
    none: str = ""

    @property
    def title(self) -> str:
        """Name and parameters of the algorithm, as users of the library know them."""
        told = (self.options or self.setting).replace("{others}", "p-1")
        parameters = re.sub(r"=\{\w+\}", "", told)
        cut = " segment" if self.segment == "may" and "segment" not in told else ""
        return f"{self.name} {parameters}".rstrip() + cut

    @property
    def ours_text(self) -> str:
        """Collplan algorithm and plan, as in specs; empty if there is none."""
        words = []
        if self.ours is not None:
            options = [
                f"{name}: {'k' if value == ANY else value}"
                for name, value in self.ours.options.items()
            ]
            said = ", ".join([f"name: {self.ours.name}", *options])
            words.append(f"{{{said}}}" if options else self.ours.name)
        words += [self.plan] if self.plan else []
        if self.segment != "never":
            words.append("passes: [segment]")
        return ", ".join(words)

    @property
    def remark(self) -> str:
        """Reason why there is no collplan algorithm, or the difference between messages."""
        numbers = {
            "power_of_two": "2^n ranks only",
            "power_of_radix": "radix^n ranks only",
            "": "",
        }
        return self.none or self.differs or numbers[self.only]

    def serves(self, choice: AlgorithmChoice, is_cut: bool) -> bool:
        """Return whether a tuning file can name this algorithm for a collplan algorithm.

        Parameters
        ----------
        choice : AlgorithmChoice
            Collplan algorithm.
        is_cut : bool
            Whether its messages are cut into segments.
        """
        if self.ours is None or self.ours.name != choice.name or not self.rule or self.differs:
            return False
        if is_cut != (self.segment == "always") and self.segment != "may":
            return False
        defaults = registry.find(self.collective, choice.name).options or {}
        wanted = {**defaults, **self.ours.options}
        given = {**defaults, **choice.options}
        return all(wanted[name] in (ANY, value) for name, value in given.items())

    def has_ranks(self, n_ranks: int, choice: AlgorithmChoice) -> bool:
        """Return whether messages equal those of a collplan algorithm on a number of ranks."""
        base = 2
        if self.only == "power_of_radix":
            base = self._values(choice)["radix"]
        while self.only and n_ranks > 1 and n_ranks % base == 0:
            n_ranks //= base
        return not self.only or n_ranks == 1

    def told(self, choice: AlgorithmChoice, n_ranks: int, segment: int) -> tuple[str, str]:
        """Return the options and the setting for a collplan algorithm and a segment in bytes."""
        values = {**self._values(choice), "segment": segment, "others": max(1, n_ranks - 1)}
        return self.options.format(**values), self.setting.format(**values)

    def _values(self, choice: AlgorithmChoice) -> dict[str, Any]:
        return {**(registry.find(self.collective, choice.name).options or {}), **choice.options}


@dataclass(frozen=True)
class Algorithms:
    """The algorithms of a library.

    Parameters
    ----------
    name, title, source : str
        Name of the library in commands, its proper name, and the version of its sources that
        the table describes.
    missing : str
        Message for a collplan algorithm that the library does not have.
    rows : tuple of Counterpart
        Algorithms of the library.
    """

    name: str
    title: str
    source: str
    missing: str
    rows: tuple[Counterpart, ...] = field(repr=False)

    def of(self, collective: str) -> tuple[Counterpart, ...]:
        """Return the algorithms of a collective."""
        return tuple(row for row in self.rows if row.collective == collective)

    def find(
        self, collective: str, choice: AlgorithmChoice, n_ranks: int, *, is_cut: bool
    ) -> Counterpart | str:
        """Return the counterpart of a collplan algorithm, or the reason why there is none.

        Parameters
        ----------
        collective : str
            Kind of the collective.
        choice : AlgorithmChoice
            Collplan algorithm.
        n_ranks : int
            Number of ranks.
        is_cut : bool
            Whether messages are cut into segments.
        """
        found = [row for row in self.of(collective) if row.serves(choice, is_cut)]
        for row in found:
            if row.has_ranks(n_ranks, choice):
                return row
        if found:
            numbers = "two" if found[0].only == "power_of_two" else "the radix"
            return f"{self.title}'s has other messages unless the ranks are a power of {numbers}"
        return self.missing


@cache
def _table() -> Mapping[str, Any]:
    text = (resources.files(__package__) / "counterparts.yaml").read_text(encoding="utf-8")
    table = parse_yaml(text, "counterparts.yaml")
    assert isinstance(table, dict)
    return table


def library_names() -> tuple[str, ...]:
    """Return the names of all libraries in the table."""
    return tuple(_table())


@cache
def algorithms_of(library: str) -> Algorithms:
    """Return the algorithms of a library.

    Raises
    ------
    CollplanError
        If the table does not contain the library.
    """
    table = _table()
    if library not in table:
        hint = suggest(library, library_names())
        raise CollplanError(
            f"{library!r} is not a library; {hint}valid: {', '.join(library_names())}"
        )
    fields = table[library]
    rows = []
    for collective, listed in fields.items():
        if collective in _FIELDS:
            continue
        for row in listed:
            ours = row.get("ours")
            choice = None if ours is None else AlgorithmChoice.model_validate(ours)
            rows.append(Counterpart(collective, **{**row, "ours": choice}))
    said = {name: fields[name] for name in _FIELDS}
    return Algorithms(name=library, rows=tuple(rows), **said)


def planned_kind(collective: str) -> str | None:
    """Return the kind whose algorithms compute a collective; None if collplan does not plan it."""
    if collective not in COLLECTIVES:
        return None
    return COLLECTIVES[collective].regular or collective


_OPENMPI: Final = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_{kind}_algorithm {number}"
_OTHERS_FIRST: Final = " --mca coll ^han"
"""Option without which Open MPI prefers another component on several nodes."""
_DEVICE_FIRST: Final = "MPIR_CVAR_{kind}_DEVICE_COLLECTIVE=0 "
"""Variable without which MPICH prefers the collectives of its device on several nodes."""


def setting_of(library: str, row: Counterpart, *, spans_nodes: bool) -> str | None:
    """Return the beginning of a command whose program runs an algorithm in all calls.

    Parameters
    ----------
    library : str
        Name of the library in commands.
    row : Counterpart
        Algorithm of this library, whose messages are whole.
    spans_nodes : bool
        Whether ranks are on several nodes.

    Returns
    -------
    str or None
        ``mpiexec`` with variables of the environment before it or options after it. None if the
        library has no setting for the algorithm, or if the algorithm has parameters.

    Examples
    --------
    >>> from collplan.libraries.counterparts import algorithms_of
    >>> ring = next(row for row in algorithms_of("mpich").of("allreduce") if row.name == "ring")
    >>> setting_of("mpich", ring, spans_nodes=False)
    'MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring mpiexec'
    """
    if row.options or row.setting:
        return None
    if library == "mpich":
        kind = row.collective.upper()
        before = _DEVICE_FIRST.format(kind=kind) if spans_nodes else ""
        return f"{before}MPIR_CVAR_{kind}_INTRA_ALGORITHM={row.name} mpiexec"
    if library == "openmpi" and row.number is not None:
        options = _OPENMPI.format(kind=row.collective, number=row.number)
        return f"mpiexec {options}{_OTHERS_FIRST if spans_nodes else ''}"
    return None
