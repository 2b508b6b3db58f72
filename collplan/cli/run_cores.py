"""Processors for the cores of a plan's nodes, as ``collplan run --cores`` names them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan


def parse_cores(text: str | None) -> tuple[int, ...] | None:
    """Return the processors that a list names, core by core.

    Raises
    ------
    CollplanError
        If it is no list of numbers.

    Examples
    --------
    >>> parse_cores("0,1,1")
    (0, 1, 1)
    """
    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isdecimal() for number in numbers):
        raise CollplanError(
            f"--cores: {text!r} is no list of processors; name one for each core of a node, "
            "as in 0,1,1"
        )
    return tuple(int(number) for number in numbers)


def check_cores(plan: Plan, cores: Sequence[int] | None) -> None:
    """Raise `CollplanError` where a node has more cores than processors are named."""
    if cores is None:
        return
    n_cores = 1 + max(int(plan.rank_core.max(initial=0)), int(plan.core.max(initial=0)))
    if plan.spec is not None:
        n_cores = plan.spec.machine.cores_per_node
    if len(cores) < n_cores:
        raise CollplanError(
            f"--cores: {len(cores)} processors, the plan's nodes have {n_cores} cores; "
            "name one for each, the same for several if need be"
        )


def let_share(cores: Sequence[int] | None) -> None:
    """Set what the MPI library needs where ranks may share a processor, however few they are."""
    from collplan.executors.mpi.launch.launcher import find_launcher, launch_environment

    if cores is not None and len(set(cores)) < len(cores):
        family = find_launcher().library.family
        os.environ.update(launch_environment(family, (os.cpu_count() or 1) + 1))


def go_to_core(comm: Any, plan: Plan, cores: Sequence[int] | None) -> None:
    """Keep this rank on the processor of its core; collective.

    Raises
    ------
    CollplanError
        On all ranks, if one cannot be kept there.
    """
    if cores is None:
        return
    from collplan.executors.mpi.host.cores import pin_thread
    from collplan.executors.mpi.together import together

    def pin() -> None:
        check_cores(plan, cores)
        # Before anybody asks how many ranks share a core, as that is kept.
        pin_thread(cores[int(plan.rank_core[comm.rank])])

    together(comm, pin)
