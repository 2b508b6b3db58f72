"""Last words of a rank that is told to end: which of its tasks wait for whom, and who is gone.

That another rank has died Open MPI's launcher tells ranks by SIGTERM, and
`guardian` by SIGUSR1. A rank may then be inside of MPI, where Python handles no
signals; so a thread waits for them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Final

WHEN: Final = {
    signal.SIGTERM: "was told to end",
    signal.SIGUSR1: "was told that another rank has died",
}
LINGER_S: Final = 0.5
"""How long others may speak, too."""
_installed: list[int] = []


def speak_when_ended() -> None:
    """Let this process speak before a signal ends it, from now on.

    For processes that are ranks of ours only: signals belong to whoever owns the
    process. Where somebody handles these signals already, nothing changes.
    """
    if _installed or threading.current_thread() is not threading.main_thread():
        return
    if any(signal.getsignal(number) is not signal.SIG_DFL for number in WHEN):
        return
    others = signal.set_wakeup_fd(-1)
    if others != -1:
        signal.set_wakeup_fd(others)
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    _installed.extend((reading, writing))
    for number in WHEN:
        signal.signal(number, _leave_to_thread)
    # Written to by the signal handler itself, whatever the main thread does.
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reading,), name="last words", daemon=True).start()


def _leave_to_thread(number: int, frame: FrameType | None) -> None:
    """Python needs a handler; the thread has been told already."""


def _listen(reading: int) -> None:
    while True:
        for number in os.read(reading, 64):
            if number in WHEN:
                _speak(WHEN[signal.Signals(number)])
                sys.stdout.flush()
                # Launchers end all others when the first one is gone.
                time.sleep(LINGER_S)
                # Without farewell: what MPI would still want from a dead rank could take for ever.
                os._exit(1)


def _speak(why: str) -> None:
    from collplan.executors.mpi.host.peers import name_ranks
    from collplan.executors.mpi.launch.launcher import launcher_rank
    from collplan.executors.mpi.stall.watchdog import has_spoken, living, say

    if has_spoken():
        return
    watches = living()
    ended = sorted({rank for watch in watches for rank in watch.ended()})
    gone = f"; {name_ranks(ended)} ended" if ended else ""
    lines = [line for watch in watches for line in watch.last_words()]
    if lines:
        lines[0] = f"in a plan, {lines[0]}"
    say(launcher_rank(), [f"{why}{gone}", *lines])
