"""Non-blocking collectives of C programs: where their thread runs, and what plans run them."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from collplan.deciding.calls import CollectiveCall
from collplan.deciding.options import CallOptions
from collplan.preload import helper
from collplan.preload.helper import Helper
from collplan.preload.teams import MASK_AT, N_FACTS, Planner, Team
from collplan.programs.splitting import KINDS, LONGEST_HEAD_S
from collplan.specs.request import MESSAGES
from collplan.tables.table import TuningTable, parse_table, save_table
from covering import Case, pairs
from mpi_launching import MPIS, run
from native_building import built, exec_line, run_losing_helper
from tables_everywhere import ALGORITHMS, planning_table

REDUCING = "reduce_scatter"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Return a table of plans that pass messages, for all sizes of non-blocking calls."""
    path = tmp_path / "table.json"
    save_table(planning_table(4, overlaps=True), path)
    return path


def places_of(out: str) -> dict[str, str]:
    """Return what `places.c` prints: processors by thread."""
    return dict(line.split(": ") for line in out.splitlines())


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_and_their_threads_are_bound_to_processors(mpi: str, table: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    first, last = usable[0], usable[-1]
    cores = ("--cores", f"{first},{first},{last}")
    done = run(exec_line(mpi, table, 2, *cores, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    places = {"program": str(first), "thread": str(last)}
    expected = {f"{name} of rank {rank}": on for name, on in places.items() for rank in range(2)}
    assert places_of(done.stdout) == expected


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_thread_runs_on_a_core_to_spare(mpi: str, table: Path) -> None:
    usable = sorted(os.sched_getaffinity(0))
    done = run(exec_line(mpi, table, 1, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    found = places_of(done.stdout)
    assert found["program of rank 0"] == " ".join(map(str, usable))
    assert found["thread of rank 0"] in map(str, usable)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
@pytest.mark.parametrize(
    ("cores", "why"),
    [
        ("0", "cores: 1 processors, a node has 2 ranks"),
        ("0,8000,1", "processor 8000: rank 1 cannot be kept there"),
    ],
)
def test_wrong_cores_bind_no_rank_and_one_line_says_so(
    mpi: str, cores: str, why: str, table: Path
) -> None:
    done = run(exec_line(mpi, table, 2, "--cores", cores, built(mpi, "places.c")))
    assert done.returncode == 0, done.stderr
    everywhere = " ".join(map(str, sorted(os.sched_getaffinity(0))))
    assert set(places_of(done.stdout).values()) == {everywhere}
    assert done.stderr.count(why) == 1
    assert done.stderr.count("ranks are not bound to processors") == 1


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("levels", [0, 1])
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_run_levels_of_trees_on_their_own_cores(
    mpi: str, levels: int, tmp_path: Path
) -> None:
    """The levels are those of the table, or follow from the time that the program computes."""
    usable = sorted(os.sched_getaffinity(0))
    table = tmp_path / "table.json"
    save_table(tree_table(levels), table)
    cores = ",".join(map(str, [usable[0]] * 4 + [usable[-1]]))
    line = exec_line(mpi, table, 4, "--cores", cores, built(mpi, "splitting.c"))
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "0 wrong\n"
    observed = set(re.findall(r"^(I\w+) .* levels on ranks' cores", done.stderr, re.MULTILINE))
    assert observed == (set() if levels else {"Ibcast", "Ireduce", "Iallreduce"}), done.stderr
    assert len(re.findall(r"^I\w+ +(?:binomial|reduce_bcast) ", done.stderr, re.MULTILINE)) >= 3


def tree_table(levels: int) -> TuningTable:
    """Return a table of trees, with levels that are split off, or a network that is that slow.

    The longest computation is short beside a transfer of the slow network.
    """
    document = planning_table(4, tuple(KINDS), overlaps=True).model_dump()
    for sweep in document["sweeps"]:
        sweep["points"] = sweep["points"][:1]
        choice = sweep["choices"][sweep["points"][0]["winner"]]
        if levels and sweep["computation_s"] is not None:
            choice["passes"] = [{"name": "split_tree", "options": {"levels": levels}}]
            sweep |= {"computation_s": 0.02, "cores": sweep["ranks"] + 1}
    return parse_table(document | {"network": {"numa": {"L_ns": 1e8}}})


def test_the_helper_says_how_trees_are_split() -> None:
    """Only plans that a computation may split are observed, and a long one splits nothing off."""
    facts = np.ones((4, N_FACTS), np.uint64)
    team, call = Team(facts), CollectiveCall("bcast", 800)
    planner = Planner(tree_table(0), CallOptions())
    head = struct.Struct("<4q")
    assert head.unpack_from(planner.started_program(team, 0, call)) == (1, 0, 0, 0)
    planner.n_spare = 1
    whole = planner.started_program(team, 0, call)
    assert head.unpack_from(whole) == (1, 0, 0, 1)
    assert whole[head.size :].startswith(b"\0")
    split = planner.started_program(team, 0, call, 1e-3)
    assert head.unpack_from(split) == (1, round(1e9 * LONGEST_HEAD_S), 1_000_000, 0)
    why = split[head.size :].partition(b"\0")[0]
    assert why.endswith(b", 1 levels on ranks' cores beside computation")
    assert planner.started_program(team, 0, call, 1e9) == b""
    assert planner.started_program(team, 0, call, -1.0) == b""
    fixed = Planner(tree_table(1), CallOptions())
    fixed.n_spare = 1
    found = head.unpack_from(fixed.started_program(team, 0, call))
    assert found == (1, round(1e9 * LONGEST_HEAD_S), 20_000_000, 0)


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("overlaps", [True, False])
@pytest.mark.parametrize("mpi", MPIS)
def test_the_next_blocking_call_makes_plans_through_shared_memory(
    mpi: str, overlaps: bool, tmp_path: Path
) -> None:
    table = tmp_path / "table.json"
    save_table(planning_table(4, transport="shared", overlaps=overlaps), table)
    line = exec_line(mpi, table, 3, built(mpi, "sharing.c"))
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "0 wrong\n"
    # Sweeps beside computation have plans of messages only.
    rows = re.findall(r"^Iallreduce +ring .* won at (.*)$", done.stderr, re.MULTILINE)
    assert {"computation" in row for row in rows} == ({True, False} if overlaps else {False})
    why = "needs shared memory, which the next blocking call allocates"
    assert (why in done.stderr) is not overlaps


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_without_the_helper_no_memory_is_made(mpi: str, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    save_table(planning_table(3, transport="shared", overlaps=True), table)
    line = exec_line(mpi, table, 3, built(mpi, "sharing.c"), "wait")
    status, out, err = run_losing_helper(line, tmp_path, COLLPLAN_NATIVE_CALLS="2")
    assert (status, out) == (0, "0 wrong\n"), err
    assert err.count("calls without a plan are native from now on") == 1


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_counts_that_all_ranks_know_have_plans(mpi: str, table: Path, tmp_path: Path) -> None:
    """Requests of six calls of each case end in another order on each rank; beside MPI's own."""
    dimensions = {
        "comm": ("world", "half", "dup"),
        "kind": ("allgatherv", "reduce_scatter"),
        "type": ("int", "double", "column", "2int"),
        "count": (1, 5, 67),
        "in_place": (0, 1),
        "is_apart": (0, 1),
    }
    cases = []
    for case in pairs(dimensions, lambda case: case.get("kind") != REDUCING or is_reduced(case)):
        op = {"2int": "minloc"}.get(case["type"], "sum") if case["kind"] == REDUCING else "-"
        first = [case[name] for name in ("comm", "kind", "type")]
        cases.append([*first, op, case["count"], case["in_place"], 0, case["is_apart"], "started"])
    # A blocking call of a communicator makes what plans need.
    barriers = [[comm, "barrier", "int", "-", 0, 0, 0, 0, "blocking"] for comm in ("half", "dup")]
    cases += [*barriers, *cases]
    path = tmp_path / "cases"
    path.write_text("".join(" ".join(map(str, case)) + "\n" for case in cases))
    line = exec_line(mpi, table, 3, built(mpi, "conformance.c"), path, 6)
    done = run(line, COLLPLAN_LOG="1", COLLPLAN_NATIVE_CALLS="2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(cases)} cases, 0 wrong" in done.stdout
    rows = re.findall(r"^(I\w+) +(\w+) +(\d) .* \w+ won at", done.stderr, re.MULTILINE)
    expected = {
        *(("Iallgatherv", name) for name in ("bruck", "ring")),
        ("Ireduce_scatter", "pairwise"),
    }
    assert expected <= {(kind, ran) for kind, ran, ranks in rows if ranks == "3"}, done.stderr
    assert {kind for kind, _, ranks in rows if ranks == "2"} >= {"Iallgatherv", "Ireduce_scatter"}


def is_reduced(case: Case) -> bool:
    """Return whether a case of a reduction has elements to reduce, in blocks without gaps."""
    return case.get("type") != "column" and not case.get("is_apart")


def test_the_helper_says_which_calls_may_share_memory() -> None:
    """A plan of messages may run meanwhile, if there is one; vector calls never share memory."""
    facts = np.ones((3, N_FACTS), np.uint64)
    team, call = Team(facts), CollectiveCall("bcast", 1 << 20)
    both = Planner(planning_table(3, transport="shared", overlaps=True), CallOptions())
    alone = Planner(planning_table(3, transport="shared"), CallOptions())
    messages = Planner(planning_table(3, overlaps=True), CallOptions())
    found = [one.decide(team, call, is_blocking=False) for one in (both, alone, messages)]
    ways = [(one.decision.choice.transport == MESSAGES, one.shares) for one in found]
    assert ways == [(True, True), (False, True), (True, False)]
    assert len({one.digest for one in found}) == 3
    assert not alone.decide(team, call).shares
    small = CollectiveCall("bcast", 1000)
    assert alone.decide(team, small, is_blocking=False).decision.choice.native
    assert both.decide(team, small, is_blocking=False).shares
    shared = alone.shared_program(team, 0, call)
    assert struct.unpack_from("<2d", shared) == (4e-3, 1e-3)
    assert shared[16:].startswith(b"scatter_allgather\0won at 64 bytes")


def test_the_helper_knows_the_processors_of_all_ranks(
    monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    monkeypatch.setenv(helper.TABLE, str(table))
    monkeypatch.setenv(helper.FORCE, "1")
    sizes = helper.HANDLE_BYTES, helper.STATUS_BYTES
    hello = struct.pack("<8q", os.getpid(), 0, 3, 2, 0, *sizes, 2**20) + b"MPICH Version: 4.2"
    facts = np.zeros((3, N_FACTS), np.uint64)
    facts[:, 0], facts[:, 1], facts[:, MASK_AT] = (7, 7, 8), (1, 1, 2), 0b111

    def places() -> list[tuple[int, ...]]:
        answering = Helper()
        status, text = answering.answer(helper.HELLO, hello)
        assert status == 0, text
        bits = struct.unpack_from("<4qQQ", text)[-1]
        started = {kind for number, kind in enumerate(helper.KINDS) if bits >> number & 1}
        assert started == {*ALGORITHMS, "allgatherv", "reduce_scatter"}
        found = []
        for rank in range(3):
            message = struct.pack("<qq", rank, 3) + facts.tobytes()
            status, text = answering.answer(helper.PLACE, message)
            assert status == 0, text
            found.append(struct.unpack("<3q", text))
        return found

    assert places() == [(-1, 2, 2), (-1, 2, 2), (-1, 1, 1)]
    monkeypatch.setenv(helper.CORES, "4,5,7")
    assert places() == [(4, 7, 7), (5, 7, 7), (4, 5, 5)]
