"""Tune strings of UCC: ``UCC_TL_UCP_TUNE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collplan.exports.selection import (
    Export,
    Library,
    Target,
    has_other_radix,
    select,
    settings_of,
)
from collplan.specs.named_option import AlgorithmChoice
from collplan.tune.sweep import Sweep
from collplan.tune.table import TuningTable

_OURS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("allgather", "recursive_doubling"): ("knomial", "ALLGATHER_KN_RADIX=2"),
    ("allgather", "ring"): ("ring", ""),
    ("allgather", "neighbor_exchange"): ("neighbor", ""),
    ("allgather", "bruck"): ("bruck", ""),
    ("allgather", "sparbit"): ("sparbit", ""),
    ("allreduce", "recursive_doubling"): ("knomial", "ALLREDUCE_KN_RADIX=2"),
    ("allreduce", "rabenseifner"): ("sra_knomial", "ALLREDUCE_SRA_KN_RADIX=2"),
    ("allreduce", "ring"): ("ring", "REDUCE_SCATTER_RING_BIDIRECTIONAL=n"),
    ("alltoall", "linear"): ("pairwise", "ALLTOALL_PAIRWISE_NUM_POSTS=0"),
    ("alltoall", "pairwise"): ("pairwise", "ALLTOALL_PAIRWISE_NUM_POSTS=1"),
    ("alltoall", "bruck"): ("bruck", ""),
    ("bcast", "binomial"): ("knomial", "BCAST_KN_RADIX=2"),
    ("bcast", "knomial"): ("knomial", "BCAST_KN_RADIX={radix}"),
    ("reduce", "binomial"): ("knomial", "REDUCE_KN_RADIX=2"),
    ("reduce", "knomial"): ("knomial", "REDUCE_KN_RADIX={radix}"),
    ("reduce_scatter_block", "ring"): ("ring", "REDUCE_SCATTER_RING_BIDIRECTIONAL=n"),
    ("reduce_scatter_block", "recursive_halving"): ("knomial", "REDUCE_SCATTER_KN_RADIX=2"),
}
"""UCC's name, and the variable without which UCC runs it with radix 4, two rings at once, or
as many messages in flight as it sees fit. UCC refuses the whole string where it names an
algorithm of another collective."""


def write_ucc(table: TuningTable) -> Export:
    """Write a table as the value of ``UCC_TL_UCP_TUNE``, for memory of the host.

    Algorithms are named, as their numbers changed between releases. What else they need is
    set by variables, one value of each for the whole job.

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
        for begin, end, target in selection.rules():
            sizes = f"{begin}-{'inf' if end is None else end}"
            ranks = f"[{sweep.ranks}-{sweep.ranks}]"
            tokens.append(f"{kind}:{sizes}:host:{ranks}:@{target.name}")
    variables = [f"{name}={value} " for name, value in settings_of(selections)]
    use = "".join(variables) + 'UCC_TL_UCP_TUNE="$(cat {path})" mpiexec'
    return Export("#".join(tokens) + "\n", use, len(tokens), notes)


def equivalent(sweep: Sweep, algorithm: AlgorithmChoice, segment_bytes: int) -> Target | str:
    """Return UCC's algorithm that does what one of ours does, or why there is none."""
    known = _OURS.get((sweep.collective, algorithm.name))
    if known is None or segment_bytes or has_other_radix(algorithm):
        return "UCC has no equivalent"
    name, variable = known
    if not variable:
        return Target(name)
    setting, _, value = variable.format(radix=algorithm.options.get("radix", 4)).partition("=")
    return Target(name, setting=(f"UCC_TL_UCP_{setting}", value))
