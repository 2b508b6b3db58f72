"""``collplan emulate``: run of a command on a temporary, emulated multi-lane cluster."""

from __future__ import annotations

import sys

from collplan.cli.options import Options, argument, flag, option
from collplan.emulate.cluster import Cluster, EmulationError, parse_rates, parse_topology
from collplan.reports.progress import PROGRESS, shows_progress
from collplan.specs.errors import show_value


class EmulateOptions(Options):
    """Options of ``collplan emulate``."""

    program: list[str] = argument("CMD...", "The command of every rank, after '--'.")
    nodes: int = option("N", "Number of nodes.", default=...)
    per_node: str = option(
        "n", "Ranks per node, or a list with one number per node, as 5,5,2.", default=...
    )
    lanes: int = option("k", "Network interfaces per node.", default=1)
    rate: str = option(
        "R",
        "Rate of a lane in each direction, as 100Mbit, 1Gbit or 12.5MB/s, or of every lane, as "
        "100Mbit,50Mbit.",
        default="100Mbit",
    )
    order: str = option(
        "ORDER", "block, cyclic, or the node of every rank, as 0,1,1,0.", default="block"
    )
    topology: str | None = option(
        "TREE",
        "Leaf switches, each with one link to a switch above, as in a spec: '{kind: fat_tree, "
        "down: [NODES, LEAVES], up: [1, 1], oversubscription: RATIO}', or a file with that.",
    )
    mpi: str | None = option("mpich|openmpi", "Require this MPI in the environment.")
    stripe: bool = flag("--stripe", "Let the MPI use all lanes, instead of one per rank.")
    timeout: float | None = option("SECONDS", "Give up after this long.", min=1)


def command(options: EmulateOptions) -> int:
    """Run CMD once per rank on a multi-lane cluster emulated on this machine.

    A node is a set of Linux namespaces, and a lane is a network interface limited
    to a rate. The cluster is removed when the command has ended. Rank i of a node
    uses lane i mod k. There is no --json: standard output and exit status are
    the command's. The variable COLLPLAN_MACHINE describes the machine to the ranks.
    """
    from collplan.emulate.running import run_emulated

    order, ranks = options.order, _numbers("per-node", options.per_node)
    cluster = Cluster(
        nodes=options.nodes,
        ranks_per_node=ranks if len(ranks) > 1 else ranks[0],
        lanes=options.lanes,
        rate_bits_per_s=parse_rates(options.rate),
        rank_order=order if order in ("block", "cyclic") else _numbers("order", order),
        striped=options.stripe,
        topology=None if options.topology is None else parse_topology(options.topology),
    )
    shown = shows_progress()
    if shown:
        sys.stderr.write(
            f"collplan: building {cluster.nodes} nodes with {cluster.lanes} lanes each\n"
        )
    told = {PROGRESS: str(int(shown))}
    done = run_emulated(
        cluster,
        options.program,
        timeout_s=options.timeout,
        environment=told,
        mpi=options.mpi,
        capture=False,
    )
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _numbers(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        example = "block, cyclic, or nodes as 0,1,1,0" if option == "order" else "4, or 5,5,2"
        raise EmulationError(
            f"--{option}: {show_value(text)} is not a list of numbers; give {example}"
        ) from None
