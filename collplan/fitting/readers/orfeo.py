"""CSV files with a machine, a map of ranks, and a mean time per size, as of the ORFEO cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from collplan.fitting.points import (
    LATENCY,
    MeasuredPoint,
    MeasurementError,
    PointCollection,
    RankLayout,
    read_rows,
    require_integer,
    require_seconds,
)
from collplan.specs import Machine

COLUMNS: Final = ("machine", "collective", "algorithm", "map", "ranks", "bytes", "avg_us")
"""Columns of times of collectives."""
LATENCY_COLUMNS: Final = ("machine", "place", "bytes", "latency_us")
"""Columns of half round trips of two ranks."""
MAPS: Final = ("core", "socket", "node")
"""Orders in which ranks are placed: node after node, sockets in turn, or nodes in turn."""
Shape = Callable[[str], Machine]
"""Function that returns the machine of a name."""


def read_orfeo(text: str, path: Path, shape: Shape) -> PointCollection:
    """Return the points of a file with times of collectives.

    Parameters
    ----------
    text, path : str, Path
        Content and name of the file.
    shape : callable
        Function that returns the machine of a name: its nodes, cores and NUMA domains count.

    Raises
    ------
    MeasurementError
        If columns are missing, or if a value is none of its column.
    """
    found = PointCollection()
    layouts: dict[tuple[str, str, int], RankLayout] = {}
    for where, row in read_rows(text, path, COLUMNS):
        system, mapping = row["machine"], row["map"]
        n_ranks = require_integer(row["ranks"], where, "ranks", 2)
        if mapping not in MAPS:
            raise MeasurementError(f"{where}: map is {mapping!r}; valid: {', '.join(MAPS)}")
        key = system, mapping, n_ranks
        if key not in layouts:
            layouts[key] = mapped_layout(shape(system), mapping, n_ranks, where)
        found.points.append(
            MeasuredPoint(
                system=system,
                job=f"{mapping} {n_ranks}",
                collective=row["collective"],
                algorithm=row["algorithm"],
                library="openmpi",
                layout=layouts[key],
                n_bytes=require_integer(row["bytes"] or "0", where, "bytes"),
                seconds=require_seconds(row["avg_us"], 1e-6, where, "avg_us"),
                mapping=mapping,
            )
        )
    return found


def read_latencies(text: str, path: Path) -> PointCollection:
    """Return the points of a file with half round trips.

    Raises
    ------
    MeasurementError
        If columns are missing, or if a value is none of its column.
    """
    found = PointCollection()
    for where, row in read_rows(text, path, LATENCY_COLUMNS):
        link = _link_of(row["place"])
        found.points.append(
            MeasuredPoint(
                system=row["machine"],
                job=f"latency {row['place']}",
                collective=LATENCY,
                algorithm="ping-pong",
                library="openmpi",
                layout=two_ranks(link),
                n_bytes=require_integer(row["bytes"], where, "bytes"),
                seconds=require_seconds(row["latency_us"], 1e-6, where, "latency_us"),
                mapping=link,
            )
        )
    return found


def _link_of(place: str) -> str:
    """Return the class of links of a place of two ranks.

    Two ranks of a socket are in one NUMA domain. Of numbered cores, the first 16 are.
    """
    if "node" in place and "same" not in place:
        return "network"
    last = place.rpartition("core ")[2]
    if last.isdigit():
        return "numa" if int(last) < 16 else "node"
    return "numa" if place == "same socket" else "node"


def two_ranks(link: str) -> RankLayout:
    """Return the layout of two ranks that are joined by a class of links."""
    node = np.array([0, link == "network"], dtype=np.int64)
    domain = np.array([0, link != "numa"], dtype=np.int64)
    return RankLayout(node, domain, node)


def mapped_layout(machine: Machine, mapping: str, n_ranks: int, where: str) -> RankLayout:
    """Return where a map places ranks on a machine.

    Parameters
    ----------
    machine : Machine
        Its nodes, cores per node and NUMA domains count.
    mapping : {"core", "socket", "node"}
        Order of the places.
    n_ranks : int
        Number of ranks.
    where : str
        File and line, for errors.

    Raises
    ------
    MeasurementError
        If the machine has too few cores.
    """
    cores, n_domains = machine.cores_per_node, machine.numa_domains
    if n_ranks > machine.nodes * cores:
        raise MeasurementError(
            f"{where}: ranks is {n_ranks}, and the machine has {machine.nodes} nodes of {cores} "
            "cores; give the right machine file by --hosts"
        )
    rank = np.arange(n_ranks)
    node, local = rank // cores, rank % cores
    if mapping == "node":
        node, local = rank % machine.nodes, rank // machine.nodes
    per_domain = -(-cores // n_domains)
    domain = local % n_domains if mapping == "socket" else local // per_domain
    return RankLayout(node, domain + n_domains * node, node, machine.n_lanes)
