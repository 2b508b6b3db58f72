"""Names of algorithms in files of measurements, and the algorithms with the same messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from collplan.fitting.points import MeasuredPoint
from collplan.libraries.counterparts import ANY, algorithms_of
from collplan.libraries.decisions import DECIDING, Nodes, RuleInputs, decide
from collplan.planner.algorithms import registry
from collplan.specs.collectives.collective import traits_of
from collplan.specs.syntax.documents import parse_yaml

ITEMSIZE: Final = 4
"""Bytes of an element, for rules of libraries and segments of PICO, which count elements."""
CHAINS: Final = 4
"""Chains of Open MPI's algorithm of that name, by default."""
MOST_IN_PIECES: Final = 1024
"""Number of ranks above which messages in many pieces are counted as if they were in one."""
_OF_PIECES: Final = ("bine", "butterfly", "sparbit")
_SEGMENTED: Final = re.compile(r"(.*)_over_(\d+)")


@dataclass(frozen=True, slots=True)
class MeasuredAlgorithm:
    """An algorithm of a benchmark, as messages that collplan can plan.

    Parameters
    ----------
    kind, name : str
        Collective and algorithm of collplan.
    options : tuple of (str, object)
        Options of the algorithm.
    segment : float
        Bytes of a segment; infinite for whole messages.
    at_once, is_split : bool
        See ``names.yaml``.
    copies, copies_per_round, extra : float
        See ``names.yaml``.
    stem : str
        Name in the file, without the parts that say who runs it.
    """

    kind: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()
    segment: float = float("inf")
    at_once: bool = False
    is_split: bool = False
    copies: float = 0.0
    copies_per_round: float = 0.0
    extra: float = 0.0
    stem: str = ""


@cache
def names_table() -> Mapping[str, Any]:
    """Return the table of names."""
    text = (resources.files(__package__) / "names.yaml").read_text(encoding="utf-8")
    table = parse_yaml(text, "names.yaml")
    assert isinstance(table, dict)
    return table


def library_of(name: str) -> str:
    """Return the library of collplan's tables for a library of a file; empty if unknown."""
    return str(names_table()["libraries"].get(name, ""))


def stem_of(algorithm: str) -> tuple[str, float]:
    """Return a name without the parts that say who runs it, and the bytes of its segments.

    Examples
    --------
    >>> stem_of("bine_bdw_remap_segmented_over_16384")
    ('bine_bdw_segmented', 65536.0)
    >>> stem_of("ring_ompi")
    ('ring', inf)
    """
    segment = float("inf")
    found = _SEGMENTED.fullmatch(algorithm)
    if found is not None:
        algorithm, segment = found[1], float(found[2]) * ITEMSIZE
    for part in names_table()["parts"]:
        algorithm = algorithm.replace(part, "")
    return algorithm, segment


def algorithm_of(point: MeasuredPoint) -> MeasuredAlgorithm | None:
    """Return the algorithm of a point; None if collplan has none with such messages."""
    return _algorithm(
        point.collective,
        point.algorithm,
        point.library,
        point.layout.n_ranks,
        point.layout.n_nodes,
        point.n_bytes if point.algorithm.startswith("default") else 0,
    )


@cache
def _algorithm(
    collective: str, algorithm: str, library: str, n_ranks: int, n_nodes: int, n_bytes: int
) -> MeasuredAlgorithm | None:
    table = names_table()
    kind = table["kinds"].get(collective, collective)
    if kind not in registry.kinds():
        return None
    if algorithm.startswith("default"):
        return _default(kind, library_of(library), n_ranks, n_nodes, n_bytes)
    if algorithm.isdigit():
        return _numbered(kind, int(algorithm), n_ranks)
    stem, segment = stem_of(algorithm)
    rows = table["algorithms"].get(collective, {})
    row = rows.get(f"{stem} {library}", rows.get(stem))
    if row is None:
        return None
    if segment < float("inf"):
        row = {**row, "split": False}
    ours = _supported(kind, n_ranks, row["ours"], row.get("otherwise"))
    if ours is None:
        return None
    name, options = ours
    flags = {
        "at_once": row.get("at_once", False) and kind == "bcast",
        "is_split": row.get("split", False),
        "copies": float(row.get("copies", 0)),
        "copies_per_round": float(row.get("copies_per_round", 0)),
        "extra": float(row.get("extra", 0)),
    }
    return MeasuredAlgorithm(kind, name, options, segment, stem=stem, **flags)


_Choice = tuple[str, tuple[tuple[str, Any], ...]]


def _supported(kind: str, n_ranks: int, ours: Any, otherwise: str | None) -> _Choice | None:
    """Return the first of two algorithms that supports a number of ranks, with its options."""
    given = dict(ours) if isinstance(ours, dict) else {"name": ours}
    name = given.pop("name")
    options = tuple((key, n_ranks if value == "p" else value) for key, value in given.items())
    for one, its_options in ((name, options), (otherwise, ())):
        if one in _OF_PIECES and otherwise is not None and n_ranks > MOST_IN_PIECES:
            continue
        if one is not None and registry.find(kind, one).refusal(n_ranks, True) is None:
            return one, its_options
    return None


def _numbered(kind: str, number: int, n_ranks: int) -> MeasuredAlgorithm | None:
    """Return the algorithm of a number of Open MPI."""
    for row in algorithms_of("openmpi").of(kind):
        if row.number == number and row.ours is not None:
            options = {
                key: CHAINS if value == ANY else value for key, value in row.ours.options.items()
            }
            ours = {"name": row.ours.name, **options}
            found = _supported(kind, n_ranks, ours, "binomial")
            at_once = kind == "bcast" and row.ours.name != "chain"
            return found and MeasuredAlgorithm(kind, *found, at_once=at_once, stem=row.name)
    return None


def _default(
    kind: str, library: str, n_ranks: int, n_nodes: int, n_bytes: int
) -> MeasuredAlgorithm:
    """Return the algorithm that a library runs by its published rules."""
    nodes: tuple[Nodes, ...] = ("one",) if n_nodes == 1 else ("several", "spread")
    n_elements, has_blocks = max(1, n_bytes // ITEMSIZE), traits_of(kind).has_blocks
    for spread in nodes if n_nodes < n_ranks else nodes[-1:]:
        inputs = RuleInputs(kind, n_ranks, spread, n_elements, ITEMSIZE, has_blocks)
        made = decide(library if library in DECIDING else "mpich", inputs)
        ours = None if made is None else made.ours
        if made is not None and ours is not None:
            given = {"name": ours.name, **ours.options}
            found = _supported(kind, n_ranks, given, _plain(kind, n_ranks))
            segment = made.options.get("segment")
            size = float(segment) if isinstance(segment, int) and segment else float("inf")
            if found is not None:
                return MeasuredAlgorithm(kind, *found, size, stem="default")
    return MeasuredAlgorithm(kind, _plain(kind, n_ranks), stem="default")


def _plain(kind: str, n_ranks: int) -> str:
    """Return the first registered algorithm that supports a number of ranks."""
    return next(
        one.name
        for one in registry.of(kind)
        if not one.is_native and one.refusal(n_ranks, True) is None
    )
