"""What must hold of any plan before addresses are computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from collplan.planner.errors import PlanFormatError
from collplan.planner.verify.format_check import check_format

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan

LARGEST_ELEMENT: Final = 2**14
"""Bytes of an element; times 2**48 elements they are a number of 64 bits."""
FARTHEST: Final = 2**48
"""Elements a buffer has at most, and between two repeats of an extent."""


def check_plan(plan: Plan) -> None:
    """See that nothing in a plan, whoever made it, leads outside of its buffers.

    Raises
    ------
    PlanFormatError
        If an entry is malformed, or products of sizes could overflow.
    """
    check_format(plan)
    if not 0 < plan.itemsize <= LARGEST_ELEMENT:
        raise PlanFormatError(
            f"itemsize is {plan.itemsize} bytes, must be 1 to {LARGEST_ELEMENT} to be executed"
        )
    # Strides of extents without repeats count, too: engines multiply them all the same.
    for name, values in (
        ("patterns", plan.patterns),
        ("buffer_sizes", plan.buffer_sizes),
        ("shared_sizes", plan.shared_sizes),
    ):
        far = np.flatnonzero((values <= -FARTHEST) | (values >= FARTHEST))
        if len(far):
            raise PlanFormatError(
                f"{name} has an entry of {values.flat[far[0]]} elements, must be below 2**48 to be "
                "executed"
            )
