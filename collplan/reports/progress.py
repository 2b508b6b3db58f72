"""Progress on standard error: a spinner or a bar, on terminals and without ``--json``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

PROGRESS: Final = "COLLPLAN_PROGRESS"
"""Environment variable by which a command tells the ranks that it starts to show progress."""
_REDRAW_S: Final = 0.2
_is_quiet = False


def keep_quiet(is_quiet: bool) -> None:
    """Set whether progress is hidden by default, as for a command that prints JSON."""
    global _is_quiet
    _is_quiet = is_quiet


def shows_progress(wanted: bool | None = None) -> bool:
    """Return whether to show progress.

    Parameters
    ----------
    wanted : bool, optional
        The user's ``--progress`` or ``--no-progress``. By default progress is shown if
        standard error is a terminal and the command prints no JSON. Ranks write into a
        pipe, so the command that has started them decides for the terminal.
    """
    if wanted is not None:
        return wanted
    told = os.environ.get(PROGRESS)
    if told is not None:
        return told == "1" and not _is_quiet
    return sys.stderr.isatty() and not _is_quiet


def spinner(text: str) -> AbstractContextManager[Any]:
    """Show a text with a spinner while the block runs."""
    if not (sys.stderr.isatty() and shows_progress()):
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


@contextmanager
def progress_bar(
    title: str, total: float | None, is_shown: bool, **options: Any
) -> Iterator[Callable[..., None]]:
    """Yield a function that updates a progress bar.

    The bar is drawn only during updates, because a thread that draws would use a core.

    Parameters
    ----------
    title : str
        Title of the bar.
    total : float, optional
        Number of steps, if it is known.
    is_shown : bool
        Whether to show the bar; otherwise updates do nothing.
    **options
        Options of rich's ``Progress``. The function takes those of ``Progress.update``.
    """
    if not is_shown:
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, force_terminal=True)
    with Progress(console=console, auto_refresh=False, transient=True, **options) as bar:
        task = bar.add_task(title, total=total)
        drawn = time.monotonic()

        def update(**state: Any) -> None:
            nonlocal drawn
            bar.update(task, **state)
            if time.monotonic() - drawn >= _REDRAW_S:
                bar.refresh()
                drawn = time.monotonic()

        yield update
