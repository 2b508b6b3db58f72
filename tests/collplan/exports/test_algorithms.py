"""Exported algorithms send what ours send: rank by rank, against formulas of the sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import library_algorithms as libraries
from collplan.exports import mpich, openmpi, ucc
from collplan.exports.selection import Target
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.plan.plan import Op
from collplan.specs.methods.named_option import AlgorithmChoice
from export_tables import sweep, table
from library_algorithms import Algorithm
from oracle import make_spec

RANKS = (2, 3, 5, 8, 12, 16)
KNOMIAL_RANKS = (*range(2, 14), 16, 25, 27, 28, 40)
VECTORS = {"bcast", "reduce", "allreduce", "scan", "exscan"}
NOT_IN_UCC = {"barrier", "scan", "exscan", "gather", "scatter"}
OF_ROOT_0 = {("mpich", "reduce", "rabenseifner")}
"""MPICH leaves out a root that is the odd rank of a pair, and serves it afterwards."""
SWAPPED = {
    ("mpich", "allreduce", "recursive_doubling"),
    ("mpich", "allreduce", "rabenseifner"),
    ("mpich", "barrier", "recursive_doubling"),
    ("ompi", "allreduce", "recursive_doubling"),
}
"""The odd rank of a pair goes on where ranks are no power of two; with us, the even one."""
REVERSED = {("ompi", "barrier", "dissemination")}
"""Signals go to lower ranks, not to higher ones."""
SURPLUS: dict[tuple[str, str], Callable[[int, int, int, int], bool]] = {
    # To lower ranks that pass nothing on, and to a root that has everything.
    ("scan", "recursive_doubling"): lambda p, root, source, dest: dest < source,
    ("exscan", "recursive_doubling"): lambda p, root, source, dest: dest < source,
    ("bcast", "scatter_allgather"): lambda p, root, source, dest: dest == root,
    ("bcast", "scatter_doubling"): lambda p, root, source, dest: dest == root,
    # To rank 0, which knows that all have come, and over distances beyond all ranks.
    ("barrier", "double_ring"): lambda p, root, source, dest: dest == 0,
    ("barrier", "dissemination"): lambda *_: True,
}
"""Messages that a library sends without need and our plans leave out."""


@cache
def messages(kind: str, choice: AlgorithmChoice, p: int, root: int, n: int) -> Counter[Any]:
    """Return (source, destination, elements) of our plan."""
    plan = compile_plan(make_spec(kind, choice.model_dump(), p, count=n, root=root))
    rows = np.flatnonzero(plan.op == Op.SEND)
    columns = (plan.rank[rows], plan.peer[rows], plan.elements[rows])
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


def equivalent(library: str, kind: str, choice: AlgorithmChoice, p: int) -> Target | None:
    one = table(sweep(kind, {0: {choice.name: 1}}, (p,))).sweeps[0]
    answer = {
        "mpich": mpich.equivalent,
        "ompi": partial(openmpi.equivalent, True, True),
        "ucc": ucc.equivalent,
    }[library](one, choice, 0)
    return answer if isinstance(answer, Target) else None


def formula(library: str, kind: str, target: Target) -> Algorithm:
    """Return the library's own algorithm, with what it is told."""
    if library == "ucc":
        return libraries.ucc(dict([target.setting] if target.setting else []))[kind, target.name]
    if library == "ompi" and target.name == "knomial":
        assert target.setting is not None
        assert target.setting[0] == "coll_tuned_bcast_algorithm_knomial_radix"
        return libraries.tree(partial(libraries.kmtree_children, int(target.setting[1])))
    if library == "ompi" and target.name == "chain":
        ((name, _, fanout),) = (option.partition("=") for option in target.options)
        assert name == "faninout"
        edges = libraries.tree(partial(libraries.chain_children, int(fanout)))
        return edges if kind == "bcast" else libraries.upward(edges)
    if library == "mpich" and target.name == "tree":
        options = dict(option.split("=") for option in target.options)
        children = getattr(libraries, f"{options['tree_type']}_children")
        return libraries.tree(partial(children, int(options["k"])))
    if library == "mpich" and (kind, target.name) in libraries.MPICH_BY_RADIX:
        ((name, _, radix),) = (option.partition("=") for option in target.options)
        assert name == "k"
        return partial(libraries.MPICH_BY_RADIX[kind, target.name], int(radix))
    known = {"mpich": libraries.MPICH, "ompi": libraries.OPEN_MPI}[library]
    return known[kind, target.name]


def renumbered(library: str, kind: str, name: str, p: int, rank: int) -> int:
    if (library, kind, name) in REVERSED:
        return p - 1 - rank
    paired = 2 * (p - (1 << (p.bit_length() - 1)))
    return rank ^ 1 if (library, kind, name) in SWAPPED and rank < paired else rank


def check(library: str, kind: str, choice: AlgorithmChoice, p: int, root: int) -> bool:
    """Compare all messages; return whether the library has an equivalent."""
    target = equivalent(library, kind, choice, p)
    if target is None:
        return False
    n = p * 32 if kind in VECTORS else 6
    own = messages(kind, choice, p, root, n)
    new = partial(renumbered, library, kind, choice.name, p)
    theirs = Counter(
        (new(source), new(dest), length)
        for source, dest, length in formula(library, kind, target)(
            p, root, 0 if kind == "barrier" else n
        )
    )
    assert not own - theirs, f"{target} of {p} ranks lacks messages of ours"
    in_vain = SURPLUS.get((kind, choice.name), lambda *_: False)
    for source, dest, _ in theirs - own:
        assert in_vain(p, root, source, dest), f"{target} of {p} ranks sends {source} -> {dest}"
    return True


@pytest.mark.many
@pytest.mark.parametrize("library", ["mpich", "ompi", "ucc"])
@pytest.mark.parametrize("kind", registry.kinds())
def test_exported_algorithms_have_our_messages(kind: str, library: str) -> None:
    checked = 0
    for algorithm in registry.of(kind):
        for p in RANKS:
            if algorithm.refusal(p, commutative=True) is not None:
                continue
            is_rooted = kind in ("bcast", "reduce", "gather", "scatter")
            other = is_rooted and (library, kind, algorithm.name) not in OF_ROOT_0
            for root in {0, p - 1, p // 2} if other else {0}:
                checked += check(library, kind, AlgorithmChoice(name=algorithm.name), p, root)
    assert checked or (library == "ucc" and kind in NOT_IN_UCC)


@pytest.mark.parametrize("library", ["mpich", "ompi", "ucc"])
@pytest.mark.parametrize("radix", [2, 3, 4, 7])
def test_exported_knomial_trees_have_our_edges(radix: int, library: str) -> None:
    choice = AlgorithmChoice.model_validate({"name": "knomial", "radix": radix})
    for kind in ("bcast", "reduce") if library == "ucc" else ("bcast",):
        assert all(check(library, kind, choice, p, p // 3) for p in KNOMIAL_RANKS)


@pytest.mark.many
@pytest.mark.parametrize("radix", [2, 3, 4, 7, 16])
@pytest.mark.parametrize(
    ("library", "kind", "name"),
    [
        ("mpich", "allgather", "bruck"),
        ("mpich", "allreduce", "recursive_multiplying"),
        ("mpich", "alltoall", "bruck"),
        ("mpich", "barrier", "dissemination"),
        ("ucc", "allreduce", "recursive_multiplying"),
    ],
)
def test_exported_radixes_have_our_messages(library: str, kind: str, name: str, radix: int) -> None:
    choice = AlgorithmChoice.model_validate({"name": name, "radix": radix})
    found = [p for p in KNOMIAL_RANKS if check(library, kind, choice, p, 0)]
    powers = [radix**n for n in range(1, 6) if radix**n in KNOMIAL_RANKS]
    assert found == (powers if kind == "allreduce" else list(KNOMIAL_RANKS))


@pytest.mark.parametrize("radix", [2, 3, 4, 5])
def test_recursive_exchanges_of_mpich_have_our_messages_on_powers_of_the_radix(radix: int) -> None:
    choice = AlgorithmChoice.model_validate({"name": "recursive_multiplying", "radix": radix})
    for kind, formula in (
        ("allreduce", libraries.recexch_allreduce),
        ("allgather", libraries.recexch_allgather),
    ):
        found = [
            p
            for p in KNOMIAL_RANKS
            if messages(kind, choice, p, 0, 3 * p) == Counter(formula(radix, p, 0, 3 * p))
        ]
        # On fewer ranks than the radix, all exchange with all.
        powers = {radix**n for n in range(1, 6)} | set(range(2, radix))
        assert found == [p for p in KNOMIAL_RANKS if p in powers]


def test_other_recursive_exchanges_of_mpich_send_as_much_to_the_same_ranks() -> None:
    """The farthest groups exchange first there, so that other messages have the most blocks."""
    choice = AlgorithmChoice.model_validate({"name": "recursive_multiplying", "radix": 4})
    for kind, formula in (
        ("allgather", partial(libraries.recexch_allgather, is_far_first=True)),
        ("reduce_scatter_block", libraries.recexch_reduce_scatter_block),
    ):
        ours, theirs = messages(kind, choice, 16, 0, 3), Counter(formula(4, 16, 0, 3))
        assert ours != theirs
        assert {ends[:2] for ends in ours} == {ends[:2] for ends in theirs}
        n_elements = [sum(e[2] * n for e, n in found.items()) for found in (ours, theirs)]
        assert n_elements[0] == n_elements[1]


@pytest.mark.many
@pytest.mark.parametrize("fanout", [1, 2, 4, 7, 50])
def test_chains_have_the_edges_of_open_mpi(fanout: int) -> None:
    choice = AlgorithmChoice.model_validate({"name": "chain", "fanout": fanout})
    for kind in ("bcast", "reduce"):
        assert all(check("ompi", kind, choice, p, p // 3) for p in KNOMIAL_RANKS)


def test_dealt_binary_trees_have_the_edges_of_open_mpi() -> None:
    choice = AlgorithmChoice.model_validate({"name": "binary", "dealt": True})
    for kind in ("bcast", "reduce"):
        assert all(check("ompi", kind, choice, p, p // 3) for p in KNOMIAL_RANKS)


@pytest.mark.parametrize("library", ["ompi", "ucc"])
def test_what_has_another_radix_is_no_algorithm_of_a_library(library: str) -> None:
    for kind, name in (("alltoall", "bruck"), ("barrier", "dissemination"), ("allgather", "bruck")):
        two, three = (
            equivalent(
                library, kind, AlgorithmChoice.model_validate({"name": name, "radix": radix}), 9
            )
            for radix in (2, 3)
        )
        assert (two is None) == (library == "ucc" and kind == "barrier")
        assert three is None


def test_other_trees_of_the_libraries_have_other_edges() -> None:
    """The mistakes that the formulas are there to find: the test above can fail."""
    ours = messages("bcast", AlgorithmChoice(name="binomial"), 8, 0, 8)
    for children in (partial(libraries.knomial_1_children, 2), libraries.bmtree_children):
        assert Counter(libraries.tree(children)(8, 0, 8)) != ours
    assert Counter(libraries.tree(partial(libraries.kmtree_children, 2))(8, 0, 8)) == ours
    binary = messages("bcast", AlgorithmChoice(name="binary"), 8, 0, 8)
    assert Counter(libraries.tree(libraries.bintree_children)(8, 0, 8)) != binary
