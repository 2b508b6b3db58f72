"""Vector collectives as each rank calls them, and the spec that all agree on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from collplan.api.rank_counts import Ints, RankCounts, counts_of_all
from collplan.executors.mpi.stall.timed_collectives import RollCall
from collplan.measure.lanes import node_of_ranks
from collplan.specs import COLLECTIVES, CollplanError, PlanSpec, SpecError, parse_spec
from collplan.specs.errors import show_value
from collplan.specs.machines.machine import place_ranks
from collplan.specs.syntax.tables import places_of, read_table

Numbers = Sequence[int] | Ints
_COMMON: Final = "datatype", "op", "in_place", "options"
"""Fields that must be the same on all ranks beside counts; but only a root can be in place."""


@dataclass(frozen=True, eq=False)
class RankView:
    """One rank's part of a collective whose counts differ per rank, as its MPI call has it.

    Parameters
    ----------
    kind : {"gatherv", "scatterv", "allgatherv", "reduce_scatter", "alltoallv"}
    counts : sequence of int, optional
        Elements of all blocks: at the root of gatherv and scatterv, on all ranks of allgatherv
        and reduce_scatter. Of alltoallv, what this rank sends to each; not in place.
    own : int, optional
        Elements of this rank's block; to be compared with `counts` of the rank that has them.
        Of gatherv and scatterv, every rank but the root needs it.
    received : sequence of int, optional
        Of alltoallv, what this rank receives from each.
    displs : sequence of int, optional
        Where blocks begin in the buffer of `counts`; one after another if not given.
    received_displs : sequence of int, optional
        The same of `received`.
    root : int
        Of gatherv and scatterv.
    datatype : str
        As in a spec.
    op : str or mapping, optional
        Of reduce_scatter, as in a spec.
    in_place : bool
        As MPI_IN_PLACE; of gatherv and scatterv, the root's counts.
    options : mapping
        Further fields of the spec: machine, decomposition, algorithms, transport, passes. By
        default the machine has the nodes that MPI finds.

    Examples
    --------
    >>> view = RankView("allgatherv", counts=[3, 0, 5], datatype="int32")
    >>> spec = spec_of_all([view] * 3, {"ranks_per_node": 3})
    >>> spec.collective.counts
    Table([3, 0, 5])
    """

    kind: str
    counts: Numbers | None = None
    own: int | None = None
    received: Numbers | None = None
    displs: Numbers | None = None
    received_displs: Numbers | None = None
    root: int = 0
    datatype: str = "float64"
    op: Any = None
    in_place: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def checked(self, n_ranks: int) -> RankView:
        """Return the view with its numbers as arrays.

        Raises
        ------
        SpecError
            If there is no such kind, or numbers are not one per rank.
        """
        model = COLLECTIVES.get(self.kind)
        vectors = {kind for kind, one in COLLECTIVES.items() if one.regular and not one.has_edges}
        if model is None or self.kind not in vectors:
            kinds = ", ".join(kind for kind in COLLECTIVES if kind in vectors)
            raise SpecError(f"kind: {show_value(self.kind)} has no counts per rank; valid: {kinds}")
        names = "counts", "received", "displs", "received_displs"
        found = {name: _numbers(name, getattr(self, name), n_ranks) for name in names}
        return RankView(**{**vars(self), **found})

    def known_counts(self) -> RankCounts:
        """Return what this rank knows of counts."""
        counts: Any = self.counts
        received: Any = self.received
        return RankCounts(self.kind, counts, self.own, received, self.root)


def _numbers(name: str, given: Any, n_ranks: int) -> Ints | None:
    if given is None:
        return None
    try:
        found = read_table(given)
    except ValueError as error:
        raise SpecError(f"{name}: {error}") from None
    if found.shape != (n_ranks,):
        raise SpecError(f"{name}: has shape {found.shape}; give one number for each rank")
    return found


def agree_on_spec(view: RankView, comm: Any) -> PlanSpec:
    """Return the spec of a collective of which each rank knows a part; collective.

    Raises
    ------
    CollplanError
        On all ranks, if the parts do not fit together.
    """
    call = RollCall(comm, None, "agree on the collective")
    checked = call.together(lambda: view.checked(comm.size))
    views: list[RankView] = comm.allgather(checked)
    nodes = None if any("machine" in one.options for one in views) else node_of_ranks(comm)
    return call.together(lambda: spec_of_all(views, None if nodes is None else _machine(nodes)))


def _machine(node_of_rank: list[int]) -> dict[str, Any]:
    names = list(dict.fromkeys(node_of_rank))
    room, order = place_ranks(tuple(names.index(node) for node in node_of_rank))
    return {"nodes": len(room), "ranks_per_node": room, "rank_order": order}


def spec_of_all(views: Sequence[RankView], machine: Mapping[str, Any] | None = None) -> PlanSpec:
    """Return the spec of a collective, given what every rank knows of it.

    Parameters
    ----------
    views : sequence of RankView
        Of all ranks.
    machine : mapping, optional
        Used where the views name none.

    Raises
    ------
    CollplanError
        If views do not fit together; the message names two ranks.
    """
    views = [one.checked(len(views)) for one in views]
    counts = counts_of_all([one.known_counts() for one in views])
    first = views[0]
    model = COLLECTIVES[first.kind]
    for name in _COMMON:
        values = [getattr(one, name) for one in views]
        for rank, value in enumerate(values):
            if value != values[0] and not (name == "in_place" and model.is_rooted):
                raise CollplanError(
                    f"{name}: rank 0 calls with {values[0]}, rank {rank} with {value}; "
                    "both must be equal"
                )
    fields: dict[str, Any] = {"kind": first.kind, "counts": counts, "datatype": first.datatype}
    fields["in_place"] = views[first.root].in_place
    if first.op is not None:
        fields["op"] = first.op
    if model.is_rooted:
        fields["root"] = first.root
    fields |= _layouts(views, counts)
    given = {name: value for name, value in fields.items() if value is not None}
    return parse_spec({"machine": machine, **first.options, "collective": given})


def _layouts(views: Sequence[RankView], counts: Ints) -> dict[str, Any]:
    """Return the displacements of blocks, and what follows from them for the collective."""
    first = views[0]
    model = COLLECTIVES[first.kind]
    if model.is_pairwise:
        sent = [(one.displs, row) for one, row in zip(views, counts, strict=True)]
        received = [(one.received_displs, row) for one, row in zip(views, counts.T, strict=True)]
        return {"send_displs": _rows(sent), "recv_displs": _rows(received)}
    if model.is_rooted:
        return {"displs": views[first.root].displs}
    rows = _rows([(one.displs, counts) for one in views])
    if rows is None or (rows == rows[0]).all():
        return {"displs": None if rows is None else rows[0]}
    if first.in_place or model.has_op:
        raise CollplanError(
            "displs: ranks differ in where blocks begin; give all the same, or no in_place"
        )
    # A plan of allgatherv passes on what lies where it was received: on all ranks at the same
    # place. So each rank sends its block to all others itself.
    to_all = np.broadcast_to(counts[:, None], rows.shape)
    there = {"send_displs": np.zeros_like(rows), "recv_displs": rows}
    return {"kind": "alltoallv", "counts": to_all, **there}


def _rows(layouts: Sequence[tuple[Any, Ints]]) -> Ints | None:
    """Return where blocks begin, by rank; None where no rank says it."""
    if all(displs is None for displs, _ in layouts):
        return None
    return np.array([places_of(counts, displs) for displs, counts in layouts])
