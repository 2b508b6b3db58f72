"""``collplan emulate``: a command on a multi-lane cluster that exists only meanwhile."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from collplan.cli.options import TimeoutOrNone, flag, option
from collplan.emulate.cluster import Cluster, EmulationError, parse_rate
from collplan.reports.progress import PROGRESS, shows_progress


def command(
    program: Annotated[
        list[str], typer.Argument(metavar="CMD...", help="The command of every rank, after '--'.")
    ],
    nodes: Annotated[int, option("N", "Number of nodes.")],
    per_node: Annotated[
        str, option("n", "Ranks per node, or a list with one number per node, as 5,5,2.")
    ],
    lanes: Annotated[int, option("k", "Network interfaces per node.")] = 1,
    rate: Annotated[
        str, option("R", "Rate of a lane in each direction, as 100Mbit, 1Gbit or 12.5MB/s.")
    ] = "100Mbit",
    order: Annotated[
        str, option("ORDER", "block, cyclic, or the node of every rank, as 0,1,1,0.")
    ] = "block",
    mpi: Annotated[
        str | None, option("mpich|openmpi", "Require this MPI in the environment.")
    ] = None,
    stripe: Annotated[
        bool, flag("--stripe", "Let the MPI use all lanes, instead of one per rank.")
    ] = False,
    timeout: TimeoutOrNone = None,
) -> int:
    """Run CMD once per rank on a multi-lane cluster emulated on this machine.

    A node is a set of Linux namespaces, and a lane is a network interface limited
    to a rate. The cluster is removed when the command has ended. Rank i of a node
    uses lane i mod k. There is no --json: standard output and exit status are
    the command's. The variable COLLPLAN_MACHINE describes the machine to the ranks.
    """
    from collplan.emulate.running import run_emulated

    ranks = _numbers("per-node", per_node)
    cluster = Cluster(
        nodes=nodes,
        ranks_per_node=ranks if len(ranks) > 1 else ranks[0],
        lanes=lanes,
        rate_bits_per_s=parse_rate(rate),
        rank_order=order if order in ("block", "cyclic") else _numbers("order", order),
        striped=stripe,
    )
    shown = shows_progress()
    if shown:
        sys.stderr.write(f"collplan: building {nodes} nodes with {lanes} lanes each\n")
    told = {PROGRESS: str(int(shown))}
    done = run_emulated(
        cluster, program, timeout_s=timeout, environment=told, mpi=mpi, capture=False
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        example = "block, cyclic, or nodes as 0,1,1,0" if option == "order" else "4, or 5,5,2"
        raise EmulationError(
            f"--{option}: {text!r} is not a list of numbers; give {example}"
        ) from None
