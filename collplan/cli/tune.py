"""``collplan tune``: measure candidates on this machine, and write a table of the best."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.inputs import open_spec, resize
from collplan.cli.options import (
    DaskScheduler,
    Json,
    Options,
    Progress,
    argument,
    flag,
    launcher,
    option,
    output_file,
    parse_numbers,
    parse_processors,
    plot_file,
    split_list,
)
from collplan.cli.ranks import (
    Advance,
    Benchmark,
    let_share,
    ranks_to_start,
    run_again,
    run_benchmark,
)
from collplan.reports.output import Document, print_json, print_result, require_folder
from collplan.reports.progress import progress_bar, shows_progress
from collplan.select.sizes import parse_sizes
from collplan.specs import Collective, Machine, PlanSpec
from collplan.specs.collectives.collective import COLLECTIVES, validate_collective
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.explaining import explaining
from collplan.specs.loading import is_machine_file, load_machine, machine_at_hand
from collplan.specs.syntax.numbers import MAX_COUNT

if TYPE_CHECKING:
    from collplan.tune.options import TuningJob

_SPEED_FROM_S: Final = 600.0
"""Period in seconds over which the speed for the remaining time is averaged.

The period is long because points take different times.
"""
_ALL: Final = "all"
_SOME: Final = 1 << 16
"""Number of elements of a collective before its size is chosen."""


class TuneOptions(Options):
    """Options of ``collplan tune``, and the job that they describe."""

    source: Path | None = argument(
        "[SPEC]",
        "A spec: its machine for predictions and ranks, its collective to tune.",
        default=None,
    )
    output: Path | None = output_file(
        "The table to write, as YAML or .json.", "-o", "--output", metavar="TABLE"
    )
    start: int | None = option("RANKS", "Number of ranks to start.", "-n", min=1)
    collectives: str | None = option(
        "KIND,...",
        "Collectives to tune; by default the spec's, or all without a spec. Those whose counts "
        "differ per rank are tuned for a spec's counts, scaled to each size.",
    )
    ranks: str | None = option(
        "RANKS,...", "Numbers of ranks to tune for, filling nodes in order. Default: all."
    )
    sizes: str = option(
        "SIZE,...",
        "Bytes of the vector, of one block, or of all blocks if counts differ.",
        default="64B,1KiB,16KiB,256KiB,1MiB",
    )
    datatype: str | None = option(
        None, "Datatype of the elements; the spec's or float64 by default."
    )
    op: str | None = option(None, "Operation of reductions; the spec's or sum by default.")
    machine: str | None = option(
        "FILE|PRESET",
        "Machine for predictions, as written by collplan calibrate; by default the "
        "spec's, or that of the emulated cluster.",
    )
    keep_within: float = option(
        "FACTOR", "Measure only candidates predicted within FACTOR of the best.", default=1.5, min=1
    )
    at_most: int | None = option(
        "COUNT", "Measure at most COUNT candidates, the best predicted.", min=1
    )
    tight: str = option(
        "PERCENT",
        "Repeat until the 95 % interval of the median is within this part of it.",
        default="5%",
    )
    least: int = option(None, "Least number of repetitions.", default=8, min=6)
    most: int = option(None, "Largest number of repetitions.", default=100, min=6)
    seconds: float = option("SECONDS", "Time limit per measurement series.", default=10.0, min=0)
    give_up: float = option(
        "SECONDS",
        "Give up on a candidate whose call exceeds both SECONDS and 20 native calls.",
        "--give-up",
        default=60.0,
        min=1,
    )
    computation: float | None = option(
        "SECONDS",
        "Tune non-blocking calls beside a computation of SECONDS on each rank's core, between "
        "start and wait.",
        min=0,
    )
    cores: str | None = option(
        "P,...",
        "Processor of each core of a node: ranks are bound to it, and non-blocking calls advance "
        "on those of cores without a rank. Cores may share processors.",
    )
    again: bool = flag("--again", "Measure again what the table already has.")
    restart: bool = flag("--restart", "Start over; replace the whole table when all is measured.")
    lists: bool = flag("--list", "Print the candidates and measure nothing; needs no MPI.")
    dask: DaskScheduler = None
    timeout: float | None = option("SECONDS", "Stop after this long.", min=1)
    launcher: str | None = launcher()
    progress: Progress = None
    plot: Path | None = plot_file("Draw speed-ups against sizes into an SVG, PNG or PDF file.")
    html: Path | None = output_file("Write winners and times as a page for a browser.")
    as_json: Json = False

    def ranks_to_start(self) -> int | None:
        """Return the required number of ranks; None if any number is valid."""
        if self.start is not None:
            return self.start
        spec = self._spec()
        if spec is not None and "machine" in spec.model_fields_set:
            return spec.machine.n_ranks
        if self.machine is None or not is_machine_file(self.machine):
            return None
        machine = load_machine(self.machine)
        return machine.n_ranks if "ranks_per_node" in machine.model_fields_set else None

    def job(self) -> TuningJob:
        """Return the tuning job that the options describe.

        Raises
        ------
        CollplanError
            If an option is invalid, or options contradict each other.
        """
        from collplan.tune.options import TuningJob
        from collplan.tune.racing import StopRules

        self._check_files()
        if self.again and self.restart:
            raise CollplanError("--again: --restart measures all anew anyway; give one of the two")
        if self.most < self.least:
            raise CollplanError(f"--most: {self.most} is less than --least {self.least}; raise it")
        collectives = tuple(self._collectives())
        first, machine = collectives[0], self._machine()
        return TuningJob(
            collectives=collectives,
            sizes=tuple(parse_sizes(self.sizes, first.itemsize, first.datatype, MAX_COUNT)),
            ranks=self._ranks(),
            rules=StopRules(_parse_percent(self.tight), self.least, self.most, self.seconds),
            keep_within=self.keep_within,
            at_most=self.at_most,
            network=machine.network,
            lanes=machine.n_lanes if "lanes" in machine.model_fields_set else None,
            numa_domains=machine.numa_domains,
            again=self.again,
            give_up_s=self.give_up,
            computation_s=self.computation,
            cores=parse_processors(self.cores),
        )

    def specs_to_list(self) -> list[PlanSpec]:
        """Return a spec for each collective on the machine, for a list of candidates."""
        machine = self._machine()
        return [
            resize(PlanSpec(machine=machine, collective=collective), self.start)
            for collective in self._collectives()
        ]

    def _check_files(self) -> None:
        if self.output is None:
            raise CollplanError("-o: is missing; say where to write the table, as -o table.yaml")
        require_folder("-o", self.output)
        if self.html is not None:
            require_folder("--html", self.html)
        if self.output.exists() and not self.output.is_file():
            raise CollplanError(
                f"-o: {self.output} is not a regular file, and a table is read again to add to it; "
                f"give another file"
            )

    def _spec(self) -> PlanSpec | None:
        from collplan.select.candidates import require_known_algorithms

        if self.source is None:
            return None
        spec = open_spec(self.source)
        require_known_algorithms(spec)
        return spec

    def _machine(self) -> Machine:
        """Return the machine for predictions."""
        if self.machine is not None:
            return load_machine(self.machine)
        spec = self._spec()
        if spec is not None and "machine" in spec.model_fields_set:
            return spec.machine
        return machine_at_hand() or Machine()

    def _collectives(self) -> Iterator[Collective]:
        """Yield the collectives to tune with datatype and operation, each kind once."""
        spec = self._spec()
        own = None if spec is None else spec.collective
        names = split_list(self.collectives or (_ALL if own is None else own.kind))
        if names == [_ALL]:
            # Counts that differ per rank must be given by a spec of the same kind.
            regular = [kind for kind, model in COLLECTIVES.items() if model.regular is None]
            has_counts = own is not None and own.regular and not own.has_edges
            names = [*regular, *([own.kind] if own is not None and has_counts else [])]
        for name in dict.fromkeys(names):
            if name not in COLLECTIVES:
                raise CollplanError(
                    f"--collectives: {show_value(name)} is not a collective; "
                    f"valid: {', '.join(COLLECTIVES)}"
                )
            yield self._collective(name, own)

    def _collective(self, kind: str, own: Collective | None) -> Collective:
        """Return a collective of a kind with the fields of the options, or else of the spec.

        Counts that differ per rank are those of the spec. A single count is preliminary.
        """
        if COLLECTIVES[kind].has_edges:
            raise CollplanError(
                f"--collectives: {kind} is not tuned, as tables decide for calls without a graph; "
                "use compare, and run with the spec of a plan"
            )
        if COLLECTIVES[kind].regular and (own is None or own.kind != kind):
            raise CollplanError(
                f"--collectives: {kind} is tuned for the counts of a spec; give a spec whose "
                f"collective is of kind {kind}"
            )
        given: dict[str, Any] = {} if own is None else own.model_dump()
        asked = {"kind": kind, "count": _SOME, "datatype": self.datatype, "op": self.op}
        given |= {name: value for name, value in asked.items() if value is not None}
        known = COLLECTIVES[kind].model_fields
        with explaining():
            return validate_collective({name: given[name] for name in known if name in given})

    def _ranks(self) -> tuple[int, ...]:
        if self.ranks is None or self.ranks == _ALL:
            return ()
        numbers = parse_numbers(self.ranks)
        if numbers is None or 0 in numbers:
            raise CollplanError(
                f"--ranks: {show_value(self.ranks)} is not a list of numbers of ranks; "
                "give it as 4,8, or all"
            )
        return tuple(sorted({*numbers}))


def command(options: TuneOptions) -> int:
    """Measure candidates for collectives on this machine; write a table of the best.

    Candidates are native calls, flat algorithms, hierarchical and full-lane
    forms, all meshes of two and three dimensions, and segments. Candidates that
    the model predicts far from the best are left out. Native stays unless
    another is faster beyond noise. A stopped run resumes; an existing table is
    extended. Exit status 1 if a candidate's result is wrong, or if it crashes or
    hangs; it is then left out.
    """
    from collplan.cli.workers import workers
    from collplan.reports.tuning import candidates_to_json, print_candidates

    if not options.lists:
        if options.dask is not None:
            raise CollplanError("--dask: measures nothing; give it with --list")
        return _tune(options)
    specs = options.specs_to_list()
    # Listing names takes little time, so that worker processes do not pay.
    with workers(0, options.dask) as executor:
        document = candidates_to_json(specs, executor)
    print_result(document, print_candidates, as_json=options.as_json)
    return 0


def _tune(options: TuneOptions) -> int:
    from collplan.executors.mpi.host.processes import end_with_launcher
    from collplan.executors.mpi.launch.environment import default_ranks, is_under_mpi
    from collplan.tune.crash_log import CrashLog, Failure

    shown = shows_progress(options.progress)

    def prepare() -> Benchmark:
        measure = partial(_measure, options, options.job(), shown)
        # The number of steps is 0, as `_measure` shows its own progress.
        return Benchmark(measure, partial(_show, options), options.ranks_to_start(), lambda: 0)

    if is_under_mpi():
        end_with_launcher()
        return run_benchmark(prepare, None, progress=False)
    n_ranks = ranks_to_start(prepare().n_ranks or default_ranks(), 8)
    let_share(parse_processors(options.cores))
    assert options.output is not None, "prepare() refuses that"
    crash_log = CrashLog(options.output)
    forgotten: tuple[str, ...] = ()
    while True:
        before = crash_log.find()
        status = run_again(n_ranks, options.timeout, shown=shown, but=forgotten)
        failure = crash_log.find()
        # A failure that was found before is of an earlier run; this run may not have begun.
        if status == 0 or not isinstance(failure, Failure) or failure == before:
            return status
        sys.stderr.write(f"collplan: {failure}; going on without it\n")
        # With --restart, each further run would start over, and the loop would never end.
        forgotten = ("--restart",)


def _measure(
    options: TuneOptions, job: TuningJob, shows_progress: bool, comm: Any, _: Advance
) -> Document:
    """Tune on the ranks of a communicator, and return the same result on all ranks."""
    from collplan.tune.tuner import tune

    assert options.output is not None, "prepare() refuses that"
    is_shown = shows_progress and comm.rank == 0
    with progress_bar("tuning", 1.0, is_shown, speed_estimate_period=_SPEED_FROM_S) as update:

        def on_progress(what: str, part: float) -> None:
            update(description=what, completed=part)

        tuned = tune(comm, job, options.output, restart=options.restart, on_progress=on_progress)
    return {"tuned": tuned, "correct": not tuned.wrong and not tuned.failures}


def _show(options: TuneOptions, document: Document) -> None:
    """Print the results, then write files; this order keeps the results if writing fails."""
    from collplan.reports.tuning import plot_speedups, print_tuned, to_json

    tuned = document["tuned"]
    if options.as_json:
        print_json({"output": options.output} | to_json(tuned))
    else:
        print_tuned(tuned, str(options.output))
    if options.plot is not None:
        plot_speedups(options.plot, tuned.table)
    if options.html is not None:
        from collplan.reports.html.tune_page import write_tuned

        write_tuned(options.html, tuned, _commands(options))


def _commands(options: TuneOptions) -> list[str]:
    """Return the command lines that make a table and use it."""
    table = shlex.quote(str(options.output))
    return [
        shlex.join(["collplan", *sys.argv[1:]]),
        f"collplan exec --table {table} -n RANKS APP",
    ]


def _parse_percent(text: str) -> float:
    """Return the fraction that a percentage or a number stands for.

    Examples
    --------
    >>> _parse_percent("5%"), _parse_percent("0.05")
    (0.05, 0.05)
    """
    word = text.strip()
    try:
        part = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        part = 0.0
    if not 0 < part < 1:
        raise CollplanError(f"--tight: {show_value(text)} is not a percentage; give it as 5%")
    return part
