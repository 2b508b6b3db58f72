"""Tuning tables as values of UCC's variable ``UCC_TL_UCP_TUNE``."""

from __future__ import annotations

from collplan.exports.selection import Export, LibraryRules, Target, select, settings_of
from collplan.libraries.counterparts import algorithms_of
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.tables.sweep import Sweep
from collplan.tables.table import TuningTable


def write_ucc(table: TuningTable) -> Export:
    """Write a table as the value of ``UCC_TL_UCP_TUNE`` for host memory.

    The text has the names of algorithms, as their numbers changed between releases. Further
    settings of algorithms are variables, which have one value per job.

    Parameters
    ----------
    table : TuningTable
    """
    # UCC compares the rules of this kind with a size that changed between releases.
    blind = frozenset({"reduce_scatter_block"})
    selections, notes = select(table, LibraryRules("UCC", equivalent, blind))
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
    """Return UCC's counterpart of a collplan algorithm, or the reason why there is none.

    The setting of the result makes UCC run the algorithm in this form. Without it, UCC would
    use radix 4, two rings at once, or its own number of messages in flight.
    """
    kind, ranks = sweep.collective, sweep.ranks
    found = algorithms_of("ucc").find(kind, algorithm, ranks, is_cut=segment_bytes > 0)
    if isinstance(found, str):
        return found
    name, _, value = found.told(algorithm, ranks, segment_bytes)[1].partition("=")
    return Target(found.name, setting=(f"UCC_TL_UCP_{name}", value) if name else None)
