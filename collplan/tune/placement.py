"""Where the ranks of a communicator are: how many on each node, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from collplan.specs.base import SpecModel
from collplan.specs.machine import Machine, RankOrder
from collplan.specs.numbers import NumberOfRanks


class Placement(SpecModel):
    """Ranks on nodes; nodes are numbered in the order of their first ranks.

    Equal placements are equal objects: an order that is the block order or the
    cyclic one is called so.

    Parameters
    ----------
    ranks_per_node : tuple of int
        Ranks on every node.
    rank_order : "block", "cyclic" or tuple of int
        Node after node, dealt around, or the node of every rank.

    Examples
    --------
    >>> Placement.of_nodes([7, 7, 3, 3])
    Placement(ranks_per_node=(2, 2), rank_order='block')
    >>> str(Placement.of_nodes("abab"))
    '2 x 2 ranks cyclic'
    """

    ranks_per_node: Annotated[tuple[NumberOfRanks, ...], Field(min_length=1)]
    rank_order: RankOrder = "block"

    @classmethod
    def of_nodes(cls, rank_to_node: Sequence[object]) -> Placement:
        """Return the placement of ranks on nodes of any names."""
        names = list(dict.fromkeys(rank_to_node))
        order = tuple(names.index(name) for name in rank_to_node)
        room = tuple(order.count(node) for node in range(len(names)))
        for rank_order in ("block", "cyclic"):
            machine = Machine(nodes=len(room), ranks_per_node=room, rank_order=rank_order)
            if machine.rank_to_node == order:
                return cls.model_construct(ranks_per_node=room, rank_order=rank_order)
        return cls.model_construct(ranks_per_node=room, rank_order=order)

    @classmethod
    def of_machine(cls, machine: Machine) -> Placement:
        """Return the placement of a machine's ranks."""
        return cls.of_nodes(machine.rank_to_node)

    @model_validator(mode="after")
    def _check_canonical(self) -> Self:
        machine = Machine(
            nodes=len(self.ranks_per_node),
            ranks_per_node=self.ranks_per_node,
            rank_order=self.rank_order,
        )
        same = type(self).of_machine(machine)
        if same != self:
            raise ValueError(
                f"ranks_per_node {list(self.ranks_per_node)} in order {self.rank_order} is "
                f"ranks_per_node {list(same.ranks_per_node)} in order {same.rank_order}; write that"
            )
        return self

    @cached_property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return sum(self.ranks_per_node)

    def is_like(self, other: Placement) -> bool:
        """Return whether nodes are all equally full, as the other's, in the same order.

        A single node, where nothing crosses the network, is like none.
        """
        return (
            {*self.ranks_per_node} == {*other.ranks_per_node}
            and len({*self.ranks_per_node}) == 1
            and min(len(self.ranks_per_node), len(other.ranks_per_node)) > 1
            and self.rank_order == other.rank_order
        )

    def __str__(self) -> str:
        """Write the placement in one line, like ``4 x 4 ranks block``."""
        room, nodes = self.ranks_per_node, len(self.ranks_per_node)
        order = self.rank_order if isinstance(self.rank_order, str) else "in an order of their own"
        if nodes == 1:
            return f"1 node of {room[0]} rank{'s' if room[0] > 1 else ''}"
        if len({*room}) == 1:
            return f"{nodes} x {room[0]} ranks {order}"
        return f"{'+'.join(map(str, room))} ranks {order}"
