"""Default algorithms of MPI libraries, by their published rules in the files of ``rules``.

A file has the rules of each collective, in the order in which the library applies them. The first
rule whose conditions hold decides. Its field `run` is the name of an algorithm with options, or
a mapping from the size in bytes at which an algorithm starts to its name. The field `instead` of a
collective maps an algorithm to another one, which runs ``unless`` a condition holds. The other
fields of rules are conditions:

- ``nodes``: ``one`` node, ``several`` nodes of which some have several ranks, or ``spread``, one
  rank per node;
- ``ranks``, ``ranks_below``: the number of ranks, and its exclusive upper limit;
- ``power_of_two``, ``even``: whether the number of ranks is a power of two, or even;
- ``commutes``, ``built_in``: whether the operation is commutative, and whether MPI predefines it;
- ``enough_elements``: whether the number of elements is at least the greatest power of two that
  does not exceed the number of ranks;
- ``element_per_rank``: whether there are at least as many elements as ranks;
- ``bytes_below``: exclusive upper limit of the size in bytes; the field `bytes` of the collective
  tells whether it is the size of the ``vector``, of one ``block``, or of all blocks (``total``);
- ``total_below``: exclusive upper limit of the size of all blocks in bytes;
- ``in_place``: whether the call is in place;
- ``in_node_order``: whether consecutive ranks fill one node after the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from collplan.libraries.counterparts import Counterpart, algorithms_of
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.specs.syntax.documents import parse_yaml

DECIDING: Final = ("mpich", "openmpi", "ucc")
"""Libraries whose rules are known."""
FEWEST_EXTRA: Final = "fewest_extra"
"""Value of an option of UCC that stands for the radix of `fewest_extra`."""
OTHER_RANKS: Final = "messages differ from ours, as the ranks are no power of the radix"
"""Remark on an algorithm whose messages equal ours only on other numbers of ranks."""
_DEFAULT_RADIX: Final = 4
"""Radix of UCC if ranks are not bound to sockets."""

Nodes = Literal["one", "several", "spread"]


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """Properties of a call on which rules depend.

    Parameters
    ----------
    kind : str
        Kind of the collective.
    n_ranks : int
        Number of ranks.
    nodes : {"one", "several", "spread"}
        Placement of the ranks, see the documentation of the module.
    n_elements : int
        Number of elements of the vector, or of all blocks; for alltoall, of all blocks that one
        rank sends.
    itemsize : int
        Size of an element in bytes.
    has_blocks : bool
        Whether the collective has a block per rank.
    commutes, is_built_in : bool
        Whether the operation is commutative, and whether MPI predefines it; True if the
        collective has no operation.
    is_in_place : bool
        Whether the call is in place.
    is_in_node_order : bool
        Whether consecutive ranks fill one node after the other.
    domain_size : int
        Number of ranks of the smallest NUMA domain.
    """

    kind: str
    n_ranks: int
    nodes: Nodes
    n_elements: int
    itemsize: int
    has_blocks: bool = False
    commutes: bool = True
    is_built_in: bool = True
    is_in_place: bool = False
    is_in_node_order: bool = True
    domain_size: int = 1

    def n_bytes(self, of: str) -> int:
        """Return the size in bytes of a ``block``, of the ``vector``, or of all blocks (``total``).

        A collective without blocks has the same size in all three cases.
        """
        n_bytes = self.n_elements * self.itemsize
        return n_bytes // self.n_ranks if of == "block" and self.has_blocks else n_bytes


@dataclass(frozen=True)
class LibraryDecision:
    """An algorithm of a library, chosen by the rules of the library.

    Parameters
    ----------
    name : str
        The library's name of the algorithm.
    options : dict of str to int or str
        Options that the rules give to the algorithm.
    n_ranks : int
        Number of ranks of the call.
    counterpart : Counterpart or None
        Row of the algorithm in the table of counterparts; None if there is none.
    note : str
        Note on behavior that the model leaves out.
    """

    name: str
    options: Mapping[str, int | str]
    n_ranks: int
    counterpart: Counterpart | None
    note: str

    def __str__(self) -> str:
        """Return the name and the options, as in ``knomial radix=4``."""
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def ours(self) -> AlgorithmChoice | None:
        """Collplan algorithm with its options; None if there is none."""
        row = self.counterpart
        if row is None or row.ours is None:
            return None
        given = {
            key: self.options.get(key, value) if isinstance(value, str) else value
            for key, value in row.ours.options.items()
        }
        return AlgorithmChoice(name=row.ours.name, options=given)

    @property
    def remark(self) -> str:
        """Difference between the modeled cost and the library, or the reason for having no cost."""
        row, ours, told = self.counterpart, self.ours, ""
        if row is not None:
            is_same = ours is None or row.has_ranks(self.n_ranks, ours)
            told = row.none or row.differs or ("" if is_same else OTHER_RANKS)
        return "; ".join(dict.fromkeys(part for part in (self.note, told) if part))


@cache
def _rules(library: str) -> Mapping[str, Any]:
    path = resources.files(__package__) / "rules" / f"{library}.yaml"
    rules = parse_yaml(path.read_text(encoding="utf-8"), path.name)
    assert isinstance(rules, dict)
    return rules


def title_of(library: str) -> str:
    """Return the name of a library with the versions to which the rules apply."""
    return str(_rules(library)["title"])


def decided_kinds(library: str) -> tuple[str, ...]:
    """Return the kinds of collectives for which a library has rules."""
    return tuple(_rules(library)["kinds"])


def decide(library: str, case: RuleInputs) -> LibraryDecision | None:
    """Return the algorithm that a library runs by default; None if it has no such collective.

    Parameters
    ----------
    library : str
        Name of the library, one of `DECIDING`.
    case : RuleInputs
        Properties of the call.
    """
    rules = _rules(library)
    if case.kind not in rules["kinds"]:
        return None
    of_kind = rules["kinds"][case.kind]
    facts, n_bytes = _facts(case), case.n_bytes(of_kind["bytes"])
    limits = {
        "ranks_below": case.n_ranks,
        "bytes_below": n_bytes,
        "total_below": case.n_bytes("total"),
    }
    rule = next(one for one in of_kind["rules"] if _holds(one, facts, limits))
    run = rule["run"]
    if not isinstance(run, str):
        run = run[max((first for first in run if int(first) <= n_bytes), key=int)]
    other = of_kind.get("instead", {}).get(run)
    if other is not None and not facts[other["unless"]]:
        run = other["run"]
    name, options = _parsed(run, case)
    row = _counterpart(library, case.kind, name, options)
    note = rules["notes"][rule["note"]] if "note" in rule else ""
    return LibraryDecision(name, options, case.n_ranks, row, note)


def _facts(case: RuleInputs) -> dict[str, Any]:
    """Return the facts with which the values of conditions are compared."""
    n_ranks = case.n_ranks
    return {
        "nodes": case.nodes,
        "ranks": n_ranks,
        "power_of_two": n_ranks & (n_ranks - 1) == 0,
        "even": n_ranks % 2 == 0,
        "commutes": case.commutes,
        "built_in": case.is_built_in,
        "enough_elements": case.n_elements >= 1 << (n_ranks.bit_length() - 1),
        "element_per_rank": case.n_elements >= n_ranks,
        "in_place": case.is_in_place,
        "in_node_order": case.is_in_node_order,
    }


def _holds(rule: Mapping[str, Any], facts: Mapping[str, Any], limits: Mapping[str, int]) -> bool:
    """Return whether all conditions of a rule hold."""
    return all(
        limits[key] < value if key in limits else facts[key] == value
        for key, value in rule.items()
        if key not in ("run", "note")
    )


def _parsed(run: str, case: RuleInputs) -> tuple[str, dict[str, int | str]]:
    """Return the name and the options of an algorithm; a radix is at most the number of ranks."""
    words = run.split()
    name = " ".join(word for word in words if "=" not in word)
    options: dict[str, int | str] = {}
    for key, _, value in (word.partition("=") for word in words if "=" in word):
        options[key] = int(value) if value.isdigit() else value
        if key == "radix":
            radix = fewest_extra(case) if value == FEWEST_EXTRA else int(value)
            options[key] = max(2, min(radix, case.n_ranks))
    return name, options


def fewest_extra(case: RuleInputs) -> int:
    """Return the radix that UCC uses if ranks are bound to sockets.

    The greatest power of a radix up to the number of ranks has a largest multiple that is at
    most the number of ranks. The chosen radix leaves the fewest ranks beyond this multiple.
    Candidates are the radixes from 3 to the number of ranks for one rank per node, and
    otherwise from 2 to the number of ranks of a socket.
    """
    n = case.n_ranks
    first, last = (min(n, 3), n) if case.nodes == "spread" else (2, min(n, case.domain_size))
    if last < 2:
        return _DEFAULT_RADIX

    def n_extra(radix: int) -> int:
        power = radix
        while power < n:
            power *= radix
        power = power if power == n else power // radix
        return n % power

    return min(range(first, last + 1), key=n_extra)


def _counterpart(
    library: str, kind: str, name: str, options: Mapping[str, int | str]
) -> Counterpart | None:
    """Return the row of an algorithm whose options match best; None if it has no row."""
    rows = [one for one in algorithms_of(library).of(kind) if one.name == name]
    return min(rows, key=lambda row: _misfit(row, options), default=None)


def _misfit(row: Counterpart, options: Mapping[str, int | str]) -> tuple[int, int]:
    """Return the number of options with another value in a row, then of those with any value."""
    told = dict(re.findall(r"(\w+)=(\S+)", f"{row.options} {row.setting}".lower()))
    others, free = 0, 0
    for key, given in options.items():
        said = [value for name, value in told.items() if name.endswith(key)]
        free += not said or said[0].startswith("{")
        others += bool(said) and not said[0].startswith("{") and said[0] != str(given)
    return others, free + (not options and bool(told))
