"""Trials of plans in programs in C: answers of the helper, and calls on untuned ranks."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
from pathlib import Path

import pytest

from collplan.deciding.predictions import MOST
from collplan.deciding.statistics import FASTER
from collplan.deciding.trials import FIRST_COST_S, NATIVE, TRIED, TURNS
from collplan.preload.trial_answers import (
    MOST_CONTESTANTS,
    Paying,
    answer_paying,
    answer_turn,
)
from collplan.specs.errors import CollplanError
from collplan.tables.sweep import Choice
from collplan.tables.table import parse_table, save_table
from ending_jobs import marked_processes, wait_until
from folders import ROOT
from mpi_launching import MPIS, mpi_environment, mpi_python, run
from native_building import built, run_losing_helper
from tables_everywhere import planning_table

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

SHIM = ROOT / "collplan" / "preload" / "shim"
TURN = f"<2q{MOST + 1}qq2d"
MS = 1_000_000
KINDS = ("allreduce", "bcast", "allgather", "reduce", "barrier")
"""Collectives that the program calls in turns."""
CALLS = 1 + (MOST + 1) * TURNS + 5
"""Calls of each of them: a native one, those of a trial, and some more."""
AT_ONCE = "1e12"
"""Share of time with which a trial begins as soon as it may."""
LATE = """
import importlib.abc, importlib.util, sys

class Late(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != {module!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            exec({change!r}, vars(module))

        spec.loader.exec_module = exec_module
        return spec

if any(word.endswith("preload/__main__.py") for word in sys.orig_argv):
    sys.meta_path.insert(0, Late())
"""
"""Script that changes a module of the helper process after its import."""
TIMES = """
note = Trial._note
Trial._note = lambda self, one, spent_s: note(self, one, {plan_s} if one else 1.0)
"""
"""Change of trials, so that the outcome does not depend on the machine."""
FAILING = """
program, seen = Planner.program, dict()

def fail(self, team, rank, call, *told, choice="", **options):
    if rank == 1 and choice:
        seen.setdefault(call, []).append(choice)
        if len(seen[call]) >= {first}:
            raise MemoryError("no room at all")
    return program(self, team, rank, call, *told, choice=choice, **options)

Planner.program = fail
"""
APART = """
facts_of = Helper._facts

def apart(self, hello):
    facts = facts_of(self, hello)
    facts[0] += hello.rank == 2
    return facts

Helper._facts = apart
"""
"""Change of the helper, so that the last rank of the communicator is on a node of its own."""
FEW_PLANS = "MAX_PLANS = 3"


def turn_of(message: bytes, share: float) -> tuple[list[int], int, int, tuple[float, float], str]:
    """Return the turn, the winner, the time beyond native calls in ms, the medians, the reason."""
    answer = answer_turn(message, share)
    n, winner, *order, excess_ns, native_s, chosen_s = struct.unpack_from(TURN, answer)
    why = answer[struct.calcsize(TURN) :].decode()
    assert why.endswith("\0")
    return order[:n], winner, excess_ns // MS, (native_s, chosen_s), why[:-1]


def turn_message(labels: list[str], native_ms: int, times_ms: list[int]) -> bytes:
    words = len(labels), native_ms * MS, len(times_ms), *(one * MS for one in times_ms)
    return struct.pack(f"<{len(words)}q", *words) + "".join(f"{one}\0" for one in labels).encode()


def test_ranks_wait_until_a_trial_pays() -> None:
    first_ns = round(FIRST_COST_S * 1e9)
    for cost_ns, expected_ns in ((0, first_ns), (4 * first_ns, 4 * first_ns)):
        for native_ns, more in ((9 * expected_ns, 8), (11 * expected_ns, 0)):
            paying = Paying.read(struct.pack("<3q", 8, native_ns, cost_ns))
            assert paying.calls_to_wait(0.1) == more
            assert paying.pays_ns(0.1) == pytest.approx(10 * expected_ns)
            assert paying.pays_ns(1e-300) == 2**62


def test_a_rank_is_told_to_wait_or_what_to_try() -> None:
    choices = [Choice(algorithms="ring"), Choice(algorithms="ring", transport="shared")]
    for native_ns, is_paid in ((1, False), (10**10, True)):
        paying = Paying(8, native_ns, 10**9)
        answer = answer_paying(paying, 0.1, lambda: choices)
        n_more, pays_ns, n_plans = struct.unpack_from("<3q", answer)
        assert (n_more, n_plans) == ((0, 2) if is_paid else (8, 0))
        assert pays_ns == pytest.approx(10**10)
        texts = answer[struct.calcsize("<3q") :].decode().split("\0")
        assert texts[::2] == ([choices[0].label, choices[1].label, ""] if is_paid else [""])
        assert [Choice.model_validate_json(one) for one in texts[1::2]] == choices[:n_plans]


def test_all_turns_of_a_trial_lead_to_its_winner() -> None:
    labels, times, call_ms = ["ring", "chain"], list[int](), (4, 3, 2)
    for _ in range(TURNS):
        turn, winner, *_ = turn_of(turn_message(labels, 1000, times), 0.1)
        assert sorted(turn) == [0, 1, 2]
        assert winner == NATIVE
        times += [call_ms[one] for one in turn]
    turn, winner, excess_ms, medians, why = turn_of(turn_message(labels, 1000, times), 0.1)
    assert (turn, winner, excess_ms, why) == ([], 2, 0, FASTER)
    assert medians == pytest.approx((4e-3, 2e-3))


def test_slow_plans_end_a_trial_when_they_have_cost_the_share() -> None:
    """A tenth of 100 ms is less than what the plan's second call takes longer."""
    labels = ["ring, chain"]
    times = [1, 21, 21, 1]
    turn, winner, excess_ms, medians, why = turn_of(turn_message(labels, 100, times), 0.1)
    assert (turn, winner, excess_ms) == ([], NATIVE, 40)
    assert medians == pytest.approx((1e-3, 1e-3))
    assert why == "tried here, not faster: ring, chain"
    assert turn_of(turn_message(labels, 300, times), 0.1)[0] == [0, 1]


def test_times_of_a_part_of_a_turn_are_refused() -> None:
    with pytest.raises(CollplanError, match="3 calls of a trial are not those of its turns"):
        answer_turn(turn_message(["ring"], 100, [1, 1, 1]), 0.1)


def test_the_library_has_room_for_a_trial() -> None:
    assert MOST_CONTESTANTS == MOST + 1
    text = (SHIM / "trials.c").read_text()
    assert re.search(rf"#define MOST_PLANS {MOST}\n", text)
    assert re.search(rf"#define MOST_CALLS {(MOST + 1) * TURNS} ", text)
    assert f'#define CP_TRIED "{TRIED}"' in (SHIM / "shim.h").read_text()


def line_of(
    mpi: str,
    folder: Path,
    *words: object,
    trials: str = AT_ONCE,
    program: str = "tried.c",
    n_ranks: int = 4,
) -> list[str]:
    """Return the command line of a program; the table is of four ranks."""
    document = planning_table(4).model_dump()
    document["sweeps"] = [one for one in document["sweeps"] if one["ranks"] == 4]
    table = folder / "table.json"
    save_table(parse_table(document), table)
    line = [str(mpi_python(mpi)), "-m", "collplan", "exec", "--table", str(table), "--force"]
    if trials:
        line += ["--trials", trials]
    return [*line, "-n", str(n_ranks), str(built(mpi, program)), *map(str, words)]


def environment_of(folder: Path, module: str = "", change: str = "", **more: str) -> dict[str, str]:
    """Return an environment in which a module of the helper is changed."""
    (folder / "sitecustomize.py").write_text(LATE.format(module=module, change=change))
    path = f"{mpi_environment()['PYTHONPATH']}{os.pathsep}{folder}"
    return {"PYTHONPATH": path, "COLLPLAN_NATIVE_CALLS": "0", "COLLPLAN_LOG": "1", **more}


def rows_of(log: Path) -> list[tuple[str, str, int, str]]:
    """Return the kind, what ran, the number of calls and the reason of all rows of a log."""
    rows = json.loads(log.read_text())["calls"]
    return [
        (one["call"].removeprefix("MPI_").lower(), one["ran"], one["calls"], one["why"])
        for one in rows
    ]


@pytest.mark.system
@pytest.mark.each_mpi
@pytest.mark.parametrize("plan_s", [0.5, 2.0])
@pytest.mark.parametrize("mpi", MPIS)
def test_trials_on_some_of_the_ranks_keep_what_was_faster(
    mpi: str, plan_s: float, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    change = TIMES.format(plan_s=plan_s)
    env = environment_of(tmp_path, "collplan.deciding.trials", change, COLLPLAN_LOG=str(log))
    done = run(line_of(mpi, tmp_path, CALLS), **env)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr
    rows = rows_of(log)
    for kind in KINDS:
        own = [row for row in rows if row[0] == kind]
        waiting = [row for row in own if row[3].endswith("a trial of plans has not paid so far")]
        assert [row[1:3] for row in waiting] == [("native", 1)], own
        tried = [row for row in own if row[3] == TRIED]
        assert all(row[2] == TURNS for row in tried), own
        plans = {row[1] for row in tried if row[1] != "native"}
        assert len(tried) == len(plans) + 1
        assert 1 <= len(plans) <= MOST
        (rest,) = (row for row in own if row not in waiting and row not in tried)
        assert rest[2] == CALLS - 1 - TURNS * len(tried)
        if plan_s < 1:
            assert rest[1] in plans
            assert rest[3] == FASTER
        else:
            assert rest[1] == "native"
            assert rest[3].startswith("tried here, not faster: ")
            assert all(label in rest[3] for label in plans)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_program_goes_on_natively_if_its_helper_is_killed_in_a_trial(
    mpi: str, tmp_path: Path
) -> None:
    line = line_of(mpi, tmp_path, CALLS, "wait")
    status, out, err = run_losing_helper(line, tmp_path, **environment_of(tmp_path))
    assert (status, out) == (0, "0 wrong\n"), err
    said, counted = err.splitlines()
    assert said.endswith(
        "the helper process has ended; calls without a plan are native from now on"
    )
    found = re.search(r"(\d+) collectives by plans, (\d+) native; further statistics", counted)
    assert found is not None, err
    # The trials have begun, and end in the turn after the helper.
    assert len(KINDS) <= int(found[1]) < CALLS // 2 * len(KINDS)
    assert int(found[1]) + int(found[2]) == CALLS * len(KINDS)
    assert wait_until(lambda: not marked_processes(str(tmp_path)), 60)


@pytest.mark.system
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("mpi", MPIS)
def test_plans_that_one_rank_cannot_make_are_not_tried_on_any(
    mpi: str, first: int, tmp_path: Path
) -> None:
    """One rank can make none of the plans, or only the first."""
    change = FAILING.format(first=first)
    env = environment_of(tmp_path, "collplan.preload.teams", change)
    done = run(line_of(mpi, tmp_path, CALLS), **env)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr
    for kind in KINDS:
        rows = re.findall(
            rf"^{kind} +(\S.*?) +3 +\d+ +(\d+) .*  (\S.*)$", done.stderr, re.MULTILINE
        )
        tried = {ran for ran, _, why in rows if why.startswith(TRIED)}
        assert len(tried) == 2 * (first - 1), rows
        if first == 1:
            assert ["native", str(CALLS - 1)] in [list(row[:2]) for row in rows], rows
    assert ("no plan to try: another rank cannot make it" in done.stderr) == (first == 1)


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_plans_share_memory_although_a_rank_is_alone_on_its_node(mpi: str, tmp_path: Path) -> None:
    env = environment_of(tmp_path, "collplan.preload.helper", APART)
    done = run(line_of(mpi, tmp_path, CALLS), **env)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr
    assert "no sweep of allreduce on 2+1 ranks block" in done.stderr
    for kind in KINDS:
        assert re.search(
            rf"^{kind} +\S.* transport=shared +3 .* {TRIED}", done.stderr, re.MULTILINE
        )


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_call_that_mpi_rejects_on_one_rank_may_be_made_again_in_a_trial(
    mpi: str, tmp_path: Path
) -> None:
    """The other ranks wait in the call. Here, each native call is rejected once on rank 0."""
    tool = built(mpi, "rejecting_tool.c", "-shared", "-fPIC")
    change = TIMES.format(plan_s=0.5)
    env = environment_of(tmp_path, "collplan.deciding.trials", change, LD_PRELOAD=str(tool))
    done = run(line_of(mpi, tmp_path, CALLS, program="repeating.c", n_ranks=3), **env)
    assert done.returncode == 0, done.stdout + done.stderr
    n_native = 1 + TURNS
    assert done.stdout == f"0 wrong, {n_native} rejected\n"
    n_planned = CALLS - n_native
    assert f"rank 0: {n_planned} collectives by plans, {n_native} native" in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_call_that_fails_on_one_rank_ends_the_trial_on_all(mpi: str, tmp_path: Path) -> None:
    tool = built(mpi, "rejecting_tool.c", "-shared", "-fPIC")
    more = {"LD_PRELOAD": str(tool), "COLLPLAN_TEST_FAILS": "3"}
    done = run(
        line_of(mpi, tmp_path, CALLS, program="repeating.c", n_ranks=3),
        **environment_of(tmp_path, **more),
    )
    assert (done.returncode, done.stdout) == (0, "0 wrong, 0 rejected\n"), done.stderr
    why = "a trial of plans has ended early: a call has failed on a rank"
    assert re.search(rf"^reduce +native .* {why}$", done.stderr, re.MULTILINE), done.stderr
    assert FASTER not in done.stderr


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_a_trial_whose_plans_have_to_go_starts_anew(mpi: str, tmp_path: Path) -> None:
    """The communicator may have the plans of one trial at a time."""
    n_calls = 4
    env = environment_of(tmp_path, "collplan.deciding.options", FEW_PLANS)
    done = run(line_of(mpi, tmp_path, n_calls), **env)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr
    found = re.findall(
        r"^(\w+) +native +3 +\d+ +(\d+) .* not paid so far$", done.stderr, re.MULTILINE
    )
    n_waiting = {kind: int(calls) for kind, calls in found}
    # In each other call, a trial of another collective has freed the plans.
    assert n_waiting == dict.fromkeys(KINDS, n_calls // 2), done.stderr


@pytest.mark.system
@pytest.mark.parametrize(
    ("mpi", "trials", "variable", "why"),
    [
        ("mpich", "0", AT_ONCE, "no sweep of allreduce on 1 node of 3 ranks$"),
        ("openmpi", "", "0", "no sweep of allreduce on 1 node of 3 ranks$"),
        ("openmpi", "1e-9", "0", "; a trial of plans has not paid so far$"),
        ("mpich", "", "much", "COLLPLAN_TRIALS is 'much'; give the share .*; all collectives are"),
    ],
)
def test_the_option_and_the_variable_limit_trials(
    mpi: str, trials: str, variable: str, why: str, tmp_path: Path
) -> None:
    env = environment_of(tmp_path, COLLPLAN_TRIALS=variable)
    done = run(line_of(mpi, tmp_path, 20, trials=trials), **env)
    assert (done.returncode, done.stdout) == (0, "0 wrong\n"), done.stdout + done.stderr
    assert re.search(why, done.stderr, re.MULTILINE), done.stderr
    assert "tried here" not in done.stderr


def test_an_endless_share_is_refused(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "collplan", "exec", "--table", str(tmp_path / "t.json")]
    done = run([*line, "--trials", "inf", "-n", "2", "/bin/true"])
    assert done.returncode == 2
    assert done.stderr.startswith("collplan: error: --trials is inf; give the share of time")
