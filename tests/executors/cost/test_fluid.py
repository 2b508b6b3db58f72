"""Messages on shared links: reference times, a simulator by the textbook, and invariants.

Message graphs (`benchmarks/message_simulation.py`) are the shortest way to give messages to the
sharing of links. Cases and platforms in the folder `fluid` are SimGrid's (3.32, max-min fair rates
without weights, latencies before the bytes), with the arrival of every message as its last entry.
"""

from __future__ import annotations

import json
import random
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collplan.planner.errors import MemoryLimitError
from collplan.planner.machine_code.interpreted import Interpreted
from fat_trees import exchange, fat_tree, pairwise, ring, scattered
from folders import BENCHMARKS
from textbook_fluid import arrivals

sys.path.insert(0, str(BENCHMARKS))

from message_files import (
    GraphError,
    find_platform,
    parse_message_graph,
    parse_platform,
    read_message_graph,
    read_platform,
)
from message_simulation import make_tables, run, simulate_messages

Document = dict[str, Any]

CASES = sorted((Path(__file__).parent / "fluid" / "cases").glob("*.json"))
LOCAL = {"latency_s": 2e-7, "bandwidth_B_per_s": 1e10}
CLOSE = {"rel": 1e-9, "abs": 0.0}


def link(bandwidth: float = 1e9, latency_s: float = 0.0) -> Document:
    return {"bandwidth_B_per_s": bandwidth, "latency_s": latency_s}


def simulated(messages: list[Any], platform: Document) -> list[float]:
    graph = parse_message_graph({"messages": messages, "local": LOCAL}, "graph")
    found = simulate_messages(graph, parse_platform(platform, "platform"))
    times = found.arrivals_s.tolist()
    assert found.makespan_s == max(times, default=0.0)
    return list(times)


def by_textbook(messages: list[Any], platform: Document) -> list[float]:
    return arrivals({"messages": messages, "local": LOCAL}, platform)


def pair(*links: Document) -> Document:
    """Return two hosts with one route of all links from host 0 to host 1."""
    return {
        "hosts": 2,
        "links": list(links),
        "routes": [[None, list(range(len(links)))], [None, None]],
    }


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_every_arrival_is_that_of_the_reference(path: Path) -> None:
    graph = read_message_graph(path)
    found = simulate_messages(graph, read_platform(find_platform(graph)))
    expected = [message[4] for message in json.loads(path.read_text())["messages"]]
    assert found.arrivals_s.tolist() == pytest.approx(expected, **CLOSE)


def test_reference_cases_are_there() -> None:
    assert len(CASES) == 4


def test_nothing_takes_no_time() -> None:
    assert simulated([], pair(link())) == []


def test_latencies_pass_first_and_the_narrowest_link_counts() -> None:
    platform = pair(link(4e9, 3e-6), link(1e9, 2e-6), link(2e9))
    assert simulated([[0, 1, 1000, []]], platform) == pytest.approx([6e-6], **CLOSE)


def test_messages_inside_a_host_share_nothing() -> None:
    messages = [[0, 0, 10_000, []], [0, 0, 10_000, []], [0, 1, 1000, [0, 1]]]
    found = simulated(messages, pair(link()))
    assert found == pytest.approx([1.2e-6, 1.2e-6, 2.2e-6], **CLOSE)


def test_rates_are_fair_where_latencies_differ() -> None:
    """The second begins 1 µs later, when 1,000 of the first one's 3,000 bytes have flowed."""
    platform = {
        "hosts": 2,
        "links": [link(), link(1e30, 1e-6)],
        "routes": [[None, [0]], [[1, 0], None]],
    }
    messages = [[0, 1, 3000, []], [1, 0, 1000, []]]
    assert simulated(messages, platform) == pytest.approx([4e-6, 3e-6], **CLOSE)


def test_what_one_link_leaves_goes_to_others() -> None:
    """Three over link 0, one of them also over link 1, which has one more message."""
    platform = {
        "hosts": 4,
        "links": [link(3e9), link(5e9)],
        "routes": [[None, [0], [0, 1], [1]], *[[None] * 4] * 3],
    }
    messages = [[0, 1, 1000, []], [0, 1, 1000, []], [0, 2, 1000, []], [0, 3, 4000, []]]
    expected = [1e-6, 1e-6, 1e-6, 1e-6]
    assert simulated(messages, platform) == pytest.approx(expected, **CLOSE)


def test_a_link_counts_again_when_a_message_over_it_gets_faster() -> None:
    """Two begin while two flow at 10 GB/s; one of these slows down, so the other can speed up.

    The third flows at 1 GB/s over link 3. The fourth shares link 1 with the first, 6 GB/s each,
    which leaves the second 14 GB/s of link 0. It gets the 11 GB/s that link 2 has beside the third.
    """
    platform = {
        "hosts": 5,
        "links": [link(2e10), link(1.2e10), link(1.2e10), link(1e9)],
        "routes": [[None, [0, 1], [0, 2], [2, 3], [1]], *[[None] * 5] * 4],
    }
    n_bytes = [16_000, 21_000, 1000, 6000]
    messages = [[0, i + 1, size, []] for i, size in enumerate(n_bytes)]
    messages[2][3] = messages[3][3] = [4]
    messages.append([0, 0, 8000, []])
    expected = [2e-6, 2e-6, 2e-6, 2e-6, 1e-6]
    assert simulated(messages, platform) == pytest.approx(expected, **CLOSE)


def test_events_within_a_picosecond_happen_together() -> None:
    """The first message ends half a picosecond before the second, which is not rounded away."""
    platform = {
        "hosts": 2,
        "links": [link(), link()],
        "routes": [[None, [0]], [[1], None]],
    }
    early, late = simulated([[0, 1, 1000, []], [1, 0, 1000.0005, []]], platform)
    assert early == late
    early, late = simulated([[0, 1, 1000, []], [1, 0, 1000.002, []]], platform)
    assert early < late


def test_messages_of_another_component_change_no_bit() -> None:
    """Two fat trees beside each other, with traffic on one of them, then on both."""
    platform = fat_tree(2, 4, 2)
    n, n_links = platform["hosts"], len(platform["links"])
    moved = [
        [route and [one + n_links for one in route] for route in row] for row in platform["routes"]
    ]
    both = {
        "hosts": 2 * n,
        "links": 2 * platform["links"],
        "routes": [
            *[row + [None] * n for row in platform["routes"]],
            *[[None] * n + row for row in moved],
        ],
    }
    first = scattered(pairwise(n, 1000, 4), n)
    second = [
        [n + a, n + b, 700, [len(first) + one for one in after]]
        for a, b, _, after in scattered(ring(n, 1, 5), n, seed=2)
    ]
    assert simulated([*first, *second], both)[: len(first)] == simulated(first, platform)


@pytest.mark.parametrize("pattern", [pairwise, exchange, ring])
def test_patterns_on_fat_trees_are_as_by_the_textbook(pattern: Any) -> None:
    platform = fat_tree(4, 4, 2)
    messages = scattered(pattern(16, 1000, 6), 16)
    found = simulated(messages, platform)
    assert found == pytest.approx(by_textbook(messages, platform), **CLOSE)
    assert found == simulated(messages, platform)


def test_messages_without_a_route_are_refused() -> None:
    graph = parse_message_graph({"messages": [[0, 1, 5, []], [2, 1, 5, [0]]]}, "graph")
    document = {
        "hosts": 3,
        "links": [link(1e9, 0.0)],
        "routes": [[None, [0], None]] + 2 * [[None] * 3],
    }
    with pytest.raises(GraphError, match=r"messages\[1\]: there is no route from host 2 to host 1"):
        make_tables(graph, parse_platform(document, "platform"))
    document["hosts"], document["routes"] = 2, [[None, [0]], [None, None]]
    with pytest.raises(GraphError, match=r"messages\[1\]: source host 2 of 2"):
        make_tables(graph, parse_platform(document, "platform"))


def test_python_and_machine_code_agree_to_the_last_bit() -> None:
    messages = scattered(pairwise(16, 1000, 2), 16)
    graph = parse_message_graph({"messages": messages}, "graph")
    platform = parse_platform(fat_tree(4, 4, 2), "platform")
    one, other = (make_tables(graph, platform) for _ in range(2))
    assert Interpreted(run.py_func)(one) == run.call_compiled(other) == len(messages)
    assert np.array_equal(one.arrivals, other.arrivals)


SIZES = st.integers(1, 20).map(lambda n: 1000 * n)
RATES = st.sampled_from([1e9, 1.5e9, 2e9, 5e9])
LATENCIES = st.sampled_from([0.0, 1e-7, 2.5e-7, 1e-6])


@st.composite
def platforms(draw: st.DrawFn) -> Document:
    """Links of all kinds, and any routes over them."""
    n_hosts, n_links = draw(st.integers(2, 4)), draw(st.integers(1, 6))
    routes = st.lists(st.integers(0, n_links - 1), min_size=1, max_size=4, unique=True)
    return {
        "hosts": n_hosts,
        "links": [link(draw(RATES), draw(LATENCIES)) for _ in range(n_links)],
        "routes": [
            [None if a == b else draw(routes) for b in range(n_hosts)] for a in range(n_hosts)
        ],
    }


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[Any], Document]:
    """Messages on a platform, each after some before it, in any order in the list."""
    platform = draw(platforms())
    hosts = st.integers(0, platform["hosts"] - 1)
    n = draw(st.integers(0, 12))
    order = draw(st.permutations(range(n)))
    messages: list[Any] = [None] * n
    for i in range(n):
        after = draw(st.lists(st.sampled_from(order[:i]), max_size=3)) if i else []
        messages[order[i]] = [draw(hosts), draw(hosts), draw(SIZES), after]
    return messages, platform


@given(traffic())
@settings(deadline=None)
def test_random_traffic_is_as_by_the_textbook(given: tuple[list[Any], Document]) -> None:
    found = simulated(*given)
    assert found == pytest.approx(by_textbook(*given), **CLOSE)


@pytest.mark.quick
@pytest.mark.parametrize("seed", range(10))
def test_dense_traffic_is_as_by_the_textbook(seed: int) -> None:
    """Rates of many levels on crowded links, most of which each event leaves as they are."""
    draw = random.Random(seed)
    n_hosts, n_links = draw.randint(4, 10), draw.randint(4, 25)

    def route() -> list[int]:
        return draw.sample(range(n_links), draw.randint(1, 4))

    platform = {
        "hosts": n_hosts,
        "links": [link(draw.uniform(1e8, 1e10), draw.uniform(0, 1e-6)) for _ in range(n_links)],
        "routes": [[None if a == b else route() for b in range(n_hosts)] for a in range(n_hosts)],
    }
    messages = [
        [
            draw.randrange(n_hosts),
            draw.randrange(n_hosts),
            draw.randint(1, 10**6),
            draw.sample(range(i), min(i, draw.randint(0, 2))),
        ]
        for i in range(80)
    ]
    found = simulated(messages, platform)
    assert found == pytest.approx(by_textbook(messages, platform), **CLOSE)


def route_of(message: list[Any], platform: Document) -> list[int]:
    source, target = message[:2]
    return [] if source == target else platform["routes"][source][target]


@given(traffic())
@settings(deadline=None)
def test_no_makespan_is_below_its_bounds(given: tuple[list[Any], Document]) -> None:
    """Bytes of each link over its bandwidth, and the longest chain of latencies."""
    messages, platform = given
    found = simulated(messages, platform)
    makespan = max(found, default=0.0)
    n_bytes = np.zeros(len(platform["links"]))
    for message in messages:
        n_bytes[route_of(message, platform)] += message[2]
    rates = np.array([one["bandwidth_B_per_s"] for one in platform["links"]])
    assert makespan >= (n_bytes / rates).max(initial=0.0) * (1 - 1e-9)
    for row, message in enumerate(messages):
        latency = sum(platform["links"][i]["latency_s"] for i in route_of(message, platform))
        latency = latency if route_of(message, platform) else LOCAL["latency_s"]
        ready = max((found[one] for one in message[3]), default=0.0)
        assert found[row] >= (ready + latency) * (1 - 1e-9)


@given(traffic(), st.floats(1.0, 1e6))
@settings(deadline=None)
def test_bandwidth_where_nothing_is_full_changes_nothing(
    given: tuple[list[Any], Document], factor: float
) -> None:
    """A link that has more than all others together is never full."""
    messages, platform = given
    wide, wider = deepcopy(platform), deepcopy(platform)
    for one, bandwidth in ((wide, 1e12), (wider, 1e12 * factor)):
        one["links"].append(link(bandwidth, 1e-7))
        number = len(one["links"]) - 1
        one["routes"] = [[route and [*route, number] for route in row] for row in one["routes"]]
    assert simulated(messages, wide) == simulated(messages, wider)


@given(st.sampled_from([pairwise, exchange, ring]), st.integers(1, 7), SIZES, RATES, LATENCIES)
@settings(deadline=None)
def test_symmetric_traffic_ends_symmetrically(
    pattern: Any, n_rounds: int, n_bytes: int, bandwidth: float, latency_s: float
) -> None:
    """On a star, every round of a symmetric pattern ends at once on all hosts."""
    platform = fat_tree(1, 8, 1, bandwidth, latency_s)
    found = np.array(simulated(pattern(8, n_bytes, n_rounds), platform)).reshape(n_rounds, 8)
    assert (found == found[:, :1]).all()


def test_messages_that_wait_for_each_other_are_named() -> None:
    messages = [[0, 1, 1, []], [0, 1, 1, [0, 3]], [0, 1, 1, [1]], [0, 1, 1, [2]], [0, 1, 1, [3]]]
    with pytest.raises(
        GraphError, match=r"messages\[1\] waits for itself: 1 after 3 after 2 after"
    ):
        simulated(messages, pair(link()))
    with pytest.raises(GraphError, match=r"messages\[0\] waits for itself: 0 after 0;"):
        simulated([[0, 1, 1, [0]]], pair(link()))
    n = 20
    with pytest.raises(GraphError, match=r"0 after 19 after 18 .* after 15 after \.\.\.;"):
        simulated([[0, 1, 1, [(i - 1) % n]] for i in range(n)], pair(link()))


def test_graphs_that_do_not_fit_into_memory_are_refused_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long route is taken by many messages: few bytes of JSON, and many hops."""
    platform = pair(*[link()] * 1000)
    messages = [[0, 1, 1, []]] * 10_000
    monkeypatch.setattr("collplan.planner.memory.free_bytes", lambda: 2**28)
    with pytest.raises(MemoryLimitError, match=r"message graph takes about 0\.37 GiB"):
        simulated(messages, platform)
