"""Tune strings of UCC: ``UCC_TL_UCP_TUNE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from executors.exports.selection import Export, Library, Target, select, total_bytes
from specs.choice import AlgorithmChoice
from specs.sweep import Sweep
from specs.tuning import TuningTable

_OURS: Final[Mapping[tuple[str, str], str]] = {
    ("allgather", "recursive_doubling"): "knomial",
    ("allgather", "ring"): "ring",
    ("allgather", "neighbor_exchange"): "neighbor",
    ("allgather", "bruck"): "bruck",
    ("allreduce", "recursive_doubling"): "knomial",
    ("allreduce", "rabenseifner"): "sra_knomial",
    ("allreduce", "ring"): "ring",
    ("alltoall", "pairwise"): "pairwise",
    ("alltoall", "bruck"): "bruck",
    ("bcast", "binomial"): "knomial",
    ("bcast", "knomial"): "knomial",
    ("bcast", "scatter_allgather"): "sag_knomial",
    ("reduce", "binomial"): "knomial",
    ("reduce_scatter_block", "ring"): "ring",
    ("reduce_scatter_block", "recursive_halving"): "knomial",
}
"""UCC refuses the whole string where it names an algorithm of another collective."""


def write_ucc(table: TuningTable) -> Export:
    """Write a table as the value of ``UCC_TL_UCP_TUNE``, for memory of the host.

    Algorithms are named, as their numbers changed between releases. The radix of what
    is k-nomial is UCC's own.

    Parameters
    ----------
    table : TuningTable
    """
    blind = frozenset({"reduce_scatter_block"})  # which size counts changed between releases
    selections, notes = select(table, Library("UCC", equivalent, blind))
    tokens = []
    for selection in selections:
        sweep = selection.sweep
        kind = sweep.collective.removesuffix("_block")
        for interval in selection.intervals:
            if interval.target is None:
                continue
            end = "inf" if interval.end is None else total_bytes(sweep, interval.end)
            sizes = f"{total_bytes(sweep, interval.begin)}-{end}"
            ranks = f"[{sweep.ranks}-{sweep.ranks}]"
            tokens.append(f"{kind}:{sizes}:host:{ranks}:@{interval.target.name}")
    use = 'UCC_TL_UCP_TUNE="$(cat {path})" mpiexec'
    return Export("#".join(tokens) + "\n", use, len(tokens), notes)


def equivalent(sweep: Sweep, algorithm: AlgorithmChoice, segment_bytes: int) -> Target | str:
    """Return UCC's algorithm that does what one of ours does, or why there is none."""
    name = _OURS.get((sweep.collective, algorithm.name))
    if name is None or segment_bytes:
        return "UCC has no equivalent"
    return Target(name)
