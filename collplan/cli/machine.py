"""``collplan machine``: description of the current ranks, batch job or node as a machine file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.options import Json, Options, launcher, n_ranks, option, output_file
from collplan.cli.ranks import ending_all, one_voice, run_again
from collplan.planner.formats.output_files import write_text
from collplan.reports.output import print_line, print_result, require_folder
from collplan.specs.errors import CollplanError
from collplan.specs.loading import machine_at_hand

if TYPE_CHECKING:
    from collplan.measure.machine import MachineFile

STANDARD_OUTPUT: Final = Path("-")
"""Name of a file that stands for the standard output."""


class MachineOptions(Options):
    """Options of ``collplan machine``."""

    output: Path = output_file(
        "The machine file to write; - prints it.",
        "-o",
        "--output",
        default=...,
        metavar="FILE.yaml",
    )
    ranks: int | None = n_ranks(
        "Number of ranks to start and look at; without it, the batch system's variables are read."
    )
    timeout: float = option("SECONDS", "Give up after this long.", default=600, min=1)
    launcher: str | None = launcher()
    as_json: Json = False

    def check_output(self) -> None:
        """Raise `CollplanError` if no machine file can be written to the output path."""
        if self.output == STANDARD_OUTPUT:
            return
        if self.output.suffix not in (".yaml", ".yml"):
            raise CollplanError(
                f"-o: {self.output} ends with {self.output.suffix or 'nothing'}; "
                f"a machine file is a .yaml, and - prints it"
            )
        require_folder("-o", self.output)


def command(options: MachineOptions) -> int:
    """Write a machine file: nodes, ranks, cores, NUMA domains and lanes that are there.

    Under mpiexec or srun it looks at the ranks that were started; with -n it
    starts them. Otherwise it reads the variables of Slurm, PBS, LSF or Grid
    Engine, and without a job it describes this node. Comments in the file say
    where each value comes from, and which ones are defaults.
    """
    from collplan.executors.mpi.launch.environment import is_under_mpi

    if is_under_mpi():
        return _run_as_rank(options)
    options.check_output()
    if options.ranks is not None:
        return run_again(options.ranks, options.timeout)
    _write(_of_job(), options)
    return 0


def _of_job() -> MachineFile:
    from collplan.executors.mpi.host.topology import read_node
    from collplan.executors.mpi.launch.allocation import find_allocation
    from collplan.measure.machine import describe_job, describe_node

    job = find_allocation()
    return describe_node(read_node()) if job is None else describe_job(job, read_node())


def _run_as_rank(options: MachineOptions) -> int:
    from collplan.executors.mpi.world import join_world

    with one_voice():
        options.check_output()
        comm: Any = join_world(options.ranks)
        with ending_all(comm):
            from collplan.measure.machine import describe_ranks

            emulated = machine_at_hand()
            found = describe_ranks(comm, None if emulated is None else emulated.lanes)
            if comm.rank == 0:
                _write(found, options)
    return 0


def _write(found: MachineFile, options: MachineOptions) -> None:
    machine, text = found.machine(), found.text()
    is_printed = options.output == STANDARD_OUTPUT
    if not is_printed:
        write_text(options.output, text)
    document = {"output": options.output, "machine": machine.model_dump(mode="json")}
    document["notes"] = found.notes

    def show(document: dict[str, Any]) -> None:
        print_line(text.rstrip())
        if not is_printed:
            print_line(f"wrote {document['output']}")

    print_result(document, show, as_json=options.as_json)
