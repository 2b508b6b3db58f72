"""A measure of what our tests detect: tests run on mutants, small changes of the sources.

Run ``.venv/bin/python benchmarks/mutants.py --number 300 --seed 1``, and add ``--resume`` to
continue a run that was stopped. Copies of the tree begin with its machine code, so run
``.venv/bin/python -m collplan.machine_code`` first. ``--of FILE`` tests the mutants of an earlier
run again, with the tests as they are now, and ``--survivors`` limits this to those that no test had
detected. ``--show`` prints the report without testing.

Mutants are drawn at random, from packages by their numbers of lines. The first tier of tests runs
once under coverage. Then tests of this tier that execute the changed statement run on a mutant. If
they all pass, tests of all tiers of the changed module and of its importers run. Each of the two
stages has a limit of ``--seconds``, so a test that was not run may detect a mutant that survives. A
test that takes ten times as long as usual and a minute more has failed. A failure counts only if
the test passes on the unchanged sources.

mutmut and cosmic-ray do not fit: they change Python only, run one command for each mutant, and know
neither tiers, nor machine code of kernels, nor samples by package.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import yaml
from mutants_runs import HANG_S, ROOT, SESSION, Copy, Run, Tests
from mutants_sources import Mutant, mutants_of, sample

FOLDER: Final = ROOT / "build" / "mutants"
EQUIVALENT: Final = Path(__file__).with_name("mutants_equivalent.yaml")
TIERS: Final = ("check=--brief", "test=--share 5")
FIELDS: Final = ("file", "function", "original", "mutated", "ordinal")
SLACK_S: Final = 60.0
Found = dict[str, Any]


def identity(found: Found) -> tuple[Any, ...]:
    """Return what identifies the mutant of a result or of an equivalent one."""
    return tuple(found[name] for name in FIELDS)


def read(path: Path) -> dict[tuple[Any, ...], Found]:
    """Return the last result of each mutant of a file of results."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {identity(found): found for found in map(json.loads, lines)}


def again(results: Iterable[Found]) -> tuple[list[Mutant], list[Found]]:
    """Return the mutants of results in the sources of today, and those that are no longer there."""
    present: dict[str, dict[tuple[Any, ...], Mutant]] = {}
    mutants, gone = [], []
    for found in results:
        path = ROOT / found["file"]
        if found["file"] not in present:
            made = mutants_of(found["file"], path.read_bytes()) if path.exists() else []
            present[found["file"]] = {one.identity: one for one in made}
        mutant = present[found["file"]].get(identity(found))
        mutants += [mutant] if mutant else []
        gone += [] if mutant else [found]
    return mutants, gone


class Judge:
    """Tests for mutants, and what is known of tests on the unchanged sources."""

    def __init__(self, tests: Tests, tiers: dict[str, str], seconds: tuple[float, float]) -> None:
        self._tests, self._tiers, self._seconds = tests, list(tiers), seconds
        self._arguments = [shlex.split(arguments) for arguments in tiers.values()]
        self._passes = dict.fromkeys(tests.seconds, True) | dict.fromkeys(tests.failed, False)
        self._first = set(tests.seconds) | {name.partition("::")[0] for name in tests.seconds}
        self._lock = threading.Lock()

    def judge(self, mutant: Mutant, copy: Copy) -> Found:
        """Return the verdict on a mutant, with the test that detected it."""
        begin_s = time.monotonic()
        early = self._tests.early(mutant, self._seconds[0])
        n_run = 0

        def first(tests: list[str], limit_s: float) -> Run:
            unfit = self._unfit()
            fit = [one for one in tests if unfit.isdisjoint((one, one.partition("::")[0]))]
            if not fit:
                return Run([], [], {}, is_late=False, is_whole=True)
            files = sorted({name.partition("::")[0] for name in fit})
            usual_s = self._tests.seconds
            return copy.run([*self._arguments[0], *files], limit_s, usual_s, first=fit)

        def rest(limit_s: float) -> Run:
            unfit = self._unfit()
            later = [file for file in self._tests.later_files(mutant) if file not in unfit]
            where = {"without": list(unfit), "last": list(self._tests.seconds)}
            arguments = [*self._arguments[-1], *later]
            return copy.run(arguments, limit_s, seconds=self._seconds[1], **where)

        stages: list[tuple[Callable[[float], Run], float]]
        stages = [(partial(first, tests), SLACK_S) for tests in early]
        stages += [(rest, self._seconds[1] + HANG_S)] * (self._seconds[1] > 0)
        for stage, limit_s in stages:
            run, killer = self._until_it_counts(stage, limit_s, mutant, copy)
            n_run += len(run.begun)
            if killer is not None:
                verdict = "timeout" if run.is_late else "killed"
                break
        else:
            killer, verdict = None, "survived"
        is_first = killer is not None and (stage is not rest or killer in self._first)
        tier = self._tiers[0] if is_first else self._tiers[-1]
        return {
            **dict(zip(FIELDS, mutant.identity, strict=True)),
            "operator": mutant.operator,
            "line": mutant.lines[0],
            "package": mutant.package,
            "verdict": verdict,
            "tier": tier if killer else None,
            "killer": killer,
            "tests": n_run,
            "seconds": round(time.monotonic() - begin_s, 1),
        }

    def _unfit(self) -> set[str]:
        """Return the tests that fail on the unchanged sources, and the files not collected."""
        return {name for name, passes in self._passes.items() if not passes}

    def _until_it_counts(
        self, stage: Callable[[float], Run], limit_s: float, mutant: Mutant, copy: Copy
    ) -> tuple[Run, str | None]:
        """Repeat a stage until its failure does not come from the test or from a busy machine.

        Return the run, and the test that detected the mutant.
        """
        folders = self._tests.folders(mutant)
        while True:
            with copy.changed(mutant, folders):
                run = stage(limit_s)
            fit = self._fit(run.killers, copy)
            if run.killers and not fit:
                continue
            killer = fit[0] if fit else None
            if not run.is_late or killer is None or "::" not in killer:
                return run, killer
            # The changed kernels were compiled anew, which may have taken this time.
            begin_s = time.monotonic()
            with copy.changed(replace(mutant, mutated=mutant.original), folders):
                copy.run([killer.partition("::")[0]], limit_s, first=[killer])
            alone_s = time.monotonic() - begin_s
            if 5 * alone_s <= limit_s:
                return run, killer
            limit_s = 5 * alone_s

    def _fit(self, tests: list[str], copy: Copy) -> list[str]:
        """Return the tests that pass on the unchanged sources, and the files that are collected."""
        unknown = [one for one in tests if one != SESSION and one not in self._passes]
        if unknown:
            files = sorted({one.partition("::")[0] for one in unknown})
            named = [one for one in unknown if "::" in one]
            which = {"first": named} if named else {"seconds": 0}
            failed = set(copy.run([*self._arguments[-1], *files], HANG_S, **which).killers)
            with self._lock:
                self._passes |= {one: one not in failed for one in unknown}
        return [one for one in tests if one == SESSION or self._passes[one]]


def test_all(mutants: list[Mutant], options: argparse.Namespace, equivalent: set[Any]) -> None:
    """Test mutants in several copies, and append results to the file as they come."""
    tiers = dict(tier.split("=", 1) for tier in options.tier or TIERS)
    known = read(options.results)
    left = [one for one in mutants if one.identity not in known and one.identity not in equivalent]
    with (
        tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder,
        options.results.open("a", buffering=1) as results,
    ):
        copies: SimpleQueue[Copy] = SimpleQueue()
        made = [Copy(_made(Path(folder) / str(number))) for number in range(options.jobs)]
        say(
            f"{len(left)} mutants; tests of the tier {next(iter(tiers))} run under coverage, if new"
        )
        tests = Tests(FOLDER, next(iter(tiers.values())), made[0], options.jobs)
        say(f"{len(tests.seconds)} tests, {sum(tests.seconds.values()):.0f} s, passed")
        for name in tests.failed:
            say(f"fails on the unchanged sources, and is left out: {name}")
        for copy in made:
            copies.put(copy)
        judge = Judge(tests, tiers, options.seconds)

        def one(mutant: Mutant) -> Found:
            copy = copies.get()
            try:
                return judge.judge(mutant, copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(options.jobs) as pool:
            pending = [pool.submit(one, mutant) for mutant in left]
            try:
                for number, done in enumerate(as_completed(pending), 1):
                    found = {**done.result(), "seed": options.seed}
                    results.write(json.dumps(found) + "\n")
                    say(f"{number}/{len(left)} {found['seconds']:.0f} s {described(found)}")
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in made:
                    copy.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def described(found: Found) -> str:
    """Return a result in a line."""
    by = f" by {found['killer']}" if found["killer"] else ""
    texts = (" ".join(found[name].split())[:60] for name in ("original", "mutated"))
    where = f"{found['file']}:{found['line']} {found['operator']}"
    return f"{found['verdict']}{by}: {where}: {' -> '.join(texts)}"


def report(results: list[Found], equivalent: set[Any], tiers: list[str]) -> str:
    """Return tables by package and by operator, then the survivors, in Markdown."""
    counted = [found for found in results if identity(found) not in equivalent]
    seeds = ", ".join(str(seed) for seed in sorted({found["seed"] for found in results}))
    n_out = len(results) - len(counted)
    lines = [f"{len(counted)} mutants of seed {seeds}, without {n_out} that are equivalent:"]
    for by in ("package", "operator"):
        heads = [by, "mutants", f"by {tiers[0]}", f"only by {tiers[-1]}", "timeouts", "survived"]
        lines += ["", f"| {' | '.join(heads)} | detected |", "|---" * 7 + "|"]
        names = sorted({found[by] for found in counted})
        for name in [*names, None]:
            rows = [found for found in counted if name in (None, found[by])]
            counts = Counter(found["tier"] for found in rows)
            late = sum(found["verdict"] == "timeout" for found in rows)
            numbers = [len(rows), counts[tiers[0]], counts[tiers[-1]], late, counts[None]]
            share = f"{1 - counts[None] / max(1, len(rows)):.0%}"
            lines.append(f"| {name or 'all'} | {' | '.join(map(str, numbers))} | {share} |")
    lines += ["", *(f"- {described(one)}" for one in counted if one["verdict"] == "survived")]
    return "\n".join(lines)


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=300, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    parser.add_argument("--resume", action="store_true", help="go on in an existing file")
    parser.add_argument("--of", type=Path, help="results whose mutants are tested again")
    parser.add_argument("--survivors", action="store_true", help="of these, only survivors")
    parser.add_argument("--show", action="store_true", help="test nothing, report results")
    tiers = f"tests, by arguments of pytest; by default {' and '.join(TIERS)}"
    parser.add_argument("--tier", action="append", metavar="NAME=ARGUMENTS", help=tiers)
    seconds = "seconds of tests for a mutant: of the first tier, then of others"
    parser.add_argument("--seconds", type=float, nargs=2, default=(20.0, 60.0), help=seconds)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    return parser.parse_args(arguments)


def main() -> int:
    """Run the script."""
    options = options_of(None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit("stopped; go on with --resume"))
    equivalent = {identity(one) for one in yaml.safe_load(EQUIVALENT.read_text())}
    if not options.show:
        if options.results.exists() and not options.resume:
            say(f"{options.results} exists; give --resume to go on, or another --results")
            return 2
        options.results.parent.mkdir(parents=True, exist_ok=True)
        if options.of is None:
            mutants = sample(ROOT, options.number, options.seed)
        else:
            earlier = read(options.of).values()
            options.seed = next((one["seed"] for one in earlier), options.seed)
            wanted = [
                one for one in earlier if one["verdict"] == "survived" or not options.survivors
            ]
            mutants, gone = again(wanted)
            for found in gone:
                say(f"no longer there: {described(found)}")
        test_all(mutants, options, equivalent)
    names = [tier.partition("=")[0] for tier in options.tier or TIERS]
    print(report(list(read(options.results).values()), equivalent, names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
