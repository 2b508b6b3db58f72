"""Cases of `native_programs/conformance.c`: few with all pairs of choices, or random ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from covering import Case, pairs
from tiers import is_share

_REDUCING: Final = ("allreduce", "scan", "exscan", "reduce_scatter_block", "reduce")
_ROOTED: Final = ("reduce", "bcast", "gather", "scatter", "gatherv", "scatterv")
VECTORS: Final = ("gatherv", "scatterv", "allgatherv", "alltoallv", "reduce_scatter")
KINDS: Final = (*_REDUCING, "bcast", "gather", "scatter", "allgather", "alltoall", *VECTORS)
"""Collectives of the cases; the program calls a barrier besides."""
_TYPES: Final = {
    **dict.fromkeys(("int", "int8", "uint16", "int64", "unsigned", "longlong"), "i"),
    **dict.fromkeys(("double", "float"), "f"),
    **dict.fromkeys(("complex64", "complex128"), "c"),
    "bool": "b",
    **dict.fromkeys(("double_int", "float_int", "2int", "short_int", "long_int"), "p"),
    **dict.fromkeys(("byte", "char", "row", "column"), "-"),
}
"""Types, and which operations they have."""
_OPS: Final = {
    **dict.fromkeys(("sum", "prod"), "ifc"),
    **dict.fromkeys(("min", "max"), "if"),
    **dict.fromkeys(("land", "lor", "lxor"), "ib"),
    **dict.fromkeys(("band", "bor", "bxor"), "i"),
    **dict.fromkeys(("minloc", "maxloc"), "p"),
    "own": "i",
    "-": "ifcbp-",
}
_DIMENSIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "comm": ("world", "half", "dup"),
    "kind": KINDS,
    "type": tuple(_TYPES),
    "op": tuple(_OPS),
    "count": (1, 5, 67),
    "in_place": (0, 1),
    "is_last": (0, 1),
    "is_apart": (0, 1),
    "form": ("blocking",),
}
N_RANDOM: Final = 60
"""Number of random cases of the suite for each MPI."""
_NOTHING: Final[Mapping[str, Any]] = {
    **{name: values[0] for name, values in _DIMENSIONS.items()},
    "type": "int",
    "op": "-",
    "count": 0,
}
"""A case that moves nothing."""


def write_cases(path: Path, mpi: str) -> int:
    """Write the cases for an MPI, a line each, and return how many there are.

    Each MPI has the same pairs in other cases. In a share, each has a third of its cases.
    """
    random = Random(mpi)
    mixed = {name: random.sample(values, len(values)) for name, values in _DIMENSIONS.items()}
    cases = pairs(mixed, _is_possible)
    # Calls that move nothing are native: they are no place for pairs of other choices.
    cases += [{**_NOTHING, "kind": kind, "op": "sum" if _reduces(kind) else "-"} for kind in KINDS]
    order = _DIMENSIONS["comm"].index
    cases.sort(key=lambda case: (order(case["comm"]), case["kind"], case["count"]))
    cases = cases[::3] if is_share() else cases
    n_cases = len(cases)
    for at in range(n_cases - 1, 0, -1):
        if cases[at]["comm"] != cases[at - 1]["comm"]:
            cases.insert(at, {**_NOTHING, "comm": cases[at - 1]["comm"], "kind": "free"})
    _write(path, [*cases, *_random_cases(random, N_RANDOM, N_RANDOM // 5)])
    return n_cases + N_RANDOM


def write_random_cases(path: Path, seed: int, n_cases: int) -> None:
    """Write cases in random order, on several communicators at a time, in all forms.

    They repeat, so that plans run. Now and then one is replaced, or a communicator is made again.
    """
    _write(path, _random_cases(Random(seed), n_cases, 40))


def _random_cases(random: Random, n_cases: int, n_different: int) -> list[Case]:
    """Return cases, of which a number of different ones repeat; see `write_random_cases`."""
    dimensions = {
        **_DIMENSIONS,
        "comm": ("world", "world", "half", "dup", "turned"),
        "count": (0, 1, 2, 5, 33, 67),
        "form": (*["blocking"] * 7, "started", "started", "persistent"),
    }

    def draw() -> Case:
        kind = random.choice((*KINDS, "barrier"))
        while True:
            case = {name: random.choice(values) for name, values in dimensions.items()}
            if kind == "barrier":
                return {**_NOTHING, "kind": kind, "comm": case["comm"], "form": case["form"]}
            if _is_possible({**case, "kind": kind}):
                return {**case, "kind": kind}

    kept, cases = [draw() for _ in range(n_different)], []
    for _ in range(n_cases):
        if random.random() < 0.02:
            kept[random.randrange(len(kept))] = draw()
        if random.random() < 0.002:
            freed = random.choice(("half", "dup", "turned"))
            cases.append({**_NOTHING, "comm": freed, "kind": "free"})
        cases.append(random.choice(kept))
    return cases


def _write(path: Path, cases: list[Case]) -> None:
    path.write_text("".join(" ".join(str(case[k]) for k in _DIMENSIONS) + "\n" for case in cases))


def _reduces(kind: str) -> bool:
    return kind in (*_REDUCING, "reduce_scatter")


def _is_possible(case: Case) -> bool:
    kind, name, op = case.get("kind"), case.get("type"), case.get("op")
    if name is not None and op is not None and _TYPES[name] not in _OPS[op]:
        return False
    if op == "own" and name not in (None, "int"):
        return False
    if kind is None:
        return True
    if op is not None and _reduces(kind) == (op == "-"):
        return False
    if name is not None and _reduces(kind) and _TYPES[name] == "-":
        return False
    return (
        not (case.get("in_place") and kind == "bcast")
        and not (case.get("is_last") and kind not in _ROOTED)
        and not (case.get("is_apart") and kind not in VECTORS)
    )
