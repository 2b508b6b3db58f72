"""Programs as JSON: an interpreter that knows the page on them only computes the collective."""

from __future__ import annotations

import json
import operator
from pathlib import Path

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import PlanError
from collplan.planner.formats.programs import FORMAT, VERSION, programs, write_programs
from oracle import filled_buffers, make_spec, places_of, truth_of
from structures import legal_specs


def interpret(document, sendbufs, recvbufs):
    """Run the programs, one task after another, as soon as one may run."""
    ops = {"sum": operator.add}
    combine = ops[document["collective"]["op"]["name"]] if "op" in document["collective"] else None
    shared = [np.zeros(n, np.int64) for n in document["shared"]]
    memory, waiting = [], {}
    for program in document["ranks"]:
        rank = program["rank"]
        memory.append(
            {
                "send": sendbufs[rank],
                "recv": recvbufs[rank],
                "scratch": np.zeros(program["buffers"]["scratch"], np.int64),
                "shared": shared[program["node"]],
            }
        )
        waiting |= {task["id"]: (rank, task) for task in program["tasks"]}
    started, done, in_flight = set(), set(), {}

    def read(rank, blocks):
        parts = [memory[rank][name][at : at + n] for name, at, n in blocks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    while waiting:
        before = len(waiting), len(started)
        for key, (rank, task) in list(waiting.items()):
            if not (set(task.get("after", ())) <= done):
                continue
            if not (set(task.get("after_start", ())) <= started):
                continue
            started.add(key)
            values = read(rank, task.get("reads", ()))
            if task["op"] == "send":
                in_flight[rank, task["peer"], task["tag"]] = values
            elif task["op"] == "recv":
                if (task["peer"], rank, task["tag"]) not in in_flight:
                    continue
                values = in_flight.pop((task["peer"], rank, task["tag"]))
            elif task["op"] == "reduce":
                values = combine(*np.split(values, 2))
            for name, at, n in task.get("writes", ()):
                memory[rank][name][at : at + n], values = values[:n], values[n:]
            done.add(key)
            del waiting[key]
        assert before != (len(waiting), len(started)), "nothing can run"


@pytest.mark.parametrize("n_ranks", [1, 2, 5])
def test_an_interpreter_computes_every_algorithm(n_ranks, tmp_path: Path) -> None:
    for spec in legal_specs(n_ranks, count=2 * n_ranks + 1, datatype="int64", op="sum"):
        plan = compile_plan(spec)
        path = tmp_path / "programs.json"
        write_programs(plan, path)
        document = json.loads(path.read_text())
        assert (document["format"], document["version"]) == (FORMAT, VERSION)
        sendbufs, recvbufs = filled_buffers(plan, spec)
        if spec.collective.kind == "barrier":
            sendbufs = recvbufs = [np.zeros(0, np.int64)] * n_ranks
        interpret(document, sendbufs, recvbufs)
        for rank, truth in enumerate(truth_of(spec.collective, n_ranks, 0)[1]):
            if truth is not None:
                promised = places_of(spec.collective, n_ranks, rank)
                assert np.array_equal(recvbufs[rank][promised], truth), spec


def test_shared_memory_passes_and_calls() -> None:
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    for algorithms, transport in (("auto", "shared"), ("native", "messages")):
        spec = make_spec(
            "allreduce", algorithms, 8, machine, count=24, datatype="int64", op="sum",
            decomposition="full_lane",
        ).replace(transport=transport)  # fmt: skip
        plan = compile_plan(spec)
        document = programs(plan)
        sendbufs, recvbufs = filled_buffers(plan, spec)
        interpret(document, sendbufs, recvbufs)
        truth = truth_of(spec.collective, 8, 0)[1]
        assert all(np.array_equal(r[:24], t) for r, t in zip(recvbufs, truth, strict=True))
        lanes = {t.get("lane") for rank in document["ranks"] for t in rank["tasks"]}
        assert lanes == {None, 0, 1}


def test_a_program_of_one_rank_is_refused(tmp_path: Path) -> None:
    plan = compile_plan(make_spec("bcast", "linear", 4, count=4), rank=1)
    with pytest.raises(PlanError, match="rank 1's program alone"):
        write_programs(plan, tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
