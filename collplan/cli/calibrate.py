"""``collplan calibrate``: measure the parameters of the cost model on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.cli.options import MeasuringOptions, flag, n_ranks, option, output_file, plot_file
from collplan.cli.ranks import Advance, Benchmark, run_benchmark
from collplan.measure.calibration.measurements import QUICK, THOROUGH, load_measurements
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import (
    Document,
    print_line,
    print_result,
    print_table,
    require_folder,
    warn,
)
from collplan.reports.plots import Series, plot_times
from collplan.specs.errors import CollplanError
from collplan.specs.loading import load_machine, machine_at_hand
from collplan.specs.machines.machine import place_ranks

if TYPE_CHECKING:
    from collplan.measure.calibration.fit import Calibration
    from collplan.measure.calibration.measurements import Measurements
    from collplan.specs import Machine


class CalibrateOptions(MeasuringOptions):
    """Options of ``collplan calibrate``."""

    output: Path = output_file(
        "The machine file to write.", "-o", "--output", default=..., metavar="FILE.yaml"
    )
    ranks: int | None = n_ranks()
    machine: str | None = option(
        "FILE.yaml",
        "Start from this machine, as written by collplan machine: its ranks by default, its "
        "lanes, cores and domains.",
    )
    lanes: int | None = option("k", "Lanes per node; detected by default.", min=1)
    quick: bool = flag("--quick", "Measure less, for rough numbers.")
    measurements: Path | None = output_file("Write the raw measurements, too.", metavar="FILE.json")
    fit: Path | None = option(
        "FILE.json", "Fit these measurements instead of measuring; needs no MPI."
    )
    from_files: list[Path] | None = option(
        "FILE",
        "Fit to a file of measurements instead of measuring: CSV of PICO or ORFEO, output of "
        "OSU's, Intel's or ReproMPI's benchmarks. May be given several times.",
        "--from",
    )
    hosts: Path | None = option("FILE.json", "Hosts of the jobs in the files of --from.")
    system: str | None = option("NAME", "System to fit, if the files of --from have several.")
    plot: Path | None = plot_file("Draw ping-pongs and their fit into an SVG, PNG or PDF file.")

    def known(self) -> Machine | None:
        """Return the machine of the option ``--machine``, or None; raise `SpecError` if invalid."""
        return None if self.machine is None else load_machine(self.machine)


def command(options: CalibrateOptions) -> int:
    """Measure the cost of communication on this machine; write a machine file.

    A spec names the file as its 'machine: FILE.yaml'. The command starts the
    right mpiexec; under mpiexec, and on an emulated cluster, it runs as a rank.
    While two ranks are timed, all others sleep.
    """
    from collplan.executors.mpi.launch.environment import default_ranks

    if options.from_files:
        return _fit_points(options.from_files, options)
    for name, value in (("--hosts", options.hosts), ("--system", options.system)):
        if value is not None:
            raise CollplanError(f"{name}: says where measurements are from; give them by --from")
    if options.fit is not None:
        return _fit(options.fit, options)
    known = options.known()
    return run_benchmark(
        partial(_prepare, options),
        options.timeout,
        options.progress,
        default=default_ranks if known is None else lambda: known.n_ranks,
        example=2,
    )


def _refuse_measuring(options: CalibrateOptions, fitting: str, **more: object) -> None:
    """Raise `CollplanError` if an option says what to measure, and nothing is measured."""
    given = {
        "-n": options.ranks,
        "--lanes": options.lanes,
        "--quick": options.quick or None,
        "--measurements": options.measurements,
        **{f"--{name}": value for name, value in more.items()},
    }
    for name, value in given.items():
        if value is not None:
            raise CollplanError(
                f"{name}: says what to measure, {fitting} measures nothing; leave it"
            )
    _check_outputs(options)


def _fit_points(sources: list[Path], options: CalibrateOptions) -> int:
    """Fit a machine to published measurements, then write and print it."""
    from collplan.fitting.machine_files import cluster_text, fit_cluster
    from collplan.fitting.reading import read_points

    _refuse_measuring(options, "--from", fit=options.fit, plot=options.plot)
    known = options.known()
    points = read_points(sources, options.hosts, known)
    fit = fit_cluster(points, sources, options.system, known)
    write_text(options.output, cluster_text(fit))
    document = {
        "output": options.output,
        "system": fit.system,
        "sources": fit.sources,
        "points": fit.points,
        "jobs": fit.jobs,
        "notes": fit.notes,
        "parameters": [asdict(one) for one in fit.parameters],
        "machine": fit.machine.model_dump(mode="json"),
        "cross_validation": None if fit.scores is None else fit.scores._asdict(),
    }
    print_result(document, _print_points, as_json=options.as_json)
    return 0


def _print_points(document: Document) -> None:
    print_line("{system}: {points} points of {jobs} jobs".format(**document))
    for note in document["notes"]:
        print_line(note)
    _print_parameters(document["parameters"], "90 % interval")
    scores = document["cross_validation"]
    if scores is not None:
        print_line(
            "cross-validated by jobs, with the correction: times off by {time_error_median:.1%} "
            "(median), {time_error_p90:.1%} (90 %); best within 10 % in {within_10:.1%}".format(
                **scores
            )
        )
    print_line(f"wrote {document['output']}")


def _fit(source: Path, options: CalibrateOptions) -> int:
    _refuse_measuring(options, "--fit")
    measurements = load_measurements(source)
    known = options.known()
    if known is not None:
        require_place(known, measurements.place.rank_to_node, str(options.machine))
    _conclude(measurements, options)
    return 0


def _prepare(options: CalibrateOptions) -> Benchmark:
    """Return the benchmark for the options, after checking them.

    Raises
    ------
    CollplanError
        If the options are invalid.
    """
    if options.ranks == 1:
        raise CollplanError("-n: one rank has nobody to send to; start 2 or more")
    if options.lanes is not None and options.machine is not None:
        raise CollplanError("--lanes: --machine says how many there are; give one of the two")
    _check_outputs(options)
    known = options.known()
    machine = known or machine_at_hand()  # the emulated cluster, if this process runs on one
    effort = QUICK if options.quick else THOROUGH
    lanes = options.lanes or (None if machine is None else machine.n_lanes)

    def measure(comm: Any, advance: Advance) -> Document:
        from collplan.measure.calibration.measure import find_place, measure_machine

        if known is not None:
            require_place(known, find_place(comm, lanes).rank_to_node, str(options.machine))
        found = measure_machine(comm, lanes=lanes, effort=effort, advance=advance)
        return {"measurements": found}

    return Benchmark(measure, partial(_show, options), options.ranks, lambda: effort.n_steps)


def _show(options: CalibrateOptions, document: Document) -> None:
    """Write raw measurements if requested, then fit a machine, and write and print it."""
    measurements: Measurements = document["measurements"]
    if options.measurements is not None:
        write_text(options.measurements, measurements.to_text())
    _conclude(measurements, options)


def require_place(machine: Machine, rank_to_node: Sequence[int], name: str) -> None:
    """Raise `CollplanError` if the ranks are placed on nodes in another way than in a machine."""
    if machine.rank_to_node == tuple(rank_to_node):
        return
    raise CollplanError(
        f"--machine: {name} has {_per_node(machine.rank_to_node)} ranks on its nodes in "
        f"{_order(machine.rank_to_node)} order, the ranks here are {_per_node(rank_to_node)} in "
        f"{_order(rank_to_node)} order; start ranks as it says, or write it anew with "
        "'collplan machine'"
    )


def _per_node(rank_to_node: Sequence[int]) -> str:
    per_node, _ = place_ranks(tuple(rank_to_node))
    same = len(set(per_node)) == 1
    return f"{len(per_node)} x {per_node[0]}" if same else "+".join(map(str, per_node))


def _order(rank_to_node: Sequence[int]) -> str:
    _, order = place_ranks(tuple(rank_to_node))
    return order if isinstance(order, str) else "another"


def _check_outputs(options: CalibrateOptions) -> None:
    if options.output.suffix not in (".yaml", ".yml"):
        raise CollplanError(
            f"-o: {options.output} ends with {options.output.suffix or 'nothing'}; "
            f"a machine file is a .yaml"
        )
    for name, path in (("-o", options.output), ("--measurements", options.measurements)):
        if path is not None:
            require_folder(name, path)


def _conclude(measurements: Measurements, options: CalibrateOptions) -> None:
    """Fit a machine to measurements, then write, print and plot it."""
    from collplan.measure.calibration.fit import fit_machine, machine_text

    calibration = fit_machine(measurements, options.known())
    write_text(options.output, machine_text(calibration, measurements))
    for line in calibration.warnings:
        warn(f"{options.output}: {line}")
    document = {
        "output": options.output,
        "host": measurements.host,
        "library": measurements.mpi,
        "date": measurements.date,
        "ranks": len(measurements.place.rank_to_node),
        "parameters": [asdict(one) for one in calibration.parameters],
        "machine": calibration.machine.model_dump(mode="json"),
    }
    print_result(document, _print, as_json=options.as_json)
    if options.plot is not None:
        _plot(options.plot, calibration, measurements)


def _print(document: Document) -> None:
    print_line("{ranks} ranks, {library}, {host}, {date}".format(**document))
    _print_parameters(document["parameters"], "95 % interval")
    print_line(f"wrote {document['output']}")


def _print_parameters(parameters: list[Document], interval: str) -> None:
    rows = [
        [
            one["name"].removeprefix("network."),
            _shown(one["value"]),
            "" if one["interval"] is None else "{:.4g} to {:.4g}".format(*one["interval"]),
            one["method"],
        ]
        for one in parameters
    ]
    print_table(["parameter", "value", interval, "measured by"], rows)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def _plot(path: Path, calibration: Calibration, measurements: Measurements) -> None:
    """Plot ping-pong times and the times of the fitted model for each class of links."""
    from statistics import median

    series = []
    network = calibration.machine.network
    found: dict[str, dict[int, list[float]]] = {}
    for entry in measurements.ping_pongs:
        found.setdefault(entry.link, {}).setdefault(entry.bytes, []).extend(entry.seconds)
    for link, times in found.items():
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
