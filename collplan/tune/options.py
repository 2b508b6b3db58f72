"""Tuning options: collectives, numbers of ranks, message sizes, and precision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from collplan.specs import Collective
from collplan.specs.errors import CollplanError
from collplan.specs.machines.network import Network
from collplan.tables.sweep import NodePlacement, Sweep, counts_in_words
from collplan.tables.table import TuningTable
from collplan.tune.racing import StopRules


@dataclass(frozen=True, slots=True)
class TuningJob:
    """Description of the measurements of a tuning run.

    Parameters
    ----------
    collectives : tuple of Collective
        Collectives with datatype and operation, each kind once. Their counts are ignored;
        counts that differ per rank are scaled to each message size.
    sizes : tuple of int
        Message sizes in bytes, ascending: of the vector or of one block or, if counts differ
        per rank, of all blocks together.
    ranks : tuple of int
        Numbers of ranks to tune for, filling nodes in order; all ranks if empty.
    rules : StopRules
        Precision to which medians are measured.
    keep_within : float
        Factor of the best predicted time within which candidates are measured.
    at_most : int or None
        Largest number of candidates to measure per point; None for no limit.
    network : Network
        Communication costs, for predictions.
    lanes : int or None
        Lanes per node, if known.
    numa_domains : int
        NUMA domains per node.
    again : bool
        Whether to replace sweeps that the table already has.
    give_up_s : float
        Time limit of a call in seconds; a candidate has failed if a call exceeds both this
        limit and 20 native calls.
    computation_s : float or None
        Time in seconds that each rank computes between the start of a call and the wait for
        it; None for blocking calls.
    cores : tuple of int or None
        Processor ids of the cores of each node, to which ranks and their progress threads
        are bound; None to bind nothing.
    """

    collectives: tuple[Collective, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...] = ()
    rules: StopRules = field(default_factory=StopRules)
    keep_within: float = 1.5
    at_most: int | None = None
    network: Network = field(default_factory=Network)
    lanes: int | None = None
    numa_domains: int = 1
    again: bool = False
    give_up_s: float = 60.0
    computation_s: float | None = None
    cores: tuple[int, ...] | None = None

    def arguments(self, placement: NodePlacement) -> dict[str, Any]:
        """Return all arguments that affect the measurements, as values for JSON."""
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
        """Yield every sweep to measure.

        Parameters
        ----------
        nodes : sequence of int
            Node of each rank.
        n_spare : int
            Communication cores per node.

        Raises
        ------
        CollplanError
            If a number in `ranks` exceeds the number of ranks, or a root is not among the ranks.
        """
        order = sorted(range(len(nodes)), key=lambda rank: (nodes.index(nodes[rank]), rank))
        for n_ranks in self.ranks or (len(nodes),):
            if n_ranks > len(nodes):
                raise CollplanError(
                    f"--ranks: {n_ranks} ranks, there are {len(nodes)}; start more with -n"
                )
            members = tuple(sorted(order[:n_ranks]))
            placement = NodePlacement.of_nodes([nodes[rank] for rank in members])
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
        Collective, whose count is ignored.
    members : tuple of int
        Ranks that take part, ascending.
    placement : NodePlacement
        Placement of these ranks on nodes.
    sizes : tuple of int
        Message sizes in bytes, ascending.
    computation_s : float or None
        Time in seconds that each rank computes during a call; None for blocking calls.
    cores : int or None
        Cores per node, for non-blocking calls; None for blocking calls.
    """

    collective: Collective
    members: tuple[int, ...]
    placement: NodePlacement
    sizes: tuple[int, ...]
    computation_s: float | None = None
    cores: int | None = None

    def sized(self, n_bytes: int) -> Collective:
        """Return the collective with the count that gives a message size in bytes."""
        return self.collective.with_count(n_bytes // self.collective.itemsize)

    def check(self) -> None:
        """Raise `CollplanError` if counts that differ per rank do not fit the ranks.

        Also raise it if non-blocking calls with the operation never run by plans.
        """
        op = self.collective.op
        if self.computation_s is not None and op is not None and not op.is_usual:
            kind = "operands in rank order" if op.is_builtin else "an operation of your own"
            raise CollplanError(
                f"--computation: non-blocking calls with {kind} run natively, and op is "
                f"{op.name}; tune blocking calls, without --computation, or give an operation "
                "of MPI"
            )
        for n_bytes in self.sizes if self.collective.regular else ():
            for problem in self.sized(n_bytes).misfits(len(self.members)):
                raise CollplanError(problem)

    def empty_sweep(self) -> Sweep:
        """Return the sweep without any points."""
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
            reproducible=collective.level or "ranks",
        )

    def find(self, table: TuningTable, *, of_rival: bool = False) -> Sweep | None:
        """Return the table's sweep of this goal; None if there is none.

        Parameters
        ----------
        table : TuningTable
        of_rival : bool
            Whether to return the rival of the goal instead. The rival is a sweep with the same
            key that was measured with another datatype or operation, or during another
            computation. A table has one sweep per key.
        """
        empty = self.empty_sweep()
        for sweep in table.sweeps:
            is_rival = _measured_as(sweep) != _measured_as(empty)
            if sweep.key == empty.key and is_rival == of_rival:
                return sweep
        return None

    def __str__(self) -> str:
        """Return the sweep's name and placement, like ``bcast on 4 x 4 ranks block``."""
        return f"{self.empty_sweep().name} on {self.placement}"


def _measured_as(sweep: Sweep) -> tuple[object, ...]:
    return sweep.datatype, sweep.op, sweep.computation_s, sweep.cores


def _in_words(collective: Collective) -> str:
    """Describe a collective without its count.

    Examples
    --------
    >>> from collplan.specs import Reduce
    >>> _in_words(Reduce(count=0, root=2))
    'reduce datatype=float64 op=sum root=2'
    """
    # Blocks of scaled counts are contiguous, so that displacements do not matter.
    left_out = {"kind", "count", "counts", "displs", "send_displs", "recv_displs"}
    given = collective.model_dump(exclude=left_out, exclude_defaults=True)
    fields = {"datatype": collective.datatype} | given
    counts = counts_in_words(collective)
    if counts is not None:
        fields["counts"] = counts
    op = collective.op
    if op is not None:
        fields["op"] = op.name if op.commutative else f"{op.name} in rank order"
    return " ".join([collective.kind, *(f"{key}={fields[key]}" for key in sorted(fields))])
