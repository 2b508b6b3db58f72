"""Tune strings of UCC: ``UCC_TL_UCP_TUNE``."""

from __future__ import annotations

from collplan.exports.selection import Export, Library, Target, select, settings_of
from collplan.libraries.counterparts import algorithms_of
from collplan.specs.named_option import AlgorithmChoice
from collplan.tune.sweep import Sweep
from collplan.tune.table import TuningTable


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
    """Return UCC's algorithm that does what one of ours does, or why there is none.

    Its setting is what UCC needs to run it so, instead of with radix 4, two rings at once, or
    as many messages in flight as it sees fit.
    """
    kind, ranks = sweep.collective, sweep.ranks
    found = algorithms_of("ucc").find(kind, algorithm, ranks, is_cut=segment_bytes > 0)
    if isinstance(found, str):
        return found
    name, _, value = found.told(algorithm, ranks, segment_bytes)[1].partition("=")
    return Target(found.name, setting=(f"UCC_TL_UCP_{name}", value) if name else None)
