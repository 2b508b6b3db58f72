"""Default algorithms of MPI libraries, by their published rules from the files in ``rules``.

A file has the rules of every collective, in the order in which the library asks them. The first
rule whose conditions hold decides. Its field `run` is the name of an algorithm, with options, or
a mapping of names by the bytes from which each runs. A collective's `instead` has algorithms
that run another ``unless`` something holds. The other fields of rules are conditions:

- ``nodes``: ``one`` node, ``several`` nodes of which some have several ranks, or ``spread``, one
  rank per node;
- ``ranks``, ``ranks_below``: the number of ranks, and the first number that is too large;
- ``power_of_two``, ``even``: whether the number of ranks is;
- ``commutes``, ``built_in``: whether the operation does, and whether MPI predefines it;
- ``enough_elements``, ``element_per_rank``: whether there are as many elements as the greatest
  power of two that is not above the number of ranks, or as ranks;
- ``bytes_below``: bytes that are too many; the collective's `bytes` says of what: of its
  ``vector``,
  of one ``block``, or of all blocks, in ``total``;
- ``total_below``: bytes of all blocks that are too many;
- ``in_place``: whether the call is;
- ``in_node_order``: whether ranks fill node after node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

from collplan.libraries.counterparts import Counterpart, algorithms_of
from collplan.specs.documents import parse_yaml
from collplan.specs.named_option import AlgorithmChoice

DECIDING: Final = ("mpich", "openmpi", "ucc")
"""Libraries whose rules are known."""
FEWEST_EXTRA: Final = "fewest_extra"
"""A radix of UCC: that which leaves the fewest ranks beside a multiple of its powers."""
OTHER_RANKS: Final = "messages differ from ours, as the ranks are no power of the radix"
"""Remark on an algorithm that is the same for other numbers of ranks only."""
_DEFAULT_RADIX: Final = 4
"""UCC's radix where ranks are not bound to sockets."""

Nodes = Literal["one", "several", "spread"]


@dataclass(frozen=True, slots=True)
class Case:
    """Facts that rules ask for.

    Parameters
    ----------
    kind : str
        Collective.
    n_ranks : int
    nodes : {"one", "several", "spread"}
        See the module.
    n_elements : int
        Of a vector, or of all blocks; of alltoall, of all that one rank sends.
    itemsize : int
        Bytes per element.
    has_blocks : bool
        Whether the collective has a block per rank.
    commutes, is_built_in : bool
        Of the operation; True without one.
    is_in_place, is_in_node_order : bool
    domain_size : int
        Ranks of the smallest NUMA domain.
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
        """Return the bytes of a ``block``, or of the ``vector`` or all blocks, in ``total``."""
        n_bytes = self.n_elements * self.itemsize
        return n_bytes // self.n_ranks if of == "block" and self.has_blocks else n_bytes


@dataclass(frozen=True)
class Decision:
    """An algorithm of a library, chosen by its rules.

    Parameters
    ----------
    name : str
        The library's name of the algorithm.
    options : dict of str to int or str
        What the library's rules tell it.
    n_ranks : int
        Of the call.
    counterpart : Counterpart or None
        Its row beside ours; None if the table has none.
    note : str
        What the model leaves out.
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
        """Return our algorithm with its options; None if there is none."""
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
        """Return where the price differs from what the library does, or why there is none."""
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
    """Return a library's name with the versions that have these rules."""
    return str(_rules(library)["title"])


def source_of(library: str) -> str:
    """Return where the rules stand in a library's source."""
    return str(_rules(library)["source"])


def decided_kinds(library: str) -> tuple[str, ...]:
    """Return the collectives that a library has rules for."""
    return tuple(_rules(library)["kinds"])


def decide(library: str, case: Case) -> Decision | None:
    """Return what a library runs by default; None if it has not the collective.

    Parameters
    ----------
    library : str
        One of `DECIDING`.
    case : Case
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
    return Decision(name, options, case.n_ranks, row, note)


def _facts(case: Case) -> dict[str, Any]:
    """Return what conditions compare with their values."""
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


def _parsed(run: str, case: Case) -> tuple[str, dict[str, int | str]]:
    """Return name and options of what a rule runs; no radix is above the number of ranks."""
    words = run.split()
    name = " ".join(word for word in words if "=" not in word)
    options: dict[str, int | str] = {}
    for key, _, value in (word.partition("=") for word in words if "=" in word):
        options[key] = int(value) if value.isdigit() else value
        if key == "radix":
            radix = fewest_extra(case) if value == FEWEST_EXTRA else int(value)
            options[key] = max(2, min(radix, case.n_ranks))
    return name, options


def fewest_extra(case: Case) -> int:
    """Return the radix that UCC takes where ranks are bound to sockets.

    It leaves the fewest ranks beside a multiple of its greatest power: of radixes from 3
    for one rank per node, else from 2 to the ranks of a socket.
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

    return min(range(first, max(first, last) + 1), key=n_extra)


def _counterpart(
    library: str, kind: str, name: str, options: Mapping[str, int | str]
) -> Counterpart | None:
    """Return the row of an algorithm with these options, or else with any; None without one."""
    rows = [one for one in algorithms_of(library).of(kind) if one.name == name]
    return min(rows, key=lambda row: _misfit(row, options), default=None)


def _misfit(row: Counterpart, options: Mapping[str, int | str]) -> tuple[int, int]:
    """Return how many options a row has with other values, and how many with any value."""
    told = dict(re.findall(r"(\w+)=(\S+)", f"{row.options} {row.setting}".lower()))
    others, free = 0, 0
    for key, given in options.items():
        said = [value for name, value in told.items() if name.endswith(key)]
        free += not said or said[0].startswith("{")
        others += bool(said) and not said[0].startswith("{") and said[0] != str(given)
    return others, free + (not options and bool(told))
