"""Pydantic models of the input of users: machines, collectives, and requests.

A name is imported when it is first used, as errors and names of datatypes need no pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collplan.specs.collectives.collective import COLLECTIVES as COLLECTIVES
    from collplan.specs.collectives.collective import Collective as Collective
    from collplan.specs.collectives.collective_base import CollectiveModel as CollectiveModel
    from collplan.specs.collectives.collective_base import Moving as Moving
    from collplan.specs.collectives.collective_base import (
        register_collective as register_collective,
    )
    from collplan.specs.collectives.counts import Distribution as Distribution
    from collplan.specs.collectives.counts import Table as Table
    from collplan.specs.collectives.elements import Operation as Operation
    from collplan.specs.collectives.graphs import CartesianGrid as CartesianGrid
    from collplan.specs.collectives.graphs import EdgeList as EdgeList
    from collplan.specs.collectives.neighbors import NeighborAllgather as NeighborAllgather
    from collplan.specs.collectives.neighbors import NeighborAllgatherv as NeighborAllgatherv
    from collplan.specs.collectives.neighbors import NeighborAlltoall as NeighborAlltoall
    from collplan.specs.collectives.neighbors import NeighborAlltoallv as NeighborAlltoallv
    from collplan.specs.collectives.predefined import numpy_dtype as numpy_dtype
    from collplan.specs.collectives.regular import Allgather as Allgather
    from collplan.specs.collectives.regular import Allreduce as Allreduce
    from collplan.specs.collectives.regular import Alltoall as Alltoall
    from collplan.specs.collectives.regular import Barrier as Barrier
    from collplan.specs.collectives.regular import Bcast as Bcast
    from collplan.specs.collectives.regular import Exscan as Exscan
    from collplan.specs.collectives.regular import Gather as Gather
    from collplan.specs.collectives.regular import Reduce as Reduce
    from collplan.specs.collectives.regular import ReduceScatterBlock as ReduceScatterBlock
    from collplan.specs.collectives.regular import Scan as Scan
    from collplan.specs.collectives.regular import Scatter as Scatter
    from collplan.specs.collectives.vectors import Allgatherv as Allgatherv
    from collplan.specs.collectives.vectors import Alltoallv as Alltoallv
    from collplan.specs.collectives.vectors import Gatherv as Gatherv
    from collplan.specs.collectives.vectors import ReduceScatter as ReduceScatter
    from collplan.specs.collectives.vectors import Scatterv as Scatterv
    from collplan.specs.errors import CollplanError as CollplanError
    from collplan.specs.errors import SpecError as SpecError
    from collplan.specs.loading import json_schema as json_schema
    from collplan.specs.loading import load_spec as load_spec
    from collplan.specs.loading import parse_spec as parse_spec
    from collplan.specs.machines.machine import Machine as Machine
    from collplan.specs.machines.network import Link as Link
    from collplan.specs.machines.network import Network as Network
    from collplan.specs.machines.network import Nic as Nic
    from collplan.specs.methods.decomposition import DECOMPOSITIONS as DECOMPOSITIONS
    from collplan.specs.methods.decomposition import Decomposition as Decomposition
    from collplan.specs.methods.named_option import AlgorithmChoice as AlgorithmChoice
    from collplan.specs.methods.named_option import AlgorithmsByRole as AlgorithmsByRole
    from collplan.specs.methods.named_option import PassChoice as PassChoice
    from collplan.specs.methods.named_option import Transport as Transport
    from collplan.specs.presets import preset_names as preset_names
    from collplan.specs.programs.program import ProgramSpec as ProgramSpec
    from collplan.specs.request import Method as Method
    from collplan.specs.request import PlanSpec as PlanSpec
    from collplan.specs.syntax.numbers import Bytes as Bytes
    from collplan.specs.syntax.numbers import parse_bytes as parse_bytes

_NAMES: Final = {
    "collectives.collective": ("COLLECTIVES", "Collective"),
    "collectives.collective_base": ("CollectiveModel", "Moving", "register_collective"),
    "collectives.counts": ("Distribution", "Table"),
    "collectives.elements": ("Operation",),
    "collectives.graphs": ("CartesianGrid", "EdgeList"),
    "collectives.neighbors": (
        "NeighborAllgather",
        "NeighborAllgatherv",
        "NeighborAlltoall",
        "NeighborAlltoallv",
    ),
    "collectives.predefined": ("numpy_dtype",),
    "collectives.regular": (
        "Allgather",
        "Allreduce",
        "Alltoall",
        "Barrier",
        "Bcast",
        "Exscan",
        "Gather",
        "Reduce",
        "ReduceScatterBlock",
        "Scan",
        "Scatter",
    ),
    "collectives.vectors": ("Allgatherv", "Alltoallv", "Gatherv", "ReduceScatter", "Scatterv"),
    "errors": ("CollplanError", "SpecError"),
    "loading": ("json_schema", "load_spec", "parse_spec"),
    "machines.machine": ("Machine",),
    "machines.network": ("Link", "Network", "Nic"),
    "methods.decomposition": ("DECOMPOSITIONS", "Decomposition"),
    "methods.named_option": ("AlgorithmChoice", "AlgorithmsByRole", "PassChoice", "Transport"),
    "presets": ("preset_names",),
    "programs.program": ("ProgramSpec",),
    "request": ("Method", "PlanSpec"),
    "syntax.numbers": ("Bytes", "parse_bytes"),
}
"""Names that this package exports from each module."""
_HOMES: Final = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:  # or every name would be there for type checkers

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
