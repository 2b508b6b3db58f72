"""The command that simulates message graphs: its output, and bad input in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from folders import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

from message_graph import main

LINK = {"bandwidth_B_per_s": 1e9, "latency_s": 1e-6}
PLATFORM = {"hosts": 2, "links": [LINK], "routes": [[None, [0]], [None, None]]}


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def test_every_arrival_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two messages share a link of 1 GB/s and 1 µs; the third is inside a host."""
    messages = [[0, 1, 1000, []], [0, 1, 3000, []], [1, 1, 1000, [0]]]
    graph = {"platform": "one", "messages": messages, "local": LINK}
    case = write(tmp_path / "cases" / "two.json", graph)
    platform = write(tmp_path / "platforms" / "one.json", PLATFORM)
    assert main([case, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["arrivals_s"] == pytest.approx([3e-6, 5e-6, 5e-6], rel=1e-9, abs=0)
    assert document["makespan_s"] == max(document["arrivals_s"])
    assert document["n_messages"] == 3
    assert document.keys() >= {"platform", "simulate_s", "kernels_s"}
    assert main([case, "--platform", platform, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arrivals_s"] == document["arrivals_s"]
    assert main([case]) == 0
    assert capsys.readouterr().out.startswith("makespan 5 µs: 3 messages on ")


ONE = [[0, 1, 5, []]]


@pytest.mark.parametrize(
    ("messages", "changes", "problem"),
    [
        ([[0, 2, 5, []]], {}, "target host 2 of 2"),
        ([[1, 0, 5, []]], {}, "there is no route from host 1 to host 0"),
        (ONE, {"links": [LINK | {"bandwidth_B_per_s": 0.0}]}, "0.0 is not a bandwidth"),
        (ONE, {"links": [LINK | {"bandwidth_B_per_s": -5}]}, "-5 is not a bandwidth"),
        ([[0, 1, 0, []]], {}, "0 is not a number of bytes"),
        ([[0, 1, 5, [7]]], {}, "after 7, which is not a message"),
        ([[0, 1, 5, [0]]], {}, "waits for itself: 0 after 0"),
        (None, {}, "messages: None is not a list"),
    ],
)
def test_bad_graphs_are_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    messages: Any,
    changes: dict[str, Any],
    problem: str,
) -> None:
    case = write(tmp_path / "case.json", {"messages": messages})
    platform = write(tmp_path / "platform.json", PLATFORM | changes)
    assert main([case, "--platform", platform]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert ";" in line


def test_a_platform_must_be_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "case.json", {"messages": []})]) == 2
    assert "platform is missing; name one" in capsys.readouterr().err
    assert main([write(tmp_path / "case.json", {"messages": [], "platform": "absent"})]) == 2
    assert "'absent' is unknown" in capsys.readouterr().err
    assert main([write(tmp_path / "case.json", "{")]) == 2
    assert "mend the JSON" in capsys.readouterr().err
