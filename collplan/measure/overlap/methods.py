"""Ways to run a collective beside computation, and the plans they stand for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from collplan.planner.passes.progress.tree_model import best_levels, blocking_time, tree_height
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError
from collplan.specs.explaining import explain

TREES: Final = {
    "bcast": "binomial",
    "reduce": "binomial",
    "gather": "binomial",
    "scatter": "binomial",
    "allreduce": "reduce_bcast",
}
"""Collectives whose tree is split in levels, and by which algorithm they run."""
CHAINS: Final = {"scan": "chain", "exscan": "chain"}
"""Collectives whose progress is placed by a policy."""
DATATYPE: Final = "int32"
ITEMSIZE: Final = 4
_DOUBLING: Final = ("gather", "scatter")

Source = Literal["plan", "native"]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to run the collective.

    Parameters
    ----------
    source : {"plan", "native"}
        Whether a plan or the MPI library's own call runs.
    blocking : bool
        The call returns when it is done, and computation follows it.
    levels : int, optional
        S, levels of the tree on application cores.
    policy : str, optional
        Which core makes progress.
    asynchronous : bool
        The library makes progress by itself.
    """

    source: Source
    blocking: bool = False
    levels: int | None = None
    policy: str | None = None
    asynchronous: bool = False

    @property
    def name(self) -> str:
        """Return what tables and legends call it.

        Examples
        --------
        >>> Method("plan", levels=2).name, Method("native", asynchronous=True).name
        ('S=2', 'native, asynchronous')
        """
        if self.source == "native":
            manner = "asynchronous" if self.asynchronous else "non-blocking"
            return "native, " + ("blocking" if self.blocking else manner)
        if self.levels is not None:
            return f"S={self.levels}"
        return self.policy or "blocking"

    @property
    def passes(self) -> tuple[dict[str, Any], ...]:
        """Return what places a plan's tasks on cores."""
        if self.levels is not None:
            return ({"name": "split_tree", "levels": self.levels},)
        if self.policy is not None:
            return ({"name": "place_progress", "policy": self.policy},)
        return ()


BLOCKING: Final = Method("plan", blocking=True)
NATIVE: Final = (Method("native", blocking=True), Method("native"))
ASYNCHRONOUS: Final = Method("native", asynchronous=True)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A collective on one node, for several numbers of ranks and ways to run it.

    Parameters
    ----------
    kind : str
        One of `TREES` and `CHAINS`.
    n_bytes : int
        Of the collective's count: of the vector, or of each rank's block.
    machine : Machine
        Its cores, NUMA domains and network count, not its ranks.
    ranks : tuple of int
        Numbers of ranks, ascending, each below the number of cores.
    levels : tuple of int
        For trees.
    policies : tuple of str
        For chains.
    transport : {"shared", "messages"}
        How ranks pass each other data.
    """

    kind: str
    n_bytes: int
    machine: Machine
    ranks: tuple[int, ...]
    levels: tuple[int, ...]
    policies: tuple[str, ...]
    transport: str

    @property
    def n_cores(self) -> int:
        """Return N_proc."""
        return self.machine.cores_per_node

    @property
    def algorithm(self) -> str:
        """Return which algorithm the plans use."""
        return (TREES | CHAINS)[self.kind]

    def to_json(self) -> dict[str, Any]:
        """Return the sweep as what JSON can hold."""
        return {**asdict(self), "machine": self.machine.model_dump(mode="json")}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Sweep:
        """Return the sweep that `to_json` wrote."""
        lists = {name: tuple(document[name]) for name in ("ranks", "levels", "policies")}
        machine = Machine.model_validate(document["machine"])
        return cls(**(document | lists | {"machine": machine}))

    def methods(self, n_ranks: int) -> list[Method]:
        """Return the plans to compare on so many ranks; S above the tree's height is the height."""
        height = int(tree_height(n_ranks))
        split = [Method("plan", levels=levels) for levels in self.levels if levels <= height]
        placed = [Method("plan", policy=policy) for policy in self.policies]
        return [BLOCKING, *split, *placed]

    def spec(self, n_ranks: int, method: Method, compute_ns: int | None = None) -> PlanSpec:
        """Return the spec of a plan, with a computation of so many ns a rank if asked for.

        Raises
        ------
        CollplanError
            If the bytes are too many.
        """
        machine = self.machine.replace(
            nodes=1, ranks_per_node=n_ranks, cores=self.n_cores, rank_order="block"
        )
        passes = list(method.passes)
        if compute_ns is not None:
            passes.append({"name": "add_compute", "duration_ns": compute_ns})
        collective = {"kind": self.kind, "count": self.n_bytes // ITEMSIZE, "datatype": DATATYPE}
        try:
            return PlanSpec.model_validate(
                {
                    "machine": machine,
                    "collective": collective,
                    "algorithms": self.algorithm,
                    "transport": self.transport,
                    "passes": passes,
                }
            )
        except ValidationError as error:
            raise CollplanError(explain(error, before="--bytes: ")) from None

    def computation_s(self, n_ranks: int, on_all_cores_s: float) -> float:
        """Return C(N), in s: fixed total work, divided over the ranks."""
        return on_all_cores_s * self.n_cores / n_ranks

    def model_levels(self, n_ranks: int) -> int | None:
        """Return the S that is best by the paper's model; None for chains."""
        if self.kind in CHAINS:
            return None
        return int(best_levels(n_ranks, self.n_cores, self.kind in _DOUBLING))

    def blocking_ratio(self, n_ranks: int) -> float:
        """Return how many times longer the blocking collective takes on all cores, by the model.

        Raises
        ------
        CollplanError
            If nothing is communicated on so many ranks.
        """
        if n_ranks < 2:
            raise CollplanError(
                "--computation: is missing, and 1 rank does not communicate; say how many s"
            )
        if self.kind in CHAINS:
            return (self.n_cores - 1) / (n_ranks - 1)
        doubling = self.kind in _DOUBLING
        return float(blocking_time(self.n_cores, doubling) / blocking_time(n_ranks, doubling))


def overlap_ratio(communication_s: float, computation_s: float, total_s: float) -> float:
    """Return which part of the shorter of the two is hidden behind the other.

    1 where both together take as long as the longer alone, 0 where they take the
    sum; less where they slow each other down. Noise may carry it beyond 1.

    Examples
    --------
    >>> overlap_ratio(1.0, 2.0, 2.25)
    0.75
    """
    shorter = min(communication_s, computation_s)
    return (communication_s + computation_s - total_s) / shorter if shorter > 0 else 0.0
