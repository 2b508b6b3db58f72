"""Files of measurements: which format each has, and all their points together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from collplan.fitting.cluster_model import preset_of
from collplan.fitting.points import (
    MeasurementError,
    PointCollection,
    RankLayout,
    require_enough,
)
from collplan.fitting.readers.orfeo import read_latencies, read_orfeo
from collplan.fitting.readers.pico import Hosts, read_hosts, read_pico
from collplan.fitting.readers.printed import Surroundings, read_printed
from collplan.specs import Machine
from collplan.specs.loading import load_machine
from collplan.specs.syntax.documents import read_text

MOST_BYTES: Final = 256 << 20
"""Largest file of measurements in bytes."""
_SYSTEM: Final = "measured"
"""Name of the system of printed outputs."""


def read_points(
    files: Sequence[Path], hosts: Path | None = None, machine: Machine | None = None
) -> PointCollection:
    """Return the points of files of measurements.

    Parameters
    ----------
    files : sequence of Path
        CSV files of PICO or with the columns of ORFEO, and printed outputs of OSU's, Intel's and
        ReproMPI's benchmarks.
    hosts : Path, optional
        Hosts of jobs (JSON), or the machine (YAML).
    machine : Machine, optional
        Machine of printed outputs, and the shape of machines in files with maps.

    Raises
    ------
    MeasurementError
        If a file cannot be read, if it has too few points, or if all times are equal.
    """
    named: Hosts = {}
    if hosts is not None and hosts.suffix in (".yaml", ".yml"):
        machine = load_machine(str(hosts))
    elif hosts is not None:
        named = read_hosts(_text(hosts), hosts)
    found = PointCollection()
    for path in files:
        one = _read(path, named, machine)
        found.points += one.points
        found.notes += one.notes
    require_enough(found.points, ", ".join(map(str, files)))
    return found


def _text(path: Path) -> str:
    way_out = "give a CSV file or the output of a benchmark"
    return read_text(path, "file of measurements", way_out, MeasurementError, most=MOST_BYTES)


def _read(path: Path, hosts: Hosts, machine: Machine | None) -> PointCollection:
    text = _text(path)
    header = text.partition("\n")[0].strip().split(",")
    if {"system", "nodes"} & {*header} and len(header) > 2:
        return read_pico(text, path, hosts, lambda name: preset_of(name).n_lanes)
    if "latency_us" in header:
        return read_latencies(text, path)
    if "machine" in header:
        return read_orfeo(text, path, cache(lambda name: machine or preset_of(name)))
    if machine is None:
        raise MeasurementError(
            f"{path}: does not say where ranks were; give the machine by --machine"
        )
    link = "network" if machine.nodes > 1 else "node" if machine.numa_domains > 1 else "numa"
    around = Surroundings(_SYSTEM, "", layout_of(machine), link)
    return read_printed(text, path, around)


def layout_of(machine: Machine) -> RankLayout:
    """Return the places of the ranks of a machine; each node is a group of switches."""
    node, domain = np.array(machine.rank_to_node), np.array(machine.rank_to_numa)
    return RankLayout(node, domain + machine.numa_domains * node, node, machine.n_lanes)
