"""What users write: machines, collectives, requests; pydantic models and nothing else."""

from specs.choice import AlgorithmChoice, AlgorithmsByRole, PassChoice
from specs.collective import (
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
from specs.datatype import numpy_dtype
from specs.decomposition import DECOMPOSITIONS, Decomposition
from specs.errors import CollplanError, SpecError
from specs.loading import json_schema, load_spec, parse_spec
from specs.machine import Machine
from specs.network import Link, Network, Nic
from specs.operation import Operation
from specs.presets import preset_names
from specs.request import PlanSpec
from specs.sizes import Bytes, parse_bytes
from specs.transport import Transport

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
