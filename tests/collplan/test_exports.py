"""Tuning tables as libraries read them: what they say, and that MPICH and Open MPI follow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collplan.exports.mpich import built_in_selection, write_mpich
from collplan.exports.openmpi import IDS, NUMBERS, write_classic, write_json
from collplan.exports.ucc import write_ucc
from collplan.specs.errors import CollplanError
from collplan.tables.table import TuningTable, load_table, save_table
from command_line import CommandLine
from export_tables import (
    MPICH,
    OPEN_MPI,
    SEGMENTED,
    label_of,
    sweep,
    table,
)
from folders import PROGRAMS, TABLE_FILE
from mpi_launching import mpi_python, mpiexec_of, run

TIME = ("median_s", "low_s", "high_s", "n")


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


# Meets at the geometric mean of 100 and 10,000: 1,000 bytes belong to the first.
CROSSING = {100: {"ring": 9, "bruck": 4}, 10_000: {"ring": 50, "bruck": 70}}


def test_classic_rules_count_all_blocks_and_hold_for_one_number_of_ranks() -> None:
    export = write_classic(table(sweep("allgather", CROSSING)))
    lines = [line.partition(" #")[0] for line in export.text.splitlines()]
    # A version before the number of collectives would let old releases ignore the file.
    assert lines[:3] == ["1", "0", "3"]
    assert lines[3:6] == ["0", "1", "0 0 0 0"]  # fewer ranks: Open MPI's own choice
    assert lines[6:10] == ["4", "2", "0 2 2 0", "4004 4 0 0"]  # Bruck's radix is 2
    assert lines[10:] == ["5", "1", "0 0 0 0"]
    assert export.notes == []


def test_neighboring_numbers_of_ranks_have_no_rule_between() -> None:
    export = write_classic(table(*(sweep("allgather", CROSSING, (ranks,)) for ranks in (5, 4))))
    lines = [line for line in export.text.splitlines() if line.endswith("# ranks")]
    assert lines == ["0 # ranks", "4 # ranks", "5 # ranks", "6 # ranks"]


def test_json_rules_say_the_same_in_names() -> None:
    export = write_json(table(sweep("allgather", CROSSING)))
    assert json.loads(export.text) == {
        "rule_file_version": 3,
        "module": "tuned",
        "collectives": {
            "allgather": [
                {
                    "comm_size_min": 4,
                    "comm_size_max": 4,
                    "rules": [
                        {"msg_size_min": 0, "msg_size_max": 4003, "alg": "bruck", "faninout": 2},
                        {"msg_size_min": 4004, "msg_size_max": "inf", "alg": "ring"},
                    ],
                }
            ]
        },
    }


def test_ucc_names_sizes_and_ranks() -> None:
    export = write_ucc(table(sweep("allgather", CROSSING)))
    assert export.text == (
        "allgather:0-4004:host:[4-4]:@bruck#allgather:4004-inf:host:[4-4]:@ring\n"
    )


def test_the_best_that_a_library_has_stands_in_for_what_it_has_not() -> None:
    times = {64: {"full_lane": 3, "binomial": 4, "linear": 5, "native": 9}}
    export = write_classic(table(sweep("bcast", times)))
    assert export.text.splitlines()[-4:-3] == ["0 7 0 0"]
    assert export.use.endswith(" --mca coll_tuned_bcast_algorithm_knomial_radix 2")
    assert export.notes == [
        "bcast on 1 node of 4 ranks: full_lane: Open MPI has no equivalent; instead knomial"
    ]


@pytest.mark.parametrize("native", [4.0, 4.05, 3.0])
def test_a_library_keeps_its_own_choice_unless_measured_to_be_slower(native: float) -> None:
    times = {64: {"full_lane": 2, "binomial": 4, "native": native}}
    export = write_classic(table(sweep("bcast", times)))
    assert export.n_rules == 0
    assert "instead Open MPI's own choice" in export.notes[0]


def test_segments_go_along_where_the_library_cuts_messages() -> None:
    chain = label_of(SEGMENTED)
    whole = table(sweep("bcast", {64: {chain: 3, "binomial": 4}}))
    assert "0 3 0 4096" in write_classic(whole).text
    tree = write_mpich(whole, SELECTION).text
    options = json.loads(tree)["collective=bcast"]["comm_type=intra"]["comm_size<=4"]
    assert {"tree_type=kary", "k=1", "chunk_size=4096"} < set(*options.values())
    assert "@knomial" in write_ucc(whole).text


def test_chains_go_along_with_their_number() -> None:
    wide = {"algorithms": {"name": "chain", "fanout": 4}}
    label = label_of(wide)
    found = table(sweep("bcast", {64: {label: 3}}, choices={label: wide}))
    assert "0 2 4 0" in write_classic(found).text
    (entry,) = json.loads(write_json(found).text)["collectives"]["bcast"]
    assert entry["rules"] == [
        {"msg_size_min": 0, "msg_size_max": "inf", "alg": "chain", "faninout": 4}
    ]


def test_operations_that_do_not_commute_are_safe_unless_assumed_away() -> None:
    found = table(sweep("allreduce", {64: {"ring": 3, "recursive_doubling": 4}}))
    safe, daring = write_classic(found), write_classic(found, assume_commuting=True)
    assert "0 3 0 0" in safe.text
    assert "with wrong results (--assume-commuting takes it)" in safe.notes[0]
    assert "0 4 0 0" in daring.text
    assert daring.notes == []


def test_one_rule_for_all_sizes_where_ranks_would_see_different_ones() -> None:
    times = {
        64: {"binomial": 2, "linear": 3, "native": 9},
        4096: {"binomial": 9, "linear": 3, "native": 9},
    }
    export = write_classic(table(sweep("scatter", times)))
    assert "0 3 0 0" in export.text
    assert export.n_rules == 1
    assert export.notes == [
        "scatter on 1 node of 4 ranks: binomial: Open MPI cannot choose by size; instead linear_nb"
    ]


def test_what_a_library_cannot_tell_apart_is_left_out_but_one() -> None:
    times = {64: {"binomial": 3}}
    places = ((4,), (2, 2), (3, 1))
    export = write_classic(table(*(sweep("bcast", times, place) for place in places)))
    assert len(export.notes) == 2
    assert all("cannot tell it from 2 x 2 ranks block, left out" in note for note in export.notes)
    assert "--mca coll ^han" in export.use
    alone = write_classic(table(sweep("bcast", times)))
    assert "^han" not in alone.use


def test_counts_that_differ_are_left_out() -> None:
    """A library's rule would hold for any counts, and these were measured for some."""
    sweeps = sweep("gatherv", {64: {"binomial": 3}}, counts="zipf, seed 3")
    export = write_classic(table(sweeps))
    assert export.n_rules == 0
    words = (
        "gatherv (zipf, seed 3) on 1 node of 4 ranks: Open MPI cannot tell counts apart, left out"
    )
    assert words in export.notes


def test_sweeps_that_are_not_complete_are_left_out() -> None:
    export = write_classic(table(sweep("bcast", {64: {"binomial": 3}}, complete=False)))
    assert export.n_rules == 0
    assert "not complete" in export.notes[0]


def test_native_times_of_another_mpi_are_said_to_be_such() -> None:
    export = write_classic(table(sweep("bcast", {64: {"binomial": 3}}), mpi=MPICH))
    assert export.notes[0].startswith("native was MPICH 5.0.2, not Open MPI")


SELECTION: dict[str, Any] = {
    "collective=bcast": {
        "comm_type=intra": {
            "comm_size<4": {"algorithm=few": {}},
            "comm_size=pow2": {"avg_msg_size<=8": {"algorithm=short": {}}, "avg_msg_size=any": {}},
            "comm_size=any": {"algorithm=odd": {}},
        },
        "comm_type=inter": {"algorithm=remote": {}},
    },
    "collective=allreduce": {"comm_type=intra": {"algorithm=default": {}}},
    "collective=exscan": {"algorithm=only": {}},
    "collective=scan": {"comm_type=intra": {"algorithm=default": {}}},
}
"""In the form of MPICH's own."""


def test_mpich_keeps_its_own_tree_around_the_table() -> None:
    times = {64: {"full_lane": 1, "native": 2}, 4096: {"binomial": 3, "native": 9}}
    export = write_mpich(table(sweep("bcast", times), mpi=MPICH), SELECTION)
    tree = json.loads(export.text)
    own = SELECTION["collective=bcast"]["comm_type=intra"]
    assert tree["collective=bcast"]["comm_type=inter"] == {"algorithm=remote": {}}
    assert tree["collective=scan"] == SELECTION["collective=scan"]
    assert tree["collective=bcast"]["comm_type=intra"] == {
        "comm_size<=3": own,
        "comm_size<=4": {
            "avg_msg_size<=4095": own["comm_size=pow2"],  # of which 4 ranks are
            "avg_msg_size=any": {"algorithm=MPIR_Bcast_intra_binomial": {}},
        },
        "comm_size=any": own,
    }


def test_mpich_gets_rules_by_whether_operations_commute_and_are_predefined() -> None:
    times = {64: {"rabenseifner": 3}}
    found = table(sweep("allreduce", times), mpi=MPICH)
    tree = json.loads(write_mpich(found, SELECTION).text)
    own = {"algorithm=default": {}}
    leaf = {"algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather": {}}
    assert tree["collective=allreduce"]["comm_type=intra"]["comm_size<=4"] == {
        "is_commutative=yes": {
            "is_op_built_in=yes": {"count<pow2": own, "count=any": leaf},
            "is_op_built_in=no": own,
        },
        "is_commutative=no": own,
    }


def test_mpich_sizes_beyond_an_int_end_the_rules() -> None:
    times = {2**30: {"ring": 3, "bruck": 4}, 2**34: {"ring": 9, "bruck": 4}}
    defaults = SELECTION | {"collective=allgather": {"comm_type=intra": {"algorithm=own": {}}}}
    tree = json.loads(write_mpich(table(sweep("allgather", times), mpi=MPICH), defaults).text)
    assert tree["collective=allgather"]["comm_type=intra"]["comm_size<=4"] == {
        "total_msg_size=any": {"algorithm=MPIR_Allgather_intra_ring": {}}
    }


def test_the_command_writes_and_says_what_is_left_out(collplan: CommandLine) -> None:
    path, output = collplan.folder / "table.yaml", collplan.folder / "rules"
    save_table(table(sweep("bcast", {64: {"full_lane": 3, "binomial": 4}})), path)
    outcome = collplan("export", path, "--to", "ompi", "-o", output)
    assert outcome.status == 0
    assert outcome.err == (
        "collplan: bcast on 1 node of 4 ranks: full_lane: Open MPI has no equivalent; "
        "instead knomial\n"
    )
    assert f"coll_tuned_dynamic_rules_filename {output}" in outcome.out
    found = collplan("export", path, "--to", "ucc", "-o", output, "--json").json()
    assert found["n_rules"] == 1
    assert output.read_text() == "bcast:0-inf:host:[4-4]:@knomial\n"


def test_the_command_says_where_nothing_is_to_be_gained(collplan: CommandLine) -> None:
    path = collplan.folder / "table.yaml"
    save_table(table(sweep("bcast", {64: {"native": 3, "binomial": 4}})), path)
    outcome = collplan("export", path, "--to", "ompi", "-o", collplan.folder / "rules")
    assert outcome.status == 0
    assert "no rules: of what the library has, nothing was measured" in outcome.out
    assert outcome.err == ""


def test_what_is_no_table_and_no_selection_is_refused(collplan: CommandLine) -> None:
    spec = collplan.write_spec()
    assert "fingerprint" in collplan("export", spec, "--to", "ompi", "-o", "x").error()
    path = collplan.folder / "table.json"
    save_table(table(sweep("bcast", {64: {"binomial": 3}})), path)
    refused = collplan("export", path, "--to", "mpich", "-o", "x", "--defaults", spec)
    assert "coll_selection.json" in refused.error()
    with pytest.raises(CollplanError, match="no such file; give the path of a library"):
        built_in_selection(collplan.folder / "nothing.so")


def every_algorithm(mpi: str) -> TuningTable:
    """Return a table in which each algorithm a library may have wins at a size of its own.

    Allreduce takes the ring where vectors are short, and recursive doubling where they
    are long: the opposite of what MPI libraries do.
    """
    algorithms = {
        "allgather": ("bruck", "recursive_doubling", "ring", "neighbor_exchange"),
        "alltoall": ("linear", "pairwise", "bruck"),
        "barrier": ("dissemination",),
        "bcast": (
            "linear", "chain", "binary", "binomial", "scatter_allgather", "knomial",
            label_of(SEGMENTED),
        ),
        "exscan": ("recursive_doubling",),
        "gather": ("binomial",),
        "reduce": ("binomial", "rabenseifner", "linear", "chain", label_of(SEGMENTED)),
        "reduce_scatter_block": ("recursive_halving", "pairwise"),
        "scan": ("recursive_doubling",),
        "scatter": ("binomial",),
    }  # fmt: skip
    others = [
        sweep(kind, {64 * 4**i * (kind != "barrier"): {name: 3} for i, name in enumerate(names)})
        for kind, names in algorithms.items()
    ]
    short_ring = {1024: {"ring": 3}, 262_144: {"recursive_doubling": 3}}
    return table(sweep("allreduce", short_ring), *others, mpi=mpi)


def run_with(mpi: str, *options: str, **variables: str) -> list[dict[str, list[int]]]:
    python = mpi_python(mpi)
    command = [str(mpiexec_of(python)), "-n", "4", *options, str(python), "-m", "mpi4py"]
    sizes = [str(64 * 4**i) for i in range(7)]
    done = run([*command, str(PROGRAMS / "exported_rules.py"), "0", *sizes], **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


def assert_followed(found: list[dict[str, list[int]]]) -> None:
    """Fail unless a ring ran short allreduces, recursive doubling long ones, nothing else."""
    for rank in found:
        assert rank["small"] == [256] * 3  # a quarter of the vector, combined three times
        assert rank["large"] == [262_144] * 2  # all of it, twice
    # Three ranks are not in the table.
    assert {n_bytes for rank in found for n_bytes in rank["less"]} == {1024}


@pytest.mark.system
def test_mpich_follows_an_exported_table(collplan: CommandLine) -> None:
    mpi_python("mpich")  # whose library has MPICH's own rules
    path, output = collplan.folder / "table.json", collplan.folder / "mpich.json"
    save_table(every_algorithm(MPICH), path)
    assert collplan("export", path, "--to", "mpich", "-o", output).status == 0
    variables = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": str(output)}
    assert_followed(run_with("mpich", **variables))


@pytest.mark.system
@pytest.mark.parametrize("mpi", ["openmpi", "debian-openmpi"])
def test_open_mpi_follows_an_exported_table(mpi: str, tmp_path: Path) -> None:
    export = write_classic(every_algorithm(OPEN_MPI), assume_commuting=True)
    path = tmp_path / "rules"
    path.write_text(export.text)
    options = export.use.format(path=path).split()[1:]
    assert_followed(run_with(mpi, *options))


def test_open_mpi_has_the_algorithms_by_these_numbers() -> None:
    python = mpi_python("openmpi")
    done = run([str(python.parent / "ompi_info"), "--param", "coll", "tuned", "--level", "9"])
    text = done.stdout.replace("\n", " ")
    for kind in IDS:
        valid = text.partition(f'"coll_tuned_{kind}_algorithm"')[2].partition("Valid values:")[2]
        known = valid.partition("MCA coll")[0].replace(" ", "").split(",")
        for (collective, name), number in NUMBERS.items():
            assert collective != kind or f"{number}|{name}" in known, f"{kind}: {known}"


SMALL_SELECTION = {
    "collective=scan": {"algorithm=MPIR_Scan_intra_smp": {}},
    "collective=allreduce": {"comm_size<8": {"algorithm=MPIR_Bcast_intra_tree": {}}},
}


@pytest.mark.parametrize(
    "changed",
    [
        {"collective=allreduce": 5},
        {"collective=allreduce": {"comm_type=intra": "x", "comm_size<8": {}}},
        {"collective=allreduce": {"comm_size<x": {}}},
        {"collective=allreduce": {f"comm_size<{'9' * 5000}": {}}},
        {"collective=allreduce": json.loads('{"a": ' * 500 + "{}" + "}" * 500)},
    ],
    ids=["number", "text", "bound", "digits", "depth"],
)
def test_selections_of_another_form_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    path.write_text(json.dumps(SMALL_SELECTION))
    assert built_in_selection(path) == SMALL_SELECTION
    path.write_text(json.dumps(SMALL_SELECTION | changed | {"algorithm=MPIR_Bcast": {}}))
    with pytest.raises(CollplanError, match="holds no selection of collectives"):
        built_in_selection(path)


def test_a_selection_of_a_later_mpich_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    leaf = {"algorithm=MPIR_Bcast_intra_binomial": {}}
    path.write_text(json.dumps({"collective=bcast-intra": leaf, "collective=scan-intra": leaf}))
    with pytest.raises(CollplanError, match=r"of an MPICH later than 5.0, .* 'bcast-intra'"):
        built_in_selection(path)


def test_a_selection_without_a_collective_of_the_table_is_refused() -> None:
    table = load_table(TABLE_FILE)
    with pytest.raises(CollplanError, match="has no rules for collective=allreduce"):
        write_mpich(table, {"collective=scan": {}})
