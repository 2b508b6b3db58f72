"""Time message graphs on shared links beside a simulator by the textbook.

Alltoalls and a ring of hosts in random order on a fat tree with half as many uplinks as hosts.
The textbook computes all rates anew after every event, in Python, so it gets a few rounds only:
both simulators are timed on these, in CPU seconds, and all arrivals must agree.
Run on an idle core:
``python benchmarks/fluid.py [--hosts 256] [--rounds 4] [--textbook FILE.py]``
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from collplan.planner.memory import keep_freed_memory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from message_files import parse_message_graph, parse_platform
from message_simulation import simulate_messages

from fat_trees import exchange, fat_tree, pairwise, ring, scattered
from textbook_fluid import arrivals

Document = dict[str, Any]
Textbook = Callable[[Document, Document], list[float]]

PATTERNS: Final = {"pairwise alltoall": pairwise, "exchange": exchange, "ring": ring}
N_BYTES: Final = 65536
PER_LEAF: Final = 16
REPETITIONS: Final = 5


def load_textbook(path: Path | None) -> Textbook:
    """Return the function ``simulate(case, platform)`` of a file, or the textbook of the tests."""
    if path is None:
        return arrivals
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    found: Textbook = module.simulate
    return found


def seconds(case: Document, platform: Document) -> tuple[float, list[float]]:
    """Return the median CPU time of the simulator, reading left out, and its arrivals."""
    graph, links = parse_message_graph(case, "case"), parse_platform(platform, "platform")
    times = []
    for _ in range(REPETITIONS):
        begin = time.process_time()
        found = simulate_messages(graph, links)
        times.append(time.process_time() - begin)
    return statistics.median(times), found.arrivals_s.tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=256, help=f"a power of two from {PER_LEAF}")
    parser.add_argument("--rounds", type=int, default=4, help="rounds that the textbook gets")
    parser.add_argument("--textbook", type=Path, help="a file with simulate(case, platform)")
    arguments = parser.parse_args()
    # As the command line does.
    keep_freed_memory()
    n = arguments.hosts
    textbook = load_textbook(arguments.textbook)
    platform = fat_tree(n // PER_LEAF, PER_LEAF, PER_LEAF // 2)
    seconds({"messages": pairwise(n, 1, n - 1)}, platform)  # large enough to be compiled
    for name, pattern in PATTERNS.items():
        part, whole = (
            scattered(pattern(n, N_BYTES, n_rounds), n) for n_rounds in (arguments.rounds, n - 1)
        )
        # The textbook may want an end of every message.
        case = {"messages": [[*message, None] for message in part], "local": {}}
        ours_s, ours = seconds(case, platform)
        begin = time.process_time()
        theirs = textbook(case, platform)
        theirs_s = time.process_time() - begin
        assert all(abs(one / other - 1) < 1e-9 for one, other in zip(ours, theirs, strict=True))
        whole_s, _ = seconds({"messages": whole}, platform)
        print(
            f"{name}, {n} hosts: {len(part)} messages in {1e3 * ours_s:.2f} ms, by the textbook in "
            f"{theirs_s:.2f} s: {theirs_s / ours_s:,.0f} ×; all {len(whole)} messages in "
            f"{1e3 * whole_s:.1f} ms, {len(whole) / whole_s / 1e3:,.0f} thousand a second"
        )


if __name__ == "__main__":
    main()
