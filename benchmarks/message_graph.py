"""Arrivals of a message graph over the shared links of a platform, by SimGrid's fluid model.

An oracle for plans over topologies. `docs/networks.md` states the model and the format of files.
Run: ``python benchmarks/message_graph.py CASE.json [--platform FILE] [--json]``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from message_files import find_platform, read_message_graph, read_platform
from message_simulation import simulate_messages

from collplan.planner.machine_code.compile_time import Stopwatch
from collplan.planner.memory import keep_freed_memory
from collplan.reports.output import format_seconds, print_line, print_result
from collplan.specs.errors import CollplanError, printable


def price(case: Path, platform: Path | None) -> dict[str, Any]:
    """Return makespan and arrivals of the message graph in a file, as ``--json`` prints them."""
    watch = Stopwatch()
    graph = read_message_graph(case)
    links = read_platform(platform or find_platform(graph))
    found = simulate_messages(graph, links)
    return {
        "makespan_s": found.makespan_s,
        "arrivals_s": found.arrivals_s.tolist(),
        "n_messages": len(graph.source),
        "platform": links.name,
        "simulate_s": found.simulate_s,
        "kernels_s": watch.kernels_s,
    }


def print_makespan(report: dict[str, Any]) -> None:
    print_line(
        f"makespan {format_seconds(report['makespan_s'])}: {report['n_messages']} messages on "
        f"{report['platform']} simulated in "
        f"{format_seconds(report['simulate_s'], report['kernels_s'])}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", type=Path, metavar="CASE.json", help="a message graph")
    parser.add_argument(
        "--platform",
        type=Path,
        metavar="FILE",
        help="a platform; by default the one that the graph names, in ../platforms beside it",
    )
    parser.add_argument("--json", action="store_true", help="print all arrivals as JSON")
    options = parser.parse_args(arguments)
    # As the command line does.
    keep_freed_memory()
    try:
        report = price(options.case, options.platform)
    except CollplanError as error:
        sys.stderr.write(f"error: {printable(str(error))}\n")
        return 2
    print_result(report, print_makespan, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
