"""Decompositions that keep the rank tree, for results that are reproducible between placements.

The rank tree of all ranks consists of those of aligned blocks of 2^k ranks, whose results are then
combined in the rank tree of the blocks. So it may be divided into rows that are such blocks.
"""

from __future__ import annotations

from collplan.planner.blueprint.blueprint import GroupTask
from collplan.planner.blueprint.groups import Rows
from collplan.planner.errors import AlgorithmError
from collplan.specs import Decomposition
from collplan.specs.collectives.collective_base import Reproducible

_WAY_OUT = "use full_lane with form: rank_tree, flat or auto, or ask for runs"


def require_aligned(
    task: GroupTask, chosen: Decomposition, rows: Rows | None, level: Reproducible | None
) -> None:
    """Raise `AlgorithmError` if a decomposition cannot combine operands in the rank tree.

    Parameters
    ----------
    task : GroupTask
        Collective that is decomposed.
    chosen : Decomposition
    rows : list of ndarray or None
        Positions of every row; None if the decomposition has none.
    level : str or None
        Level of the collective.
    """
    if level == "runs" and task.traits.has_op and chosen.shares == "balanced":
        raise AlgorithmError(
            "decomposition.shares: balanced shares depend on the rates of lanes, and "
            "collective.reproducible is runs; use equal shares, or ask for ranks"
        )
    if level != "placements" or not task.traits.has_op:
        return
    before = f"decomposition: collective.reproducible is placements, and {chosen.name}"
    if rows is None:
        if task.kind != "scan":
            return
        raise AlgorithmError(
            f"{before} combines each rank with all ranks before it, which the rank tree does not; "
            f"{_WAY_OUT}"
        )
    if task.traits.is_prefix:
        raise AlgorithmError(
            f"{before} combines each rank's row with all rows before it, which the rank tree of a "
            f"{task.kind} does not; {_WAY_OUT}"
        )
    if chosen.form is not None:
        raise AlgorithmError(
            f"{before} {chosen.form} combines ranks in another order than the rank tree; {_WAY_OUT}"
        )
    if (length := first_unaligned(rows)) is not None:
        raise AlgorithmError(
            f"{before} combines rows of {length} ranks first, which the rank tree does only with "
            f"equal rows of 2, 4, 8, ... consecutive ranks; {_WAY_OUT}"
        )


def first_unaligned(rows: Rows) -> int | None:
    """Return the length of the first row that is no aligned block of ranks; None if all are.

    Examples
    --------
    >>> import numpy as np
    >>> first_unaligned([np.array([0, 1]), np.array([2, 3]), np.array([4])])
    >>> first_unaligned([np.array([0, 1, 2]), np.array([3, 4])]), first_unaligned([np.arange(3)])
    (3, None)
    """
    length = len(rows[0])
    is_power = length & (length - 1) == 0
    first = 0
    for number, row in enumerate(rows):
        is_last = number == len(rows) - 1
        is_run = (row == range(first, first + len(row))).all()
        if not is_run or (not is_last and (len(row) != length or not is_power)):
            return len(row)
        if is_last and (len(row) > length or (number and not is_power)):
            return len(row)
        first += len(row)
    return None
