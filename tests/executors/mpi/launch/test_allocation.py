"""Nodes of jobs, by the variables of batch systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from collplan.executors.mpi.errors import LaunchError
from collplan.executors.mpi.launch.allocation import expand_counts, find_allocation


@pytest.mark.quick
@pytest.mark.parametrize(
    "text",
    ["n[1", "n1]", "n[a-b]", "n[3-1]", "n[]", "n1,,n2", "n[0-9999999]", "n[0-99999]m[0-99999]"],
)
def test_what_is_no_list_of_hosts(text: str) -> None:
    with pytest.raises(LaunchError, match=r"SLURM_JOB_NODELIST: .*; unset it"):
        find_allocation({"SLURM_JOB_NODELIST": text})


def test_numbers_of_tasks() -> None:
    assert expand_counts("4(x2),3,2(x1)") == (4, 4, 3, 2)
    with pytest.raises(LaunchError, match="SLURM_TASKS_PER_NODE: '4x2' is not a list"):
        find_allocation({"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "4x2"})


def test_slurm() -> None:
    job = find_allocation(
        {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2,1",
         "SLURM_JOB_CPUS_PER_NODE": "8(x2)", "SLURM_DISTRIBUTION": "cyclic:block"}
    )  # fmt: skip
    assert job is not None
    assert (job.scheduler, job.nodes, job.tasks) == ("Slurm", ("n1", "n2"), (2, 1))
    assert (job.cpus, job.n_cpus, job.order) == ((8, 8), 16, "cyclic")
    # What a step inside has is no number of the job's.
    job = find_allocation({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1"})
    assert job is not None
    assert (job.tasks, job.n_cpus) == (None, None)


def test_pbs(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\n\na\n")
    job = find_allocation({"PBS_NODEFILE": str(tmp_path / "nodes")})
    assert job is not None
    assert (job.scheduler, job.nodes, job.tasks) == ("PBS", ("a", "b"), (3, 1))
    assert (job.cpus, job.order) == (None, (0, 0, 1, 0))
    with pytest.raises(LaunchError, match=r"PBS_NODEFILE: .*gone cannot be read: No such file"):
        find_allocation({"PBS_NODEFILE": str(tmp_path / "gone")})
    (tmp_path / "nodes").write_text("")
    with pytest.raises(LaunchError, match="names no host"):
        find_allocation({"PBS_NODEFILE": str(tmp_path / "nodes")})


def test_lsf() -> None:
    job = find_allocation({"LSB_MCPU_HOSTS": "a 2 b 1"})
    assert job is not None
    assert (job.scheduler, job.tasks, job.cpus, job.order) == ("LSF", (2, 1), (2, 1), (0, 0, 1))
    with pytest.raises(LaunchError, match="LSB_MCPU_HOSTS"):
        find_allocation({"LSB_MCPU_HOSTS": "a 2 b"})


def test_the_node_that_launches_an_lsf_job_has_no_ranks() -> None:
    hosts = {"LSB_MCPU_HOSTS": "batch1 1 a 40 b 40"}
    job = find_allocation(hosts | {"CSM_ALLOCATION_ID": "7"})
    assert job is not None
    assert (job.nodes, job.tasks, job.order[:1]) == (("a", "b"), (40, 40), (0,))
    job = find_allocation(hosts)
    assert job is not None
    assert job.tasks == (1, 40, 40)
    job = find_allocation({"LSB_MCPU_HOSTS": "a 1", "CSM_ALLOCATION_ID": "7"})
    assert job is not None
    assert job.tasks == (1,)


def test_hosts_of_a_small_lsf_job() -> None:
    job = find_allocation({"LSB_HOSTS": "a a b", "LSB_JOBID": "9"})
    assert job is not None
    assert (job.scheduler, job.nodes, job.tasks, job.cpus) == ("LSF", ("a", "b"), (2, 1), (2, 1))


def test_cobalt(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("nid001\nnid002\n")
    job = find_allocation({"COBALT_NODEFILE": str(tmp_path / "nodes"), "COBALT_JOBID": "5"})
    assert job is not None
    assert (job.scheduler, job.nodes) == ("Cobalt", ("nid001", "nid002"))
    assert (job.tasks, job.n_cpus, job.order) == (None, None, "block")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"COBALT_JOBID": "5", "COBALT_JOBSIZE": "2"}, "COBALT_JOBID: this is a job of Cobalt"),
        ({"FLUX_URI": "local:///x"}, "FLUX_URI: this is a job of Flux, which names its nodes in"),
        ({"LSB_JOBID": "5"}, "LSB_JOBID: this is a job of LSF"),
        (
            {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST": "n1"},
            "the job has 2 components, and ranks",
        ),
    ],
)
def test_jobs_of_unknown_nodes_are_no_single_node(environ: dict[str, str], words: str) -> None:
    with pytest.raises(LaunchError, match=words) as refused:
        find_allocation(environ)
    assert str(refused.value).endswith("; unset it to work without the batch system's nodes")


def test_jobs_of_one_node_need_no_names() -> None:
    assert find_allocation({"FLUX_URI": "local:///x", "FLUX_JOB_NNODES": "1"}) is None
    assert find_allocation({"LSB_JOBID": "5", "LSB_MAX_NUM_PROCESSORS": "1"}) is None
    job = find_allocation({"SLURM_HET_SIZE": "1", "SLURM_JOB_NODELIST": "n1"})
    assert job is not None
    step = {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST": "n1", "SLURM_STEP_NODELIST": "n1"}
    assert find_allocation(step) is not None


def test_grid_engine(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("a 2 all.q@a UNDEFINED\nb 1 all.q@b UNDEFINED\n")
    job = find_allocation({"PE_HOSTFILE": str(tmp_path / "hosts")})
    assert job is not None
    assert (job.scheduler, job.nodes, job.cpus) == ("Grid Engine", ("a", "b"), (2, 1))
    (tmp_path / "hosts").write_text("a\n")
    with pytest.raises(LaunchError, match="PE_HOSTFILE"):
        find_allocation({"PE_HOSTFILE": str(tmp_path / "hosts")})


def test_no_job() -> None:
    assert find_allocation({}) is None
    assert find_allocation({"SLURM_JOB_NODELIST": ""}) is None
