"""The first processes of a sandbox: namespaces whose contents disappear when they end.

The call is ``python -c BOOT ROOT REQUEST -- COMMAND``. `REQUEST` is the JSON of a directory
and the arguments of `nodes.build`, and standard input is a socket. The process that requested
the cluster holds the other end of the socket. The sandbox sends one JSON object when the
cluster is built or cannot be built. It ends when the other end is closed, for any reason.

There are three processes. The outermost one waits. Process 1 of the new process namespace
watches the socket and collects orphans; when it ends, the kernel ends all others. The third
process builds the cluster and becomes the command.
"""

from __future__ import annotations

import json
import os
import select
import signal
from contextlib import suppress
from typing import Any, Final, NoReturn

from collplan.emulate import kernel
from collplan.emulate.nodes import SetUpError, build, start
from collplan.executors.mpi.host.processes import die_with

BOOT: Final = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "sys.path.append(sys.argv[1]); "
    "from collplan.emulate.sandbox import main; main(sys.argv[2], sys.argv[4:])"
)
"""Code that starts a sandbox in a Python without site packages."""

LIFELINE: Final = 0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED: Final = 2
_OWN: Final = kernel.NEWNS | kernel.NEWNET | kernel.NEWPID | kernel.NEWIPC | kernel.NEWUTS


def main(request: str, command: list[str]) -> NoReturn:
    """Build the cluster of `request`, run `command` on its first node, and exit with its status."""
    try:
        _leave()
    except OSError as error:
        _report(error=kernel.describe(error))
        os._exit(FAILED)
    first = os.fork()
    if first == 0:
        _be_first(json.loads(request), command)
    for number in _ENDING:
        signal.signal(number, lambda *_: os.kill(first, signal.SIGKILL))
    _, status = os.waitpid(first, 0)
    os._exit(_code_of(status))


def _leave() -> None:
    """Enter new namespaces, if necessary with the help of a new user namespace."""
    if os.geteuid() == 0:
        # The root user of a container may lack this right, but may create a user namespace.
        with suppress(PermissionError):
            kernel.unshare(_OWN)
            return
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    kernel.unshare(_OWN)


def _be_first(request: dict[str, Any], command: list[str]) -> NoReturn:
    """Act as process 1: watch the socket, collect orphans, and exit when the command ends."""
    die_with(os.getppid(), signal.SIGKILL)
    # Signals from a terminal also reach the command, which decides whether it ends.
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _become(request, command)
    while True:
        ready, _, _ = select.select([LIFELINE, woken], [], [])
        if LIFELINE in ready:  # Nothing is written to it, so it has been closed.
            os._exit(FAILED)
        os.read(woken, 4096)
        status = _collect(child)
        if status is not None:
            os._exit(_code_of(status))


def _collect(child: int) -> int | None:
    """Collect all children that have ended; return the status of `child` if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _become(request: dict[str, Any], command: list[str]) -> NoReturn:
    """Build the cluster, report the result, and replace this process by the command."""
    directory = request.pop("directory")
    try:
        kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        # Process ids belong to the new namespace, so /proc must show this namespace.
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
        pids = build(**request)
    except (SetUpError, OSError) as error:
        _report(error=kernel.describe(error) if isinstance(error, OSError) else str(error))
        os._exit(FAILED)
    _report(error=None)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number in (*_ENDING, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    start(request["nsenter"], pids[0], directory, command)


def _report(error: str | None) -> None:
    """Report that the cluster is built, or the error, through the socket."""
    # If the other end is closed, process 1 notices it and ends the sandbox.
    with suppress(ConnectionError):
        os.write(LIFELINE, json.dumps({"error": error}).encode())


def _code_of(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
