"""Cases of benchmarks on clusters: their options, and the collectives, of a given size."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Final

from collplan.emulate.cluster import Cluster, parse_rates
from collplan.specs import Machine, PlanSpec, parse_bytes

KINDS: Final = (
    "bcast",
    "reduce",
    "allreduce",
    "allgather",
    "reduce_scatter_block",
    "gather",
    "scatter",
    "alltoall",
    "scan",
)
"""Cases to measure."""
OF_BLOCKS: Final = ("allgather", "reduce_scatter_block", "gather", "scatter", "alltoall")
"""Those whose vector of all ranks' blocks has the size; MPI's count is that of a block."""
ITEMSIZE: Final = 4


def add_cluster_options(parser: ArgumentParser, about_bytes: str) -> None:
    """Add the options of a cluster, of what is measured on it, and of the file to write."""
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=4)
    parser.add_argument("--lanes", type=int, default=2)
    parser.add_argument("--rate", default="100Mbit", help="of a lane, or every lane, each way")
    parser.add_argument("--bytes", type=parse_bytes, default="4MiB", help=about_bytes)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--timeout", type=float, default=1800, help="seconds, of each launch")
    parser.add_argument("--json", type=Path, help="a file to write everything into")


def cluster_of(options: Namespace) -> Cluster:
    """Return the cluster that options name."""
    rate = parse_rates(options.rate)
    return Cluster(options.nodes, options.per_node, options.lanes, rate)


def spec_of(kind: str, machine: Machine, n_bytes: int) -> PlanSpec:
    """Return the spec of a collective.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    machine : Machine
        Where.
    n_bytes : int
        Bytes of the vector; where ranks have blocks, of all of them together:
        what one rank sends in alltoall and reduce_scatter_block, what one
        collects in gather and allgather, or deals in scatter.

    Examples
    --------
    >>> spec_of("allgather", Machine(nodes=2, ranks_per_node=2), 4096).collective.count
    256
    """
    blocks = machine.n_ranks if kind in OF_BLOCKS else 1
    return PlanSpec.model_validate(
        {
            "machine": machine,
            "collective": {
                "kind": kind,
                "count": n_bytes // (blocks * ITEMSIZE),
                "datatype": "int32",
            },
        }
    )
