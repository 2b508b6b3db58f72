"""Topology of nodes that are not here, by folders as the kernel's, and of the one that is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fake_sys
from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.host.topology import (
    Adapter,
    allowed_processors,
    choose_adapters,
    domains_of,
    find_adapters,
    read_node,
)


def test_infiniband(tmp_path: Path) -> None:
    root = fake_sys.infiniband_node(tmp_path)
    node = read_node(root, set(range(16)))
    assert (node.cores, node.domains) == (8, (0, 1))
    assert node.adapters == (
        Adapter("mlx5_0", "InfiniBand", 200 * 10**9, 0),
        Adapter("mlx5_1", "InfiniBand", 200 * 10**9, 1),
    )
    assert node.others == (Adapter("eno1", "Ethernet", 10**9, 0),)


def test_processors_that_a_job_does_not_have_count_for_nothing(tmp_path: Path) -> None:
    root = fake_sys.infiniband_node(tmp_path)
    node = read_node(root, {4, 5, 12, 99})
    assert (node.cores, node.domains) == (2, (1,))
    assert domains_of({3, 4}, root) == (0, 1)


def test_slingshot(tmp_path: Path) -> None:
    node = read_node(fake_sys.slingshot_node(tmp_path), set(range(64)))
    assert (node.cores, node.domains) == (64, (0, 1, 2, 3))
    assert [one.name for one in node.adapters] == ["hsn0", "hsn1", "hsn2", "hsn3"]
    assert {(one.fabric, one.rate) for one in node.adapters} == {("Slingshot", 200 * 10**9)}
    assert [one.name for one in node.others] == ["nmn0"]


def test_omnipath(tmp_path: Path) -> None:
    node = read_node(fake_sys.omnipath_node(tmp_path), set(range(32)))
    assert (node.cores, node.domains) == (32, (0, 1))
    assert [one.fabric for one in node.adapters] == ["Omni-Path"] * 2
    assert [one.domain for one in node.adapters] == [0, 1]


def test_laptop(tmp_path: Path) -> None:
    node = read_node(fake_sys.laptop(tmp_path), set(range(8)))
    assert (node.cores, node.domains) == (6, (0,))
    assert node.adapters == (Adapter("wlp1s0", "Ethernet", None),)


def test_ports_that_the_kernel_lists_twice_count_once(tmp_path: Path) -> None:
    node = read_node(fake_sys.roce_node(tmp_path), set(range(4)))
    assert [one.name for one in node.adapters] == ["mlx5_0:1", "mlx5_0:2"]
    assert [one.name for one in node.others] == ["eno1"]


@pytest.mark.parametrize("kind", ["verbs", "interface"])
def test_virtual_functions_beside_their_adapter_are_no_lanes(kind: str, tmp_path: Path) -> None:
    at = fake_sys.device(tmp_path, "virtual")
    (at / "physfn").mkdir()
    if kind == "verbs":
        fake_sys.verbs(tmp_path, "mlx5_9", at, rate="100 Gb/sec (4X EDR)")
    else:
        fake_sys.interface(tmp_path, "eth9", at, speed=1000)
    assert find_adapters(tmp_path) == []


def test_names_are_ordered_by_their_numbers(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        at = fake_sys.device(tmp_path, f"d{number}")
        fake_sys.interface(tmp_path, f"hsn{number}", at, speed=1)
    assert [one.name for one in find_adapters(tmp_path)] == ["hsn1", "hsn2", "hsn10"]


def test_a_system_without_such_files_has_what_python_knows(tmp_path: Path) -> None:
    node = read_node(tmp_path, {0, 1, 2})
    assert (node.cores, node.domains, node.adapters) == (3, (0,), ())
    assert choose_adapters([]) == ((), ())


def test_looking_leaves_the_process_where_it_is_bound() -> None:
    before = affinity()
    os.sched_setaffinity(0, {min(before)})
    try:
        assert allowed_processors(before) >= before
        assert affinity() == {min(before)}
        assert read_node().cores >= 1
    finally:
        os.sched_setaffinity(0, before)
