"""The collectives of the cluster benchmark: specs of a given size, and where their bytes go."""

from __future__ import annotations

from typing import Final

from collplan.specs import Machine, PlanSpec

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
