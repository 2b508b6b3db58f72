"""Methods to run a collective together with computation, and the plans of these methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from collplan.measure.overlap.model import checked_shape
from collplan.planner.passes.progress.cores import POLICIES
from collplan.planner.passes.progress.tree_model import (
    best_levels,
    blocking_time,
    shape_of,
    tree_height,
)
from collplan.specs import Machine, PlanSpec
from collplan.specs.errors import CollplanError, show_value, suggest
from collplan.specs.explaining import explaining

TREES: Final = {
    **dict.fromkeys(("bcast", "reduce", "gather", "scatter"), "binomial"),
    "allreduce": "reduce_bcast",
}
"""Collectives whose tree is split by levels, with their algorithm if the tree is binomial."""
CHAINS: Final = {"scan": "chain", "exscan": "chain"}
"""Collectives whose progress is placed by a policy, with their algorithm."""
DATATYPE: Final = "int32"
ITEMSIZE: Final = 4

Source = Literal["plan", "native"]


@dataclass(frozen=True, slots=True)
class OverlapMethod:
    """A method to run the collective.

    Parameters
    ----------
    source : {"plan", "native"}
        A plan, or the MPI library's own call.
    blocking : bool
        Whether the call returns when the collective is complete. The computation follows it.
    levels : int, optional
        Number S of levels of the tree on application cores.
    policy : str, optional
        Policy that places progress on cores.
    asynchronous : bool
        Whether the MPI library makes progress by itself.
    """

    source: Source
    blocking: bool = False
    levels: int | None = None
    policy: str | None = None
    asynchronous: bool = False

    @property
    def name(self) -> str:
        """Return the name of the method in tables and legends.

        Examples
        --------
        >>> OverlapMethod("plan", levels=2).name, OverlapMethod("native", asynchronous=True).name
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
        """Return the passes that place the tasks of the plan on cores."""
        if self.levels is not None:
            return ({"name": "split_tree", "levels": self.levels},)
        if self.policy is not None:
            return ({"name": "place_progress", "policy": self.policy},)
        return ()


BLOCKING: Final = OverlapMethod("plan", blocking=True)
NATIVE: Final = (OverlapMethod("native", blocking=True), OverlapMethod("native"))
ASYNCHRONOUS: Final = OverlapMethod("native", asynchronous=True)


@dataclass(frozen=True, slots=True)
class OverlapSweep:
    """A collective on one node, for several numbers of ranks and methods to run it.

    Parameters
    ----------
    kind : str
        Kind of the collective, one of `TREES` and `CHAINS`.
    n_bytes : int
        Bytes of the collective's count: of the vector, or of each rank's block.
    machine : Machine
        Machine whose cores, NUMA domains and network are used; its ranks are ignored.
    ranks : tuple of int
        Numbers of ranks, ascending, each below the number of cores.
    levels : tuple of int
        Numbers of levels S to try; empty for chains.
    policies : tuple of str
        Policies to try; empty for trees.
    transport : {"shared", "messages"}
        Means by which ranks exchange data.
    radix : int
        Radix of the tree; 2 if it is binomial.
    """

    kind: str
    n_bytes: int
    machine: Machine
    ranks: tuple[int, ...]
    levels: tuple[int, ...]
    policies: tuple[str, ...]
    transport: str
    radix: int = 2

    @property
    def n_cores(self) -> int:
        """Return the number of cores of the node, N_proc."""
        return self.machine.cores_per_node

    @property
    def algorithm(self) -> str:
        """Return the name of the algorithm that the plans use."""
        return str(algorithm_of(self.kind, self.radix)["name"])

    def methods(self, n_ranks: int) -> list[OverlapMethod]:
        """Return the plans to compare on `n_ranks` ranks; S is at most the tree's height."""
        height = int(tree_height(n_ranks, self.radix))
        split = [OverlapMethod("plan", levels=levels) for levels in self.levels if levels <= height]
        placed = [OverlapMethod("plan", policy=policy) for policy in self.policies]
        return [BLOCKING, *split, *placed]

    def spec(self, n_ranks: int, method: OverlapMethod, compute_ns: int | None = None) -> PlanSpec:
        """Return the spec of a plan, with a computation of `compute_ns` per rank if given.

        Raises
        ------
        CollplanError
            If there are too many bytes.
        """
        passes = list(method.passes)
        if compute_ns is not None:
            passes.append({"name": "add_compute", "duration_ns": compute_ns})
        collective = {"kind": self.kind, "count": self.n_bytes // ITEMSIZE, "datatype": DATATYPE}
        with explaining(error=CollplanError, before="--bytes: "):
            return node_spec(
                self.machine,
                self.n_cores,
                n_ranks,
                collective,
                self.transport,
                passes,
                self.radix,
            )

    def computation_s(self, n_ranks: int, on_all_cores_s: float) -> float:
        """Return C(N), the time of each rank in s for a fixed total computation."""
        return on_all_cores_s * self.n_cores / n_ranks

    def model_levels(self, n_ranks: int) -> int | None:
        """Return the best number of levels S by the paper's model; None for chains."""
        if self.kind in CHAINS:
            return None
        return int(best_levels(n_ranks, self.n_cores, shape_of(self.kind, self.radix)))

    def blocking_ratio(self, n_ranks: int) -> float:
        """Return the model's ratio of blocking times: on all cores to on `n_ranks` ranks.

        Raises
        ------
        CollplanError
            If `n_ranks` is 1, so that there is no communication.
        """
        if n_ranks < 2:
            raise CollplanError(
                "--computation: is missing, and 1 rank does not communicate; say how many s"
            )
        if self.kind in CHAINS:
            return (self.n_cores - 1) / (n_ranks - 1)
        shape = shape_of(self.kind, self.radix)
        return float(blocking_time(self.n_cores, shape) / blocking_time(n_ranks, shape))


def algorithm_of(kind: str, radix: int) -> dict[str, Any]:
    """Return the algorithm of a collective as a field of a spec.

    Examples
    --------
    >>> algorithm_of("bcast", 2), algorithm_of("bcast", 4)
    ({'name': 'binomial'}, {'name': 'knomial', 'radix': 4})
    """
    if radix != 2:
        return {"name": "knomial", "radix": radix}
    return {"name": (TREES | CHAINS)[kind]}


def node_spec(
    machine: Machine,
    n_cores: int,
    n_ranks: int,
    collective: dict[str, Any],
    transport: str,
    passes: Sequence[dict[str, Any]] = (),
    radix: int = 2,
) -> PlanSpec:
    """Return the spec of a plan for the given ranks on one node of a machine."""
    place = machine.replace(nodes=1, ranks_per_node=n_ranks, cores=n_cores, rank_order="block")
    return PlanSpec.model_validate(
        {
            "machine": place,
            "collective": collective,
            "algorithms": algorithm_of(collective["kind"], radix),
            "transport": transport,
            "passes": passes,
        }
    )


def overlap_row(
    n_ranks: int,
    method: OverlapMethod,
    communication_s: float,
    computation_s: float,
    total_s: float,
) -> dict[str, Any]:
    """Return the row of a method: its name, times in s, and the overlap ratio."""
    return {
        "ranks": n_ranks,
        "method": method.name,
        "levels": method.levels,
        "policy": method.policy,
        "communication_s": communication_s,
        "computation_s": computation_s,
        "total_s": total_s,
        "overlap": overlap_ratio(communication_s, computation_s, total_s),
    }


def overlap_ratio(communication_s: float, computation_s: float, total_s: float) -> float:
    """Return the part of the shorter of both times that is hidden behind the longer one.

    The ratio is 1 if both together take as long as the longer one alone, and 0 if they take
    the sum of both times. It is negative if they slow each other down. Noise can raise it
    above 1.

    Examples
    --------
    >>> overlap_ratio(1.0, 2.0, 2.25)
    0.75
    """
    shorter = min(communication_s, computation_s)
    return (communication_s + computation_s - total_s) / shorter if shorter > 0 else 0.0


MOST_LEVELS: Final = 3
"""Largest number of levels S that is tried by default, from 0 on, as in the paper."""
_EVERY: Final = 8
"""Number of communication cores up to which all are tried by default, because S changes there."""
_STEPS: Final = 16
_READ_AT_ONCE: Final = ("bcast", "gather", "scatter", "allreduce")


def plan_sweep(
    kind: str,
    n_bytes: int,
    machine: Machine,
    ranks: Sequence[int] | None = None,
    levels: Sequence[int] | None = None,
    policies: Sequence[str] | None = None,
    transport: str | None = None,
    radix: int | None = None,
) -> OverlapSweep:
    """Check the options of a sweep, and fill in defaults.

    Parameters
    ----------
    kind, n_bytes, machine, ranks, levels, policies, transport, radix
        Fields of `OverlapSweep`, and options of the command line. The default transport is shared
        memory if it leaves a tree or chain of transfers, and messages if all ranks would
        read the root's buffer or other ranks' blocks in place.

    Returns
    -------
    OverlapSweep

    Raises
    ------
    CollplanError
        If an option is invalid, alone or in combination with others.
    """
    kinds = TREES | CHAINS
    if kind not in kinds:
        way_out = f"{suggest(kind, kinds)}valid: {', '.join(kinds)}"
        raise CollplanError(f"--collective: {show_value(kind)} is no tree or chain; {way_out}")
    if n_bytes <= 0 or n_bytes % ITEMSIZE:
        raise CollplanError(
            f"--bytes: {n_bytes} bytes are not 1 or more of the {ITEMSIZE} bytes of {DATATYPE}; "
            f"give whole elements"
        )
    n_cores = machine.cores_per_node
    chosen = tuple(sorted(set(default_ranks(n_cores) if ranks is None else ranks)))
    for n_ranks in chosen:
        if not 1 <= n_ranks < n_cores:
            raise CollplanError(
                f"--ranks: {n_ranks} ranks on {n_cores} cores leave none for communication; "
                f"use 1 to {n_cores - 1}, or raise --cores"
            )
    if not chosen:
        raise CollplanError(
            f"--cores: {n_cores} cores have none left beside 2 ranks; give 3 or more, which then "
            f"share the processors there are"
        )
    base = _radix(kind, radix)
    placed = _policies(kind, levels, policies) if kind in CHAINS else ()
    split = _levels(kind, chosen[-1], base, levels, policies) if kind in TREES else ()
    if transport is None:
        transport = "messages" if kind in _READ_AT_ONCE else "shared"
    sweep = OverlapSweep(kind, n_bytes, machine, chosen, split, placed, transport, base)
    sweep.spec(chosen[-1], BLOCKING)  # raises if there are too many bytes
    return sweep


def default_ranks(n_cores: int) -> list[int]:
    """Return default numbers of ranks below `n_cores`: all if communication cores are few.

    Examples
    --------
    >>> default_ranks(8), default_ranks(64)[:3], default_ranks(64)[-9:]
    ([2, 3, 4, 5, 6, 7], [4, 8, 12], [52, 56, 57, 58, 59, 60, 61, 62, 63])
    """
    step = -(-n_cores // _STEPS)
    return [n for n in range(2, n_cores) if n % step == 0 or n_cores - n <= _EVERY]


def _radix(kind: str, radix: int | None) -> int:
    if radix is None:
        return 2
    if kind in CHAINS:
        raise CollplanError(f"--radix: {kind} runs as a chain, which has none; leave it out")
    checked_shape(kind, radix)
    return radix


def _policies(
    kind: str, levels: Sequence[int] | None, policies: Sequence[str] | None
) -> tuple[str, ...]:
    if levels is not None:
        raise CollplanError(f"--levels: {kind} runs as a chain, which has none; use --policy")
    chosen = tuple(dict.fromkeys(POLICIES if policies is None else policies))
    for policy in chosen:
        if policy not in POLICIES:
            raise CollplanError(
                f"--policy: there is no {show_value(policy)}; valid: {', '.join(POLICIES)}"
            )
    return chosen


def _levels(
    kind: str,
    most_ranks: int,
    radix: int,
    levels: Sequence[int] | None,
    policies: Sequence[str] | None,
) -> tuple[int, ...]:
    if policies is not None:
        raise CollplanError(f"--policy: {kind} runs as a tree, whose levels split; use --levels")
    height = int(tree_height(most_ranks, radix))
    if levels is None:
        return tuple(range(min(MOST_LEVELS, height) + 1))
    for level in levels:
        if not 0 <= level <= height:
            raise CollplanError(
                f"--levels: {level} levels, a tree of {most_ranks} ranks has {height}; "
                f"use 0 to {height}"
            )
    return tuple(sorted(set(levels)))
