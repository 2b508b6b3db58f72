"""Local steps: copies and reductions between components, as algorithms of one rank."""

from __future__ import annotations

from collplan.planner.algorithms.registry import Algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Reduce, Round, Rounds


def _copy(group: Group) -> Rounds:
    """Copy the input to the output."""
    yield Round(Copy(0, group.whole(group.input), group.whole(group.output)))


def _reduce(group: Group) -> Rounds:
    """Combine the input, as the left operand, with the output."""
    vector = group.whole
    yield Round(
        Reduce(0, vector(group.input), vector(group.output), vector(group.output)),
    )


LOCAL = {
    "copy": Algorithm("copy", "local", _copy),
    "local_reduce": Algorithm("local_reduce", "local", _reduce),
}
"""The algorithms of local components, by kind; specs don't choose them."""
