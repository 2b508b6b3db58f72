"""The way of a spec through the sources: functions, files and changes of folder, as data.

A spec is read and compiled in a new process. Calls of Python functions in the four layers count,
except during imports, and a change of folder wherever a function calls one of another folder.

Usage: python benchmarks/journey.py [SPEC] [--list]
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import collplan

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("specs", "planner", "executors", "collplan")


class Journey:
    """The functions that run, as `sys.setprofile` reports them."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.n_changes = 0
        self._folder: str | None = None
        self._files: dict[str, str | None] = {}
        self._n_imports = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, and notice whether it is of another folder than the previous one."""
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            self._n_imports += 1 if event == "call" else -1
        file = self._source(code.co_filename)
        if event != "call" or self._n_imports or file is None:
            return
        self.calls[file, code.co_qualname] += 1
        folder = file.rpartition("/")[0]
        self.n_changes += self._folder not in (None, folder)
        self._folder = folder

    def _source(self, name: str) -> str | None:
        """Return the path of a source file in the repository, or None for other files."""
        if name not in self._files:
            path = Path(name).resolve()
            inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()
            is_ours = inside.parts[:1] and inside.parts[0] in LAYERS
            self._files[name] = inside.as_posix() if is_ours else None
        return self._files[name]

    @property
    def files(self) -> Counter[str]:
        """Return the number of calls by file."""
        found = Counter[str]()
        for (file, _), n in self.calls.items():
            found[file] += n
        return found


def travel(path: Path) -> Journey:
    """Return the journey of a spec from its file to its plan."""
    journey = Journey()
    sys.setprofile(journey)
    try:
        collplan.compile(collplan.load_spec(path))
    finally:
        sys.setprofile(None)
    return journey


def main() -> None:
    """Print the figures, and with ``--list`` the calls by file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = ROOT / "examples" / "bcast_full_lane.yaml"
    parser.add_argument("spec", type=Path, nargs="?", default=default)
    parser.add_argument("--list", action="store_true", help="print the files, with their calls")
    options = parser.parse_args()
    journey = travel(options.spec)
    n_calls, files = journey.calls.total(), journey.files
    print(
        f"{n_calls} calls of {len(journey.calls)} functions in {len(files)} files, "
        f"{journey.n_changes} changes of folder"
    )
    for file, n in files.most_common() if options.list else ():
        print(f"{n:6} {file}")


if __name__ == "__main__":
    main()
