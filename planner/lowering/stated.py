"""Stated components: components with their algorithms and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from collplan.planner.algorithms.registry import Algorithm
from collplan.planner.arrays import Ints, csr
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.packing.schedule import Packing
from collplan.planner.plan.phases import GroupCall, Phase, Trees

Shape = tuple[int, int]
"""Size and root of a group."""


Sends = Mapping[Shape, Sequence[int]]
"""Rounds in which messages are sent, for each shape of groups."""


@dataclass(frozen=True)
class Stated:
    """A component with its algorithm, the algorithm's options, and schedules if it is packed."""

    component: Component
    algorithm: Algorithm
    options: Mapping[str, Any] = field(default_factory=dict)
    packing: Packing | None = None

    def n_parts(self, size: int) -> int:
        """Return the number of chunks of a vector, or of each block, for `size` ranks."""
        return self.algorithm.n_parts(size, self.options)

    @property
    def n_pairs(self) -> int:
        """Return the number of messages that an algorithm of about p² messages generates.

        It is that of the largest group, including empty messages, and 0 for other algorithms.
        """
        size = int(self.component.groups.sizes.max(initial=0))
        return int(size * (size - 1) * self._per_pair)

    @property
    def least_messages(self) -> int:
        """Return the number of messages that an algorithm of about p² messages sends in all groups.

        It is 0 for other algorithms.
        """
        return int(self._n_messages.sum() * self._per_pair)

    def least_messages_of(self, ranks: Sequence[int]) -> float:
        """Return the part of `least_messages` that belongs to some ranks."""
        groups = self.component.groups
        per_member = self._n_messages * self._per_pair / groups.sizes
        return float(np.repeat(per_member, groups.sizes)[np.isin(groups.ranks, ranks)].sum())

    @property
    def _n_messages(self) -> Ints:
        """Number of messages that ordered pairs of ranks exchange per group, without empty ones."""
        given, sizes = self.component.given, self.component.groups.sizes.astype(np.int64)
        all_pairs = sizes * (sizes - 1)
        if not self._per_pair or isinstance(given, PairTable):
            return all_pairs
        if not self.component.traits.has_blocks:
            # A vector shorter than the group has one chunk per element.
            return np.minimum(sizes, given.largest) * (sizes - 1)
        is_pairwise, ends = self.component.traits.is_pairwise, self.component.first_rows
        n_filled = csr.running_total(given.totals > 0)
        n_blocks = n_filled[ends[1:]] - n_filled[ends[:-1]]
        # A rank's block for itself is not a message.
        n_sent = n_blocks - sizes if is_pairwise else n_blocks * (sizes - 1)
        return np.asarray(np.clip(n_sent, 0, all_pairs))

    @property
    def _per_pair(self) -> float:
        return 0.0 if self.component.is_local else self.algorithm.per_pair

    def phase(self, first_round: int = 0, sends: Sends = MappingProxyType({})) -> Phase:
        """Return the component's phase of a plan.

        Parameters
        ----------
        first_round : int
            First round of the phase.
        sends : mapping
            Rounds that send messages, relative to `first_round`, by size and root of a group.
        """
        groups, root = self.component.groups, self.component.root
        kind, tree = self.component.kind, self.algorithm.tree
        shapes: dict[Shape, list[tuple[int, ...]]] = {}
        if tree is not None and sends:
            for group, first in enumerate(root.tolist()):
                ranks = tuple(groups[group].tolist())
                shapes.setdefault((len(ranks), first), []).append(ranks)
        trees = (
            Trees.of(
                kind,
                tuple(ranks),
                [first_round + number for number in sends[shape]],
                self.algorithm.rounds_up and self.algorithm.rounds_up(shape[0]),
            )
            for shape, ranks in shapes.items()
        )
        numbers = range(len(groups)) if self.algorithm.is_native else ()
        calls = (GroupCall(tuple(groups[number].tolist())) for number in numbers)
        radix = int(self.options["radix"]) if tree == "knomial" else 2 * (tree == "binomial")
        name, role = self.algorithm.name, self.component.role
        return Phase(kind, name, role, tree or "", tuple(trees), tuple(calls), radix)
