"""The way of a spec through the sources: functions, files and changes of folder, as data.

A spec is read and compiled twice, without a proof; the second time is counted, as the first one
imports modules and loads compiled code. Calls of Python functions in the four layers count, and a
change of folder wherever a function calls one that lies in another folder.

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
        self._sources: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call, and whether its caller lies in another folder."""
        source = self._source(frame)
        if event != "call" or not source:
            return
        self.calls[source, frame.f_code.co_qualname] += 1
        caller = self._source(frame.f_back)
        self.n_changes += bool(caller) and Path(caller).parent != Path(source).parent

    def _source(self, frame: FrameType | None) -> str:
        """Return the path of a function's file in a layer, or "" for other functions."""
        if frame is None:
            return ""
        name = frame.f_code.co_filename
        if name not in self._sources:
            path = Path(name).resolve()
            inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path("-")
            self._sources[name] = inside.as_posix() if inside.parts[0] in LAYERS else ""
        return self._sources[name]

    @property
    def files(self) -> Counter[str]:
        """Return the number of calls by file."""
        found = Counter[str]()
        for (file, _), n in self.calls.items():
            found[file] += n
        return found


def travel(path: Path) -> Journey:
    """Return the journey of a spec from its file to its plan."""
    for _ in range(2):
        journey = Journey()
        before = sys.getprofile()
        sys.setprofile(journey)
        try:
            collplan.compile(collplan.load_spec(path), is_proved=False)
        finally:
            sys.setprofile(before)
    return journey


def main() -> None:
    """Print the figures, and with ``--list`` the calls by file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = ROOT / "examples" / "bcast_full_lane.yaml"
    parser.add_argument("spec", type=Path, nargs="?", default=default)
    parser.add_argument("--list", action="store_true", help="print the files, with their calls")
    options = parser.parse_args()
    journey = travel(options.spec)
    files = journey.files
    print(
        f"{journey.calls.total()} calls of {len(journey.calls)} functions in {len(files)} files, "
        f"{journey.n_changes} changes of folder"
    )
    for file, n in files.most_common() if options.list else ():
        print(f"{n:6} {file}")


if __name__ == "__main__":
    main()
