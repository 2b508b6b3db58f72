"""Models of what users write: machines, collectives, requests; pydantic models and nothing else."""

from collplan.specs.collective import (
    COLLECTIVES,
    Allgather,
    Allreduce,
    Alltoall,
    Barrier,
    Bcast,
    Collective,
    CollectiveModel,
    Exscan,
    Gather,
    Reduce,
    ReduceScatterBlock,
    Scan,
    Scatter,
)
from collplan.specs.decomposition import DECOMPOSITIONS, Decomposition
from collplan.specs.elements import Operation, numpy_dtype
from collplan.specs.errors import CollplanError, SpecError
from collplan.specs.loading import json_schema, load_spec, parse_spec
from collplan.specs.machine import Machine
from collplan.specs.named_option import AlgorithmChoice, AlgorithmsByRole, PassChoice, Transport
from collplan.specs.network import Link, Network, Nic
from collplan.specs.numbers import Bytes, parse_bytes
from collplan.specs.presets import preset_names
from collplan.specs.request import Method, PlanSpec

__all__ = [
    "COLLECTIVES",
    "DECOMPOSITIONS",
    "AlgorithmChoice",
    "AlgorithmsByRole",
    "Allgather",
    "Allreduce",
    "Alltoall",
    "Barrier",
    "Bcast",
    "Bytes",
    "Collective",
    "CollectiveModel",
    "CollplanError",
    "Decomposition",
    "Exscan",
    "Gather",
    "Link",
    "Machine",
    "Method",
    "Network",
    "Nic",
    "Operation",
    "PassChoice",
    "PlanSpec",
    "Reduce",
    "ReduceScatterBlock",
    "Scan",
    "Scatter",
    "SpecError",
    "Transport",
    "json_schema",
    "load_spec",
    "numpy_dtype",
    "parse_bytes",
    "parse_spec",
    "preset_names",
]
