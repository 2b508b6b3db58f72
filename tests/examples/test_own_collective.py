"""A collective of one's own, registered by a file outside the package, on its way to MPI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collplan.cli.ranks import own_command
from folders import EXAMPLES, ROOT
from mpi_launching import MPIS, mpi_python, mpiexec_of, run

OWN = EXAMPLES / "own_collective.py"
LOCALLY = """
from collplan import compile, parse_spec
from collplan.executors.local import run_local
from collplan.planner.collective.reference import expected, make_inputs
import numpy as np, own_collective

for n_ranks in range(1, 8):
    collective = {"kind": "rotate", "count": 9, "datatype": "int16"}
    spec = parse_spec({"machine": {"nodes": n_ranks}, "collective": collective})
    inputs = make_inputs(spec.collective, n_ranks)
    results = [np.zeros(9, np.int16) for _ in inputs]
    run_local(compile(spec), inputs, results)
    for result, right in zip(results, expected(spec.collective, inputs)):
        assert (result == right).all(), n_ranks
try:
    own_collective.register_collective(own_collective.Rotate)
except Exception as error:
    print(error)
"""
ONE_BY_ONE = """
import json, sys
from collplan.cli.main import main

main(["--import", sys.argv[1], "algorithms"])
print([main(words) for words in json.loads(sys.argv[2])])
"""
"""Commands after an --import, whose file stays imported."""
BOUND = """
import numpy as np
from mpi4py import MPI
from collplan import bind, compile, parse_spec
import own_collective

comm = MPI.COMM_WORLD
machine, collective = {"ranks_per_node": comm.size}, {"kind": "rotate", "count": 1000}
plan = compile(parse_spec({"machine": machine, "collective": collective}), rank=comm.rank)
sent, received = np.full(1000, comm.rank, float), np.zeros(1000)
with bind(plan, comm, sent, received) as rotate:
    rotate.start()
    rotate.wait()
assert (received == (comm.rank - 1) % comm.size).all()
if comm.rank == 0:
    print("passed")
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "rotate.yaml"
    path.write_text("machine: {ranks_per_node: 3}\ncollective: {kind: rotate, count: 100}\n")
    return path


def collplan(*words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: what is registered stays registered."""
    return run([*own_command("--import", OWN, *words)])


def test_it_is_written_in_a_page() -> None:
    assert len(OWN.read_text().splitlines()) < 80


def test_every_command_plans_proves_draws_and_prices_it(spec: Path, tmp_path: Path) -> None:
    plan, picture = tmp_path / "own.plan", tmp_path / "own.svg"
    split = tmp_path / "split.yaml"
    split.write_text(spec.read_text() + "decomposition: hierarchical\n")
    commands = [
        ["compile", spec, "-o", plan],
        ["verify", plan],
        ["draw", spec, "-o", picture],
        ["cost", spec],
        ["compare", spec],
        ["verify", split],
    ]
    words = json.dumps([[*map(str, command)] for command in commands])
    done = run([sys.executable, "-c", ONE_BY_ONE, str(OWN), words])
    assert done.stdout.splitlines()[-1] == "[0, 0, 0, 0, 0, 2]", done.stdout + done.stderr
    assert "<svg" in picture.read_text()
    assert "rotate has no parts to split by hierarchical; use flat" in done.stderr


def test_without_the_file_there_is_no_such_kind(spec: Path) -> None:
    done = run([*own_command("verify", spec)])
    assert done.returncode == 2
    assert "'rotate' is not a collective; valid: bcast, gather" in done.stderr


def test_what_it_computes_is_what_its_reference_says() -> None:
    done = run([sys.executable, "-c", LOCALLY], PYTHONPATH=str(OWN.parent))
    assert done.returncode == 0, done.stderr
    assert "there is a 'rotate' already; give yours another name" in done.stdout


@pytest.mark.system
def test_it_runs_beside_the_call_of_mpi_it_names(spec: Path) -> None:
    mpi_python("mpich")
    done = collplan("run", spec, "--repetitions", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["correct"]
    assert report["native_median_s"] > 0


@pytest.mark.system
@pytest.mark.parametrize("mpi", MPIS)
def test_ranks_bind_it(mpi: str, tmp_path: Path) -> None:
    python = mpi_python(mpi)
    program = tmp_path / "rotating.py"
    program.write_text(BOUND)
    command = [str(mpiexec_of(python)), "-n", "4", str(python), "-m", "mpi4py", str(program)]
    done = run(command, PYTHONPATH=f"{OWN.parent}:{ROOT}")
    assert done.returncode == 0, done.stderr
    assert "passed" in done.stdout
