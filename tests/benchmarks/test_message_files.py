"""Message graphs and platforms: read, and refused in one line."""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner.errors import MemoryLimitError
from collplan.specs import SpecError
from folders import BENCHMARKS
from tiers import examples

sys.path.insert(0, str(BENCHMARKS))

import message_files
from message_files import (
    GraphError,
    find_platform,
    parse_message_graph,
    parse_platform,
    read_message_graph,
    read_platform,
)

Document = dict[str, Any]

LINK = {"name": "a", "bandwidth_B_per_s": 1e9, "latency_s": 1e-6}
PLATFORM: Document = {
    "hosts": 3,
    "links": [LINK, LINK],
    "routes": [[None, [0], [0, 1]], [[1], [0], None], [None, [1], None]],
}
LOCAL = {"latency_s": 2e-7, "bandwidth_B_per_s": 1e10}
GRAPH: Document = {
    "platform": "small",
    "local": LOCAL,
    "messages": [[0, 1, 500, []], [2, 2, 1e3, [], 1e-6], [1, 0, 70, [0, 1], None]],
}


def test_graphs_have_columns() -> None:
    graph = parse_message_graph(GRAPH, "graph")
    assert graph.platform == "small"
    assert graph.source.tolist() == [0, 2, 1]
    assert graph.target.tolist() == [1, 2, 0]
    assert graph.n_bytes.tolist() == [500, 1000, 70]
    assert graph.after_begin.tolist() == [0, 0, 0, 2]
    assert graph.after.tolist() == [0, 1]
    assert graph.local_s.tolist() == [0, 2e-7 + 1e3 / 1e10, 0]


def test_platforms_have_routes() -> None:
    platform = parse_platform(PLATFORM, "platform")
    assert platform.route_begin.tolist() == [0, 0, 1, 3, 4, 4, 4, 4, 5, 5]
    assert platform.route_links.tolist() == [0, 0, 1, 1, 1]


BAD_GRAPHS: dict[str, tuple[Document, str]] = {
    "message that is none": ({"messages": [[0, 1, 5]]}, r"messages\[0\]: \[0, 1, 5\] is not a m"),
    "message as a mapping": ({"messages": [{"from": 0}]}, r"messages\[0\]: .* is not a message"),
    "negative host": ({"messages": [[0, -1, 5, []]]}, r"messages\[0\]: -1 is not a host"),
    "host as text": ({"messages": [["0", 1, 5, []]]}, r"messages\[0\]: '0' is not a host"),
    "host as a truth value": (
        {"messages": [[0, True, 5, []]]},
        r"messages\[0\]: True is not a host",
    ),
    "no bytes": (
        {"messages": [[0, 1, 0, []]]},
        r"messages\[0\]: 0 is not a number of bytes; give more than 0",
    ),
    "negative bytes": (
        {"messages": [[0, 1, -5, []]]},
        r"messages\[0\]: -5 is not a number of bytes",
    ),
    "too many bytes": (
        {"messages": [[0, 1, 2**70, []]]},
        r"messages\[0\]: \d+ is not a number of bytes",
    ),
    "after that is no list": (
        {"messages": [[0, 1, 5, 0]]},
        r"messages\[0\]: after is 0, not a list",
    ),
    "after out of range": (
        {"messages": [[0, 1, 5, [1]]]},
        r"messages\[0\]: after 1, which is not a message",
    ),
    "negative after": (
        {"messages": [[0, 1, 5, [-1]]]},
        r"messages\[0\]: after -1, which is not a message",
    ),
    "after as text": (
        {"messages": [[0, 1, 5, ["a"]]]},
        r"messages\[0\]: after 'a', which is not a message",
    ),
    "local is missing": ({"local": None}, r"local is missing; messages inside a host need"),
    "local that is none": ({"local": 5}, r"local: 5 is not a mapping"),
    "local bandwidth": ({"local": {"latency_s": 0}}, r"local\.bandwidth_B_per_s: None is not a b"),
    "platform that is no name": ({"platform": 5}, r"platform: 5 is not text"),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_bad_graphs_are_refused_in_one_line(case: str) -> None:
    changes, words = BAD_GRAPHS[case]
    with pytest.raises(GraphError, match=rf"^graph: {words}") as error:
        parse_message_graph(GRAPH | changes, "graph")
    assert str(error.value).count("; ") == 1
    assert "\n" not in str(error.value)


def links(**changes: Any) -> Document:
    return {"links": [LINK, LINK | changes]}


def routes(route: Any) -> Document:
    return {"routes": [[None, [0], route], *PLATFORM["routes"][1:]]}


BAD_PLATFORMS: dict[str, tuple[Any, str]] = {
    "list": ([], r"the platform is \[\], not a mapping"),
    "no hosts": ({"hosts": 0}, r"hosts: 0 is not a number of hosts"),
    "hosts as text": ({"hosts": "3"}, r"hosts: '3' is not a number of hosts"),
    "links that are no list": ({"links": {}}, r"links: \{\} is not a list"),
    "link that is none": ({"links": [5]}, r"links\[0\]: 5 is not a mapping"),
    "no bandwidth": (links(bandwidth_B_per_s=0), r"links\[1\].bandwidth_B_per_s: 0 is not a band"),
    "negative bandwidth": (links(bandwidth_B_per_s=-1e9), r"links\[1\].*: -1000000000.0 is not a"),
    "infinite bandwidth": (links(bandwidth_B_per_s=float("inf")), r"links\[1\].*: inf is not a"),
    "bandwidth as text": (links(bandwidth_B_per_s="1"), r"links\[1\].*: '1' is not a bandwidth"),
    "negative latency": (links(latency_s=-1), r"links\[1\].latency_s: -1 is not a latency"),
    "latency is missing": (links(latency_s=None), r"links\[1\].latency_s: None is not a latency"),
    "routes are missing": ({"routes": None}, r"routes has None, not a list, of 3 hosts"),
    "too few rows": ({"routes": [[None]]}, r"routes has 1 rows, of 3 hosts"),
    "too short a row": ({"routes": [[None]] * 3}, r"routes\[0\] has 1 routes, to 3 hosts"),
    "row that is none": ({"routes": [5] * 3}, r"routes\[0\] has 5, not a list, to 3 hosts"),
    "route that is none": (routes(1), r"routes\[0\]\[2\]: 1 is not a route"),
    "route without links": (routes([]), r"routes\[0\]\[2\]: \[\] is not a route"),
    "unknown link": (routes([0, 2]), r"routes\[0\]\[2\]: 2 is not a link; give 0 to 1"),
    "negative link": (routes([-1]), r"routes\[0\]\[2\]: -1 is not a link"),
    "link as a list": (routes([[0]]), r"routes\[0\]\[2\]: \[0\] is not a link"),
    "link twice": (routes([1, 0, 1]), r"routes\[0\]\[2\] has link 1 twice"),
}


@pytest.mark.parametrize("case", BAD_PLATFORMS)
def test_bad_platforms_are_refused_in_one_line(case: str) -> None:
    changes, words = BAD_PLATFORMS[case]
    document = PLATFORM | changes if isinstance(changes, dict) else changes
    with pytest.raises(GraphError, match=rf"^platform: {words}") as error:
        parse_platform(document, "platform")
    assert str(error.value).count("; ") == 1
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ([0, 3, 5, []], r"target host 3 of 3; give 0 to 2, or another platform than platform"),
        ([7, 0, 5, []], r"source host 7 of 3"),
        ([1, 2, 5, []], r"there is no route from host 1 to host 2; add it to the routes of platf"),
    ],
)
def test_messages_that_do_not_fit_the_platform(message: list[Any], words: str) -> None:
    graph = parse_message_graph({"messages": [[0, 1, 5, []], message]}, "graph")
    with pytest.raises(GraphError, match=rf"^graph: messages\[1\]: {words}"):
        parse_platform(PLATFORM, "platform").refuse(graph)


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_platforms_lie_beside_the_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "cases" / "one.json", GRAPH)
    graph = read_message_graph(path)
    with pytest.raises(GraphError, match=r"one\.json: platform: 'small' is unknown, as there"):
        find_platform(graph)
    write(tmp_path / "platforms" / "small.json", PLATFORM)
    assert read_platform(find_platform(graph)).n_hosts == 3
    monkeypatch.chdir(path.parent)
    graph = read_message_graph(Path("one.json"))
    assert read_platform(find_platform(graph)).n_hosts == 3


@pytest.mark.parametrize("name", ["../platforms/small", "", "..", "/etc/small", "a\x00b"])
def test_names_of_platforms_are_no_paths(tmp_path: Path, name: str) -> None:
    write(tmp_path / "platforms" / "small.json", PLATFORM)
    graph = read_message_graph(write(tmp_path / "cases" / "one.json", GRAPH | {"platform": name}))
    with pytest.raises(GraphError, match="is unknown"):
        find_platform(graph)


def test_a_graph_needs_a_platform() -> None:
    graph = parse_message_graph({"messages": []}, "graph")
    with pytest.raises(GraphError, match=r"graph: platform is missing; name one, or give --plat"):
        find_platform(graph)


@pytest.mark.parametrize(
    "document", [{}, [], 5, {"messages": 5}, {"collective": {"kind": "bcast"}}]
)
def test_other_documents_are_no_graphs(tmp_path: Path, document: Any) -> None:
    for name in ("one.json", "one.yaml"):
        with pytest.raises(GraphError, match=r"messages.* is not a list; list all messages"):
            read_message_graph(write(tmp_path / name, document))


def test_what_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"messages": [')
    with pytest.raises(SpecError, match=r"one\.json: line 1: .*; mend the JSON"):
        read_message_graph(path)
    with pytest.raises(SpecError, match="no such file; give the path of a platform"):
        read_platform(tmp_path / "absent.json")


def test_files_too_large_for_memory_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(2**24)  # zeros, which take no place on the disk
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 2**29)
    with pytest.raises(MemoryLimitError, match=r"large\.json takes about 0\.62 GiB of"):
        read_message_graph(path)


def test_graphs_may_have_more_values_than_specs(tmp_path: Path) -> None:
    n = 200_001
    graph = read_message_graph(write(tmp_path / "large.json", {"messages": [[0, 1, 5, []]] * n}))
    assert len(graph.source) == n


@pytest.mark.parametrize("text", ["[],", "[[]],"])
@pytest.mark.long
def test_reading_takes_no_more_memory_than_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    estimates: list[int] = []
    monkeypatch.setattr(message_files, "require_memory", lambda n, *_: estimates.append(n))
    path = tmp_path / "large.json"
    path.write_text('{"messages": [' + 300_000 * text + "0]}")
    tracemalloc.start()
    try:
        with pytest.raises((GraphError, SpecError)):
            read_message_graph(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < estimates[0]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """Exchange a value somewhere in a document for another."""
    if isinstance(document, dict) and document and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(document)))
        return document | {key: draw(damaged(document[key]))}
    if isinstance(document, list) and document and draw(st.booleans()):
        place = draw(st.integers(0, len(document) - 1))
        return [*document[:place], draw(damaged(document[place])), *document[place + 1 :]]
    return draw(VALUES)


@given(st.data())
@settings(deadline=None, max_examples=examples(300))
def test_damaged_documents_are_refused_or_read(data: st.DataObject) -> None:
    document = data.draw(damaged(GRAPH))
    if isinstance(document, dict) and isinstance(document.get("messages"), list):
        with _refusing():
            parse_message_graph(document, "graph")
    with _refusing():
        parse_platform(data.draw(damaged(PLATFORM)), "platform")


class _refusing:
    """Let `GraphError` pass, and nothing else."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        return kind is GraphError
