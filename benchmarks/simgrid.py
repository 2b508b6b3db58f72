"""Speed of message graphs beside SimGrid, in thousands of messages per CPU second.

Ring, Rabenseifner's and recursive doubling allreduce, binomial bcast, and a pairwise alltoall with
one message at a time, on a star, a 2:1 fat tree, a torus and a dragonfly. SimGrid runs its model
CM02 and the max-min fair sharing that collplan has, on the same messages and routes, without
actors. Runs are interleaved, preparation of the platform and reading are left out, and with fair
sharing all arrivals must agree. Needs ``apt-get install libsimgrid-dev g++``.
Run: ``python benchmarks/simgrid.py [--hosts 64 256 1024] [--repetitions 5] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from collplan.planner.memory import keep_freed_memory
from collplan.reports.output import print_line, print_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from message_files import MessageGraph, Platform, parse_message_graph
from message_simulation import simulate_messages

from fat_trees import pairwise

Message = list[Any]
SOURCE: Final = Path(__file__).with_name("simgrid_messages.cpp")
BANDWIDTH, LATENCY_S = 12.5e9, 250e-9
VECTOR, BLOCK = 2**20, 2**16
"""Bytes of a vector, and of a block between two hosts of an alltoall."""


def exchanges(n_hosts: int, steps: list[tuple[int, int]]) -> list[Message]:
    """Return exchanges with partners at distances, ``(distance, bytes)`` per round."""
    found: list[Message] = []
    for number, (distance, n_bytes) in enumerate(steps):
        for i in range(n_hosts):
            after = []
            if number > 0:
                begin = (number - 1) * n_hosts
                after = [begin + i, begin + (i ^ steps[number - 1][0])]
            found.append([i, i ^ distance, n_bytes, after])
    return found


def recursive_doubling(n_hosts: int) -> list[Message]:
    """Return the messages of an allreduce by recursive doubling."""
    return exchanges(n_hosts, [(1 << k, VECTOR) for k in range(n_hosts.bit_length() - 1)])


def rabenseifner(n_hosts: int) -> list[Message]:
    """Return the messages of Rabenseifner's allreduce."""
    halving = [(1 << k, VECTOR >> (k + 1)) for k in range(n_hosts.bit_length() - 1)]
    return exchanges(n_hosts, [*halving, *reversed(halving)])


def ring(n_hosts: int) -> list[Message]:
    """Return the messages of a ring allreduce."""
    found: list[Message] = []
    for step in range(2 * (n_hosts - 1)):
        for i in range(n_hosts):
            begin = (step - 1) * n_hosts
            after = [begin + i, begin + (i - 1) % n_hosts] if step > 0 else []
            found.append([i, (i + 1) % n_hosts, VECTOR // n_hosts, after])
    return found


def binomial(n_hosts: int) -> list[Message]:
    """Return the messages of a binomial bcast."""
    found: list[Message] = []
    last: dict[int, int] = {}
    for k in range(n_hosts.bit_length() - 1):
        for i in range(1 << k):
            found.append([i, i + (1 << k), VECTOR, [last[i]] if i in last else []])
            last[i] = last[i + (1 << k)] = len(found) - 1
    return found


def cases(n_hosts: int) -> Iterator[tuple[str, str, list[Message]]]:
    """Yield the topology for SimGrid, the name and the messages of every case."""
    star = f"star {n_hosts}"
    fat_tree = f"fat_tree 16 {n_hosts // 16} 8 0"
    side = 1 << ((n_hosts.bit_length() - 1) // 2)
    torus = f"torus {side} {n_hosts // side} 0 0"
    groups = 1 << (n_hosts.bit_length() // 2 - 1)
    dragonfly = f"dragonfly {groups} 1 {n_hosts // groups // 4} 4"
    n_rounds = min(n_hosts - 1, 32_768 // n_hosts)
    yield star, "ring", ring(n_hosts)
    yield fat_tree, "ring", ring(n_hosts)
    yield fat_tree, "binomial bcast", binomial(n_hosts)
    yield fat_tree, "recursive doubling", recursive_doubling(n_hosts)
    yield dragonfly, "recursive doubling", recursive_doubling(n_hosts)
    yield dragonfly, "Rabenseifner", rabenseifner(n_hosts)
    yield torus, "Rabenseifner", rabenseifner(n_hosts)
    yield fat_tree, "pairwise alltoall", pairwise(n_hosts, BLOCK, n_rounds)
    yield torus, "pairwise alltoall", pairwise(n_hosts, BLOCK, n_rounds)


def build(folder: Path) -> Path:
    """Compile the program that simulates with SimGrid."""
    program = folder / "simgrid_messages"
    command = ["g++", "-O2", "-std=c++17", "-o", program, SOURCE, "-lsimgrid"]
    subprocess.run(command, check=True)
    return program


def write_graph(file: Path, topology: str, messages: list[Message]) -> None:
    """Write what the program for SimGrid reads."""
    lines = [topology, f"{BANDWIDTH} {LATENCY_S} {len(messages)}"]
    lines += [" ".join(map(str, (*one[:3], len(one[3]), *one[3]))) for one in messages]
    file.write_text("\n".join(lines) + "\n")


def read_routes(file: Path, n_hosts: int) -> Platform:
    """Return the platform whose routes are those of SimGrid."""
    numbers: dict[str, int] = {}
    routes: dict[int, list[int]] = {}
    for line in file.read_text().splitlines():
        source, target, *links = line.split()
        routes[int(source) * n_hosts + int(target)] = [
            numbers.setdefault(link, len(numbers)) for link in links
        ]
    lengths = np.zeros(n_hosts**2, dtype=np.int64)
    lengths[list(routes)] = [len(links) for links in routes.values()]
    return Platform(
        "platform",
        n_hosts,
        np.full(len(numbers), BANDWIDTH),
        np.full(len(numbers), LATENCY_S),
        np.concatenate([[0], np.cumsum(lengths)]),
        np.array([link for pair in sorted(routes) for link in routes[pair]], dtype=np.int64),
    )


def by_simgrid(program: Path, mode: str, times: int, folder: Path) -> tuple[float, np.ndarray]:
    """Return SimGrid's CPU seconds and the arrivals."""
    files = [folder / name for name in ("graph", "routes", "arrivals")]
    done = subprocess.run(
        [program, mode, str(times), *files], check=True, capture_output=True, text=True
    )
    return float(done.stdout), np.loadtxt(files[2], ndmin=1)


def by_collplan(graph: MessageGraph, platform: Platform, times: int) -> tuple[float, np.ndarray]:
    """Return the CPU seconds of collplan, tables included, and the arrivals."""
    found = simulate_messages(graph, platform)
    begin = time.process_time()
    for _ in range(times):
        found = simulate_messages(graph, platform)
    return (time.process_time() - begin) / times, found.arrivals_s


def measure(program: Path, n_hosts: int, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield the speeds of every case, in thousands of messages per CPU second."""
    for topology, name, messages in cases(n_hosts):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_graph(folder / "graph", topology, messages)
            fair = by_simgrid(program, "fair", 1, folder)[1]
            platform = read_routes(folder / "routes", n_hosts)
            graph = parse_message_graph({"messages": messages}, name)
            ours = by_collplan(graph, platform, 1)[1]
            seconds: dict[str, list[float]] = {"collplan": [], "cm02": [], "fair": []}
            # Short graphs run several times in one go.
            times = 1 + 20_000 // len(messages)
            for _ in range(repetitions):
                seconds["collplan"].append(by_collplan(graph, platform, times)[0])
                for mode in ("cm02", "fair"):
                    seconds[mode].append(by_simgrid(program, mode, times, folder)[0])
        yield {
            "hosts": n_hosts,
            "topology": topology.split()[0],
            "case": name,
            "messages": len(messages),
            "difference": float(np.max(np.abs(ours / fair - 1))),
            "seconds": seconds,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", type=Path, help="a file to write all times into")
    arguments = parser.parse_args()
    # As the command line does.
    keep_freed_memory()
    found, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for n_hosts in arguments.hosts:
            for case in measure(program, n_hosts, arguments.repetitions):
                found.append(case)
                times = case["seconds"]
                speed = {
                    key: case["messages"] / statistics.median(times[key]) / 1e3 for key in times
                }
                ratios = sorted(
                    b / a for a, b in zip(times["collplan"], times["cm02"], strict=True)
                )
                rows.append(
                    [
                        str(n_hosts),
                        f"{case['case']}, {case['topology']}",
                        f"{case['messages']:,}",
                        *(f"{speed[key]:,.0f}" for key in ("collplan", "cm02", "fair")),
                        f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})",
                        f"{case['difference']:.1e}",
                    ]
                )
                print_line(" | ".join(rows[-1]))
    columns = [
        "hosts",
        "case",
        "messages",
        "collplan",
        "CM02",
        "max-min",
        "collplan/CM02",
        "differ by",
    ]
    print_table(columns, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
