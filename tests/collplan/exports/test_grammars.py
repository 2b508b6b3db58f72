"""Exports for libraries that are not at hand, as their own sources read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from collplan.exports import openmpi, ucc
from collplan.exports.openmpi import IDS, NUMBERS, write_json
from collplan.exports.selection import Export, Target, total_bytes
from collplan.exports.ucc import write_ucc
from collplan.planner.algorithms import registry
from collplan.specs import CollplanError
from collplan.specs.collectives.collective import traits_of
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.tables.sweep import Sweep
from collplan.tables.table import TuningTable
from export_tables import SEGMENTED, label_of, sweep, table
from library_grammars import Rule, chosen, read_ompi_json, read_ucc_tune

Reader = Callable[[str], list[Rule]]
OMPI_ALGORITHMS = {kind: {name for of, name in NUMBERS if of == kind} for kind in IDS}
OMPI_ALGORITHMS["allgather"].add("direct")
UCC_ALGORITHMS = {
    "allgather": {"knomial", "ring", "neighbor", "bruck", "sparbit"},
    "allreduce": {"knomial", "sra_knomial", "ring"},
    "alltoall": {"pairwise", "bruck"},
    "bcast": {"knomial", "sag_knomial"},
    "reduce": {"knomial"},
    "reduce_scatter": {"ring", "knomial"},
}
"""Of what the sources of UCC's tl/ucp name."""


def every_winner(kind: str) -> TuningTable:
    """Return a table in which each algorithm of a kind wins at a size, on two placements."""
    names = [one.name for one in registry.of(kind)]
    times = {64 * 4**i * (kind != "barrier"): {name: 3} for i, name in enumerate(names)}
    if kind == "barrier":
        times = {0: {name: 3 + i for i, name in enumerate(names)}}
    if kind in ("bcast", "reduce"):
        times[2**30] = {label_of(SEGMENTED): 3}
    return table(*(sweep(kind, times, place) for place in ((4,), (3, 3))))


def wanted(one: Sweep, label: str, library: str) -> Target | None:
    """Return the library's algorithm for a winner."""
    choice = one.choices[label]
    if not isinstance(choice.algorithms, AlgorithmChoice):
        return None
    segment = 4096 if choice.passes else 0
    if library == "ucc":
        answer = ucc.equivalent(one, choice.algorithms, segment)
    else:
        answer = openmpi.equivalent(True, True, one, choice.algorithms, segment)
    return answer if isinstance(answer, Target) else None


@pytest.mark.quick
@pytest.mark.parametrize("library", ["ompi-json", "ucc"])
@pytest.mark.parametrize("kind", [one for one in registry.kinds() if not traits_of(one).has_edges])
def test_a_reader_finds_what_won(kind: str, library: str) -> None:
    """At every measured size, on both sides of every border, and on no other number of ranks."""
    found = every_winner(kind)
    export = export_of(found, library)
    rules = rules_of(export, library)
    called = kind.removesuffix("_block") if library == "ucc" else kind
    known = UCC_ALGORITHMS if library == "ucc" else OMPI_ALGORITHMS
    assert {rule.algorithm for rule in rules} <= known.get(called, set())
    blind = {"ucc": {"reduce_scatter_block"}}.get(library, openmpi._SIZE_BLIND)
    for one in found.sweeps:
        at = {total_bytes(one, point.bytes) for point in one.points}
        if kind in blind:
            assert len({chosen(rules, called, one.ranks, size) for size in at}) <= 1
            continue
        for point in one.points:
            size = total_bytes(one, point.bytes)
            rule = chosen(rules, called, one.ranks, size)
            target = wanted(one, point.winner, library)
            if target and target.setting and not is_set(target.setting, export.use):
                target = None  # the job has another value of this variable
            expected = None if target is None else (target.name, target.segment_bytes)
            assert (rule and (rule.algorithm, rule.segment_bytes)) == expected
            assert chosen(rules, called, one.ranks + 1, size) is None
    for rule, after in pairwise(rules):
        if (rule.kind, rule.ranks) == (after.kind, after.ranks):
            assert rule.begin < rule.end <= after.begin


def export_of(found: TuningTable, library: str) -> Export:
    return write_ucc(found) if library == "ucc" else write_json(found, assume_commuting=True)


def rules_of(export: Export, library: str) -> list[Rule]:
    if library == "ucc":
        return read_ucc_tune(export.text) if export.n_rules else []
    return read_ompi_json(export.text)


def is_set(setting: tuple[str, str], use: str) -> bool:
    """Return whether a command sets a variable so; every variable is set once."""
    name, value = setting
    assert use.count(f"{name}=") + use.count(f"{name} ") == 1, use
    return f"{name}={value} " in use or f"--mca {name} {value}" in use


@pytest.mark.parametrize("library", ["ompi-json", "ucc"])
def test_a_variable_has_one_value_for_the_job(library: str) -> None:
    """Of k-nomial trees the radix that wins most often is taken; the rest is said to be left."""
    four, two = {"knomial": 3, "binomial": 4}, {"knomial": 4, "binomial": 3}
    found = table(sweep("bcast", {64: four, 4096: two, 262_144: four}))
    export = export_of(found, library)
    value = "coll_tuned_bcast_algorithm_knomial_radix 4"
    assert (value if library == "ompi-json" else "UCC_TL_UCP_BCAST_KN_RADIX=4 ") in export.use
    assert len(rules_of(export, library)) == 1
    assert any(
        "binomial: it needs " in note and note.endswith("instead knomial") for note in export.notes
    )


@pytest.mark.quick
@pytest.mark.parametrize(
    "text",
    [
        "bcast:0-inf:host:[4-4]",  # no algorithm, no score
        "bcst:0-inf:@knomial",
        "bcast:0:64:@knomial",
        "bcast:bcast:@knomial",
        "bcast:cpu:@knomial",  # so the guide says; the source has host
    ],
)
def test_the_reader_refuses_what_ucc_refuses(text: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        read_ucc_tune(text)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"reduce_scatter_block"', '"reducescatterblock"'),  # so the schema says
        ('"rule_file_version": 3', '"rule_file_version": 2'),
        ('"inf"', '"infinite"'),
        ('"alg"', '"algorithm"'),
    ],
)
def test_the_reader_refuses_what_open_mpi_refuses(right: str, wrong: str) -> None:
    times = {64: {"recursive_halving": 3}}
    good = write_json(table(sweep("reduce_scatter_block", times))).text
    assert right in good
    assert read_ompi_json(good)
    with pytest.raises(AssertionError):
        read_ompi_json(good.replace(right, wrong))


def test_a_segment_of_a_table_that_is_no_size_is_refused() -> None:
    label = label_of(SEGMENTED)
    document = every_winner("bcast").model_dump_json()
    assert '"max_bytes":' in document
    wrong = TuningTable.model_validate_json(
        re.sub('"max_bytes":[^,}]+', '"max_bytes":-1', document)
    )
    assert label in wrong.sweeps[0].choices
    with pytest.raises(CollplanError, match="segment: max_bytes: -1 is negative"):
        write_json(wrong)
