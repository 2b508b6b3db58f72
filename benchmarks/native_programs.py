"""Unmodified programs of Debian, natively and under ``collplan exec``: results, times, statistics.

usage: python benchmarks/native_programs.py [--on node|cluster] [--programs NAME,...]
           [--turns N] [--table FILE] [--order block|cyclic]

Needs Debian's packages hpcc, lammps, quantum-espresso, cp2k and nwchem-openmpi, which all use
Debian's Open MPI, and the environment for it that `make test` sets up. On `node`, 4 ranks run on
this machine; on `cluster`, 16 ranks on an emulated one of 4 x 4 with 2 lanes of 100 Mbit/s, with
consecutive ranks on a node, or on different nodes. What matters to a program is tuned there first,
unless its table has it. Both ways take turns. Prints a line per program, and the statistics of its
last run. Exit status 1 if a result differs from the native one.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import debian_mpi  # noqa: E402
from mpi_launching import mpi_environment  # noqa: E402

MPI: Final = "debian-openmpi"
EMULATE: Final = ("emulate", "--nodes", "4", "--per-node", "4", "--lanes", "2", "--rate", "100Mbit")
RANKS: Final = {"node": 4, "cluster": 16}
TUNED: Final = ("--at-most", "12", "--seconds", "4", "--most", "40")
TRANSFORMS: Final = ("alltoall", "512B,1600B,4KiB")
"""A collective, and sizes of its blocks in the transforms of pw.x."""
SUMS: Final = ("allreduce", "64B,256KiB")
"""Sizes of the sums of lmp: 255 KiB are the structure factors of the salt."""
SMALL_SUMS: Final = ("allreduce,bcast", "64B,2KiB")
GRIDS: Final = ("allreduce,alltoall", "64B,2KiB,32KiB")
"""Sizes of sums, and of the blocks of hpcc's and cp2k's transforms."""
LIMIT_S: Final = 900.0
SILICON: Final = Path("/usr/share/doc/quantum-espresso/examples/EPW/sic/pp/Si.pz-vbc.UPF.gz")
PW_CLOCK: Final = r"PWSCF .*CPU +(\d+m)? *([\d.]+)s WALL"
LOOP_TIME: Final = r"Loop time of (\d+m)?([\d.]+)"
HPCC: Final = Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")

MELT: Final = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 50
run 250
"""
SALT: Final = """\
units real
atom_style charge
lattice custom 5.64 a1 1 0 0 a2 0 1 0 a3 0 0 1 &
  basis 0 0 0 basis 0.5 0.5 0 basis 0.5 0 0.5 basis 0 0.5 0.5 &
  basis 0.5 0 0 basis 0 0.5 0 basis 0 0 0.5 basis 0.5 0.5 0.5
region box block 0 2 0 2 0 2
create_box 2 box
create_atoms 1 box basis 5 2 basis 6 2 basis 7 2 basis 8 2
mass 1 22.99
mass 2 35.45
set type 1 charge 1.0
set type 2 charge -1.0
displace_atoms all random 0.1 0.1 0.1 4711
pair_style born/coul/long 6.0 3.2
pair_coeff 1 1 6.08 0.317 2.340 24.18 -11.51
pair_coeff 1 2 4.87 0.317 2.755 161.2 -200.0
pair_coeff 2 2 3.65 0.317 3.170 1672.0 -3350.0
kspace_style ewald 1.0e-10
velocity all create 300.0 87287
fix 1 all nve
timestep 0.5
thermo 20
run 200
"""
PW: Final = """\
&control
 calculation='scf', prefix='si', pseudo_dir='.', outdir='./out', disk_io='none'
/
&system
 ibrav=1, celldm(1)=10.20, nat=8, ntyp=1, ecutwfc=24.0, nbnd=24
/
&electrons
 conv_thr=1.0d-8
/
ATOMIC_SPECIES
 Si 28.086 Si.pz-vbc.UPF
ATOMIC_POSITIONS crystal
 Si 0.00 0.00 0.00
 Si 0.50 0.50 0.00
 Si 0.50 0.00 0.50
 Si 0.00 0.50 0.50
 Si 0.25 0.25 0.25
 Si 0.75 0.75 0.25
 Si 0.75 0.25 0.75
 Si 0.25 0.75 0.75
K_POINTS automatic
 2 2 2 0 0 0
"""
WATER: Final = """\
&GLOBAL
  PROJECT water
  RUN_TYPE ENERGY
&END GLOBAL
&FORCE_EVAL
  METHOD Quickstep
  &DFT
    BASIS_SET_FILE_NAME BASIS_SET
    POTENTIAL_FILE_NAME GTH_POTENTIALS
    &MGRID
      CUTOFF 200
    &END MGRID
    &SCF
      EPS_SCF 1.0E-6
      SCF_GUESS ATOMIC
      MAX_SCF 20
    &END SCF
    &XC
      &XC_FUNCTIONAL PADE
      &END XC_FUNCTIONAL
    &END XC
  &END DFT
  &SUBSYS
    &CELL
      ABC 9.8528 9.8528 9.8528
    &END CELL
    &COORD
      O 2.280398 9.146539 5.088696
      H 1.762019 9.820429 5.528454
      H 3.095987 9.107088 5.588186
      O 1.251703 2.406261 7.769908
      H 0.554129 2.982634 8.082024
      H 1.771257 2.954779 7.182181
    &END COORD
    &KIND H
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q1
    &END KIND
    &KIND O
      BASIS_SET DZVP-GTH-PADE
      POTENTIAL GTH-PADE-q6
    &END KIND
  &END SUBSYS
&END FORCE_EVAL
"""
NWCHEM: Final = """\
start water
geometry units au noautoz
 O 0.0 0.0 0.0
 H 0.0 1.43042809 1.10715266
 H 0.0 -1.43042809 1.10715266
end
basis
 * library 6-31g*
end
task scf energy
task mp2 energy
"""


@dataclass(frozen=True)
class Program:
    """A program of Debian: what it runs, and which of its lines are results.

    Parameters
    ----------
    command : sequence of str
        Its file and arguments.
    prepare : callable
        Writes input files into a folder, for a number of ranks.
    results : str
        Regular expression of lines that must be equal to those of a native run.
    output : str
        File that has these lines, empty for standard output.
    own : str
        Regular expression of minutes and seconds that the program says it took, if it does.
    tuned : pair of str
        Collectives that matter to it, and their sizes.
    """

    command: Sequence[str]
    prepare: Callable[[Path, int], None]
    results: str
    output: str = ""
    own: str = ""
    tuned: tuple[str, str] = TRANSFORMS


def write(name: str, text: str) -> Callable[[Path, int], None]:
    """Return what writes one input file."""
    return lambda folder, _n_ranks: (folder / name).write_text(text) and None


def prepare_hpcc(folder: Path, n_ranks: int) -> None:
    """Write the example of the package, for a grid of all ranks and a small matrix."""
    lines = HPCC.read_text().splitlines()
    for i, line in enumerate(lines):
        if line.endswith(" Ns"):
            lines[i] = "600 Ns"
        elif line.endswith((" Ps", " Qs")):
            lines[i] = f"{round(n_ranks**0.5)} {line.split()[-1]}"
    (folder / "hpccinf.txt").write_text("\n".join(lines) + "\n")


def prepare_pw(folder: Path, _n_ranks: int) -> None:
    """Write a cell of eight atoms of silicon, and the package's pseudopotential for it."""
    (folder / "si.in").write_text(PW)
    (folder / "Si.pz-vbc.UPF").write_bytes(gzip.decompress(SILICON.read_bytes()))


PROGRAMS: Final = {
    "hpcc": Program(
        ("hpcc",), prepare_hpcc,
        r"^(Success=|\|\|Ax-b|.*_ErrorsFraction=|.*PASSED|.*FAILED)", "hpccoutf.txt",
        tuned=GRIDS,
    ),
    "lammps": Program(("lmp", "-in", "melt.in"), write("melt.in", MELT), r"^ +\d+ .*\.\d+",
                      own=LOOP_TIME, tuned=SUMS),
    "lammps ewald": Program(("lmp", "-in", "salt.in"), write("salt.in", SALT), r"^ +\d+ .*\.\d+",
                            own=LOOP_TIME, tuned=SUMS),
    "pw.x": Program(
        ("pw.x", "-ndiag", "1", "-in", "si.in"), prepare_pw,
        r"^!? +total energy +=|highest occupied|bands \(",
        own=PW_CLOCK,
    ),
    "pw.x -ntg 4": Program(
        ("pw.x", "-ndiag", "1", "-ntg", "4", "-in", "si.in"), prepare_pw,
        r"^!? +total energy +=|highest occupied|bands \(",
        own=PW_CLOCK,
    ),
    "cp2k": Program(
        ("cp2k.psmp", "-i", "water.inp"), write("water.inp", WATER),
        r"ENERGY\| Total|Convergence", tuned=GRIDS,
    ),
    "nwchem": Program(
        ("nwchem.openmpi", "water.nw"), write("water.nw", NWCHEM), r"Total (SCF|MP2) energy",
        tuned=SMALL_SUMS,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """This machine, or an emulated cluster whose ranks have an order."""

    n_ranks: int
    order: str | None


@dataclass
class Run:
    """One run: its time, the program's own word of that, its results, and what collplan says."""

    seconds: float
    own: float
    results: list[str]
    statistics: list[str]


def environment() -> dict[str, str]:
    """Return the environment of Debian's Open MPI, with one thread per rank."""
    environment = mpi_environment() | debian_mpi.environment_of(MPI)
    return environment | {"OMP_NUM_THREADS": "1", "COLLPLAN_LOG": "1"}


def line_of(place: Place, words: Sequence[str], table: Path | None) -> list[str]:
    """Return the command line that runs a program on all ranks of a place."""
    collplan = [str(debian_mpi.python_of(MPI)), "-m", "collplan"]
    ranks = ["-n", str(place.n_ranks)]
    if place.order is not None:
        under = [*collplan, *EMULATE, "--order", place.order, "--"]
        return [*under, *([*collplan, "exec", "--table", str(table)] if table else []), *words]
    if table is None:
        return [str(debian_mpi.LAUNCHERS[MPI]), *ranks, *words]
    return [*collplan, "exec", "--launcher", "mpiexec", "--table", str(table), *ranks, *words]


def run(place: Place, program: Program, table: Path | None) -> Run:
    """Run a program once, in a new folder."""
    with TemporaryDirectory(prefix="native-programs-") as name:
        folder = Path(name)
        program.prepare(folder, place.n_ranks)
        command = [shutil.which(program.command[0]) or program.command[0], *program.command[1:]]
        begin = perf_counter()
        done = subprocess.run(
            line_of(place, command, table), cwd=folder, env=environment(), text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, errors="replace",
        )  # fmt: skip
        seconds = perf_counter() - begin
        if done.returncode:
            raise SystemExit(f"{program.command}: exit {done.returncode}\n{done.stderr[-2000:]}")
        text = (folder / program.output).read_text() if program.output else done.stdout
    found = re.search(program.own, done.stdout) if program.own else None
    own = 60 * int((found[1] or "0m")[:-1]) + float(found[2]) if found else seconds
    results = [line.strip() for line in text.splitlines() if re.search(program.results, line)]
    _, _, said = done.stderr.partition("collplan: ")
    statistics = [line for line in said.splitlines() if "Note: " not in line and line.strip()]
    return Run(seconds, own, [without_times(one) for one in results], statistics)


def without_times(line: str) -> str:
    """Return a line of results without times, and without digits that vary in native runs.

    nwchem adds up integrals in the order in which ranks fetch tasks. In hpcc, a line of PTRANS has
    a time before its verdict and a rate after it, and updates of RandomAccess may be lost where
    ranks write the same word: up to 1 % are allowed.
    """
    line = re.sub(r"(Total (?:SCF|MP2) energy =? +-?\d+\.\d{9})\d+", r"\1", line)
    line = re.sub(r"^(WALL|CPU)\b(.*\S) +\S+ (PASSED|FAILED) +\S+", r"\1\2 \3", line)
    name, _, fraction = line.partition("_ErrorsFraction=")
    if fraction:
        line = f"{name} errors: {'at most' if float(fraction) <= 0.01 else 'more than'} 1 %"
    return re.sub(r"^(\d+ OT/DIIS|\d+ \S+Diag\.|\d+ P_Mix/Diag\.) +(\S+) +\S+", r"\1 \2", line)


def tune(place: Place, program: Program, table: Path) -> None:
    """Add to a table what matters to a program, as measured on all ranks of a place."""
    collectives, sizes = program.tuned
    words = ["--collectives", collectives, "--sizes", sizes, "-o", str(table), *TUNED]
    collplan = [str(debian_mpi.python_of(MPI)), "-m", "collplan"]
    if place.order is not None:
        line = [*collplan, *EMULATE, "--order", place.order, "--", *collplan, "tune", *words]
    else:
        line = [*collplan, "tune", "--launcher", "mpiexec", "-n", str(place.n_ranks), *words]
    subprocess.run(line, env=environment(), stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)


def compare(place: Place, name: str, table: Path, turns: int) -> bool:
    """Run a program in turns both ways, print a row, and return whether results are equal."""
    tune(place, PROGRAMS[name], table)
    native: list[Run] = []
    planned: list[Run] = []
    for _ in range(turns):
        native.append(run(place, PROGRAMS[name], None))
        planned.append(run(place, PROGRAMS[name], table))
    expected = native[0].results
    same = bool(expected) and all(one.results == expected for one in [*native, *planned])
    cells = []
    for times in (
        [[getattr(one, what) for one in runs] for runs in (native, planned)]
        for what in ("seconds", "own")
    ):
        cells += [f"{median(one):.1f} ({min(one):.1f} to {max(one):.1f})" for one in times]
        cells.append(f"{1 - median(times[1]) / median(times[0]):+.0%}")
    cells.append(f"{len(expected)} lines equal" if same else "DIFFERENT")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
    print("\n".join(planned[-1].statistics), file=sys.stderr, flush=True)
    if not same:
        for one in [*native, *planned]:
            print("\n".join(one.results), file=sys.stderr)
    return same


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", choices=RANKS, default="node")
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--order", choices=("block", "cyclic"), default="block")
    options = parser.parse_args()
    names = options.programs.split(",")
    unknown = [name for name in names if name not in PROGRAMS]
    if unknown:
        parser.error(f"--programs: {unknown[0]!r} is none of {', '.join(PROGRAMS)}")
    os.chdir(ROOT)
    place = Place(RANKS[options.on], options.order if options.on == "cluster" else None)
    default = f"native-programs-{place.order or options.on}.yaml"
    table = (options.table or Path(default)).absolute()
    print(
        "| program | job, native, s | with the table | gain | its own time, native "
        "| with the table | gain | results |\n|" + "---|" * 8
    )
    equal = [compare(place, name, table, options.turns) for name in names]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
