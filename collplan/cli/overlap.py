"""``collplan overlap``: split of tree levels between application and communication cores."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from collplan.cli.options import (
    Json,
    Options,
    flag,
    option,
    parse_size,
    plot_file,
    require_transport,
)
from collplan.reports.output import print_line, print_result
from collplan.reports.progress import spinner
from collplan.specs import Machine
from collplan.specs.errors import CollplanError
from collplan.specs.loading import load_machine

CORES: Final = 64
"""Default number of cores of a node, which is that of Knights Landing."""


class OverlapOptions(Options):
    """Options of ``collplan overlap``."""

    collective: str = option(
        "KIND", "reduce, bcast, gather, scatter or allreduce, as trees.", default="reduce"
    )
    radix: int = option(
        "RADIX", "Radix of the tree: 2, a binomial tree, or more for knomial.", default=2
    )
    cores: int | None = option("CORES", f"Cores of the node; {CORES} by default.")
    simulates: bool = flag("--simulate", "Also simulate plans, and print both times.")
    machine: str | None = option(
        "PRESET|FILE",
        "A preset or a machine file, of which one node is simulated. By default every "
        "transfer takes one unit of time, and nothing else takes time.",
    )
    size: str | None = option(
        "SIZE",
        "Bytes of a transfer on that machine: of the buffer, or of one rank's block; "
        "2MiB by default.",
        "--bytes",
    )
    transport: str | None = option(
        "TRANSPORT",
        "Transport between simulated ranks: shared or messages; by default the better "
        "one for the collective.",
    )
    plot: Path | None = plot_file("Draw the times into an SVG, PNG or PDF file.")
    as_json: Json = False


def command(options: OverlapOptions) -> None:
    """Find the best number of tree levels on application cores, for every number of ranks.

    The ranks of a node leave some cores free, on which communication progresses
    while the ranks compute. The S levels nearest the leaves of the tree stay with
    the ranks and do not overlap; the other levels run on the communication cores.
    Times follow closed forms (Denis and others, 2019), in units of one transfer of
    the buffer.
    """
    from collplan.measure.overlap.model import overlap_model
    from collplan.measure.overlap.simulation import simulate_overlap
    from collplan.reports.overlap import plot_overlap, print_overlap, to_json

    collective, machine, plot = options.collective, options.machine, options.plot
    cores = options.cores
    on = None if machine is None else _open_machine(machine, cores)
    n_cores = on.cores_per_node if on is not None else CORES if cores is None else cores
    n_bytes = _transfer_bytes(options.size, has_machine=on is not None)
    is_simulated = options.simulates or on is not None
    require_transport(options.transport)
    if options.transport is not None and not is_simulated:
        raise CollplanError(
            f"--transport: {options.transport}, but nothing is simulated; add --simulate, or "
            "leave it out"
        )
    radix = options.radix
    model = overlap_model(collective, n_cores, radix)
    simulated = None
    if is_simulated:
        with spinner(f"simulating {collective} on up to {n_cores} ranks"):
            simulated = simulate_overlap(
                collective, n_cores, on, n_bytes, machine, options.transport, radix
            )
    document = to_json(model, simulated) | ({} if plot is None else {"plot": str(plot)})
    print_result(document, lambda _: print_overlap(model, simulated), as_json=options.as_json)
    # Plotting may fail, for example on a full disk. The result is therefore printed before.
    if plot is not None:
        plot_overlap(plot, model, None if simulated is None else simulated.table)
        if not options.as_json:
            print_line(f"wrote {plot}")


def _open_machine(source: str, cores: int | None) -> Machine:
    machine = load_machine(source)
    if cores not in (None, machine.cores_per_node):
        raise CollplanError(
            f"--cores: {cores}, but a node of {source} has {machine.cores_per_node}; "
            "leave one of the two out"
        )
    return machine


def _transfer_bytes(text: str | None, *, has_machine: bool) -> int:
    from collplan.measure.overlap.simulation import TRANSFER_BYTES

    if text is not None and not has_machine:
        raise CollplanError(
            f"--bytes: {text}, but without --machine every transfer takes one unit; "
            "add --machine, or leave it out"
        )
    n_bytes = parse_size("--bytes", TRANSFER_BYTES if text is None else text)
    if n_bytes == 0:
        raise CollplanError("--bytes: 0 bytes take no time to compare; give 1 or more")
    return n_bytes
