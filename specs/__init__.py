"""Pydantic models of the input of users: machines, collectives, and requests.

A name is imported when it is first used, as errors and names of datatypes need no pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collplan.specs.collective import COLLECTIVES as COLLECTIVES
    from collplan.specs.collective import Collective as Collective
    from collplan.specs.collective_base import CollectiveModel as CollectiveModel
    from collplan.specs.counts import Distribution as Distribution
    from collplan.specs.counts import Table as Table
    from collplan.specs.decomposition import DECOMPOSITIONS as DECOMPOSITIONS
    from collplan.specs.decomposition import Decomposition as Decomposition
    from collplan.specs.elements import Operation as Operation
    from collplan.specs.errors import CollplanError as CollplanError
    from collplan.specs.errors import SpecError as SpecError
    from collplan.specs.loading import json_schema as json_schema
    from collplan.specs.loading import load_spec as load_spec
    from collplan.specs.loading import parse_spec as parse_spec
    from collplan.specs.machine import Machine as Machine
    from collplan.specs.named_option import AlgorithmChoice as AlgorithmChoice
    from collplan.specs.named_option import AlgorithmsByRole as AlgorithmsByRole
    from collplan.specs.named_option import PassChoice as PassChoice
    from collplan.specs.named_option import Transport as Transport
    from collplan.specs.network import Link as Link
    from collplan.specs.network import Network as Network
    from collplan.specs.network import Nic as Nic
    from collplan.specs.numbers import Bytes as Bytes
    from collplan.specs.numbers import parse_bytes as parse_bytes
    from collplan.specs.predefined import numpy_dtype as numpy_dtype
    from collplan.specs.presets import preset_names as preset_names
    from collplan.specs.regular import Allgather as Allgather
    from collplan.specs.regular import Allreduce as Allreduce
    from collplan.specs.regular import Alltoall as Alltoall
    from collplan.specs.regular import Barrier as Barrier
    from collplan.specs.regular import Bcast as Bcast
    from collplan.specs.regular import Exscan as Exscan
    from collplan.specs.regular import Gather as Gather
    from collplan.specs.regular import Reduce as Reduce
    from collplan.specs.regular import ReduceScatterBlock as ReduceScatterBlock
    from collplan.specs.regular import Scan as Scan
    from collplan.specs.regular import Scatter as Scatter
    from collplan.specs.request import Method as Method
    from collplan.specs.request import PlanSpec as PlanSpec
    from collplan.specs.vectors import Allgatherv as Allgatherv
    from collplan.specs.vectors import Alltoallv as Alltoallv
    from collplan.specs.vectors import Gatherv as Gatherv
    from collplan.specs.vectors import ReduceScatter as ReduceScatter
    from collplan.specs.vectors import Scatterv as Scatterv

_NAMES: Final = {
    "collective": ("COLLECTIVES", "Collective"),
    "collective_base": ("CollectiveModel",),
    "counts": ("Distribution", "Table"),
    "decomposition": ("DECOMPOSITIONS", "Decomposition"),
    "elements": ("Operation",),
    "errors": ("CollplanError", "SpecError"),
    "loading": ("json_schema", "load_spec", "parse_spec"),
    "machine": ("Machine",),
    "named_option": ("AlgorithmChoice", "AlgorithmsByRole", "PassChoice", "Transport"),
    "network": ("Link", "Network", "Nic"),
    "numbers": ("Bytes", "parse_bytes"),
    "predefined": ("numpy_dtype",),
    "presets": ("preset_names",),
    "regular": (
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
    "request": ("Method", "PlanSpec"),
    "vectors": ("Allgatherv", "Alltoallv", "Gatherv", "ReduceScatter", "Scatterv"),
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
