"""Measured sweeps: times of the candidates of one collective over message sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from math import isqrt, log
from typing import Annotated, Final

from pydantic import Field

from collplan.specs.collectives.collective import COLLECTIVES, Collective
from collplan.specs.collectives.collective_base import Reproducible
from collplan.specs.collectives.counts import Distribution
from collplan.specs.collectives.elements import Datatype, Operation
from collplan.specs.collectives.vectors import Vector
from collplan.specs.errors import SpecError, show_value
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import Machine, RankOrder, place_ranks
from collplan.specs.request import Method, PlanSpec
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.numbers import (
    REAL,
    Bytes,
    Flag,
    Natural,
    NumberOfCores,
    NumberOfRanks,
    Positive,
    Seconds,
)

NATIVE_LABEL: Final = "native"


class NodePlacement(SpecModel):
    """The placement of ranks on nodes, which are numbered in the order of their first ranks.

    Equal placements compare equal: a block or cyclic order is always written by its name.

    Parameters
    ----------
    ranks_per_node : tuple of int
        Number of ranks of each node.
    rank_order : "block", "cyclic" or tuple of int
        Ranks fill nodes one after another, are dealt to nodes in turn, or are on the nodes
        that the tuple gives, one per rank.

    Examples
    --------
    >>> NodePlacement.of_nodes([7, 7, 3, 3])
    NodePlacement(ranks_per_node=(2, 2))
    >>> str(NodePlacement.of_nodes("abab"))
    '2 x 2 ranks cyclic'
    """

    ranks_per_node: Annotated[tuple[NumberOfRanks, ...], Field(min_length=1)]
    rank_order: RankOrder = "block"

    @classmethod
    def of_nodes(cls, rank_to_node: Sequence[object]) -> NodePlacement:
        """Return the placement of ranks, given a name of any type for the node of each rank."""
        names = list(dict.fromkeys(rank_to_node))
        room, order = place_ranks(tuple(names.index(name) for name in rank_to_node))
        return cls.model_construct(ranks_per_node=room, rank_order=order)

    def _check(self) -> None:
        machine = Machine(
            nodes=len(self.ranks_per_node),
            ranks_per_node=self.ranks_per_node,
            rank_order=self.rank_order,
        )
        same = type(self).of_nodes(machine.rank_to_node)
        if same != self:
            raise ValueError(
                f"ranks_per_node {list(self.ranks_per_node)} in order {self.rank_order} is "
                f"ranks_per_node {list(same.ranks_per_node)} in order {same.rank_order}; write that"
            )

    @cached_property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return sum(self.ranks_per_node)

    def is_like(self, other: NodePlacement) -> bool:
        """Return whether all nodes of both placements have equally many ranks, in the same order.

        The result is False for a single node, as no message crosses the network.
        """
        n_nodes = min(len(self.ranks_per_node), len(other.ranks_per_node))
        return n_nodes > 1 and self.is_akin(other)

    def is_akin(self, other: NodePlacement) -> bool:
        """Return whether `is_like` holds, or both placements are on a single node."""
        n_nodes = {len(self.ranks_per_node), len(other.ranks_per_node)}
        if 1 in n_nodes:
            return n_nodes == {1}
        return (
            {*self.ranks_per_node} == {*other.ranks_per_node}
            and len({*self.ranks_per_node}) == 1
            and self.rank_order == other.rank_order
        )

    def __str__(self) -> str:
        """Return the placement in words, like ``4 x 4 ranks block``."""
        room, nodes = self.ranks_per_node, len(self.ranks_per_node)
        order = self.rank_order if isinstance(self.rank_order, str) else "in an order of their own"
        if nodes == 1:
            return f"1 node of {room[0]} rank{'s' if room[0] > 1 else ''}"
        if len({*room}) == 1:
            return f"{nodes} x {room[0]} ranks {order}"
        return f"{'+'.join(map(str, room))} ranks {order}"


class Choice(Method):
    """A choice between the native collective of the MPI library and plans by some method.

    Parameters
    ----------
    native : bool
        Whether the native collective is chosen; then no other field is allowed.

    Examples
    --------
    >>> Choice(native=True).label
    'native'
    """

    native: Flag = False

    def _check(self) -> None:
        others = sorted(self.model_dump().keys() - {"native"})
        if self.native and others:
            raise ValueError(f"native takes no {others[0]}; leave out one of the two")

    @classmethod
    def of(cls, spec: PlanSpec) -> Choice:
        """Return the choice of a spec's method."""
        return cls(**dict(spec.method))

    def plan_spec(self, machine: Machine, collective: Collective) -> PlanSpec:
        """Return the spec of the plan for a collective on a machine.

        Raises
        ------
        SpecError
            If the choice is native, or the plan does not fit the machine.
        """
        if self.native:
            raise SpecError("native: the library's own collective has no plan; call it")
        with explaining():
            return PlanSpec(machine=machine, collective=collective).with_method(self)

    @cached_property
    def label(self) -> str:
        """Name in tables, which is short and the same for all equal choices."""
        return NATIVE_LABEL if self.native else super().label


NATIVE: Final = Choice(native=True)


class Time(SpecModel):
    """The time of a candidate: the median of repetitions and its confidence interval.

    Parameters
    ----------
    median_s : float
        Median in seconds.
    low_s, high_s : float
        Ends of the 95 % confidence interval of the median, in seconds.
    n : int
        Number of repetitions.
    """

    median_s: Seconds
    low_s: Seconds
    high_s: Seconds
    n: Positive

    def _check(self) -> None:
        if not self.low_s <= self.median_s <= self.high_s:
            raise ValueError(
                f"median_s {self.median_s:g} is not between low_s {self.low_s:g} and "
                f"high_s {self.high_s:g}; give the interval's ends in order"
            )


class Point(SpecModel):
    """One measured message size.

    Parameters
    ----------
    bytes : int
        Message size in bytes: of the vector or of one block.
    times : dict of str to Time
        Times by label of the candidate.
    winner : str
        Label of the candidate to run, which does not always have the smallest median.
    skipped : int
        Number of candidates that were not measured because of their predictions.
    failed : dict of str to str, or None
        Reasons by label, for candidates without times: wrong results, a crash, or a call
        that did not end.
    """

    bytes: Bytes
    times: Annotated[dict[str, Time], Field(min_length=1)]
    winner: str
    skipped: Natural = 0
    failed: dict[str, str] | None = None

    def _check(self) -> None:
        if self.winner not in self.times:
            raise ValueError(
                f"winner {show_value(self.winner)} has no time at {self.bytes} bytes; "
                f"measured are {', '.join(self.times)}"
            )


def counts_in_words(collective: Collective) -> str | None:
    """Return a description of counts that differ per rank; None for other collectives.

    A distribution is described by its name and seed, a table by a digest of its numbers.

    Examples
    --------
    >>> from collplan.specs import Gatherv
    >>> counts_in_words(Gatherv(counts={"distribution": "zipf", "total": 9, "seed": 3}))
    'zipf, seed 3'
    >>> counts_in_words(Gatherv(counts=[1, 0, 2]))
    'table 7fcc04283f61'
    """
    if not isinstance(collective, Vector):
        return None
    counts = collective.counts
    if isinstance(counts, Distribution):
        return f"{counts.distribution}, seed {counts.seed}"
    return f"table {hashlib.sha256(repr(counts.to_json()).encode()).hexdigest()[:12]}"


def name_with_counts(kind: str, counts: str | None) -> str:
    """Return the name of a kind of collective, followed by its counts if they are given."""
    return kind if counts is None else f"{kind} ({counts})"


class Sweep(SpecModel):
    """Measurements of one collective on one placement of ranks, over message sizes.

    Parameters
    ----------
    collective : str
        Kind of the collective.
    op_commutes : bool or None
        Whether the operation commutes; None if the collective has no operation.
    ranks : int
        Number of ranks.
    placement : NodePlacement
        Placement of the ranks on nodes.
    datatype : str
        Datatype of the measured calls.
    op : Operation or None
        Operation of the measured calls; None if the collective has none.
    counts : str or None
        Description of counts that differ per rank, see `counts_in_words`. The sweep is not valid
        for other counts. None for collectives with a single count.
    points : tuple of Point
        Measured message sizes, ascending.
    choices : dict of str to Choice
        Choices by label.
    complete : bool
        Whether all requested message sizes were measured; incomplete sweeps decide nothing.
    ranks_per_core : float or None
        Number of ranks that shared a core on the fullest host; None if each rank had its
        own core. Native calls may wait inefficiently on shared cores, so that the speed-ups
        are valid only for such runs.
    computation_s : float or None
        Time in seconds that each rank computes on its core between the start of a call and the
        wait for it. The times of the sweep then include start, computation and wait, and are
        valid only for non-blocking calls. None for blocking calls.
    cores : int or None
        Cores per node of the machine for which plans that overlap computation were made. Cores
        without a rank are communication cores. None for blocking calls.
    reproducible : str
        Level of the measured collective. Beyond ``ranks``, native never wins, as its order of
        operands is not known, and calls of the collective whose operation rounds run by plans of
        this level only.
    """

    collective: str
    op_commutes: Flag | None = None
    ranks: NumberOfRanks
    placement: NodePlacement
    datatype: Datatype = "float64"
    op: Operation | None = None
    counts: Annotated[str, Field(min_length=1)] | None = None
    points: tuple[Point, ...]
    choices: dict[str, Choice]
    complete: Flag
    ranks_per_core: Annotated[float, Field(gt=1, le=2**31), REAL] | None = None
    computation_s: Seconds | None = None
    cores: NumberOfCores | None = None
    reproducible: Reproducible = "ranks"

    def _check(self) -> None:
        model = COLLECTIVES.get(self.collective)
        if model is None:
            raise ValueError(
                f"{show_value(self.collective)} is not a collective; "
                f"valid: {', '.join(COLLECTIVES)}"
            )
        if model.has_edges:
            raise ValueError(
                f"{self.collective} needs a graph, which tables do not have; leave it out"
            )
        if (self.op_commutes is None) == model.has_op:
            need = "has an operation" if model.has_op else "has no operation"
            way = "give true or false" if model.has_op else "leave op_commutes out"
            raise ValueError(f"op_commutes is {self.op_commutes}, {self.collective} {need}; {way}")
        if (self.counts is None) != (model.regular is None):
            need = "of equal counts" if model.regular is None else "of counts that differ"
            way = "leave counts out" if model.regular is None else "say which they were"
            raise ValueError(f"counts is {self.counts}, {self.collective} is {need}; {way}")
        if self.ranks != self.placement.n_ranks:
            raise ValueError(
                f"ranks is {self.ranks}, placement has {self.placement.n_ranks}; make them agree"
            )
        if (self.computation_s is None) != (self.cores is None):
            known, missing = "computation_s", "cores"
            if self.computation_s is None:
                known, missing = missing, known
            raise ValueError(f"{known} is given, but not {missing}; give both or neither")
        if self.cores is not None and self.cores < max(self.placement.ranks_per_node):
            raise ValueError(
                f"cores is {self.cores}, a node has {max(self.placement.ranks_per_node)} ranks; "
                f"give at least one core per rank"
            )
        self._check_points()

    def _check_points(self) -> None:
        if self.reproducible != "ranks" and not COLLECTIVES[self.collective].has_op:
            raise ValueError(
                f"reproducible is {self.reproducible}, {self.collective} has no operation; leave "
                "reproducible out"
            )
        for point, after in pairwise(self.points):
            if point.bytes >= after.bytes:
                raise ValueError(
                    f"points go from {point.bytes} to {after.bytes} bytes; "
                    f"list each size once, ascending"
                )
        for point in self.points:
            for label in point.times:
                if label not in self.choices:
                    raise ValueError(
                        f"{show_value(label)} at {point.bytes} bytes is not among the choices; "
                        f"there are {', '.join(self.choices)}"
                    )
        if self.complete and not self.points:
            raise ValueError("complete is true, but there are no points; measure some")

    @cached_property
    def key(self) -> tuple[str, bool | None, str | None, NodePlacement, bool, Reproducible]:
        """Key of the sweep in a table.

        The key consists of the kind of collective, whether its operation commutes, the
        counts, the placement, whether calls overlapped computation, and the level.
        """
        kind = self.collective, self.op_commutes, self.counts
        return *kind, self.placement, self.computation_s is not None, self.reproducible

    @property
    def name(self) -> str:
        """Name of the sweep: its collective and its counts, like ``gatherv (zipf, seed 3)``.

        For non-blocking calls it includes the computation, like ``Ireduce beside 0.1 s``.
        """
        name = name_with_counts(self.collective, self.counts)
        if self.reproducible != "ranks":
            name += f" reproducible between {self.reproducible}"
        return name if self.computation_s is None else f"I{name} beside {self.computation_s:g} s"

    @property
    def beside(self) -> str:
        """The computation that calls overlap, in words; empty for blocking calls."""
        seconds = self.computation_s
        return "" if seconds is None else f" beside {seconds:g} s of computation"

    def intervals(self) -> list[tuple[int, int | None, str]]:
        """Return the intervals of message sizes with the same winner, ascending.

        Between two neighboring points of which native won one, native is the choice, as nothing is
        known of the plan there. Points of different plans meet at their geometric mean.

        Returns
        -------
        list of (int, int or None, str)
            First size and end of each interval in bytes, and the label of its winner. The
            end is exclusive; that of the last interval is None.
        """
        found: list[tuple[int, int | None, str]] = []
        begin = 0
        for point, after in pairwise(self.points):
            if point.winner != after.winner:
                end = isqrt(max(1, point.bytes) * after.bytes) + 1
                if after.winner == NATIVE_LABEL:
                    end = point.bytes + 1
                elif point.winner == NATIVE_LABEL:
                    end = after.bytes
                end = min(after.bytes, end)
                found.append((begin, end, point.winner))
                begin = end
        return [*found, (begin, None, self.points[-1].winner)] if self.points else []

    def winner_at(self, n_bytes: int) -> str:
        """Return the label of the winner at a message size in bytes."""
        return next(label for _, end, label in self.intervals() if end is None or n_bytes < end)

    def winner_towards(self, other: Sweep, ranks: int, n_bytes: int) -> str:
        """Return the label of the winner for a number of ranks between those of two sweeps.

        If both sweeps have the same winners in the same order, the sizes at which the winner
        changes are interpolated geometrically in the number of ranks. Otherwise this sweep
        decides.

        Parameters
        ----------
        other : Sweep
            Sweep on the other side of `ranks`.
        ranks : int
            Number of ranks.
        n_bytes : int
            Message size in bytes.
        """
        intervals, others = self.intervals(), other.intervals()
        if [label for *_, label in intervals] != [label for *_, label in others]:
            return self.winner_at(n_bytes)
        weight = log(ranks / self.ranks) / log(other.ranks / self.ranks)
        for (_, end, label), (_, other_end, _) in zip(intervals, others, strict=True):
            if end is None or other_end is None:
                return label
            if n_bytes < float(end) ** (1 - weight) * float(other_end) ** weight:
                return label
        raise AssertionError("the last interval has no end")

    def point_near(self, n_bytes: int, label: str) -> Point:
        """Return the point nearest to a size in bytes, by ratio, among those that `label` won."""
        won = [point for point in self.points if point.winner == label]
        return min(won, key=lambda point: abs(log(max(1, point.bytes)) - log(max(1, n_bytes))))
