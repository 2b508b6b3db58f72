"""``collplan calibrate``: measure the cost model's parameters on the machine at hand."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from collplan.cli.bench.options import Progress, Ranks, Timeout
from collplan.cli.bench.ranks import Advance, Document, run_benchmark
from collplan.cli.options import Json
from collplan.cli.own_command import own_command

if TYPE_CHECKING:
    from collplan.measure.calibration.fit import Calibration, Parameter
    from collplan.measure.calibration.measurements import Measurements


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where results go.

    Parameters
    ----------
    machine : Path
        The machine file.
    measurements : Path or None
        The raw measurements.
    plot : Path or None
        Ping-pongs and their fit.
    as_json : bool
        Whether to print JSON instead of a table.
    """

    machine: Path
    measurements: Path | None
    plot: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class CalibrationBenchmark:
    """What is to be measured.

    Parameters
    ----------
    n_ranks : int or None
        How many ranks it must be.
    lanes : int or None
        Lanes a node, if known.
    quick : bool
        Whether to measure little.
    outputs : Outputs
        Where results go.
    """

    n_ranks: int | None
    lanes: int | None
    quick: bool
    outputs: Outputs

    @property
    def n_steps(self) -> int:
        """Return how often measuring advances."""
        from collplan.measure.calibration.measure import n_steps

        return n_steps(self.quick)

    def measure(self, comm: Any, advance: Advance) -> Document:
        """Measure on the ranks of a communicator; return the same on all."""
        from collplan.measure.calibration.measure import measure_machine

        found = measure_machine(comm, lanes=self.lanes, quick=self.quick, advance=advance)
        return {"measurements": found}

    def show(self, document: Document) -> None:
        """Fit a machine to what was measured; write and print it."""
        measurements: Measurements = document["measurements"]
        if self.outputs.measurements is not None:
            from collplan.planner.formats.output_files import write_text

            write_text(self.outputs.measurements, measurements.to_text())
        _conclude(measurements, self.outputs)


def command(
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", writable=True, metavar="FILE.yaml", help="The machine file to write."
        ),
    ],
    ranks: Ranks = None,
    lanes: Annotated[
        int | None,
        typer.Option(min=1, metavar="k", help="Lanes a node; by default they are found."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure little: rough numbers.")] = False,
    measurements: Annotated[
        Path | None,
        typer.Option(writable=True, metavar="FILE.json", help="Write the raw measurements, too."),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Fit these measurements instead of measuring; needs no MPI."
        ),
    ] = None,
    timeout: Timeout = 600,
    progress: Progress = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Draw ping-pongs and their fit into an SVG or PNG file.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Measure what communication costs here, and write it as a machine file.

    A spec takes it as its 'machine: FILE.yaml'. Under mpiexec, and on an
    emulated cluster, this just runs; otherwise it starts the right mpiexec by
    itself. While two ranks are timed, all others sleep.
    """
    outputs = Outputs(output, measurements, plot, as_json)
    if fit is not None:
        return _fit(fit, outputs, given={"-n": ranks, "--lanes": lanes, "--quick": quick or None})
    prepare = partial(_prepare, ranks, lanes, quick, outputs)
    return _measure(prepare, outputs, timeout_s=timeout, progress=progress)


def _fit(source: Path, outputs: Outputs, given: dict[str, object]) -> int:
    from collplan.measure.calibration.measurements import load_measurements
    from collplan.specs.errors import CollplanError

    given["--measurements"] = outputs.measurements
    for option, value in given.items():
        if value is not None:
            raise CollplanError(f"{option}: says what to measure, --fit measures nothing; leave it")
    _check_outputs(outputs)
    _conclude(load_measurements(source), outputs)
    return 0


def _measure(
    prepare: partial[CalibrationBenchmark],
    outputs: Outputs,
    *,
    timeout_s: float,
    progress: bool | None,
) -> int:
    from collplan.executors.mpi.launch.jobs import relaunch
    from collplan.executors.mpi.launch.launcher import default_ranks, is_under_mpi
    from collplan.specs.errors import CollplanError

    if is_under_mpi():
        return run_benchmark(prepare, [], timeout_s=timeout_s, progress=progress)
    asked = prepare()
    n_ranks = asked.n_ranks or default_ranks()
    if n_ranks is None:
        raise CollplanError("-n: is missing outside mpiexec; say how many ranks to start, as -n 2")
    named = {
        "-o": outputs.machine,
        "-n": n_ranks,
        "--lanes": asked.lanes,
        "--measurements": outputs.measurements,
        "--plot": outputs.plot,
    }
    options = [str(x) for name, value in named.items() if value is not None for x in (name, value)]
    flags = {"--quick": asked.quick, "--json": outputs.as_json}
    options += [name for name, is_set in flags.items() if is_set]
    # Ranks write into a pipe; whether a terminal is at its end, only this process knows.
    shown = sys.stderr.isatty() if progress is None else progress
    options.append("--progress" if shown else "--no-progress")
    program = own_command("calibrate", *options)
    return relaunch(program, n_ranks, timeout_s=timeout_s)


def _prepare(
    ranks: int | None, lanes: int | None, quick: bool, outputs: Outputs
) -> CalibrationBenchmark:
    """Check what the options say, before anything is measured.

    Raises
    ------
    CollplanError
        If they don't make sense.
    """
    from collplan.specs.errors import CollplanError

    if ranks == 1:
        raise CollplanError("-n: one rank has nobody to send to; start 2 or more")
    _check_outputs(outputs)
    return CalibrationBenchmark(ranks, lanes or _lanes_at_hand(), quick, outputs)


def _lanes_at_hand() -> int | None:
    """Return the lanes of the emulated cluster this runs on, None where it is none.

    Raises
    ------
    CollplanError
        If the machine at hand is told wrongly.
    """
    from collplan.specs.loading import machine_at_hand

    machine = machine_at_hand()
    return None if machine is None else machine.lanes


def _check_outputs(outputs: Outputs) -> None:
    from collplan.reports.plots import check_plot_path
    from collplan.specs.errors import CollplanError

    if outputs.machine.suffix not in (".yaml", ".yml"):
        raise CollplanError(
            f"-o: {outputs.machine} ends with {outputs.machine.suffix or 'nothing'}; "
            f"a machine file is a .yaml"
        )
    for option, path in (("-o", outputs.machine), ("--measurements", outputs.measurements)):
        if path is not None and not path.parent.is_dir():
            raise CollplanError(f"{option}: there is no folder {path.parent}; make it first")
        if path is not None and path.is_dir():
            raise CollplanError(f"{option}: {path} is a folder; give a file in it")
    if outputs.plot is not None:
        check_plot_path(outputs.plot)


def _conclude(measurements: Measurements, outputs: Outputs) -> None:
    """Fit, write, print, and draw."""
    from collplan.measure.calibration.fit import fit_machine, machine_text
    from collplan.planner.formats.output_files import write_text
    from collplan.reports.output import print_json

    calibration = fit_machine(measurements)
    write_text(outputs.machine, machine_text(calibration, measurements))
    if outputs.as_json:
        print_json(
            {
                "output": outputs.machine,
                "host": measurements.host,
                "library": measurements.mpi,
                "date": measurements.date,
                "ranks": len(measurements.place.rank_to_node),
                "parameters": [
                    {
                        "name": parameter.name,
                        "value": parameter.value,
                        "interval": parameter.interval,
                        "method": parameter.method,
                    }
                    for parameter in calibration.parameters
                ],
                "machine": calibration.machine.model_dump(mode="json"),
            }
        )
    else:
        _print(calibration, measurements, outputs.machine)
    if outputs.plot is not None:
        _plot(outputs.plot, calibration, measurements)


def _print(calibration: Calibration, measurements: Measurements, path: Path) -> None:
    from collplan.reports.output import print_line, print_table

    n_ranks = len(measurements.place.rank_to_node)
    print_line(f"{n_ranks} ranks, {measurements.mpi}, {measurements.host}, {measurements.date}")
    print_table(
        ["parameter", "value", "95 % interval", "measured by"],
        [
            [
                parameter.name.removeprefix("network."),
                _shown(parameter.value),
                _interval(parameter),
                parameter.method,
            ]
            for parameter in calibration.parameters
        ],
        plain=True,  # Open MPI gives its ranks a pseudo-terminal.
    )
    print_line(f"wrote {path}")


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def _interval(parameter: Parameter) -> str:
    if parameter.interval is None:
        return ""
    low, high = parameter.interval
    return f"{low:.4g} to {high:.4g}"


def _plot(path: Path, calibration: Calibration, measurements: Measurements) -> None:
    """Draw each class of link's ping-pongs, and what the fitted link says of them."""
    from statistics import median

    from collplan.reports.plots import Series, plot_times

    series = []
    network = calibration.machine.network
    for link in dict.fromkeys(entry.link for entry in measurements.ping_pongs):
        times: dict[int, list[float]] = {}
        for entry in measurements.ping_pongs:
            if entry.link == link:
                times.setdefault(entry.bytes, []).extend(entry.seconds)
        sizes = sorted(times)
        fitted = getattr(network, link)
        per_byte = max(fitted.G_ns_per_byte, fitted.O_ns_per_byte)
        model = []
        for size in sizes:
            alone = fitted.L_ns + 2 * fitted.o_ns + max(0, size - 1) * per_byte
            asks = network.handshake and size > network.eager_limit_bytes
            model.append(1e-9 * (alone + (2 * (fitted.o_ns + fitted.L_ns) if asks else 0)))
        medians = [median(times[size]) for size in sizes]
        spread = [(min(times[size]), max(times[size])) for size in sizes]
        series += [Series(f"{link}, measured", sizes, medians, spread)]
        series += [Series(f"{link}, model", sizes, model)]
    title = f"Half a round trip, {measurements.mpi}"
    plot_times(path, series, title=title, size_label="bytes of the message")
