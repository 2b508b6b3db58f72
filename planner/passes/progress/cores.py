"""Placement of ranks and of the progress of communication on the cores of nodes.

Each *application core* of a node has one rank. The other cores are free, and can be
*communication cores*. Free cores are spread evenly, so that one is near every rank::

    8 cores in 2 NUMA domains, 6 ranks     0 1 2 . | 3 4 5 .
                               4 ranks     0 . 1 . | 2 . 3 .

References
----------
Denis, Jaeger, Jeannot, Pérache, Taboada: Study on progress threads placement and
dedicated cores for overlapping MPI nonblocking collectives on manycore processor,
International Journal of High Performance Computing Applications 33 (6), 2019,
sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.errors import AlgorithmError
from collplan.planner.plan.plan import Op, Plan, Stage
from collplan.specs import Machine
from collplan.specs.errors import show_value

Policy = Literal["bind", "numa", "odd_even"]
POLICIES: Final[tuple[str, ...]] = get_args(Policy)


def free_cores(n_cores: int, n_ranks: int) -> Ints:
    """Return the cores of a NUMA domain without ranks, in ascending order.

    With N cores, n ranks and δ = N / (N - n), free core j is ⌈(j + 1)·δ⌉ - 1. These are the cores
    that equation 1 of the paper assigns to progress threads.

    Parameters
    ----------
    n_cores : int
        N, the number of cores of the domain.
    n_ranks : int
        n, the number of ranks in the domain.

    Returns
    -------
    ndarray of int64, shape (n_cores - n_ranks,)

    Raises
    ------
    AlgorithmError
        If there are more ranks than cores.

    Examples
    --------
    >>> free_cores(4, 3).tolist(), free_cores(64, 62).tolist(), free_cores(4, 4).tolist()
    ([3], [31, 63], [])
    """
    if not 0 <= n_ranks <= n_cores:
        raise AlgorithmError(f"ranks: {n_ranks} ranks on {n_cores} cores; use 0 to {n_cores}")
    n_free = n_cores - n_ranks
    if n_free == 0:
        return np.zeros(0, dtype=np.int64)
    return -(-np.arange(1, n_free + 1) * n_cores // n_free) - 1


def application_cores(n_cores: int, n_ranks: int) -> Ints:
    """Return the cores of a NUMA domain with ranks, in the order of the ranks.

    Parameters
    ----------
    n_cores : int
        Number of cores of the domain.
    n_ranks : int
        Number of ranks in the domain.

    Returns
    -------
    ndarray of int64, shape (n_ranks,)

    Raises
    ------
    AlgorithmError
        If there are more ranks than cores.

    Examples
    --------
    >>> application_cores(4, 3).tolist(), application_cores(4, 2).tolist()
    ([0, 1, 2], [0, 2])
    """
    return np.setdiff1d(np.arange(n_cores), free_cores(n_cores, n_ranks))


@dataclass(frozen=True, eq=False)
class CorePlacement:
    """Application and communication cores of all nodes of a machine.

    Parameters
    ----------
    application : ndarray of int64, shape (n_ranks,)
        Core of every rank, numbered within its node.
    local : ndarray of int64, shape (n_ranks,)
        Number of every rank within its node.
    near : ndarray of int64, shape (n_ranks,)
        Communication core of the rank's NUMA domain according to equation 1; -1 if the domain has
        no free core.
    free : tuple of ndarray of int64
        Communication cores of every node, in ascending order.
    node : ndarray of int64, shape (n_ranks,)
        Node of every rank.
    """

    application: Ints
    local: Ints
    near: Ints
    free: tuple[Ints, ...]
    node: Ints

    @classmethod
    def of(cls, machine: Machine) -> CorePlacement:
        """Return the placement for a machine.

        Each NUMA domain of a node gets a block of consecutive ranks. The blocks are as equal as the
        numbers of cores allow, so that the free cores are distributed over all domains.

        Parameters
        ----------
        machine : Machine

        Examples
        --------
        >>> machine = Machine(ranks_per_node=6, cores=8, numa_domains=2)
        >>> placement = CorePlacement.of(machine)
        >>> placement.application.tolist(), placement.free[0].tolist()
        ([0, 1, 2, 4, 5, 6], [3, 7])
        """
        node = np.array(machine.rank_to_node, dtype=np.int64)
        local = np.array(machine.rank_to_local, dtype=np.int64)
        by_count = {
            n_ranks: _place_node(machine.cores_per_node, machine.numa_domains, n_ranks)
            for n_ranks in dict.fromkeys(machine.node_to_n_ranks)
        }
        by_node = [by_count[n_ranks] for n_ranks in machine.node_to_n_ranks]
        application, near = np.empty((2, len(node)), dtype=np.int64)
        for number, (cores, nearest, _) in enumerate(by_node):
            mine = node == number
            application[mine], near[mine] = cores[local[mine]], nearest[local[mine]]
        return cls(application, local, near, tuple(free for _, _, free in by_node), node)

    def progress(self, policy: Policy = "odd_even") -> Ints:
        """Return the core on which every rank's communication progresses.

        Parameters
        ----------
        policy : {"bind", "numa", "odd_even"}
            - ``bind``: the rank's own core.
            - ``numa``: the nearest free core of the rank's NUMA domain (equation 1).
            - ``odd_even``: the free cores of the node in turn. If there are at least two, two
              successive ranks of a node have different ones, which is the purpose of equation 2.

            If there is no such core, it is the rank's own core.

        Returns
        -------
        ndarray of int64, shape (n_ranks,)
            Numbers of cores within the node of each rank.

        Examples
        --------
        >>> placement = CorePlacement.of(Machine(ranks_per_node=6, cores=8, numa_domains=2))
        >>> for policy in ("bind", "numa", "odd_even"):
        ...     print(placement.progress(policy).tolist())
        [0, 1, 2, 4, 5, 6]
        [3, 3, 3, 7, 7, 7]
        [3, 7, 3, 7, 3, 7]

        Raises
        ------
        AlgorithmError
            If the policy is unknown.
        """
        if policy not in POLICIES:
            raise AlgorithmError(f"no {show_value(policy)}; use one of {', '.join(POLICIES)}")
        if policy == "bind":
            return self.application
        if policy == "numa":
            return np.where(self.near >= 0, self.near, self.application)
        chosen = self.application.copy()
        for number, cores in enumerate(self.free):
            if len(cores):
                mine = self.node == number
                chosen[mine] = cores[self.local[mine] % len(cores)]
        return chosen


def _place_node(n_cores: int, n_domains: int, n_ranks: int) -> tuple[Ints, Ints, Ints]:
    """Return the cores and the nearest free cores of a node's ranks, and all its free cores."""
    first = -(-np.arange(n_domains + 1) * n_cores // n_domains)
    sizes = np.diff(first)
    application, near, free = [], [], []
    for begin, size, n in zip(first[:-1], sizes, _deal(sizes, n_ranks), strict=True):
        own, spare = application_cores(size, n), free_cores(size, n)
        application.append(begin + own)
        free.append(begin + spare)
        index = own * len(spare) // size
        near.append(begin + spare[index] if len(spare) else np.full(n, -1))
    return np.concatenate(application), np.concatenate(near), np.concatenate(free)


def _deal(sizes: Ints, n_ranks: int) -> Ints:
    """Return the number of ranks of every domain.

    The numbers differ by at most 1, unless a domain has too few cores. Lower domains have more.
    """
    # In turn k, each domain with more than k cores takes one rank, until no rank is left.
    domain = np.repeat(np.arange(len(sizes)), sizes)
    turn = np.concatenate([np.arange(size) for size in sizes])
    taken = np.lexsort((domain, turn))[:n_ranks]
    return np.bincount(domain[taken], minlength=len(sizes))


def placement_of(plan: Plan, name: str) -> CorePlacement:
    """Return the placement for the machine of a plan.

    Parameters
    ----------
    plan : Plan
    name : str
        Name of the pass, for the message.

    Raises
    ------
    AlgorithmError
        If the plan was imported, so that it has no machine.
    """
    if plan.machine is None:
        raise AlgorithmError(
            f"passes.{name}: an imported schedule has no machine, whose free cores it needs; "
            "compile a spec"
        )
    return CorePlacement.of(plan.machine)


def move_to_cores(plan: Plan, placement: CorePlacement, progress: Ints, stage: Ints) -> Plan:
    """Return a plan with other stages and cores of tasks.

    Parameters
    ----------
    plan : Plan
    placement : CorePlacement
        The other tasks, and all ranks, are on the application cores.
    progress : ndarray of int64, shape (n_tasks,)
        Core of every background task that is not a computation. Other entries are ignored.
    stage : ndarray of int8, shape (n_tasks,)
        New stage of every task.

    Returns
    -------
    Plan
        A new plan, or `plan` itself if nothing changes.
    """
    is_progress = (stage == Stage.BACKGROUND) & (plan.op != Op.COMPUTE)
    core = np.where(is_progress, progress, placement.application[plan.rank])
    columns = {"core": core, "stage": stage, "rank_core": placement.application}
    if all(np.array_equal(getattr(plan, name), column) for name, column in columns.items()):
        return plan
    return plan.replace(**columns)
