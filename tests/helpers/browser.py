"""The browser that opens reports in tests; `make test` runs this file to install it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import debian_mpi

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS: Final = 300_000
PACKAGES: Final = ("chromium", "libatomic1")
"""Debian's packages; playwright's own node needs a library that only the last one has."""
SCREENSHOTS: Final = Path("build/screenshots")


def chromium() -> str | None:
    """Return the path of a Chromium, None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browsing() -> Iterator[Any]:
    """Give a headless browser; skip the test where there is none."""
    path = chromium()
    if path is None:
        pytest.skip(f"none of {', '.join(NAMES)} is here; install Debian's chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        # Root cannot have Chromium's sandbox in a container.
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def new_page(browser: Any, **options: Any) -> Any:
    """Open a page that waits as long as a busy machine needs."""
    page = browser.new_page(**options)
    page.set_default_timeout(PATIENCE_MS)
    return page


def set_up() -> str | None:
    """Install Debian's Chromium if there is none; return why that failed, if it did."""
    return None if chromium() else debian_mpi.install(PACKAGES)


if __name__ == "__main__":
    reason = set_up()
    if reason is not None:
        sys.stderr.write(f"no Chromium, tests of reports in it are skipped: {reason}\n")
