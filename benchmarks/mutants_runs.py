"""Runs of tests on mutants: in copies of the tree, the tests that execute what was changed.

A copy has temporary, home and cache folders of its own and a limit of memory. Whatever processes a
run leaves are killed. Python's code of the changed file is removed, as Python compares times of
whole seconds. Machine code of kernels notices changes of the functions in its folder, but not of
constants elsewhere, so it is set aside where a constant may be part of it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import networkx as nx
from mutants_sources import LAYERS, Mutant, source_files

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / name) for name in ("helpers", "project")]

from test_mirror import ELSEWHERE, own_test  # noqa: E402

from ending_jobs import marked_processes  # noqa: E402
from import_graph import graph_with_tests  # noqa: E402

MEMORY_KIB: Final = 8 << 20
HANG_S: Final = 360.0
"""Time after its last test should have begun in which a session must end, in seconds."""
OF_C: Final = ("tests/collplan/test_preload.py", "tests/collplan/cli/test_exec.py")
"""Files of tests of all C files."""
NEAR_C: Final = {
    "tests/collplan/test_watch.py": {"watch", "watching", "python"},
    "tests/collplan/cli/test_why.py": {"trace", "observing", "python"},
    "tests/collplan/preload/test_trial_answers.py": {"trials", "deciding", "agreeing", "making"},
    "tests/collplan/preload/test_starting.py": {"placing", "sharing", "loading", "launcher"},
    "tests/collplan/preload/test_running.py": {"uncovered", "state", "helper", "real"},
}
"""Files of tests of some C files, by the names of these, which run first."""
SESSION: Final = "the session"
"""Name of what fails if no test does, but the session ends early."""
SLOWER: Final = 10
"""Factor of a test's usual time, beyond which, and beyond a time for all, it counts as hanging."""
MOST_FAILURES: Final = 2
"""Number of failures after which a session ends; one of them may come from the test itself."""
N_NEAR, N_EARLY, N_LATER = 10, 50, 8
"""Files of tests that run on a mutant: the nearest and all of the first tier, and those of the
last stage; to collect all takes half a minute."""
KERNEL: Final = re.compile(r"\b(compiled|compile_with|compile_at_once|inner|inlined|intrinsic)\b")
LEFT_OUT: Final = (".git", "build", ".venv*", ".*_cache", ".hypothesis", "*.egg-info")


@dataclass
class Run:
    """End of a session of pytest: what its tests noted, in order."""

    failed: list[str]
    begun: list[str]
    seconds: dict[str, float]
    is_late: bool
    is_whole: bool

    @property
    def killers(self) -> list[str]:
        """Return the tests that failed, or else the one that did not end."""
        if self.failed or (self.is_whole and not self.is_late):
            return self.failed
        open_ones = [name for name in self.begun if name not in self.seconds]
        return open_ones[:1] or [SESSION]


class Copy:
    """A copy of the tree in which one mutant at a time is tested."""

    def __init__(self, place: Path) -> None:
        self._place, self.tree = place, place / "tree"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closed = False
        shutil.copytree(ROOT, self.tree, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for environment in ROOT.glob(".venv*"):
            (self.tree / environment.name).symlink_to(environment.resolve())
        own = self.tree / ".venv" / "bin" / "python"
        self._python = own if own.exists() else Path(sys.executable)
        folders = {name: place / name for name in ("tmp", "home", "cache")}
        for folder in folders.values():
            folder.mkdir()
        self._environment = {
            **os.environ,
            "TMPDIR": str(folders["tmp"]),
            "HOME": str(folders["home"]),
            "XDG_CACHE_HOME": str(folders["cache"]),
            "PYTHONPATH": f"{self.tree}{os.pathsep}{self.tree / 'tests' / 'helpers'}",
        }

    @contextmanager
    def changed(self, mutant: Mutant, folders: Iterable[str]) -> Iterator[None]:
        """Apply a mutant during the block, and set the machine code of folders aside."""
        path = self.tree / mutant.file
        source, times = path.read_bytes(), path.stat()
        known = _machine_code(path.parent)
        aside = {
            kept: self._place / "aside" / f"{place}.{kept.name}"
            for place, folder in enumerate(folders)
            for kept in _machine_code(self.tree / folder)
        }
        for kept, other in aside.items():
            other.parent.mkdir(exist_ok=True)
            kept.rename(other)
        _forget(path)
        path.write_bytes(mutant.apply(source))
        try:
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            _forget(path)
            for kept in _machine_code(path.parent) - known | set(aside):
                shutil.rmtree(kept, ignore_errors=True)
            for kept, other in aside.items():
                other.rename(kept)

    def run(
        self,
        arguments: Iterable[str],
        limit_s: float,
        usual_s: Mapping[str, float] | None = None,
        **options: Any,
    ) -> Run:
        """Run pytest with options of the plugin `watched_tests`; kill it after a time.

        If usual times of tests are given, these tests are known to pass, so that the first failure
        ends the session, and the limit holds for each test, beyond ten times its usual time.
        """
        if self._is_closed:
            raise RuntimeError("the copy is closed")
        notes = Path(options.setdefault("folder", tempfile.mkdtemp(dir=self._place)))
        (notes / "options.json").write_text(json.dumps(options))
        # A browser reserves more addresses than there is memory, but does not write to them.
        limits = f'ulimit -c 0 -d {MEMORY_KIB}; exec "$@"'
        command = ["bash", "-c", limits, "bash", str(self._python), "-m", "pytest", "-q"]
        command += ["-p", "watched_tests", "-p", "no:cacheprovider", "--hypothesis-seed=1"]
        if "coverage" not in options:
            # One failure that counts detects a mutant; the map of tests needs all of them.
            command.append(f"--maxfail={1 if usual_s else MOST_FAILURES}")
        with (notes / "log").open("w") as log:
            self._process = process = subprocess.Popen(
                [*command, *arguments],
                cwd=self.tree,
                env={**self._environment, "WATCHED_TESTS": str(notes / "options.json")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                status = _wait(process, notes, limit_s, usual_s or {})
            finally:
                self._end(process)
        return _read(notes, status)

    def close(self) -> None:
        """End the session that runs, and allow no others."""
        self._is_closed = True
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a session and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for _ in range(20):
            left = marked_processes(str(self._place / "tmp"))
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)


def _wait(
    process: subprocess.Popen[bytes], notes: Path, limit_s: float, usual_s: Mapping[str, float]
) -> int | None:
    """Return the exit status of a session, or nothing if it, or its current test, takes too long.

    The limit is that of the session, or of each test beside its usual time.
    """
    begin_s, n_lines = time.monotonic(), 0
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(1.0)
        lines = _notes(notes) if usual_s else []
        if len(lines) != n_lines:
            begin_s, n_lines = time.monotonic(), len(lines)
        most_s = limit_s
        if lines:
            most_s += SLOWER * usual_s.get(lines[-1].get("begins", ""), 0.0)
        elif usual_s:
            most_s = HANG_S  # The session still collects tests.
        if time.monotonic() - begin_s > most_s:
            return None


def _machine_code(folder: Path) -> set[Path]:
    """Return the folders of a folder's machine code; their names depend on the sources."""
    return set((folder / "__pycache__").glob("numba-*"))


def _forget(path: Path) -> None:
    """Remove Python's code of a file."""
    for code in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        code.unlink()


def _notes(folder: Path) -> list[dict[str, Any]]:
    """Return what tests have noted; the last line may be half written."""
    found = []
    for path in folder.glob("tests-*.jsonl"):
        for line in path.read_text().splitlines(keepends=True):
            found += [json.loads(line)] if line.endswith("\n") else []
    return found


def _read(notes: Path, status: int | None) -> Run:
    lines = _notes(notes)
    stops = any("stops" in line for line in lines)
    return Run(
        [line["fails"] for line in lines if "fails" in line],
        [line["begins"] for line in lines if "begins" in line],
        {line["ends"]: line["seconds"] for line in lines if "ends" in line},
        status is None,
        status in (0, 5) or (status == 2 and stops),
    )


class Tests:
    """Tests of the first tier, and which lines they execute; other tests by their imports.

    Parameters
    ----------
    folder : Path
        Folder of maps; one is made for each state of the sources and of what tests share. Where
        only files of tests have changed, these run again.
    arguments : str
        Arguments of pytest that select the first tier.
    """

    def __init__(self, folder: Path, arguments: str, copy: Copy, n_jobs: int) -> None:
        # The tree may be edited while the copies are tested.
        self._sources = {file: (copy.tree / file).read_bytes() for file in source_files(copy.tree)}
        self._imports, self._tree = graph_with_tests(), copy.tree
        words = shlex.split(arguments)
        # A run of changed files has all tests of a tier only if the tier selects no files itself.
        selects_files = any((copy.tree / word.partition("::")[0]).exists() for word in words)
        shared = hashlib.sha256(arguments.encode() + b"".join(self._sources.values()))
        own: dict[str, str] = {}
        for path in sorted(copy.tree.glob("tests/**/*.py")):
            if path.name.startswith("test_") and not selects_files:
                name = path.relative_to(copy.tree).as_posix()
                own[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                shared.update(path.read_bytes())
        self._folder = folder / f"map-{shared.hexdigest()[:12]}"
        runs = self._runs()
        known = {file: digest for run in runs for file, digest in run["files"].items()}
        changed = {file: digest for file, digest in own.items() if known.get(file) != digest}
        if changed or not runs:
            place = self._folder / f"run-{len(runs)}"
            self._watch(place, [*words, *(changed if runs else ())], changed, copy, n_jobs)
            runs = self._runs()
        self._last = {file: i for i, run in enumerate(runs) for file in run["files"]}
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        for number, run in enumerate(runs):
            self.seconds |= {one: s for one, s in run["seconds"].items() if self._is(one, number)}
            self.failed += [one for one in run["failed"] if self._is(one, number)]

    def _is(self, name: str, number: int) -> bool:
        """Return whether the newest run of the file of a test has this number."""
        file = name.partition("::")[0]
        return (self._tree / file).exists() and self._last.get(file, 0) == number

    def _runs(self) -> list[dict[str, Any]]:
        """Return the runs under coverage: one of all tests, then those of files that changed."""
        places = sorted(
            self._folder.glob("run-*/tests.json"), key=lambda path: path.stat().st_mtime
        )
        return [json.loads(path.read_text()) for path in places]

    def _watch(
        self, place: Path, arguments: list[str], files: dict[str, str], copy: Copy, n_jobs: int
    ) -> None:
        from coverage import Coverage

        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        where = {"folder": str(place), "coverage": True}
        parallel = ["-n", str(n_jobs), "--dist", "worksteal"] if n_jobs > 1 else []
        run = copy.run([*parallel, *arguments], 7200.0, **where)
        if not (run.seconds or (run.is_whole and files and self._runs())):
            raise SystemExit(f"no test of the first tier ran; see {place / 'log'}")
        combined = Coverage(str(place / "coverage"), config_file=False)
        combined.set_option("run:relative_files", True)
        combined.combine([str(path) for path in place.glob("coverage.*")])
        combined.save()
        seconds = {name: s for name, s in run.seconds.items() if name not in run.failed}
        found = {"failed": run.failed, "seconds": seconds, "files": files}
        (place / "tests.json").write_text(json.dumps(found))

    def executing(self, file: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that execute any of some lines; an empty name stands for imports."""
        from coverage.numbits import nums_to_numbits, register_sqlite_functions

        question = (
            "SELECT context.context FROM line_bits JOIN file ON file.id = file_id "
            "JOIN context ON context.id = context_id "
            "WHERE file.path = ? AND numbits_any_intersection(?, numbits)"
        )
        wanted = nums_to_numbits(lines)
        found = set()
        for number in {0, *self._last.values()}:
            path = self._folder / f"run-{number}" / "coverage"
            with closing(sqlite3.connect(path)) as connection:
                register_sqlite_functions(connection)
                rows = connection.execute(question, (file, wanted))
                found |= {name for (name,) in rows if not name or self._is(name, number)}
        return found

    def early(self, mutant: Mutant, seconds: float) -> list[list[str]]:
        """Return tests of the first tier for a mutant, which usually take at most some seconds.

        Those of the files nearest to the module are apart from those of other files. A case of each
        test function comes before second cases, and short tests before long ones.
        """
        found = self._reaching(mutant) & set(self.seconds)
        if not found:
            return []
        files = {name.partition("::")[0] for name in found}
        near = [file for file in self._near(mutant) if file in files]
        kept = [*near, *sorted(files - set(near))][:N_EARLY]
        parts = []
        for some in (kept[:N_NEAR], kept[N_NEAR:]):
            chosen = self._within(
                seconds, [name for name in found if name.partition("::")[0] in some]
            )
            seconds -= sum(self.seconds[name] for name in chosen)
            parts += [chosen] if chosen else []
        return parts

    def _within(self, seconds: float, names: Iterable[str]) -> list[str]:
        """Return tests that take at most some seconds together, in the order of their worth."""
        cases: Counter[str] = Counter()
        ranked = []
        for name in sorted(names, key=lambda name: (self.seconds[name], name)):
            function = name.partition("[")[0]
            ranked.append((cases[function], self.seconds[name], name))
            cases[function] += 1
        chosen = []
        for _, needed_s, name in sorted(ranked):
            if needed_s <= seconds:
                chosen.append(name)
                seconds -= needed_s
        return chosen

    def _reaching(self, mutant: Mutant) -> set[str]:
        """Return tests that execute a mutant.

        Kernels may run as machine code, which leaves no trace, and constants of modules and
        classes are executed by imports. For kernels, the functions that call them and tests that
        import them count, for constants, all lines of the module and of those that import it.
        """
        if mutant.file.endswith(".c"):
            return set()
        found = self.executing(mutant.file, range(mutant.lines[0], mutant.lines[1] + 1))
        around = self._functions(mutant)
        if not around:
            for file in [mutant.file, *self._importers(mutant.file)]:
                found |= self.executing(file, range(1, 10_000))
        elif _is_kernel(around[0]):
            for file, lines in self._callers(mutant.file, around[0].name, set()):
                found |= self.executing(file, lines)
            found |= self._tests_of(self._importers(mutant.file, ("tests",)))
            # Kernels that are called by their addresses have no callers.
            found = found or self._tests_of(self._near(mutant))
        return found

    def _tests_of(self, files: Iterable[str]) -> set[str]:
        """Return the tests of the first tier in some files."""
        some = set(files)
        return {name for name in self.seconds if name.partition("::")[0] in some}

    def _functions(self, mutant: Mutant) -> list[ast.FunctionDef]:
        """Return the functions around a mutant, the outermost first."""
        return [
            node
            for node in ast.walk(ast.parse(self._sources[mutant.file]))
            if isinstance(node, ast.FunctionDef)
            and node.lineno <= mutant.lines[0] <= (node.end_lineno or 0)
        ]

    def later_files(self, mutant: Mutant) -> list[str]:
        """Return files of tests of all tiers that may detect a mutant."""
        if not mutant.file.endswith(".c"):
            return self._near(mutant)[:N_LATER]
        stem = Path(mutant.file).stem
        near = [file for file, stems in NEAR_C.items() if stem in stems]
        return [file for file in (*near, *OF_C) if (self._tree / file).exists()]

    def _near(self, mutant: Mutant) -> list[str]:
        """Return files of tests: that of the module, those that import it, and those beside.

        The nearest come first. Modules that are found by their names have no importers.
        """
        own = own_test(Path(mutant.file))
        name = str(own.relative_to(ROOT)) if own else f"tests/{ELSEWHERE.get(mutant.file, '')}"
        place = Path(mutant.file).with_suffix("").parts
        far = nx.single_source_shortest_path_length(self._imports.reverse(copy=False), place)
        tests = [one for one in far if one[0] == "tests" and one[-1].startswith("test_")]
        nearest = [f"{'/'.join(one)}.py" for one in sorted(tests, key=lambda one: (far[one], one))]
        beside = [
            path.relative_to(self._tree).as_posix()
            for folder in list(Path(name).parents)[:2]
            for path in sorted((self._tree / folder).glob("test_*.py"))
        ]
        found = [file for file in dict.fromkeys([name, *nearest, *beside]) if file.endswith(".py")]
        return [file for file in found if (self._tree / file).exists()]

    def folders(self, mutant: Mutant) -> set[str]:
        """Return the folders whose machine code may contain the constant that a mutant changes."""
        if mutant.file.endswith(".c") or self._functions(mutant):
            return set()
        files = [mutant.file, *self._importers(mutant.file)]
        return {str(Path(file).parent) for file in files}

    def _importers(self, file: str, folders: Sequence[str] = LAYERS) -> list[str]:
        place = Path(file).with_suffix("").parts
        found = self._imports.predecessors(place) if place in self._imports else ()
        return sorted(f"{'/'.join(one)}.py" for one in found if one[0] in folders)

    def _callers(self, file: str, name: str, seen: set[Any]) -> Iterator[tuple[str, range]]:
        """Generate the lines of functions that call a kernel, directly or through kernels."""
        for other in [file, *self._importers(file)]:
            for function in ast.walk(ast.parse(self._sources[other])):
                if not isinstance(function, ast.FunctionDef) or (other, function.name) in seen:
                    continue
                names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(function)}
                if name in names:
                    seen.add((other, function.name))
                    yield other, range(function.body[0].lineno, (function.end_lineno or 0) + 1)
                    if _is_kernel(function):
                        yield from self._callers(other, function.name, seen)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(KERNEL.search(ast.unparse(one)) for one in function.decorator_list)
