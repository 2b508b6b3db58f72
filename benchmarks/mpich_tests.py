"""MPICH's own tests, natively and under ``collplan exec`` on a table with plans for everything.

usage: python benchmarks/mpich_tests.py FOLDER [--mpi NAME] [--lists NAME,...] [--only TEXT]

FOLDER is `test/mpi` of a copy of MPICH's sources, after `./autogen.sh` there, `./configure
--with-mpi=PREFIX` with the MPI that NAME is of, and `make -k` in its folders. Each line of a list
(`testlist`) whose program exists runs natively. If it passes, it runs under `exec`, too. A line
passes if its exit status is 0 and it prints only `No Errors`. If the list says `TestErrFatal`, it
passes if its exit status is not 0. Prints a row per list, and the lines that fail under `exec`.
Exit status 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

from collplan.tables.table import save_table  # noqa: E402
from mpi_launching import mpi_python, mpiexec_of, run  # noqa: E402
from tables_everywhere import planning_table  # noqa: E402

LISTS: Final = "coll,errors/coll,f77/coll,f90/coll,f08/coll,topo,comm,threads/coll,threads/comm"
MOST_RANKS: Final = 16
BIG: Final = "mem="
"""Mark of lines that need gigabytes of memory."""
LIMIT_S: Final = 180.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a list: a program with its number of ranks, arguments and environment."""

    text: str
    program: str
    ranks: int
    arguments: tuple[str, ...]
    environment: dict[str, str]
    fails: bool

    @classmethod
    def parsed(cls, text: str) -> Line:
        """Return the line of a list."""
        program, *words = text.split()
        ranks = int(words.pop(0)) if words and words[0].isdigit() else 2
        options = [word.partition("=")[::2] for word in words]
        return cls(
            text,
            program,
            ranks,
            tuple(value for key, value in options if key == "arg"),
            dict(value.split("=", 1) for key, value in options if key == "env"),
            ("resultTest", "TestErrFatal") in options,
        )

    def why_wrong(self, launcher: list[str], folder: Path, **env: str) -> str:
        """Return why the line does not pass; empty if it does."""
        command = [*launcher, "-n", str(self.ranks), str(folder / self.program), *self.arguments]
        try:
            done = run(command, LIMIT_S, **self.environment, **env)
        except AssertionError as error:
            return f"it hangs: {error}"
        if self.fails:
            return "" if done.returncode else "exit status 0"
        if done.returncode:
            return f"exit status {done.returncode}: {done.stderr[-300:]}"
        said = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        return "" if said == ["No Errors"] else "\n".join(said)[:300]


def lines_of(folder: Path) -> list[Line]:
    """Return the lines of a folder's list whose programs exist."""
    listed = (folder / "testlist").read_text().splitlines()
    lines = [Line.parsed(text) for text in map(str.strip, listed) if text and text[0] not in "#@"]
    return [
        line
        for line in lines
        if (folder / line.program).is_file() and line.ranks <= MOST_RANKS and BIG not in line.text
    ]


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mpi", default="mpich")
    parser.add_argument("--lists", default=LISTS)
    parser.add_argument("--only", default="", help="text of the lines that run")
    options = parser.parse_args()
    python, n_lost = mpi_python(options.mpi), 0
    print(
        "| list | lines | pass natively | pass under exec | calls by plans |\n" + "|---" * 5 + "|"
    )
    with TemporaryDirectory(prefix="mpich-tests-") as name:
        table, log = Path(name) / "table.json", Path(name) / "log.json"
        save_table(planning_table(MOST_RANKS, overlaps=True), table)
        native = [str(mpiexec_of(python))]
        planned = [str(python), "-m", "collplan", "exec", "--table", str(table), "--force"]
        for listed in options.lists.split(","):
            folder = options.folder.resolve() / listed
            lines = [line for line in lines_of(folder) if options.only in line.text]
            passing = [line for line in lines if not line.why_wrong(native, folder)]
            n_planned, lost = 0, []
            for line in passing:
                log.unlink(missing_ok=True)
                why = line.why_wrong(
                    planned, folder, COLLPLAN_LOG=str(log), COLLPLAN_NATIVE_CALLS="0"
                )
                lost += [f"  {line.text}: {why}"] * bool(why)
                if log.exists():
                    calls = json.loads(log.read_text())["calls"]
                    n_planned += sum(one["calls"] for one in calls if one["ran"] != "native")
            n_lost += len(lost)
            print(
                f"| {listed} | {len(lines)} | {len(passing)} | {len(passing) - len(lost)} | "
                f"{n_planned} |", *lost, sep="\n" * bool(lost), flush=True,
            )  # fmt: skip
    return int(n_lost > 0)


if __name__ == "__main__":
    sys.exit(main())
