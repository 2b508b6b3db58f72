"""Options of ``collplan bench overlap``, and the sweep they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from collplan.measure.overlap.sweep import Sweep
    from collplan.specs import Machine

T = TypeVar("T")

Kind = Annotated[
    str,
    typer.Option(metavar="KIND", help="bcast, reduce, gather, scatter, allreduce, scan or exscan."),
]
Cores = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="CORES", help="Cores of the node; as many as processors by default."
    ),
]
RankNumbers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--ranks",
        metavar="RANKS,...",
        help="Numbers of ranks, each below the cores; the others make communication progress.",
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        metavar="S,...", help="Levels of the tree on the ranks' own cores; 0 to 3 by default."
    ),
]
Policies = Annotated[
    str | None,
    typer.Option(metavar="POLICY,...", help="For chains: bind, numa, odd_even; all by default."),
]
Size = Annotated[str, typer.Option("--bytes", metavar="SIZE", help="Bytes of MPI's count.")]
Seconds = Annotated[
    float | None,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="What the computation takes on all cores; by default as long as the blocking "
        "collective there.",
    ),
]
TransportName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How ranks pass data: shared or messages; by default shared for reduce and "
        "chains, where that leaves them what they are.",
    ),
]
MachineName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="A preset or machine file: its cores, NUMA domains, and network to simulate.",
    ),
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Price the sweep on the simulator; needs no MPI.")
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        writable=True, metavar="FILE", help="Draw times against ranks into an SVG or PNG file."
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        writable=True,
        metavar="FILE",
        help="Write what every core did: FILE.json for Perfetto, FILE.paje for Paje.",
    ),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options say, unread.

    Parameters
    ----------
    collective, cores, ranks, levels, policy, n_bytes, transport, machine, plot, trace
        As given; None where not.
    """

    collective: str
    cores: int | None
    ranks: str | None
    levels: str | None
    policy: str | None
    n_bytes: str
    transport: str | None
    machine: str | None
    plot: Path | None
    trace: Path | None

    def sweep(self, n_processors: int, n_here: int | None = None) -> Sweep:
        """Return what is to be run.

        Parameters
        ----------
        n_processors : int
            Cores where neither they nor a machine are given.
        n_here : int, optional
            How many ranks mpiexec has started.

        Raises
        ------
        CollplanError
            If the options don't make sense, alone or together.
        """
        from collplan.measure.overlap.sweep import plan_sweep
        from collplan.specs import parse_bytes
        from collplan.specs.errors import CollplanError

        self._check_files()
        try:
            size = parse_bytes(self.n_bytes)
        except ValueError as error:
            raise CollplanError(f"--bytes: {error}") from None
        ranks = _split("--ranks", self.ranks, _number)
        if n_here is not None:
            if ranks not in (None, [n_here]):
                raise CollplanError(
                    f"--ranks: {self.ranks}, but mpiexec has started {n_here}; leave --ranks out"
                )
            ranks = [n_here]
        return plan_sweep(
            self.collective,
            size,
            self._machine(n_processors),
            ranks,
            _split("--levels", self.levels, _number),
            _split("--policy", self.policy, _text),
            self.transport,
        )

    def _check_files(self) -> None:
        from collplan.executors.cost.traces import check_trace_path
        from collplan.reports.plots import check_plot_path
        from collplan.specs.errors import CollplanError
        from collplan.specs.named_option import TRANSPORTS

        if self.plot is not None:
            check_plot_path(self.plot)
        if self.trace is not None:
            check_trace_path(self.trace)
        if self.transport not in (None, *TRANSPORTS):
            raise CollplanError(
                f"--transport: {self.transport!r} is no transport; use {' or '.join(TRANSPORTS)}"
            )

    def _machine(self, n_processors: int) -> Machine:
        from pydantic import ValidationError

        from collplan.specs import Machine
        from collplan.specs.errors import CollplanError
        from collplan.specs.explaining import explain
        from collplan.specs.loading import load_machine

        if self.machine is None:
            return Machine(cores=n_processors if self.cores is None else self.cores)
        machine = load_machine(self.machine)
        if self.cores is None:
            return machine
        try:
            return machine.replace(nodes=1, ranks_per_node=1, rank_order="block", cores=self.cores)
        except ValidationError as error:
            raise CollplanError(explain(error, before="--cores: ")) from None


def _split(option: str, text: str | None, read: Callable[[str, str], T]) -> list[T] | None:
    """Return the parts of an option's list, None where it was not given."""
    return None if text is None else [read(option, part.strip()) for part in text.split(",")]


def _number(option: str, text: str) -> int:
    from collplan.specs.errors import CollplanError

    if not (text.isascii() and text.isdecimal()):
        raise CollplanError(f"{option}: {text!r} is not a whole number; give them as 1,2,3")
    return int(text)


def _text(option: str, text: str) -> str:
    return text
