"""Functions of the package as newcomers guess them: a result, or one line with a way out."""

from __future__ import annotations

import inspect
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import collplan
from collplan.api.compiling import plan_of
from collplan.api.sources import read_source, request_of, spec_of
from collplan.planner.formats.goal import write_goal
from collplan.specs import CollplanError

SPEC = """machine: {nodes: 2, ranks_per_node: 2}
collective: {kind: allreduce, count: 8}
algorithms: ring
"""
PROGRAM = """machine: {ranks_per_node: 2}
buffers: {x: {count: 8}}
steps: [{name: send, collective: {kind: bcast, count: 8}, receive: x}]
"""
FIELDS: dict[str, Any] = {
    "machine": {"nodes": 2, "ranks_per_node": 2},
    "collective": {"kind": "allreduce", "count": 8},
    "algorithms": "ring",
}
FORMS = "give a spec, a mapping of its fields, the path of a YAML or JSON file, or a plan"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    collplan.save_plan(collplan.compile(FIELDS), tmp_path / "spec.plan")
    return tmp_path


PLAN = "<Plan: 60 tasks; ranks 4, nodes 2>"
GUESSES = [
    ("compile('spec.yaml')", PLAN),
    ("compile(FIELDS)", PLAN),
    ("compile(spec, rank=0)", "<Plan: 15 tasks of rank 0; ranks 4, nodes 2>"),
    ("compile(plan)", PLAN),
    ("verify('spec.yaml')", "None"),
    ("verify(spec)", "None"),
    ("verify('spec.plan')", "None"),
    ("simulate(spec)", "<Timeline: 60 tasks in 6,020.1 ns>"),
    ("simulate('spec.plan', 'hydra')", "<Timeline: 60 tasks in 8,072.0 ns>"),
    ("plan.timeline()", "<Timeline: 60 tasks in 6,020.1 ns>"),
    ("draw('spec.yaml', 'picture.dot').name", "'picture.dot'"),
    (
        "compare(spec, sizes='64', candidates='ring,linear')",
        "<Comparison: 2 candidates at 1 sizes>",
    ),
    ("compare('spec.yaml', [64, '1KiB'], candidates=['ring']).sizes", "[64, 1024]"),
    ("spec.replace(machine={'ranks_per_node': 3}).machine", "Machine(ranks_per_node=3)"),
    (
        "compile(spec, nodes=4)",
        "compile: 'nodes' is not an argument; valid: source, rank, comm, idle, fold, is_proved; "
        "fields of a spec are changed by spec.replace(FIELD=...)",
    ),
    (
        "draw(plan, file='picture.svg')",
        "draw: 'file' is not an argument; did you mean 'path'?; "
        "fields of a spec are changed by spec.replace(FIELD=...)",
    ),
    ("draw(plan)", "draw: path is missing; call draw(source, path)"),
    (
        "compile(spec, 0)",
        "compile: 2 arguments without names, it takes 1; "
        "give the others by name: rank, comm, idle, fold, is_proved",
    ),
    ("compile(5)", f"source: 5 is of type int; {FORMS}"),
    ("verify(None)", f"source: None is of type NoneType; {FORMS}"),
    (
        "compile('nothing.yaml')",
        "nothing.yaml: no such file; give the path of a spec, plan or GOAL",
    ),
    ("simulate(plan, 5)", "network: 5 is no network; give one, its fields, or a machine's name"),
    (
        "simulate(plan, {'L': 1000})",
        "network: L: unknown key; did you mean 'network: {L_ns: ...}'?",
    ),
    (
        "compare(spec, sizes='1 apple')",
        "sizes: '1 apple' is not a size; give bytes or a number with a unit of B, KB, MB, GB, TB, "
        "KiB, MiB, GiB, TiB",
    ),
    (
        "compare(spec, sizes=[3])",
        "sizes: 3 is not a multiple of the 8 bytes of float64; give whole elements",
    ),
    ("spec.replace(ranks=4)", "ranks: unknown key; did you mean 'machine: {ranks_per_node: ...}'?"),
    ("Machine(ppn=4)", "ppn: unknown key; did you mean 'ranks_per_node'?"),
    (
        "Machine(2, 4)",
        "Machine: takes fields by name; give NAME=VALUE, of preset, nodes, "
        "ranks_per_node, numa_domains, cores, lanes, rank_order, network, placement",
    ),
    ("Network(latency=1)", "latency: unknown key; did you mean 'network: {L_ns: ...}'?"),
    ("bind(plan, None)", "comm: None is no communicator; give MPI.COMM_WORLD"),
    (
        "bind(spec, comm, timeout=3)",
        "bind: 'timeout' is not an argument; did you mean 'timeout_s'?; "
        "fields of a spec are changed by spec.replace(FIELD=...)",
    ),
    ("tune(spec)", "tune: comm is missing; call tune(source, comm, output)"),
    (
        "load_table('spec.yaml')",
        "spec.yaml: is a spec; a tuning table has fingerprint and sweeps; give one",
    ),
    ("load_spec(5)", "path: 5 is a int; give the path of a file"),
    ("run(spec)", "module 'collplan' has no attribute 'run'; did you mean 'bind'?"),
]


@pytest.mark.parametrize(("guess", "printed"), GUESSES)
def test_a_guess_gives_a_result_or_one_line(guess: str, printed: str, folder: Path) -> None:
    spec = collplan.parse_spec(FIELDS)
    names = {"spec": spec, "plan": collplan.compile(spec), "FIELDS": FIELDS, "comm": MPI.COMM_SELF}
    source = guess if guess.startswith(("plan.", "spec.")) else f"collplan.{guess}"
    try:
        found = repr(eval(source, {"collplan": collplan, **names}))
    except (CollplanError, AttributeError) as error:
        found = str(error)
    assert found == printed


def test_thirty_guesses_are_tried() -> None:
    assert len(GUESSES) >= 30


def test_public_names_are_all_that_is_listed() -> None:
    names = dir(collplan)
    assert {"compile", "compare", "tune", "load_table", "__version__"} <= set(names)
    assert not [name for name in names if name.startswith("_") and name != "__version__"]
    assert all(getattr(collplan, name) is not None for name in names)


def test_signatures_name_what_can_be_given() -> None:
    assert list(inspect.signature(collplan.Comm).parameters)[:2] == ["comm", "table"]
    assert "timeout_s" in inspect.signature(collplan.bind).parameters


def test_sources_are_told_apart(folder: Path) -> None:
    plan = collplan.compile(FIELDS)
    (folder / "program.yaml").write_text(PROGRAM)
    write_goal(plan, folder / "spec.goal")
    assert read_source(plan) is plan
    assert spec_of("spec.yaml") == spec_of(plan) == spec_of("spec.plan")
    assert type(request_of("program.yaml")).__name__ == "ProgramSpec"
    assert plan_of("program.yaml").n_ranks == 2
    assert plan_of("spec.goal").n_tasks > 0
    with pytest.raises(CollplanError, match="source: is a program of several collectives"):
        spec_of("program.yaml")
    with pytest.raises(CollplanError, match="imported schedule without a spec"):
        request_of("spec.goal")


@pytest.mark.ranks(1, 2)
def test_paths_and_mappings_are_bound(comm: MPI.Intracomm, tmp_path: Path) -> None:
    fields = FIELDS | {"machine": {"ranks_per_node": comm.size}}
    sent, received = np.full(8, comm.rank + 1.0), np.empty(8)
    with collplan.bind(fields, comm, sent, received) as bound:
        bound()
    assert (received == sum(range(1, comm.size + 1))).all()
    with pytest.raises(CollplanError, match="no such file"):
        collplan.bind(str(tmp_path / "nothing.yaml"), comm, sent, received)


@pytest.mark.ranks(2)
def test_a_collective_is_tuned(comm: MPI.Intracomm) -> None:
    path = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None), "table.yaml")
    fields = FIELDS | {"machine": {"ranks_per_node": comm.size}}
    table = collplan.tune(fields, comm, path, sizes="64", at_most=2)
    assert [point.bytes for sweep in table.sweeps for point in sweep.points] == [64]
    assert [sweep.name for sweep in collplan.load_table(path).sweeps] == ["allreduce"]
