"""Folders as the kernel's ``/sys`` of machines that are not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_files(root: Path, files: Mapping[str, object]) -> None:
    """Write small files, as the kernel shows them."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def processors(root: Path, cores: Sequence[Sequence[int]], domains: Sequence[str]) -> None:
    """Write cores by their hardware threads, and NUMA domains by their lists of processors."""
    threads = sorted(thread for core in cores for thread in core)
    write_files(root, {"devices/system/cpu/online": f"{threads[0]}-{threads[-1]}"})
    for core in cores:
        for thread in core:
            name = f"devices/system/cpu/cpu{thread}/topology/core_cpus_list"
            write_files(root, {name: ",".join(map(str, core))})
    for number, cpus in enumerate(domains):
        write_files(root, {f"devices/system/node/node{number}/cpulist": cpus})


def device(root: Path, name: str, domain: int = -1) -> Path:
    """Make the folder of a PCI device."""
    write_files(root, {f"devices/pci/{name}/numa_node": domain})
    return root / "devices/pci" / name


def verbs(
    root: Path, name: str, at: Path, *, rate: str, state: str = "4: ACTIVE", port: int = 1,
    layer: str = "InfiniBand",
) -> None:  # fmt: skip
    """Make a port of an adapter below ``class/infiniband``."""
    folder = f"class/infiniband/{name}/ports/{port}"
    write_files(
        root, {f"{folder}/rate": rate, f"{folder}/state": state, f"{folder}/link_layer": layer}
    )
    link = root / f"class/infiniband/{name}/device"
    if not link.exists():
        link.symlink_to(at)


def interface(
    root: Path, name: str, at: Path | None, *, speed: int | None, state: str = "up", kind: int = 1
) -> None:
    """Make an interface below ``class/net``, with or without a real device."""
    write_files(root, {f"class/net/{name}/operstate": state, f"class/net/{name}/type": kind})
    if speed is not None:
        write_files(root, {f"class/net/{name}/speed": speed})
    if at is not None:
        (root / f"class/net/{name}/device").symlink_to(at)


def infiniband_node(root: Path) -> Path:
    """Two sockets of 4 cores with 2 threads each, two InfiniBand adapters, and a slow network."""
    cores = [(core, core + 8) for core in range(8)]
    processors(root, cores, ["0-3,8-11", "4-7,12-15"])
    for number in range(2):
        at = device(root, f"ib{number}", number)
        verbs(root, f"mlx5_{number}", at, rate="200 Gb/sec (4X HDR)")
        interface(root, f"ib{number}", at, speed=200_000, kind=32)
    verbs(root, "mlx5_2", device(root, "down"), rate="10 Gb/sec (4X)", state="1: DOWN")
    interface(root, "eno1", device(root, "eno1", 0), speed=1000)
    interface(root, "lo", None, speed=None)
    return root


def slingshot_node(root: Path) -> Path:
    """One socket of 64 cores in four domains, and four Slingshot adapters."""
    domains = [f"{16 * number}-{16 * number + 15}" for number in range(4)]
    processors(root, [(core,) for core in range(64)], domains)
    for number in range(4):
        at = device(root, f"cxi{number}", number)
        interface(root, f"hsn{number}", at, speed=200_000)
        write_files(root, {f"class/cxi/cxi{number}/uevent": ""})
        (root / f"class/cxi/cxi{number}/device").symlink_to(at)
    interface(root, "nmn0", device(root, "nmn0"), speed=10_000)
    return root


def omnipath_node(root: Path) -> Path:
    """Two sockets of 16 cores, two rails of Omni-Path, memory of its own as a third domain."""
    processors(root, [(core,) for core in range(32)], ["0-15", "16-31", ""])
    for number in range(2):
        at = device(root, f"hfi{number}", number)
        verbs(root, f"hfi1_{number}", at, rate="100 Gb/sec (4X EDR)")
    return root


def laptop(root: Path) -> Path:
    """Two fast cores with two threads and four slow ones; Wi-Fi, bridges, a cable that is out."""
    processors(root, [(0, 1), (2, 3), (4,), (5,), (6,), (7,)], ["0-7"])
    interface(root, "wlp1s0", device(root, "wifi"), speed=None)
    interface(root, "enp2s0", device(root, "cable"), speed=-1, state="down")
    interface(root, "docker0", None, speed=10_000)
    interface(root, "veth0", None, speed=10_000)
    return root


def roce_node(root: Path) -> Path:
    """An adapter of Ethernet with RDMA and two ports, which the kernel lists twice each."""
    processors(root, [(core,) for core in range(4)], ["0-3"])
    at = device(root, "roce", 0)
    for port in (1, 2):
        verbs(root, "mlx5_0", at, rate="100 Gb/sec (4X EDR)", port=port, layer="Ethernet")
        interface(root, f"ens{port}", at, speed=100_000)
    interface(root, "eno1", device(root, "eno1"), speed=25_000)
    return root
