"""Let interrupts reach programs, and properties take their time; add up verdicts at the end."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from attacking import Target
from browser import browsing
from mpi_launching import MPIS
from mpi_pool import HERE, OwnProcess, Place, Pools
from tiers import BRIEF, MARK, SHARE, chosen, examples, needing_nothing, take

# A first example compiles kernels, and the machine may be busy: no clock decides on a test.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in a script's background: interrupts that tests send to programs would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Unbuffered ranks write a line and its end apart, and lines of several ranks run into each other.
os.environ.pop("PYTHONUNBUFFERED", None)
# Hundreds of processes start; they need not compile the project's modules each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Nor start threads for linear algebra that no test does.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if not os.path.exists("/sys/devices/system/cpu"):
    # In such a container, hwloc and UCX warn in every process of an MPI, and tests compare errors.
    os.environ |= {"HWLOC_HIDE_ERRORS": "2", "UCX_LOG_LEVEL": "fatal"}
# Collection makes millions of objects and no garbage: to look for some takes half of its time.
gc.disable()

collect_ignore = ["helpers"]
"""Modules and programs that tests use contain no tests."""
LAST = "~"
"""Turn of tests that need no pool, after the name of any MPI."""


@pytest.fixture(autouse=True)
def memory_limit() -> Iterator[None]:
    """Take back the limit of `collplan --max-memory`, which programs of later tests inherit."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of `make check` and `make test`."""
    parser.addoption(BRIEF, action="store_true", help="run what `make check` runs")
    parser.addoption(SHARE, type=int, default=1, help="take 1 of N cases")


def pytest_configure(config: pytest.Config) -> None:
    """Shorten loops, and take fewer examples of properties in a brief run."""
    take(config.getoption(BRIEF), config.getoption(SHARE))
    settings.register_profile("tier", max_examples=examples(settings.default.max_examples))
    settings.load_profile("tier")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run does not need."""
    kept = chosen(items)
    left_out = set(items).difference(kept)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = kept
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[str, int]:
    """Put cases on ranks first, one MPI after the other, and those on most ranks first.

    Workers get tests in this order, so that few of them start a pool, which then need not grow.
    """
    mpi, n_ranks = getattr(getattr(item, "callspec", None), "params", {}).get("comm", (HERE, 1))
    is_on_ranks = item.get_closest_marker("ranks") is not None and mpi != HERE
    return (mpi, -n_ranks) if is_on_ranks else (LAST, 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give functions with the mark `ranks` a test for each MPI and number of ranks.

    In a brief run, a function for one rank runs in this process, the only rank of its world.
    """
    mark = metafunc.definition.get_closest_marker("ranks")
    if mark is not None:
        mpis = mark.kwargs.get("mpis", MPIS)
        places = [(mpi, n_ranks) for mpi in mpis for n_ranks in mark.args]
        if 1 in mark.args and metafunc.config.getoption(BRIEF):
            places.insert(0, (HERE, 1))
        names = [f"{n_ranks}-{mpi}" for mpi, n_ranks in places]
        metafunc.parametrize("comm", places, indirect=True, ids=names)


@pytest.fixture(scope="session")
def pools() -> Iterator[Pools]:
    """Ranks of each MPI that run all cases of this process."""
    made = Pools()
    yield made
    made.close()


@pytest.fixture
def comm(request: pytest.FixtureRequest, pools: Pools) -> Place:
    """Return where a case runs: its ranks get a communicator under this name."""
    mpi, n_ranks = request.param
    return Place(OwnProcess() if mpi == HERE else pools.of(mpi, n_ranks), n_ranks)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return a headless browser; functions that use it get the mark `system`.

    Its event loop runs in this thread, where others need theirs: it does not outlive a module.
    """
    with browsing() as found:
        yield found


@pytest.fixture
def priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let comparisons that a test makes of the same specs share what is the same in them."""
    from collplan.select import entries, sweep

    monkeypatch.setattr(sweep, "usable_processors", lambda: 1)
    monkeypatch.setattr(sweep, "price", cache(sweep.price))
    estimate, known = entries.estimate, dict[Any, Any]()

    def estimate_once(*given: Any, **how: Any) -> Any:
        """Structures, the last argument, are what one comparison shares."""
        key = (*given[:-1], *how.items())
        if key not in known:
            known[key] = estimate(*given, **how)
        return known[key]

    monkeypatch.setattr(entries, "estimate", estimate_once)


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """Return the command, ready to be run in processes with limits of time and memory."""
    target = Target()
    yield target
    target.close()


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    """Return a client of a local cluster of dask: two processes of one thread each."""
    from distributed import Client, LocalCluster

    place = {"processes": True, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, **place) as cluster,
        Client(cluster) as client,
    ):
        yield client


def pytest_collection_finish() -> None:
    """Collect garbage again, but seldom, and never look through what collection made."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark functions that run on ranks of other processes or in a browser."""
    is_in_browser = "browser" in getattr(item, "fixturenames", ())
    place = getattr(getattr(item, "callspec", None), "params", {}).get("comm")
    is_on_ranks = item.get_closest_marker("ranks") is not None and place != (HERE, 1)
    if is_in_browser or is_on_ranks:
        item.add_marker(MARK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let only tests with the mark start programs of the system."""
    with needing_nothing(item):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run functions with the mark `ranks` on the ranks of a pool."""
    if pyfuncitem.get_closest_marker("ranks") is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    place = arguments.pop("comm")
    module = pyfuncitem.module.__name__
    place.pool.run(module, pyfuncitem.originalname, place.n_ranks, arguments)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add up what `test_mutation` recorded, in whatever process it ran."""
    counts: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "corruptions" and report.when == "call":
                    counts.update(json.loads(value))
    if not counts:
        return
    verdicts: Counter[str] = Counter()
    by_name: dict[str, Counter[str]] = {}
    for key, n in counts.items():
        name, verdict = key.split()
        verdicts[verdict] += n
        by_name.setdefault(name, Counter())[verdict] += n
    terminalreporter.section(f"{counts.total()} corrupted plans")
    for name in sorted(by_name):
        terminalreporter.line(f"{name:22}" + _list(by_name[name]))
    terminalreporter.line(f"{'all':22}" + _list(verdicts))


def _list(counter: Counter[str]) -> str:
    return ", ".join(f"{n} {verdict}" for verdict, n in counter.most_common())
