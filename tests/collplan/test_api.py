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
    (tmp_path / "tab.yaml").write_text("machine:\n\tnodes: 2\n")
    (tmp_path / "folder").mkdir()
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
    ("load_spec(5)", "path: 5 is of type int; give the path of a file"),
    ("run(spec)", "module 'collplan' has no attribute 'run'; did you mean 'bind'?"),
    ("compile(spec, rank=np.int64(2))", "<Plan: 15 tasks of rank 2; ranks 4, nodes 2>"),
    ("compile(spec, rank='0')", "rank: '0' is of type str; give a whole number"),
    ("compile(spec, rank=-1)", "rank: -1 is not one of the machine's 4 ranks"),
    ("compile(spec, fold='yes')", "fold: 'yes' is of type str; give True or False"),
    ("compile(spec, comm=5)", "comm: 5 is no communicator; give MPI.COMM_WORLD"),
    ("compile('')", f"source: '' is empty; {FORMS}"),
    ("compile('a: 1\\nb: 2')", f"source: 'a: 1\\nb: 2' is a text of several lines; {FORMS}"),
    (
        "compile('tab.yaml')",
        "tab.yaml: line 2: found character that cannot start any token; mend the YAML",
    ),
    (
        "compile('folder')",
        "folder: is a directory, and cannot be read; give a spec, plan or GOAL file",
    ),
    ("compile({'kind': 'bcast'})", "kind: unknown key; did you mean 'collective: {kind: ...}'?"),
    ("compile(FIELDS | {1: 2})", "1: a key is not text; give the name of a field"),
    ("spec.replace(5)", "replace: takes arguments by name; give NAME=VALUE"),
    (
        "spec.replace(machine=4)",
        "machine: 4 is no name and no mapping; give a name, or fields as 'key: value'",
    ),
    ("spec.collective.replace(datatype=np.float32)", "Allreduce(count=8, datatype='float32')"),
    (
        "spec.collective.replace(op='MPI_SUM')",
        "op: 'MPI_SUM' is not a predefined operation (sum, prod, min, max, land, lor, lxor, band, "
        "bor, bxor, minloc, maxloc); did you mean 'sum'? for your own, say "
        "{name: MPI_SUM, commutative: true or false}",
    ),
    ("spec.collective.replace(count=-1)", "count: -1 is negative; give 0 or more"),
    (
        "spec.replace(transport='shm')",
        "transport: 'shm' is not a transport; did you mean 'shared'? use messages or shared",
    ),
    (
        "compile(spec.replace(algorithms='rign'))",
        "algorithms: allreduce has no 'rign'; did you mean 'ring'? use one of ",
    ),
    (
        "compile(spec.replace(passes=['segmnt']))",
        "passes: there is no 'segmnt'; did you mean 'segment'? use one of ",
    ),
    ("Machine(ranks_per_node=np.array([3, 2]), nodes=2).n_ranks", "5"),
    ("Network(eager_limit_bytes=np.int64(8))", "Network(eager_limit_bytes=8)"),
    ("Link(L_ns=-1, o_ns=0, g_ns=0, G_ns_per_byte=0)", "L_ns: -1 is negative; give 0 or more"),
    ("compare(spec, np.int64(64), candidates='ring').sizes", "[64]"),
    ("compare(spec, -8)", "sizes: -8 is negative; give 0 or more"),
    (
        "compare(spec, 64, candidates=5)",
        "candidates: 5 is of type int; give a text or a list of texts",
    ),
    (
        "compare(spec, 64, candidates='rign')",
        "--candidates: 'rign' fits none; did you mean 'ring'? there are ",
    ),
    (
        "compare(spec, 64, workers=4)",
        "workers: 4 is of type int; give an executor, as ProcessPoolExecutor(4)",
    ),
    ("compare(spec, 64, seconds=0)", "seconds: 0 is no time; give more than 0, or None"),
    ("draw(plan, 5)", "path: 5 is of type int; give the path of a file"),
    ("draw(plan, 'x.dot', timeline=5)", "timeline=5 is no timeline; give what simulate returns"),
    ("simulate(plan, spec)", "<Timeline: 60 tasks in 6,020.1 ns>"),
    (
        "simulate(plan, 'spec.yaml')",
        "spec.yaml: is a spec or a program; give the file of a machine, as its own",
    ),
    (
        "simulate(compile(spec, rank=0))",
        "this is rank 0's program alone, which cannot be simulated; compile the plan of all ranks",
    ),
    (
        "save_plan(spec, 'x.plan')",
        "plan: PlanSpec(machine=Machine(nodes=2, rank...lgorithms=AlgorithmChoice(name='ring')) "
        "is of type PlanSpec; give a plan, as collplan.compile returns",
    ),
    ("load_plan('folder')", "folder: is a directory, and cannot be read; give a plan file"),
    ("load_table(None)", "path: None is of type NoneType; give the path of a file"),
    (
        "run_local(plan, [np.zeros(8)] * 3, [None] * 4)",
        "sendbufs: 3 buffers for 4 ranks; give each",
    ),
    (
        "run_local(plan, [[0.0] * 8] * 4, [None] * 4)",
        "sendbufs[0] is of type list; give an array of numpy",
    ),
    ("numpy_dtype('float')", "'float' is not a datatype; did you mean 'float32'? valid: int8, "),
    ("numpy_dtype(float)", "dtype('float64')"),
    (
        "register_operation('mine', max)",
        "register_operation: commutative is missing; "
        "call register_operation(name, combine, commutative=...)",
    ),
    (
        "bind(plan, comm)",
        "the plan is for 4 ranks, the communicator has 1; start 4 ranks or compile for 1",
    ),
    (
        "bind(plan, MPI.COMM_NULL)",
        "comm: is MPI.COMM_NULL, which has no ranks; call it only on members of a communicator",
    ),
    (
        "bind(alone, comm, [1.0] * 8)",
        "sendbuf is a list, must be a numpy array; pass numpy.array of it",
    ),
    (
        "bind(alone, comm, operation='sum')",
        "operation is 'sum'; leave it out, or give what collplan.register_operation returns",
    ),
    ("bind(alone, comm, cores=3)", "cores is 3; give a list of processors"),
    (
        "bind(alone, comm, computations=5)",
        "computations is 5; give a mapping of names to functions",
    ),
    ("bind(alone, comm, recorder=5)", "recorder is 5; give a Recorder"),
    ("Comm(5)", "comm: 5 is no communicator; give MPI.COMM_WORLD"),
    ("Comm(comm, max_plans='3')", "max_plans: '3' is of type str; give a whole number"),
    ("Comm(comm, cores=3)", "cores: 3 is of type int; give a list"),
    ("Comm(comm, tables='x')", "Comm: 'tables' is not an argument; did you mean 'table'?"),
    ("plan.draw('x.svg')", "'Plan' object has no attribute 'draw'; use collplan.draw(...)"),
    ("plan.save('x')", "'Plan' object has no attribute 'save'; use collplan.save_plan(...)"),
    ("plan.nranks", "'Plan' object has no attribute 'nranks'; did you mean 'n_ranks'?"),
    ("spec.compile()", "'PlanSpec' object has no attribute 'compile'; use collplan.compile(...)"),
    ("spec.nodes", "'PlanSpec' object has no attribute 'nodes'; did you mean 'machine.nodes'?"),
    ("spec.count", "'PlanSpec' object has no attribute 'count'; did you mean 'collective.count'?"),
    (
        "spec.ppn",
        "'PlanSpec' object has no attribute 'ppn'; did you mean 'machine.ranks_per_node'?",
    ),
    ("spec.nothing", "'PlanSpec' object has no attribute 'nothing'"),
    ("tune(spec, comm, 5)", "output: 5 is of type int; give the path of a file"),
]


@pytest.mark.parametrize(("guess", "printed"), GUESSES)
def test_a_guess_gives_a_result_or_one_line(guess: str, printed: str, folder: Path) -> None:
    spec = collplan.parse_spec(FIELDS)
    names = {
        "spec": spec,
        "plan": collplan.compile(spec),
        "FIELDS": FIELDS,
        "np": np,
        "MPI": MPI,
        "comm": MPI.COMM_SELF,
        "alone": FIELDS | {"machine": {}},
        "compile": collplan.compile,
    }
    source = guess if guess.startswith(("plan.", "spec.")) else f"collplan.{guess}"
    try:
        found = repr(eval(source, {"collplan": collplan, **names}))
    except (CollplanError, AttributeError) as error:
        found = str(error)
    if printed.endswith(" "):  # what is valid follows
        found = found[: len(printed)]
    assert found == printed
    assert "\n" not in found


def test_many_guesses_are_tried() -> None:
    assert len(GUESSES) >= 80


def test_public_names_are_all_that_is_listed() -> None:
    names = dir(collplan)
    assert {"compile", "compare", "tune", "load_table", "__version__"} <= set(names)
    assert not [name for name in names if name.startswith("_") and name != "__version__"]
    assert all(getattr(collplan, name) is not None for name in names)


def test_signatures_name_what_can_be_given() -> None:
    assert list(inspect.signature(collplan.Comm).parameters)[:2] == ["comm", "table"]
    assert list(inspect.signature(collplan.tune).parameters)[:3] == ["source", "comm", "output"]
    assert "timeout_s: 'float | None' = " in str(inspect.signature(collplan.bind))


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


@pytest.mark.ranks(1, 2)
def test_a_collective_is_tuned(comm: MPI.Intracomm) -> None:
    path = Path(comm.bcast(tempfile.mkdtemp() if comm.rank == 0 else None), "table.yaml")
    fields = FIELDS | {"machine": {"ranks_per_node": comm.size}}
    table = collplan.tune(fields, comm, path, sizes="64", at_most=2)
    assert [point.bytes for sweep in table.sweeps for point in sweep.points] == [64]
    assert [sweep.name for sweep in collplan.load_table(path).sweeps] == ["allreduce"]
