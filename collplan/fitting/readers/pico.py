"""CSV files of PICO, one row per job, collective, size and algorithm."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.fitting.names import ITEMSIZE, names_table
from collplan.fitting.points import (
    MeasuredPoint,
    MeasurementError,
    PointCollection,
    RankLayout,
    read_rows,
    require_integer,
    require_seconds,
)
from collplan.planner.arrays import Ints
from collplan.specs.syntax.documents import parse_json

COLUMNS: Final = (
    "system",
    "job",
    "collective",
    "library",
    "nodes",
    "ranks_per_node",
    "elements",
    "algorithm",
    "median_us",
)
"""Columns that a file must have."""
BLOCKS: Final = ("allgather", "gather", "scatter", "alltoall", "reduce_scatter")
"""Collectives whose buffer holds a block per rank."""
FEW_GROUPS: Final = 20
"""Groups of switches over which a job is taken to be spread if its hosts are unknown."""
_TASKS: Final = re.compile(r"(\d+) tasks per node")
Hosts = Mapping[str, Sequence[str]]


def read_hosts(text: str, path: Path) -> Hosts:
    """Return the hosts of each job, in the order of ranks.

    Raises
    ------
    MeasurementError
        If the file is no JSON object with a list of names for each job.
    """
    document = parse_json(text, str(path))
    is_right = isinstance(document, dict) and all(
        isinstance(names, list) and names and all(isinstance(name, str) for name in names)
        for names in document.values()
    )
    if not is_right:
        raise MeasurementError(
            f"{path}: is no table of hosts; give a JSON object with a list of hosts per "
            '"system/job"'
        )
    assert isinstance(document, dict)
    return document


def read_pico(text: str, path: Path, hosts: Hosts, lanes: Callable[[str], int]) -> PointCollection:
    """Return the points of a file.

    Parameters
    ----------
    text, path : str, Path
        Content and name of the file.
    hosts : mapping of str to sequence of str
        Hosts of jobs, as `read_hosts` returns them; may lack jobs.
    lanes : callable
        Function that returns the lanes per node of a system.

    Raises
    ------
    MeasurementError
        If columns are missing, or if a value is none of its column.
    """
    rows = list(read_rows(text, path, COLUMNS))
    counts = {id(row): _shape(row, where) for where, row in rows}
    most: defaultdict[str, int] = defaultdict(int)
    for _, row in rows:
        nodes, per_node = counts[id(row)]
        most[_job(row)] = max(most[_job(row)], nodes * per_node)
    found, layouts = PointCollection(), {}
    corrected: dict[str, None] = {}
    n_short = 0
    for where, row in rows:
        nodes, per_node = counts[id(row)]
        n_ranks = nodes * per_node
        named = hosts.get(_job(row), ())
        truth = _ranks(nodes, per_node, len(named), most[_job(row)], row.get("notes") or "")
        if truth != n_ranks:
            corrected[f"{_job(row)}: {truth} ranks by its hosts or notes, not {n_ranks}"] = None
        key = (_job(row), nodes, truth)
        if key not in layouts:
            layouts[key] = _layout(row["system"], nodes, truth, named, lanes(row["system"]))
        elements = require_integer(row["elements"], where, "elements")
        if row["collective"] in BLOCKS and elements < truth:
            n_short += 1
            continue
        found.points.append(
            MeasuredPoint(
                system=row["system"],
                job=row["job"],
                collective=row["collective"],
                algorithm=row["algorithm"],
                library=row["library"],
                layout=layouts[key],
                n_bytes=elements * ITEMSIZE,
                seconds=require_seconds(row["median_us"], 1e-6, where, "median_us"),
            )
        )
    found.notes += list(corrected)
    if n_short:
        found.notes.append(f"{path}: left out {n_short} points with less than an element per rank")
    return found


def _job(row: Mapping[str, str]) -> str:
    return f"{row['system']}/{row['job']}"


def _shape(row: Mapping[str, str], where: str) -> tuple[int, int]:
    return (
        require_integer(row["nodes"], where, "nodes", 1),
        require_integer(row["ranks_per_node"], where, "ranks_per_node", 1),
    )


def _ranks(nodes: int, per_node: int, n_named: int, most: int, notes: str) -> int:
    """Return the number of ranks.

    If no row of a job has as many ranks as its hosts are named, or if a note says how many ranks a
    node had, the column is wrong. The last node may have fewer ranks than the others.
    """
    n_ranks = nodes * per_node
    if n_named > most:
        return n_named
    if nodes * (per_node - 1) < n_named < n_ranks:
        return n_named
    told = _TASKS.search(notes)
    return nodes * int(told[1]) if told is not None and per_node == 1 else n_ranks


def _layout(
    system: str, nodes: int, n_ranks: int, named: Sequence[str], n_lanes: int
) -> RankLayout:
    if len(named) == n_ranks > nodes:
        order = {name: number for number, name in enumerate(dict.fromkeys(named))}
        node = np.array([order[name] for name in named])
    else:
        node = np.arange(n_ranks) * nodes // n_ranks
    hosts = list(dict.fromkeys(named))
    group = _groups(system, hosts, int(node.max()) + 1)[node]
    return RankLayout(node, np.zeros(n_ranks, dtype=np.int64), group, n_lanes)


def _groups(system: str, hosts: Sequence[str], n_nodes: int) -> Ints:
    """Return the group of switches of each node.

    Nodes with unknown places are taken to be spread evenly over `FEW_GROUPS` groups.
    """
    rule: dict[str, Any] | None = names_table()["groups"].get(system)
    numbers = []
    if rule is not None and len(hosts) >= n_nodes:
        for host in hosts[:n_nodes]:
            match = re.match(rule["pattern"], host)
            if match is None:
                break
            numbers.append((int(match[1]) - rule["first"]) // rule["per_group"])
    if len(numbers) == n_nodes:
        return np.array(numbers)
    return np.arange(n_nodes) * min(FEW_GROUPS, n_nodes) // n_nodes
