"""Options of tuning: collectives, ranks, sizes, and precision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collplan.specs import Collective
from collplan.specs.errors import CollplanError
from collplan.specs.network import Network
from collplan.tune.racing import Rules
from collplan.tune.sweep import Placement, Sweep, counts_in_words
from collplan.tune.table import TuningTable


@dataclass(frozen=True, slots=True)
class TuningJob:
    """A tuning job: collectives, sizes, ranks and precision.

    Parameters
    ----------
    collectives : tuple of Collective
        Each kind once, with datatype and operation. A count does not matter; counts that
        differ per rank are scaled to each size.
    sizes : tuple of int
        Bytes of MPI's count, or of all blocks if counts differ, ascending.
    ranks : tuple of int
        Numbers of ranks to tune on, filling nodes in order; all if empty.
    rules : Rules
        How well medians must be known.
    keep_within : float
        Factor of the best predicted time within which candidates are measured.
    at_most : int or None
        Measure no more candidates of a point.
    network : Network
        What communication costs, for predictions.
    lanes : int or None
        Lanes per node, if known.
    numa_domains : int
        Of a node.
    again : bool
        Measure again the sweeps that the table has.
    give_up_s : float
        A candidate has failed whose call takes longer, and than twenty native calls.
    computation_s : float or None
        What each rank computes beside every call, which then does not block; None for blocking
        calls.
    cores : tuple of int or None
        The processor of each core of a node: ranks and their threads are bound to them.
    """

    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    rules: Rules = field(default_factory=Rules)
    keep_within: float = 1.5
    at_most: int | None = None
    network: Network = field(default_factory=Network)
    lanes: int | None = None
    numa_domains: int = 1
    again: bool = False
    give_up_s: float = 60.0
    computation_s: float | None = None
    cores: tuple[int, ...] | None = None

    def arguments(self, placement: Placement) -> dict[str, Any]:
        """Return all that decides what is measured, as JSON can hold it."""
        network = hashlib.sha256(self.network.model_dump_json().encode()).hexdigest()[:12]
        return {
            **({"again": "yes"} if self.again else {}),
            "collectives": [_in_words(collective) for collective in self.collectives],
            "ranks": list(self.ranks),
            "sizes": list(self.sizes),
            **asdict(self.rules),
            "keep-within": self.keep_within,
            "at-most": self.at_most,
            "network": network,
            "lanes": self.lanes,
            "numa_domains": self.numa_domains,
            "placement": str(placement),
            **({} if self.computation_s is None else {"computation": self.computation_s}),
            **({} if self.cores is None else {"cores": list(self.cores)}),
        }

    def goals(self, nodes: Sequence[int], n_spare: int = 0) -> Iterator[Goal]:
        """Yield every sweep to measure, on ranks whose nodes are given.

        Parameters
        ----------
        nodes : sequence of int
            Equal for ranks of one node.
        n_spare : int
            Communication cores of each node.

        Raises
        ------
        CollplanError
            If there are fewer ranks than asked for, or a root is not among them.
        """
        order = sorted(range(len(nodes)), key=lambda rank: (nodes.index(nodes[rank]), rank))
        for n_ranks in self.ranks or (len(nodes),):
            if n_ranks > len(nodes):
                raise CollplanError(
                    f"--ranks: {n_ranks} ranks, there are {len(nodes)}; start more with -n"
                )
            members = tuple(sorted(order[:n_ranks]))
            placement = Placement.of_nodes([nodes[rank] for rank in members])
            for collective in self.collectives:
                root = collective.root or 0
                if root >= n_ranks:
                    raise CollplanError(
                        f"collective.root: {root} is not among {n_ranks} ranks; give a smaller one"
                    )
                sizes = self.sizes if collective.has_data else (0,)
                overlaps = self.computation_s is not None
                n_cores = max(placement.ranks_per_node) + n_spare if overlaps else None
                goal = Goal(collective, members, placement, sizes, self.computation_s, n_cores)
                goal.check()
                yield goal


@dataclass(frozen=True, slots=True)
class Goal:
    """A sweep to measure.

    Parameters
    ----------
    collective : Collective
        With any count.
    members : tuple of int
        The ranks it runs on, ascending.
    placement : Placement
        Where they are.
    sizes : tuple of int
        Bytes, ascending.
    computation_s : float or None
        What each rank computes beside every call; None for blocking calls.
    cores : int or None
        Cores of a node, where calls do not block.
    """

    collective: Collective
    members: tuple[int, ...]
    placement: Placement
    sizes: tuple[int, ...]
    computation_s: float | None = None
    cores: int | None = None

    def sized(self, n_bytes: int) -> Collective:
        """Return the collective of the given size in bytes."""
        return self.collective.with_count(n_bytes // self.collective.itemsize)

    def check(self) -> None:
        """Raise `CollplanError` where counts that differ per rank do not fit the ranks."""
        for n_bytes in self.sizes if self.collective.regular else ():
            for problem in self.sized(n_bytes).misfits(len(self.members)):
                raise CollplanError(problem)

    def empty_sweep(self) -> Sweep:
        """Return the sweep before anything is measured."""
        collective = self.collective
        return Sweep(
            collective=collective.kind,
            op_commutes=None if collective.op is None else collective.op.commutative,
            ranks=len(self.members),
            placement=self.placement,
            datatype=str(collective.datatype),
            op=collective.op,
            counts=counts_in_words(collective),
            points=(),
            choices={},
            complete=False,
            computation_s=self.computation_s,
            cores=self.cores,
        )

    def find(self, table: TuningTable, *, of_rival: bool = False) -> Sweep | None:
        """Return the table's sweep of this, None where it has none.

        A rival is the sweep in whose place this one would be, of another type or operation, or
        beside another computation.
        """
        empty = self.empty_sweep()
        for sweep in table.sweeps:
            is_rival = _measured_as(sweep) != _measured_as(empty)
            if sweep.key == empty.key and is_rival == of_rival:
                return sweep
        return None

    def __str__(self) -> str:
        """Name the sweep in one line, like ``bcast on 4 x 4 ranks block``."""
        return f"{self.empty_sweep().name} on {self.placement}"


def _measured_as(sweep: Sweep) -> tuple[object, ...]:
    return sweep.datatype, sweep.op, sweep.computation_s, sweep.cores


def _in_words(collective: Collective) -> str:
    """Return what is measured of a collective, its count aside.

    Examples
    --------
    >>> from collplan.specs import Reduce
    >>> _in_words(Reduce(count=0, root=2))
    'reduce datatype=float64 op=sum root=2'
    """
    # With another total, blocks lie one after another, whatever displacements there were.
    left_out = {"kind", "count", "counts", "displs", "send_displs", "recv_displs"}
    given = collective.model_dump(exclude=left_out, exclude_defaults=True)
    words = {"datatype": collective.datatype} | given
    counts = counts_in_words(collective)
    if counts is not None:
        words["counts"] = counts
    op = collective.op
    if op is not None:
        words["op"] = op.name if op.commutative else f"{op.name} in rank order"
    return " ".join([collective.kind, *(f"{key}={words[key]}" for key in sorted(words))])
