"""Tuning tables: what they choose, where winners change, and what they refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collplan.deciding.decisions import calls_before, whys_native
from collplan.planner import compile_plan
from collplan.specs import Allreduce, CollplanError, Machine, SpecError, load_spec
from collplan.tables.sweep import NATIVE, Choice, NodePlacement, Sweep, Time
from collplan.tables.table import Fingerprint, TuningTable, load_table, parse_table, save_table
from folders import TABLE_FILE

ONE_NODE = NodePlacement.of_nodes([0] * 4)
FOUR_NODES = NodePlacement.of_nodes([node for node in range(4) for _ in range(4)])


@pytest.fixture(scope="module")
def table() -> TuningTable:
    return load_table(TABLE_FILE)


@pytest.fixture
def document(table: TuningTable) -> dict[str, Any]:
    return copy.deepcopy(table.model_dump(mode="json"))


def test_a_table_survives_both_formats(table: TuningTable, tmp_path: Path) -> None:
    for name in ("table.yaml", "table.json"):
        save_table(table, tmp_path / name)
        assert load_table(tmp_path / name) == table
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.yaml"]


def test_a_table_that_cannot_be_written_leaves_the_old_one(
    table: TuningTable, tmp_path: Path
) -> None:
    save_table(table, tmp_path / "table.json")
    with pytest.raises(CollplanError, match=r"nowhere/t\.json: cannot be written"):
        save_table(table, tmp_path / "nowhere" / "t.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(CollplanError, match="cannot be written"):
        save_table(table, tmp_path / "folder.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.json", "table.json"]


def test_every_choice_of_the_example_compiles(table: TuningTable) -> None:
    n_plans = 0
    for sweep in table.sweeps:
        machine = table.machine(sweep.placement)
        fields = {"kind": sweep.collective}
        if sweep.collective != "barrier":
            fields |= {"count": 64, "datatype": sweep.datatype}
        if sweep.op_commutes is not None:
            fields |= {"op": {"name": "sum", "commutative": sweep.op_commutes}}
        for choice in sweep.choices.values():
            if not choice.native:
                request = {"collective": fields}
                collective = Choice().plan_spec(machine, request["collective"]).collective
                plan = compile_plan(choice.plan_spec(machine, collective))
                assert plan.n_ranks == sweep.ranks
                n_plans += 1
    assert n_plans == 9


def test_plans_meet_at_the_geometric_mean(table: TuningTable) -> None:
    sweep = table.sweeps[0]
    assert sweep.intervals() == [
        (0, 1024, "native"),
        (1024, 8193, "recursive_doubling"),
        (8193, None, "ring"),
    ]
    assert [sweep.winner_at(n) for n in (0, 1023, 1024, 8192, 8193, 2**40)] == [
        "native",
        "native",
        "recursive_doubling",
        "recursive_doubling",
        "ring",
        "ring",
    ]


def test_native_is_the_choice_beside_sizes_that_it_won(table: TuningTable) -> None:
    sweep = table.sweeps[0]
    winners = ("ring", "native", "ring")
    low, middle, high = (
        point.model_copy(update={"winner": winner})
        for point, winner in zip(sweep.points, winners, strict=False)
    )
    assert sweep.model_copy(update={"points": (low, middle, high)}).intervals() == [
        (0, low.bytes + 1, "ring"),
        (low.bytes + 1, high.bytes, "native"),
        (high.bytes, None, "ring"),
    ]


@given(
    sizes=st.lists(st.integers(0, 2**40), min_size=1, max_size=8, unique=True),
    winners=st.lists(st.sampled_from(["a", "b", "native"]), min_size=8, max_size=8),
)
def test_intervals_cover_all_sizes_and_keep_what_was_measured(
    sizes: list[int], winners: list[str]
) -> None:
    time = Time(median_s=1, low_s=1, high_s=1, n=1)
    points = [
        {"bytes": size, "times": dict.fromkeys(("a", "b", "native"), time), "winner": winner}
        for size, winner in zip(sorted(sizes), winners, strict=False)
    ]
    sweep = Sweep.model_validate(
        {
            "collective": "bcast",
            "ranks": 4,
            "placement": ONE_NODE,
            "points": points,
            "choices": dict.fromkeys(("a", "b", "native"), NATIVE),
            "complete": True,
        }
    )
    found = sweep.intervals()
    assert found[0][0] == 0
    assert found[-1][1] is None
    assert all(left[1] == right[0] for left, right in pairwise(found))
    assert all(left[2] != right[2] for left, right in pairwise(found))
    for point in sweep.points:
        assert sweep.winner_at(point.bytes) == point.winner


def test_the_sweep_of_the_placement_decides(table: TuningTable) -> None:
    decision = table.decide("allreduce", 2**20, 4, ONE_NODE, True)
    assert (decision.label, decision.native_s, decision.chosen_s) == ("ring", 1.5e-3, 0.9e-3)
    assert decision.why == "won at 1048576 bytes on 1 node of 4 ranks"
    far = table.decide("allreduce", 2**24, 4, ONE_NODE, True)
    assert far.why == f"{decision.why}, extrapolated: 1048576 is the largest size of the table"
    assert table.decide("allreduce", 2**20, 4, ONE_NODE, False).choice.label == "reduce_bcast"
    assert table.decide("allreduce", 2**20, 16, FOUR_NODES, True).choice.label == "full_lane"
    assert table.decide("barrier", 0, 4, ONE_NODE).choice.label == "dissemination"


def vector_sweep(counts: str | None, label: str, kind: str = "gatherv") -> dict[str, Any]:
    time = {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "n": 8}
    return {
        "collective": kind,
        "counts": counts,
        "ranks": 4,
        "placement": ONE_NODE.model_dump(),
        "points": [{"bytes": 64, "times": {label: time}, "winner": label}],
        "choices": {label: {"algorithms": label}},
        "complete": True,
    }


def test_counts_of_another_distribution_are_never_taken(document: dict[str, Any]) -> None:
    document["sweeps"] += [
        vector_sweep("zipf, seed 3", "chain"),
        vector_sweep("spike, seed 3", "linear"),
    ]
    del document["n_sweeps"]
    table = parse_table(document)
    chosen = {
        counts: table.decide("gatherv", 64, 4, ONE_NODE, counts=counts).label
        for counts in ("zipf, seed 3", "spike, seed 3", "zipf, seed 4", None)
    }
    assert list(chosen.values()) == ["chain", "linear", "native", "native"]
    why = table.decide("gatherv", 64, 4, ONE_NODE, counts="zipf, seed 4").why
    assert why == "no sweep of gatherv (zipf, seed 4) on 1 node of 4 ranks"
    document["sweeps"].append(vector_sweep("zipf, seed 3", "linear"))
    with pytest.raises(SpecError, match=r"gatherv \(zipf, seed 3\) on .* is there twice"):
        parse_table(document)


@pytest.mark.parametrize(("counts", "kind"), [(None, "gatherv"), ("zipf, seed 3", "gather")])
def test_a_sweep_says_its_counts_where_they_differ(counts: str | None, kind: str) -> None:
    with pytest.raises(ValueError, match=f"counts is .*, {kind} is of"):
        Sweep.model_validate(vector_sweep(counts, "linear", kind))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([0, 0, 0], "native"),  # another number on one node
        ([0, 0, 1, 1], "native"),
        ([n for n in range(2) for _ in range(4)], "full_lane"),  # half as many nodes, as full
        ([n for n in range(8) for _ in range(4)], "full_lane"),
        ([n for n in range(9) for _ in range(4)], "native"),  # too far
        ([n for _ in range(4) for n in range(4)], "native"),  # cyclic
        ([*(n for n in range(4) for _ in range(4)), 4], "native"),  # uneven
    ],
)
def test_sweeps_speak_for_equally_full_nodes_only(
    table: TuningTable, nodes: list[int], expected: str
) -> None:
    placement = NodePlacement.of_nodes(nodes)
    assert table.decide("allreduce", 2**20, len(nodes), placement, True).choice.label == expected


def test_an_incomplete_sweep_is_not_chosen_from(document: dict[str, Any]) -> None:
    document["sweeps"][0]["complete"] = False
    found = parse_table(document).decide("allreduce", 2**20, 4, ONE_NODE, True)
    assert found.choice == NATIVE
    assert found.why == "no sweep of allreduce on 1 node of 4 ranks"


def test_labels_are_short_and_tell_choices_apart() -> None:
    choices = {
        "native": Choice(native=True),
        "flat": Choice(),
        "ring": Choice(algorithms={"name": "ring"}),
        "knomial(radix=4)": Choice(algorithms={"name": "knomial", "radix": 4}),
        "full_lane node: linear transport=shared": Choice(
            decomposition="full_lane", algorithms={"node": "linear"}, transport="shared"
        ),
        "mesh(shape=4x2) segment(max_bytes=4096) prioritize": Choice(
            decomposition={"name": "mesh", "shape": [4, 2]},
            passes=[{"name": "segment", "max_bytes": 4096}, "prioritize"],
        ),
    }
    assert {choice.label: choice for choice in choices.values()} == choices
    for choice in choices.values():
        assert Choice.model_validate(choice.model_dump(mode="json")) == choice


def test_a_choice_is_what_a_spec_says_without_machine_and_collective() -> None:
    choice = Choice(decomposition="full_lane", algorithms={"node": "linear"})
    machine = Machine(nodes=2, ranks_per_node=2)
    spec = choice.plan_spec(machine, Allreduce(count=4))
    assert (spec.machine, spec.collective, Choice.of(spec)) == (machine, Allreduce(count=4), choice)
    with pytest.raises(SpecError, match="native"):
        NATIVE.plan_spec(machine, Allreduce(count=4))
    mesh = Choice(decomposition={"name": "mesh", "shape": [3, 2]})
    with pytest.raises(SpecError, match="3 x 2 is 6 ranks, the machine has 4"):
        mesh.plan_spec(machine, Allreduce(count=4))


def test_placements_have_one_name() -> None:
    assert NodePlacement.of_nodes("aabb") == NodePlacement.of_nodes([5, 5, 1, 1])
    assert NodePlacement.of_nodes("abab").rank_order == "cyclic"
    assert NodePlacement.of_nodes("abba") == NodePlacement(
        ranks_per_node=(2, 2), rank_order=(0, 1, 1, 0)
    )
    assert (
        NodePlacement.of_nodes(Machine(nodes=2, ranks_per_node=(1, 3)).rank_to_node).rank_order
        == "block"
    )
    with pytest.raises(ValueError, match="in order block; write that"):
        NodePlacement(ranks_per_node=(2, 2), rank_order=(0, 0, 1, 1))
    with pytest.raises(ValueError, match=r"\[2, 1\] in order \(0, 1, 0\)|cyclic; write that"):
        NodePlacement(ranks_per_node=(1, 2), rank_order=(1, 0, 1))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "version: 2 is of another collplan"),
        (("n_sweeps",), 9, "n_sweeps is 9, there are 6: the file is truncated"),
        (("fingerprint", "cpus"), "x", "fingerprint.cpus: unknown key; did you mean 'cpu'"),
        (("sweeps", 0, "points", 1, "bytes"), 8, "points go from 8 to 8 bytes"),
        (("sweeps", 0, "points", 1, "winner"), "bruck", "winner 'bruck' has no time at 1024"),
        (("sweeps", 0, "collective"), "allredcue", "'allredcue' is not a collective; valid: bcast"),
        (
            ("sweeps", 0, "collective"),
            "neighbor_alltoall",
            "neighbor_alltoall needs a graph, which tables do not have; leave it out",
        ),
        (("sweeps", 0, "op_commutes"), None, "op_commutes is None, allreduce has an operation"),
        (("sweeps", 2, "op_commutes"), True, "op_commutes is True, bcast has no operation"),
        (("sweeps", 0, "ranks"), 5, "ranks is 5, placement has 4"),
        (("sweeps", 1, "op_commutes"), True, "allreduce on 1 node of 4 ranks is there twice"),
        (
            ("sweeps", 0, "choices", "native"),
            {"native": True, "algorithms": "ring"},
            "native takes",
        ),
        (("sweeps", 0, "points", 0, "times", "native", "low_s"), 1.0, "is not between low_s 1"),
        (("sweeps", 0, "points", 0, "times", "native", "n"), 0, "0 is too small; give 1 or more"),
        (("sweeps", 0, "points"), [], "complete is true, but there are no points"),
        (("sweeps", 2, "choices"), {}, "'native' at 8 bytes is not among the choices"),
    ],
)
def test_mistakes_are_named(
    document: dict[str, Any], path: tuple[str | int, ...], value: Any, message: str
) -> None:
    inner: Any = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
    with pytest.raises(SpecError) as caught:
        parse_table(document, source="table.yaml")
    assert str(caught.value).startswith("table.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_cut_of_a_file_is_seen(table: TuningTable, tmp_path: Path) -> None:
    text = TABLE_FILE.read_text()
    lines = text.splitlines(keepends=True)
    cut = tmp_path / "cut.yaml"
    # At a line's end YAML can still be well formed; elsewhere a number could be cut short.
    for n_lines in range(0, len(lines) - 1, 5):
        cut.write_text("".join(lines[:n_lines]))
        with pytest.raises(SpecError, match=r"cut\.yaml"):
            load_table(cut)
    cut.write_text(text[: text.rindex("complete")])
    with pytest.raises(SpecError, match="complete: is missing"):
        load_table(cut)


def test_a_table_of_another_machine_is_refused(table: TuningTable) -> None:
    here = table.fingerprint
    table.check(here)
    table.check(here.replace(nodes=1, lanes=None, numpy="2.4.0"))
    # What starts the ranks, such as srun, changes no times.
    table.check(here.replace(mpiexec="slurm"))
    with pytest.raises(CollplanError) as caught:
        table.check(here.replace(mpi="Open MPI v5.0.11", collplan="9"))
    assert str(caught.value) == (
        "fingerprint.mpi: the table was tuned with MPICH 5.0.2, here is Open MPI v5.0.11 "
        "(and 1 more); tune here, or say --force to use it here"
    )
    for field in Fingerprint.model_fields:
        if field not in ("nodes", "mpiexec"):
            value = 9 if isinstance(getattr(here, field), int) else "9.9"
            with pytest.raises(CollplanError, match=rf"fingerprint\.{field}: .* 9"):
                table.check(here.replace(**{field: value}))


def test_the_default_transport_is_messages_however_it_is_written() -> None:
    written = Choice.model_validate({"transport": "messages"})
    assert written == Choice()
    assert Choice(algorithms="ring", transport="messages").label == "ring"
    assert Choice.of(written.plan_spec(Machine(), Allreduce(count=1))) == written


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file; give the path of a tuning table"):
        load_table(tmp_path / "none.yaml")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(SpecError, match=r"list\.json: the table is a list, not a mapping"):
        load_table(tmp_path / "list.json")
    (tmp_path / "spec.yaml").write_text("collective: {kind: barrier}")
    with pytest.raises(SpecError, match=r"spec\.yaml: is a spec; a tuning table has fingerprint"):
        load_table(tmp_path / "spec.yaml")
    with pytest.raises(SpecError, match=r"example\.yaml: is a tuning table; give a spec"):
        load_spec(TABLE_FILE)
    (tmp_path / "cut.json").write_text('{"version": 1, "fing')
    with pytest.raises(SpecError, match=r"cut\.json: line 1: .*; mend the JSON"):
        load_table(tmp_path / "cut.json")


def sized_sweep(placement: NodePlacement, sizes: tuple[int, int], labels: tuple[str, str]) -> Sweep:
    time = {"median_s": 1e-3, "low_s": 1e-3, "high_s": 1e-3, "n": 8}
    return Sweep.model_validate(
        {
            "collective": "bcast",
            "ranks": placement.n_ranks,
            "placement": placement,
            "points": [
                {"bytes": size, "times": {label: time}, "winner": label}
                for size, label in zip(sizes, labels, strict=True)
            ],
            "choices": {label: {"algorithms": label} for label in labels},
            "complete": True,
        }
    )


def one_node(n_ranks: int) -> NodePlacement:
    return NodePlacement.of_nodes([0] * n_ranks)


@pytest.mark.parametrize(
    "place", [one_node, lambda n: NodePlacement.of_nodes([rank // 2 for rank in range(n)])]
)
def test_sizes_at_which_winners_change_are_interpolated_between_two_numbers_of_ranks(
    table: TuningTable, place: Callable[[int], NodePlacement]
) -> None:
    few = sized_sweep(place(4), (100, 10_000), ("binomial", "chain"))
    many = sized_sweep(place(64), (10_000, 1_000_000), ("binomial", "chain"))
    both = table.replace(sweeps=(few, many), n_sweeps=None)
    # Winners change at 1,000 and at 100,000 bytes; 16 is as far from 4 as from 64.
    for ranks, change in ((8, 1000 * 100**0.25), (16, 10_000), (32, 1000 * 100**0.75)):
        labels = [both.decide("bcast", n, ranks, place(ranks)).label for n in range(1, 10**5, 97)]
        assert labels == sorted(labels)
        assert abs(labels.count("binomial") * 97 - change) < 2 * 97 + 0.001 * change
    assert both.decide("bcast", 1, 16, place(16)).why == (
        f"won at 100 bytes on {place(4)}, as {place(64)} lies beyond"
    )
    nearer = both.decide("bcast", 1, 18, place(18))
    assert nearer.why == f"won at 10000 bytes on {place(64)}, as {place(4)} lies beyond"
    assert nearer.is_known
    # Outside of both, and on other nodes, no sweep speaks.
    for ranks in (2, 200):
        decision = both.decide("bcast", 1, ranks, place(ranks))
        assert decision.choice.native
        assert not decision.is_known
    uneven = NodePlacement.of_nodes([0] * 7 + [1] * 3)
    assert not both.decide("bcast", 1, 10, uneven).is_known


def test_other_winners_are_those_of_the_nearer_number_of_ranks(table: TuningTable) -> None:
    few = sized_sweep(one_node(4), (100, 10_000), ("binomial", "chain"))
    many = sized_sweep(one_node(64), (100, 10_000), ("chain", "linear"))
    both = table.replace(sweeps=(many, few), n_sweeps=None)
    for ranks, labels in ((8, ("binomial", "chain")), (40, ("chain", "linear"))):
        found = [both.decide("bcast", n, ranks, one_node(ranks)).label for n in (100, 10_000)]
        assert tuple(found) == labels


def beside(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a table's document with its first sweep once more, beside computation."""
    twin = copy.deepcopy(document["sweeps"][0]) | {"computation_s": 0.25, "cores": 6} | changes
    return document | {"sweeps": [*document["sweeps"], twin], "n_sweeps": None}


def test_calls_that_overlap_have_sweeps_of_their_own(document: dict[str, Any]) -> None:
    first = Sweep.model_validate(document["sweeps"][0])
    twin = copy.deepcopy(document["sweeps"][0])
    for point in twin["points"]:
        point["winner"] = "native"
    table = parse_table(beside(document, points=twin["points"]))
    size = first.points[-1].bytes
    asked = (first.collective, size, first.ranks, first.placement, first.op_commutes)
    blocking, other = table.decide(*asked), table.decide(*asked, overlaps=True)
    assert (blocking.label, blocking.computation_s) == (first.points[-1].winner, None)
    assert (other.label, other.computation_s) == ("native", 0.25)
    assert other.why.endswith("beside 0.25 s of computation")
    assert table.sweeps[-1].name == f"I{first.collective} beside 0.25 s"
    # Without one, that of blocking calls decides.
    assert parse_table(document).decide(*asked, overlaps=True) == blocking
    # Where only that is there, blocking calls are native.
    alone = parse_table(beside(document) | {"sweeps": [beside(document)["sweeps"][-1]]})
    assert alone.decide(*asked).choice.native
    assert not alone.decide(*asked, overlaps=True).choice.native


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cores": None}, "computation_s is given, but not cores"),
        ({"computation_s": None}, "cores is given, but not computation_s"),
        ({"cores": 1}, "cores is 1, a node has 4 ranks"),
    ],
)
def test_sweeps_beside_computation_name_their_cores(
    document: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        parse_table(beside(document, **changes))


@pytest.mark.parametrize("level", ["runs", "placements"])
def test_a_table_of_a_level_lets_no_call_be_native_whose_operation_rounds(
    level: str, document: dict[str, Any]
) -> None:
    (sums, *_) = (one for one in document["sweeps"] if one["collective"] == "allreduce")
    document["sweeps"].append(sums | {"reproducible": level})
    del document["n_sweeps"]
    table = parse_table(document)
    assert table.level_of("allreduce", True) == level
    assert table.level_of("allreduce", False) == "ranks"
    winners = {}
    for rounds in (True, False):
        for n_bytes in (8, 2048, 1 << 20):
            placement = table.sweeps[0].placement
            decision = table.decide(
                "allreduce", n_bytes, placement.n_ranks, placement, True, rounds=rounds
            )
            winners[rounds, n_bytes] = decision.label
            assert decision.level == (level if rounds else "ranks")
            assert calls_before(decision, 7) == (0 if rounds else 7)
    assert winners[False, 8] == "native"
    assert winners[True, 8] == "flat"  # as the planner chooses
    assert winners[True, 2048] == winners[False, 2048] == "recursive_doubling"
    elsewhere = NodePlacement.of_nodes([0, 0, 0, 1, 1])
    decision = table.decide("allreduce", 8, 5, elsewhere, True)
    assert decision.needs_plan
    assert decision.why.endswith(f"results must be reproducible between {level}")
    assert "allreduce" not in whys_native(table, is_blocking=True, are_tried=False)


def test_a_sweep_of_a_level_has_an_operation(document: dict[str, Any]) -> None:
    document["sweeps"][0] |= {"collective": "bcast", "op_commutes": None, "reproducible": "runs"}
    with pytest.raises(SpecError, match="reproducible is runs, bcast has no operation; leave"):
        parse_table(document)
