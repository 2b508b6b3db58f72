"""The command in processes of its own, limited in time and memory, for input that may do harm.

This file is also the program that starts them: it imports everything and loads all kernels
once, and then forks a process for every run.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from folders import EXAMPLES

SECONDS: Final = 60
"""Limit of processor time in seconds; that of wall time is longer, as machines are shared."""
WALL_SECONDS: Final = 600
BYTES: Final = 2 << 30
"""Above what the process has before it runs."""

_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Attack:
    """Files and a command line that reads them.

    Parameters
    ----------
    files : mapping of str to bytes
        By name; they are all the command finds in its folder.
    arguments : sequence of str
    machine : str or None
        The machine at hand, as the environment tells it.
    n_bytes : int
        The most memory that the command may take.
    """

    files: Mapping[str, bytes]
    arguments: Sequence[str]
    machine: str | None = None
    n_bytes: int = BYTES


@dataclass(frozen=True)
class Damage:
    """Exit status and output of a run, the files that it wrote, and its processor time in s."""

    status: int
    out: str
    err: str
    files: tuple[str, ...]
    seconds: float = 0.0

    def describe_disorder(self) -> str | None:
        """Say what no input may cause; None where all is in order."""
        text = self.out + self.err
        if self.status == -signal.SIGXCPU:
            return f"took more than {SECONDS} s"
        if self.status == -signal.SIGALRM:
            return f"did not end within {WALL_SECONDS} s"
        if self.status not in (0, 1, 2):
            return f"exit status {self.status}"
        if "Traceback" in text or "Error:" in self.err:
            return "a traceback"
        if "does not fit into memory" in self.err:
            return f"took more than {BYTES >> 30} GiB before it was noticed"
        if control := _CONTROL.search(text):
            return f"prints {control[0]!r}"
        lines = self.err.splitlines()
        if self.status == 2 and (not lines or not lines[0].startswith("collplan: error: ")):
            return "refuses without a line that says why"
        if any(len(line) > 2000 for line in lines):
            return "an error as long as its input"
        if self.status == 2 and self.files:
            return f"refuses, but writes {', '.join(self.files)}"
        return None


class Target:
    """The command, ready to be run; close it at the end."""

    def __init__(self) -> None:
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, attack: Attack) -> Damage:
        """Run the command in a folder that holds the attack's files."""
        stdin, stdout = self._server.stdin, self._server.stdout
        assert stdin is not None
        assert stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            for name, content in attack.files.items():
                Path(folder, name).write_bytes(content)
            request = {
                "folder": folder,
                "arguments": list(attack.arguments),
                "machine": attack.machine,
                "n_bytes": attack.n_bytes,
            }
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            written = set(os.listdir(folder)) - set(attack.files)
        return Damage(**answer, files=tuple(sorted(written)))

    def close(self) -> None:
        """End the process that starts the others."""
        self._server.communicate()


def _serve() -> None:
    """Answer each line on standard input, a run, by a line that says how it ended."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _warm_up()
    for line in sys.stdin.buffer:
        answers.write(json.dumps(_run_forked(**json.loads(line))) + "\n")
        answers.flush()


def _warm_up() -> None:
    """Run commands once, so that what they import and compile is there in every run."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        plan, goal = f"{folder}/a.plan", f"{folder}/a.goal"
        process = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1)
        for arguments in (
            ("compile", EXAMPLES / "overlap_reduce.yaml", "--passes"),
            ("compile", EXAMPLES / "allreduce_small.yaml", "-o", plan),
            ("verify", EXAMPLES / "allreduce_small.yaml"),
            ("verify", EXAMPLES / "alltoall.yaml"),
            ("verify", plan),
            ("show", plan),
            ("draw", plan, "-o", f"{folder}/a.svg"),
            ("draw", plan, "-o", f"{folder}/b.svg", "--by", "phase"),
            ("cost", plan, "--trace", f"{folder}/a.json"),
            ("export", plan, "--to", "goal", "-o", goal),
            ("cost", goal),
        ):
            assert main([str(argument) for argument in arguments]) == 0, arguments
        sys.stdout.flush()
        os.dup2(process[0], 1)


def _run_forked(
    folder: str, arguments: list[str], machine: str | None, n_bytes: int
) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = os.fork()
        if process == 0:
            os.chdir(folder)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            if machine is not None:
                os.environ["COLLPLAN_MACHINE"] = machine
            _limit(n_bytes)
            os._exit(_run(arguments))
        _, status, used = os.wait4(process, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(1 << 20).decode("utf-8", "replace"))
    seconds = used.ru_utime + used.ru_stime
    exited = os.waitstatus_to_exitcode(status)
    return {"status": exited, "out": texts[0], "err": texts[1], "seconds": seconds}


def _limit(n_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    for limited, limit in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + n_bytes),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limited, (limit, resource.getrlimit(limited)[1]))
    signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)


def _run(arguments: list[str]) -> int:
    try:
        status = main(arguments)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    from collplan.cli.main import main

    _serve()
