"""Let interrupts reach programs, and properties take their time; add up verdicts at the end."""

from __future__ import annotations

import json
import signal
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# A first example compiles kernels, and the machine may be busy: no clock decides on a test.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in a script's background: interrupts that tests send to programs would be ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
