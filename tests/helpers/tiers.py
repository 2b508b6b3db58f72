"""The two tiers of tests: `make test` runs all, `make check` is brief.

A brief run leaves out the tests with these marks:

- `system`: tests that start MPI, a browser, Slurm, pip, a compiler or a namespace. While a test
  without the mark runs, this process refuses to start such a program.
- `long`: tests that take seconds.

Of loops with many cases, of tests on ranks and of tests in the folders that compile many plans
(`SAMPLED`), a brief run takes an eighth of the cases. It takes all cases of tests with the mark
`quick`, whose cases take milliseconds. Of properties of random examples, it takes a quarter of the
examples.

`make test` runs all tests. Of those with the mark `many`, whose cases take seconds together, it
takes a fifth of the cases. Of cases that differ only in the MPI, it takes one: the cases of a test
take turns, in an order by chance with a fixed seed. Tests with the mark `each_mpi` have all MPIs.
Of the pairs of values on ranks, it takes few cases in which every value occurs (`covering`).
pytest without options takes all cases.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final, TypeVar

import pytest

from covering import Case, values

T = TypeVar("T")
BRIEF: Final = "--brief"
SHARE: Final = "--share"
MARK: Final = "system"
LONG: Final = "long"
MANY: Final = "many"
QUICK: Final = "quick"
EACH_MPI: Final = "each_mpi"
BRIEF_SHARE: Final = 8
"""Number of cases of which a brief run takes one."""
BRIEF_EXAMPLES: Final = 4
"""Number of random examples of which a brief run takes one."""
PAIR: Final = 2
"""Number of ranks up to which algorithms hardly differ."""
MIN_CASES: Final = 2
"""Smallest number of cases of a test that a run takes, or all if the test has fewer."""
SAMPLED: Final = frozenset({"planner", "executors", "select", "exports", "measure", "project"})
"""Names of folders of whose tests a brief run takes some cases; cases of others are short."""
_MPI: Final = re.compile(r"(?<=[\[-])(debian-)?(mpich|openmpi)(?=[\]-])")
"""The name of an MPI in the name of a case."""
_PROGRAMS: Final = re.compile(
    r"(mpi(exec|run|cc|f90)|hydra|prte|srun|sbatch|salloc|slurm|munge|chrom|apt-get|gfortran|gcc)"
    r"|(cc|ip|tc|unshare|nsenter)$"
)
"""Names, or beginnings of names, of programs that only tests with the mark may start."""
_STARTS: Final = ("subprocess.Popen", "os.posix_spawn", "os.exec")
"""Audit events whose first two arguments are the program and the words of its command line."""
_COMPILES: Final = re.compile(r"\S*\b(cc|gcc|clang) (--version|.* linked\.so .*)")
"""Commands by which collplan compiles its own library when its sources have changed."""
FAKES: Final = (tempfile.gettempdir(), "/nowhere")
"""Beginnings of folders where programs are scripts that a test has written, or missing."""
_running: list[str] = []
"""The test without the mark that runs, if one does."""
_is_brief = False
_share = 1


def take(is_brief: bool, share: int) -> None:
    """Let `some` take what a brief run takes, or one of `share` cases, from now on."""
    global _is_brief, _share
    _is_brief, _share = is_brief, share


def some(cases: Sequence[T], name: str, is_many: bool = True) -> Sequence[T]:
    """Return the cases of a test that run; the same ones in each run.

    Tests of other names take other cases, so tests of the same dimension share out its values.
    """
    share = BRIEF_SHARE if _is_brief else _share if is_many else 1
    n = max(MIN_CASES, -(-len(cases) // share))
    if n >= len(cases):
        return cases
    return [cases[i] for i in sorted(random.Random(name).sample(range(len(cases)), n))]


def briefly(cases: Iterable[T], name: str) -> Sequence[T]:
    """Return the cases of a loop inside a test that run: some of them in a brief run, else all.

    The name is that of the dimension and its test, so that tests take different cases.
    """
    return some(list(cases), name, is_many=False)


def is_share() -> bool:
    """Return whether this run leaves out cases that take long."""
    return _share > 1


def covering(cases: Sequence[Case]) -> Sequence[Case]:
    """Return the cases of a loop on ranks that run.

    Of a share, these are few in which every value of a dimension occurs under each MPI as in all:
    on three ranks or more where it can, and then on few.
    """
    if not is_share():
        return cases
    by_ranks = sorted(cases, key=itemgetter("ranks"))
    large = values([case for case in by_ranks if case["ranks"] > PAIR], "mpi")
    return [*values([case for case in by_ranks if case["ranks"] <= PAIR], "mpi", large), *large]


def examples(n: int) -> int:
    """Return how many random examples of a property run: a quarter of `n` in a brief run."""
    return -(-n // BRIEF_EXAMPLES) if _is_brief else n


def chosen(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of this run."""
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not (_is_brief and any(item.get_closest_marker(mark) for mark in (MARK, LONG))):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {case for name, cases in functions.items() for case in _taken(cases, name)}
    return [item for item in items if item in kept]


def _taken(cases: Sequence[pytest.Item], name: str) -> Iterator[pytest.Item]:
    """Return the cases of a test that this run takes, each with one MPI if it takes a share."""
    is_each = _share == 1 or cases[0].get_closest_marker(EACH_MPI) is not None
    same: dict[str, list[pytest.Item]] = {}
    for case in cases:
        same.setdefault(case.nodeid if is_each else _MPI.sub("", case.nodeid), []).append(case)
    groups = list(same.values())
    if _has_many(cases[0]):
        groups = list(some(groups, name))
    rng = random.Random(name)
    first = rng.randrange(len(groups) + 4)
    for turn, group in zip(rng.sample(range(len(groups)), len(groups)), groups, strict=True):
        yield group[(first + turn) % len(group)]


def _has_many(item: pytest.Item) -> bool:
    """Return whether this run takes only some cases of a test."""
    is_sampled = bool(SAMPLED.intersection(item.path.parts)) or "ranks" in item.keywords
    is_sampled &= item.get_closest_marker(QUICK) is None
    return item.get_closest_marker(MANY) is not None or (_is_brief and is_sampled)


@contextmanager
def needing_nothing(item: pytest.Item) -> Iterator[None]:
    """Refuse to start programs of the system, unless the test has the mark."""
    if item.get_closest_marker(MARK) is None:
        _running.append(item.nodeid)
    try:
        yield
    finally:
        _running.clear()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _running or event not in _STARTS:
        return
    program, words = arguments[:2]
    words = [words] if isinstance(words, str | bytes) else list(words)
    if _COMPILES.fullmatch(" ".join(map(os.fsdecode, words))):
        return
    # A program may be started by another, as by `env` or by an interpreter.
    for word in filter(None, (program, *words[:3])):
        name = os.path.basename(os.fsdecode(word))
        if not _PROGRAMS.match(name):
            continue
        path = shutil.which(os.fsdecode(word)) or os.fsdecode(word)
        if not path.startswith(FAKES):
            raise AssertionError(
                f"{_running[0]} starts {name}: mark it with @pytest.mark.{MARK}, or do without"
            )


sys.addaudithook(_refuse)
