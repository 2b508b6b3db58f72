"""``collplan bench overlap``: benchmark of the overlap of a collective with computation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.cli.bench.overlap_jobs import (
    VARIABLES,
    WITHOUT,
    Job,
    job_benchmark,
    launch_all,
    rank_benchmark,
)
from collplan.cli.options import (
    BenchmarkOptions,
    flag,
    option,
    parse_numbers,
    parse_size,
    plot_file,
    require_transport,
    split_list,
    trace_file,
)
from collplan.cli.ranks import Benchmark, run_benchmark
from collplan.reports.output import Document, print_result
from collplan.reports.overlap import plot_sweep, print_sweep, sweep_document
from collplan.reports.progress import shows_progress, spinner
from collplan.specs import Machine
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.explaining import explaining
from collplan.specs.loading import load_machine

if TYPE_CHECKING:
    from collplan.executors.cost.traces.states import CoreStates
    from collplan.measure.overlap.sweep import OverlapSweep


class BenchOverlapOptions(BenchmarkOptions):
    """Options of ``collplan bench overlap``, and the sweep that they describe."""

    collective: str = option(
        "KIND", "bcast, reduce, gather, scatter, allreduce, scan or exscan.", default="reduce"
    )
    cores: int | None = option(
        "CORES", "Cores of the node; as many as processors by default.", min=1
    )
    ranks: str | None = option(
        "RANKS,...",
        "Numbers of ranks, each below the cores; the others make communication progress.",
        "-n",
        "--ranks",
    )
    radix: int | None = option(
        "RADIX", "Radix of the tree of bcast, reduce, gather or scatter; 2, a binomial tree."
    )
    levels: str | None = option(
        "S,...", "Levels of the tree on the ranks' own cores; 0 to 3 by default."
    )
    policy: str | None = option("POLICY,...", "For chains: bind, numa, odd_even; all by default.")
    n_bytes: str = option("SIZE", "Bytes of MPI's count.", "--bytes", default="2MiB")
    computation: float | None = option(
        "SECONDS",
        "Time of the computation on all cores; by default the time of the blocking "
        "collective there.",
        min=0,
    )
    transport: str | None = option(
        "NAME",
        "Transport: shared or messages; by default shared for reduce and chains, which "
        "stay trees and chains then.",
    )
    machine: str | None = option(
        "NAME|FILE", "A preset or machine file: its cores, NUMA domains, and network to simulate."
    )
    simulate: bool = flag("--simulate", "Price the sweep on the simulator; needs no MPI.")
    plot: Path | None = plot_file("Draw times against ranks into an SVG or PNG file.")
    trace: Path | None = trace_file("Write what every core did")
    job: Path | None = option(None, "", hidden=True)

    def sweep(self, n_processors: int, n_here: int | None = None) -> OverlapSweep:
        """Return the sweep to measure or to simulate.

        Parameters
        ----------
        n_processors : int
            Number of cores of the node, if the options give neither cores nor a machine.
        n_here : int, optional
            Number of ranks that mpiexec has started.

        Raises
        ------
        CollplanError
            If an option is invalid, or options contradict each other.
        """
        from collplan.measure.overlap.sweep import plan_sweep

        require_transport(self.transport)
        size = parse_size("--bytes", self.n_bytes)
        ranks = _split_numbers("--ranks", self.ranks)
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
            _split_numbers("--levels", self.levels),
            None if self.policy is None else split_list(self.policy),
            self.transport,
            self.radix,
        )

    def _machine(self, n_processors: int) -> Machine:
        if self.machine is None:
            return Machine(cores=n_processors if self.cores is None else self.cores)
        machine = load_machine(self.machine)
        if self.cores is None:
            return machine
        with explaining(before="--cores: "):
            return machine.replace(nodes=1, ranks_per_node=1, rank_order="block", cores=self.cores)


def command(options: BenchOverlapOptions) -> int:
    """Time a collective, computation, and both at once, on fewer ranks than cores.

    The total work is fixed: on all cores, computation takes as long as the
    blocking collective; on fewer ranks it takes longer. Communication progresses
    on the cores without ranks. The command measures each number of ranks with
    each number S of levels on the ranks' own cores, or with each placement
    policy of a chain, and compares with the native call: blocking, non-blocking,
    and with the library's own asynchronous progress.
    """
    from collplan.executors.mpi.launch.environment import is_under_mpi, n_cores

    job = options.job
    if job is not None:
        return run_benchmark(lambda: job_benchmark(job), options.timeout, options.progress)
    if is_under_mpi() and not options.simulate:
        prepare = partial(_on_these_ranks, options)
        return run_benchmark(prepare, options.timeout, options.progress)
    sweep = options.sweep(n_cores())
    return _simulate(options, sweep) if options.simulate else _launch(options, sweep)


def _simulate(options: BenchOverlapOptions, sweep: OverlapSweep) -> int:
    from collplan.measure.overlap.simulation import blocking_s, simulate_sweep

    with spinner("simulating"):
        blocking = blocking_s(sweep)
        on_all_cores_s = blocking if options.computation is None else options.computation
        found = list(simulate_sweep(sweep, on_all_cores_s))
    times = {"blocking_s": blocking, "computation_s": on_all_cores_s}
    document = sweep_document(sweep, None, times | {"rows": [row for row, _ in found]})
    _report(options, document, [states for _, states in found if states is not None])
    return 0


def _on_these_ranks(options: BenchOverlapOptions) -> Benchmark:
    """Return the benchmark for the ranks that mpiexec has started."""
    from collplan.executors.mpi.host.cores import usable_processors
    from collplan.executors.mpi.world import join_world

    comm = join_world()
    sweep = options.sweep(len(usable_processors(comm)), comm.size)
    if options.computation is None:
        sweep.blocking_ratio(sweep.ranks[0])  # raises an error if there is no ratio
    job = Job(sweep, "methods", options.computation, options.repetitions)
    return rank_benchmark(
        job, lambda document: _show(options, sweep, [("methods", document)], None)
    )


def _launch(options: BenchOverlapOptions, sweep: OverlapSweep) -> int:
    from collplan.executors.mpi.launch.select import select_launcher

    job = Job(sweep, "methods", options.computation, options.repetitions)
    is_shown = shows_progress(options.progress)

    def tell(text: str) -> None:
        if is_shown:
            sys.stderr.write(f"measuring {text}\n")

    parts = list(launch_all(job, timeout_s=options.timeout, tell=tell))
    return _show(options, sweep, parts, select_launcher().library.family)


def _show(
    options: BenchOverlapOptions,
    sweep: OverlapSweep,
    parts: list[tuple[Any, Document]],
    family: str | None,
) -> int:
    """Merge the results of all launches, and report them; return the exit status."""
    documents = [document for part, document in parts if part != "blocking"]
    blocking = [document["blocking_s"] for part, document in parts if part == "blocking"]
    wrong = [text for document in documents for text in document["wrong"]]
    n_processors = max(document["processors"] for document in documents)
    variable = VARIABLES.get(family or "")
    found = {
        "library": documents[0]["library"],
        "processors": n_processors,
        "is_mapped": n_processors < sweep.n_cores,
        "blocking_s": blocking[0] if blocking else None,
        "computation_s": documents[0]["computation_s"],
        "asynchronous": None if variable is None else f"{variable}=1",
        "why_not_asynchronous": WITHOUT.get(family or ""),
        "rows": [row for document in documents for row in document["rows"]],
        "correct": not wrong,
        "wrong": wrong,
    }
    states = [one for document in documents for one in document["states"]]
    _report(options, sweep_document(sweep, options.repetitions, found), states)
    return 1 if wrong else 0


def _report(options: BenchOverlapOptions, document: Document, states: Sequence[CoreStates]) -> None:
    """Print the results, then write files; this order keeps the results if writing fails."""
    files = {"plot": options.plot, "trace": options.trace}
    document |= {name: str(path) for name, path in files.items() if path is not None}
    print_result(document, print_sweep, as_json=options.as_json)
    if options.plot is not None:
        plot_sweep(options.plot, document)
    if options.trace is not None:
        from collplan.executors.cost.traces.states import write_states

        write_states(options.trace, states)


def _split_numbers(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    for part in split_list(text):
        if parse_numbers(part) is None:
            raise CollplanError(
                f"{option}: {show_value(part)} is not a whole number; give them as 1,2,3"
            )
    return [int(part) for part in split_list(text)]
