"""A plugin of pytest for `benchmarks/mutants.py`: it notes what tests do, and runs some of them.

The environment names a file of JSON in ``WATCHED_TESTS``, with these fields:

- ``folder``: where processes write the notes, ``tests-PID.jsonl``.
- ``coverage``: whether to write which test executes which lines, ``coverage.PID``.
- ``first``: tests to run, in this order; if there are none, all that were collected.
- ``without``: tests that are not run.
- ``last``: tests that run after all others.
- ``seconds``: time after which no further test starts.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Start to watch, unless other processes run the tests."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not getattr(config.option, "numprocesses", None):
        options = json.loads(Path(os.environ["WATCHED_TESTS"]).read_text())
        config.pluginmanager.register(Watcher(options))


class Watcher:
    """The notes of a process that runs tests."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._folder = Path(options["folder"])
        self._end_s = float("inf")
        self._notes = (self._folder / f"tests-{os.getpid()}.jsonl").open("a", buffering=1)
        self._coverage: Any = None
        if options.get("coverage"):
            from coverage import Coverage

            include = [f"{layer}/*" for layer in ("specs", "planner", "executors", "collplan")]
            name = str(self._folder / f"coverage.{os.getpid()}")
            self._coverage = Coverage(name, config_file=False, include=include)
            self._coverage.set_option("run:relative_files", True)
            self._coverage.start()

    def _note(self, **fields: Any) -> None:
        self._notes.write(json.dumps(fields) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Take the tests that are wanted, in order; of others, one case of each function first."""
        wanted = {name: number for number, name in enumerate(self._options.get("first", ()))}
        without = set(self._options.get("without", ()))
        last = set(self._options.get("last", ()))
        cases: Counter[str] = Counter()
        keys = {}
        for item in items:
            function = item.nodeid.partition("[")[0]
            keys[item] = wanted.get(item.nodeid, 0), item.nodeid in last, min(cases[function], 1)
            cases[function] += 1
        kept = [one for one in items if one.nodeid not in without]
        if wanted:
            kept = [one for one in kept if one.nodeid in wanted]
        items[:] = sorted(kept, key=keys.__getitem__) if wanted or last else kept
        self._end_s = time.monotonic() + self._options.get("seconds", float("inf"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note the beginning and the end of a test."""
        self._note(begins=item.nodeid)
        if self._coverage is not None:
            self._coverage.switch_context(item.nodeid)
        begin_s = time.perf_counter()
        found = yield
        self._note(ends=item.nodeid, seconds=round(time.perf_counter() - begin_s, 4))
        if self._coverage is not None:
            self._coverage.switch_context("")
        if time.monotonic() > self._end_s:
            self._note(stops=True)
            item.session.shouldstop = "the time is over"
        return found

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            self._note(fails=report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be imported."""
        if report.failed:
            self._note(fails=report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write which lines were executed."""
        if self._coverage is not None:
            self._coverage.stop()
            self._coverage.save()
