"""A node's cores, NUMA domains and network adapters, from the kernel's files under ``/sys``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collplan.executors.mpi.host.processes import affinity

SYS: Final = Path("/sys")
_ETHERNET: Final = 1  # the kernel's ARPHRD_ETHER
_ACTIVE: Final = "4: ACTIVE"
_GBIT: Final = 10**9
_RATE: Final = re.compile(r"([\d.]+)\s*Gb/sec")


@dataclass(frozen=True, slots=True)
class Adapter:
    """A port of a network adapter that is up.

    Parameters
    ----------
    name : str
        Name of the adapter in the kernel, with the number of the port if there are several.
    fabric : {"InfiniBand", "Omni-Path", "Slingshot", "Ethernet"}
        Kind of the network.
    rate : int or None
        Nominal rate in bits per second; None if the kernel does not report it.
    domain : int or None
        NUMA domain of the adapter; None if the kernel does not report it.
    """

    name: str
    fabric: str
    rate: int | None
    domain: int | None = None


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """The cores, domains and adapters of a node.

    Parameters
    ----------
    host : str
        Name of the node.
    cores : int
        Number of usable cores. The hardware threads of a core count as one core.
    domains : tuple of int
        NUMA domains of these cores.
    adapters : tuple of Adapter
        Ports that carry data of MPI: all ports of fabrics other than Ethernet or, if there are
        none, the Ethernet ports with the highest rate.
    others : tuple of Adapter
        Other ports that are up.
    """

    host: str
    cores: int
    domains: tuple[int, ...]
    adapters: tuple[Adapter, ...] = ()
    others: tuple[Adapter, ...] = ()


def read_node(root: Path = SYS, processors: set[int] | None = None) -> NodeTopology:
    """Return the topology of this node.

    Parameters
    ----------
    root : Path
        Folder with the kernel's files.
    processors : set of int, optional
        Usable processors. By default, all processors to which this process could be bound.
    """
    online = _read_list(root / "devices/system/cpu/online")
    if processors is None:
        processors = allowed_processors(online)
    usable = processors & online if online else processors
    chosen, others = choose_adapters(find_adapters(root))
    return NodeTopology(
        host=os.uname().nodename if hasattr(os, "uname") else "",
        cores=len({_core_of(root, processor) for processor in usable}),
        domains=domains_of(usable, root) or (0,),
        adapters=chosen,
        others=others,
    )


def allowed_processors(online: set[int]) -> set[int]:
    """Return the processors to which this process could be bound, a superset of its affinity."""
    bound = affinity()
    if not hasattr(os, "sched_setaffinity") or not online:
        return bound
    with suppress(OSError):
        try:
            # The kernel removes processors outside of the job's cpuset.
            os.sched_setaffinity(0, online | bound)
            return affinity()
        finally:
            os.sched_setaffinity(0, bound)
    return bound


def domains_of(processors: set[int], root: Path = SYS) -> tuple[int, ...]:
    """Return the NUMA domains of some processors, without domains that have only memory."""
    found = []
    for folder in (root / "devices/system/node").glob("node[0-9]*"):
        if _read_list(folder / "cpulist") & processors:
            found.append(int(folder.name.removeprefix("node")))
    return tuple(sorted(found))


def find_adapters(root: Path = SYS) -> list[Adapter]:
    """Return all ports of network adapters that are up, in the order of their names.

    A port that the kernel lists twice, such as that of an Ethernet adapter with RDMA, is returned
    once.
    """
    ports = list(_verbs_ports(root))
    known = {device for device, _ in ports}
    interfaces = [(device, one) for device, one in _interfaces(root) if device not in known]
    return [adapter for _, adapter in (*ports, *interfaces)]


def choose_adapters(found: list[Adapter]) -> tuple[tuple[Adapter, ...], tuple[Adapter, ...]]:
    """Return the adapters that carry data of MPI, and all other adapters.

    Examples
    --------
    >>> management, rail = Adapter("eth0", "Ethernet", 10**9), Adapter("hsn0", "Slingshot", None)
    >>> choose_adapters([management, rail])[0] == (rail,)
    True
    """
    fast = [one for one in found if one.fabric != "Ethernet"]
    if not fast and found:
        highest = max(one.rate or 0 for one in found)
        fast = [one for one in found if (one.rate or 0) == highest]
    return tuple(fast), tuple(one for one in found if one not in fast)


def _verbs_ports(root: Path) -> Iterator[tuple[Path | None, Adapter]]:
    """Yield the active ports of adapters of InfiniBand, Omni-Path and Ethernet with RDMA."""
    for folder in _sorted(root / "class/infiniband"):
        ports = _sorted(folder / "ports")
        for port in ports:
            if _read(port / "state") != _ACTIVE or (folder / "device/physfn").exists():
                continue
            fabric = "InfiniBand"
            if _read(port / "link_layer") == "Ethernet":
                fabric = "Ethernet"
            elif folder.name.startswith("hfi1"):
                fabric = "Omni-Path"
            match = _RATE.match(_read(port / "rate"))
            rate = round(float(match[1]) * _GBIT) if match else None
            name = f"{folder.name}:{port.name}" if len(ports) > 1 else folder.name
            yield _device(folder), Adapter(name, fabric, rate, _domain(folder))


def _interfaces(root: Path) -> Iterator[tuple[Path | None, Adapter]]:
    """Yield the Ethernet-like interfaces of real devices that are up, including Slingshot."""
    slingshot = {_device(folder) for folder in _sorted(root / "class/cxi")} - {None}
    for folder in _sorted(root / "class/net"):
        device = _device(folder)
        is_real = (folder / "device").exists() and not (folder / "device/physfn").exists()
        if not is_real or _read(folder / "operstate") != "up":
            continue
        if _read(folder / "type") not in (str(_ETHERNET), ""):
            continue  # for example IP over InfiniBand, whose adapter is listed separately
        is_slingshot = folder.name.startswith("hsn") or device in slingshot
        fabric = "Slingshot" if is_slingshot else "Ethernet"
        mbit = _read(folder / "speed")
        rate = int(mbit) * 10**6 if mbit.isdecimal() and int(mbit) > 0 else None
        yield device, Adapter(folder.name, fabric, rate, _domain(folder))


def _core_of(root: Path, processor: int) -> int:
    """Return the first hardware thread of the core of a processor."""
    topology = root / f"devices/system/cpu/cpu{processor}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        siblings = _read_list(topology / name)
        if siblings:
            return min(siblings)
    return processor


def _device(folder: Path) -> Path | None:
    link = folder / "device"
    return link.resolve() if link.exists() else None


def _domain(folder: Path) -> int | None:
    text = _read(folder / "device/numa_node")
    return int(text) if text.isdecimal() else None


def _sorted(folder: Path) -> list[Path]:
    def key(path: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", path.name)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    try:
        return sorted(folder.iterdir(), key=key)
    except OSError:
        return []


def _read_list(path: Path) -> set[int]:
    """Return the numbers in a file; empty if there is no such file."""
    return numbers_in(_read(path))


def numbers_in(text: str) -> set[int]:
    """Return the numbers in a list of the kernel's.

    Examples
    --------
    >>> sorted(numbers_in("0-2,5"))
    [0, 1, 2, 5]
    """
    ends = (part.split("-") for part in text.split(",") if part.strip())
    return {one for end in ends for one in range(int(end[0]), int(end[-1]) + 1)}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""  # also if an interface does not know its speed
