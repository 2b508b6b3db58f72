"""Machine files of ranks, of batch systems' jobs, and of nodes that are not here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fake_sys
from collplan.executors.mpi.host.topology import NodeTopology, read_node
from collplan.executors.mpi.launch.allocation import find_allocation
from collplan.measure.machine import (
    UNKNOWN,
    MachineFile,
    describe,
    describe_job,
    describe_node,
    describe_ranks,
)
from collplan.specs.loading import load_machine
from collplan.specs.machines.machine import Machine


def written(found: MachineFile, folder: Path) -> Machine:
    """Return the machine as it is read from its file again."""
    path = folder / "machine.yaml"
    path.write_text(found.text())
    machine = load_machine(str(path))
    assert machine == found.machine()
    for line in found.text().splitlines():
        assert "#" in line or line.endswith(":"), line
    return machine


def test_nodes_with_two_infiniband_adapters(tmp_path: Path) -> None:
    node = read_node(fake_sys.infiniband_node(tmp_path / "sys"), set(range(16)))
    found = describe([node, node], (0, 1, 0, 1), "seen")
    machine = written(found, tmp_path)
    assert (machine.nodes, machine.ranks_per_node, machine.rank_order) == (2, 2, "cyclic")
    assert (machine.cores, machine.numa_domains, machine.lanes) == (8, 2, 2)
    assert machine.network.network.G_ns_per_byte == pytest.approx(0.04)
    assert "not counted: eno1 (Ethernet, 1 Gbit/s)" in found.notes["lanes"]
    assert machine.network.network.L_ns == Machine().network.network.L_ns


def test_uneven_nodes(tmp_path: Path) -> None:
    fast = read_node(fake_sys.slingshot_node(tmp_path / "a"), set(range(64)))
    slow = read_node(fake_sys.omnipath_node(tmp_path / "b"), set(range(32)))
    found = describe([fast, slow], (0, 0, 0, 1), "seen")
    machine = written(found, tmp_path)
    assert (machine.ranks_per_node, machine.rank_order) == ((3, 1), "block")
    assert (machine.cores, machine.numa_domains, machine.lanes) == (32, 2, 2)
    assert "others have up to 64" in found.notes["cores"]
    assert "nodes differ" in found.notes["lanes"]


def test_any_order_and_more_ranks_than_cores(tmp_path: Path) -> None:
    node = NodeTopology("here", 2, (0, 1))
    machine = written(found := describe([node, node], (0, 1, 1, 1, 0), "seen"), tmp_path)
    assert machine.rank_to_node == (0, 1, 1, 1, 0)
    assert (machine.cores, machine.lanes) == (3, 1)
    assert found.notes["cores"] == "as many as ranks, which share the 2 there are"
    assert found.notes["lanes"] == UNKNOWN


def test_a_rank_for_each_core(tmp_path: Path) -> None:
    node = NodeTopology("here", 2, (0, 1))
    found = describe([node, node], (0, 0, 1, 1), "seen")
    assert written(found, tmp_path).cores == 2
    assert found.notes["cores"] == "cores that may be used"


def test_rates_that_differ_are_listed(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    for number, rate in enumerate(("100 Gb/sec", "25 Gb/sec")):
        fake_sys.verbs(root, f"mlx5_{number}", fake_sys.device(root, f"d{number}"), rate=rate)
    found = describe([read_node(root, {0})], (0,), "seen")
    machine = written(found, tmp_path)
    assert machine.lanes == (100 * 10**9, 25 * 10**9)
    assert machine.network.network.G_ns_per_byte == pytest.approx(0.08)


def test_names_of_hosts_cannot_end_a_comment(tmp_path: Path) -> None:
    written(describe([NodeTopology("a\nnodes: 7", 1, (0,))], (0,), "seen"), tmp_path)


SLURM = {
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_JOB_CPUS_PER_NODE": "4(x3)",
}


def test_a_job_whose_nodes_are_elsewhere(tmp_path: Path) -> None:
    job = find_allocation(SLURM)
    assert job is not None
    found = describe_job(job, NodeTopology("login", 96, (0, 1)))
    machine = written(found, tmp_path)
    assert (machine.ranks_per_node, machine.cores) == ((2, 2, 1), 4)
    assert (machine.numa_domains, machine.lanes) == (1, 1)
    assert found.notes["numa_domains"] == found.notes["lanes"] == UNKNOWN


def test_a_job_on_this_node(tmp_path: Path) -> None:
    job = find_allocation({**SLURM, "SLURM_DISTRIBUTION": "cyclic"})
    assert job is not None
    here = read_node(fake_sys.omnipath_node(tmp_path / "sys"), set(range(32)))
    here = NodeTopology("n2.cluster", here.cores, here.domains, here.adapters)
    machine = written(describe_job(job, here), tmp_path)
    assert machine.rank_to_node == (0, 1, 2, 0, 1)
    assert (machine.cores, machine.numa_domains, machine.lanes) == (32, 2, 2)


def test_a_job_that_does_not_say_its_tasks(tmp_path: Path) -> None:
    job = find_allocation({"SLURM_JOB_NODELIST": "n[1-2]"})
    assert job is not None
    found = describe_job(job, NodeTopology("n1", 6, (0,)))
    assert written(found, tmp_path).ranks_per_node == 6
    assert found.notes["ranks_per_node"] == UNKNOWN
    found = describe_job(job, NodeTopology("login", 6, (0,)))
    assert written(found, tmp_path).ranks_per_node == 1
    assert "cores are not known here" in found.text()


def test_a_node_alone(tmp_path: Path) -> None:
    node = read_node(fake_sys.laptop(tmp_path / "sys"), set(range(8)))
    machine = written(describe_node(node), tmp_path)
    assert (machine.nodes, machine.n_ranks, machine.cores, machine.lanes) == (1, 6, 6, 1)


@pytest.mark.ranks(1, 2, 3)
def test_ranks(comm: Any) -> None:
    found = describe_ranks(comm, lanes=(10**9, 10**8))
    machine = found.machine()
    assert (machine.nodes, machine.ranks_per_node) == (1, comm.size)
    assert machine.lanes == (10**9, 10**8)
    assert machine.cores_per_node >= comm.size
    assert comm.allgather(found.text()) == [found.text()] * comm.size
