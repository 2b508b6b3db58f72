"""Read message graphs, and the platforms on which they run, from JSON.

A message graph has messages with source host, target host, number of bytes, and the messages that
each one waits for. A platform has unidirectional links, and the links of every route between two
hosts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from collplan.planner.arrays import Bools, Floats, Ints, csr
from collplan.planner.memory import require_memory
from collplan.specs.errors import CollplanError, first_repeated, show_value
from collplan.specs.syntax.documents import Limits, read_document, require_regular

_LIMITS: Final = Limits(2**30, 10**8)
_BYTES_PER_BYTE: Final = 40
"""Approximate peak memory of Python's objects per byte of JSON, which ``[[]],`` needs."""
_MAX_BYTES: Final = 2**63
_RATES: Final = (1e-9, 1e30)
"""Lowest and highest bandwidth, in bytes per second."""
_MAX_LATENCY_S: Final = 1e9
_LONGEST_CIRCLE: Final = 6
"""Greatest number of messages of a cycle that an error names."""


class GraphError(CollplanError):
    """A message graph or a platform that cannot be simulated."""


@dataclass(frozen=True, eq=False)
class Platform:
    """Links, and the routes over them between hosts.

    Parameters
    ----------
    name : str
        File of the platform.
    n_hosts : int
        Number of hosts.
    bandwidth : ndarray of float64, shape (n_links,)
        Bandwidth of every link, in bytes per second.
    latency_s : ndarray of float64, shape (n_links,)
        Latency of every link, in seconds.
    route_begin : ndarray of int64, shape (n_hosts ** 2 + 1,)
        Offset of each route in `route_links`. The route from host a to host b has number
        ``a * n_hosts + b``. Routes from a host to itself are empty.
    route_links : ndarray of int64
        Links of all routes.
    """

    name: str
    n_hosts: int
    bandwidth: Floats
    latency_s: Floats
    route_begin: Ints
    route_links: Ints

    def refuse(self, graph: MessageGraph) -> NoReturn:
        """Raise `GraphError`, which names the first message without existing hosts or a route."""
        for column, what in ((graph.source, "source"), (graph.target, "target")):
            row = csr.first_true(column >= self.n_hosts)
            if row >= 0:
                _fail(
                    f"{graph.name}: messages[{row}]",
                    f"{what} host {column[row]} of {self.n_hosts}",
                    f"give 0 to {self.n_hosts - 1}, or another platform than {self.name}",
                )
        lengths = csr.lengths_of(self.route_begin)[graph.source * self.n_hosts + graph.target]
        row = int(np.argmax((lengths == 0) & (graph.source != graph.target)))
        _fail(
            f"{graph.name}: messages[{row}]",
            f"there is no route from host {graph.source[row]} to host {graph.target[row]}",
            f"add it to the routes of {self.name}",
        )


@dataclass(frozen=True, eq=False)
class MessageGraph:
    """Messages between hosts, and their dependencies.

    Parameters
    ----------
    name : str
        File of the graph.
    platform : str or None
        Name of the platform, if the graph states it.
    source, target : ndarray of int64, shape (n_messages,)
        Hosts of every message.
    n_bytes : ndarray of float64, shape (n_messages,)
        Size of every message.
    after_begin : ndarray of int64, shape (n_messages + 1,)
        Message i waits for ``after[after_begin[i]:after_begin[i + 1]]``.
    after : ndarray of int64
        Messages that other messages wait for.
    local_s : ndarray of float64, shape (n_messages,)
        Time of messages inside a host, in seconds; 0 for all others.
    """

    name: str
    platform: str | None
    source: Ints
    target: Ints
    n_bytes: Floats
    after_begin: Ints
    after: Ints
    local_s: Floats

    def refuse_circle(self, is_left: Bools) -> NoReturn:
        """Raise `GraphError`, which names messages that wait for each other.

        Parameters
        ----------
        is_left : ndarray of bool, shape (n_messages,)
            Mask of messages, each of which waits for at least one other message of the mask.
        """
        row, place = int(np.argmax(is_left)), dict[int, int]()
        while row not in place:
            place[row] = len(place)
            waits_for = self.after[self.after_begin[row] : self.after_begin[row + 1]]
            row = int(waits_for[np.argmax(is_left[waits_for])])
        circle = [*list(place)[place[row] :], row]
        words = " after ".join(map(str, circle[:_LONGEST_CIRCLE]))
        more = " after ..." if len(circle) > _LONGEST_CIRCLE else ""
        _fail(
            f"{self.name}: messages[{row}]",
            f"waits for itself: {words}{more}",
            "let no messages wait for each other",
        )


def read_message_graph(path: Path) -> MessageGraph:
    """Read a message graph.

    Raises
    ------
    SpecError
        If the file is neither JSON nor YAML.
    GraphError
        If it is not a valid message graph.
    MemoryLimitError
        If the file is too large for the available memory.
    """
    return parse_message_graph(_read(path, "message graph"), str(path))


def find_platform(graph: MessageGraph) -> Path:
    """Return the file of the platform that a graph names, in the folder ``../platforms``.

    Raises
    ------
    GraphError
        If the graph names no platform, or the file does not exist.
    """
    name, before = graph.platform, f"{graph.name}: platform"
    if name is None:
        _fail(before, "is missing", "name one, or give --platform FILE")
    path = Path(graph.name).parent / ".." / "platforms" / f"{name}.json"
    # A name with a slash or a zero byte is not the name of a file.
    if Path(name).name != name or "\0" in name or not path.is_file():
        _fail(
            before,
            f"{show_value(name)} is unknown, as there is no file {path}",
            "give --platform FILE",
        )
    return path


def read_platform(path: Path) -> Platform:
    """Read a platform.

    Raises
    ------
    SpecError
        If the file is neither JSON nor YAML.
    GraphError
        If it is not a valid platform.
    MemoryLimitError
        If the file is too large for the available memory.
    """
    return parse_platform(_read(path, "platform"), str(path))


def _read(path: Path, what: str) -> Any:
    require_regular(path, what)
    n_bytes = min(path.stat().st_size, _LIMITS.n_bytes) * _BYTES_PER_BYTE
    require_memory(n_bytes, str(path), "read", "give a smaller file")
    return read_document(path, what, _LIMITS)


def parse_message_graph(document: Any, name: str) -> MessageGraph:
    """Turn a mapping, as read from JSON, into a message graph; errors name it as `name`.

    Raises
    ------
    GraphError
        If the mapping is not a valid message graph.

    Examples
    --------
    >>> graph = parse_message_graph({"messages": [[0, 1, 500, []], [1, 2, 70, [0]]]}, "graph")
    >>> graph.source.tolist(), graph.n_bytes.tolist(), graph.after.tolist()
    ([0, 1], [500.0, 70.0], [0])
    """
    messages = document.get("messages") if isinstance(document, Mapping) else None
    if type(messages) is not list:
        _fail(f"{name}: messages", f"{show_value(messages)} is not a list", "list all messages")
    _check_messages(messages, name)
    source = np.array([message[0] for message in messages], dtype=np.int64)
    target = np.array([message[1] for message in messages], dtype=np.int64)
    n_bytes = np.array([message[2] for message in messages], dtype=np.float64)
    after = [message[3] for message in messages]
    local_s = np.zeros(len(messages))
    is_local = source == target
    if is_local.any():
        latency_s, bandwidth = _local_costs(document.get("local"), name)
        local_s[is_local] = latency_s + n_bytes[is_local] / bandwidth
    platform = document.get("platform")
    if platform is not None and not isinstance(platform, str):
        _fail(f"{name}: platform", f"{show_value(platform)} is not text", "give a platform's name")
    return MessageGraph(
        name,
        platform,
        source,
        target,
        n_bytes,
        csr.running_total(np.fromiter(map(len, after), dtype=np.int64, count=len(after))),
        np.fromiter(chain.from_iterable(after), dtype=np.int64),
        local_s,
    )


def _check_messages(messages: Sequence[Any], name: str) -> None:
    """Raise `GraphError` unless each message is a list of two hosts, bytes, and messages."""
    most = len(messages) - 1
    for i, message in enumerate(messages):
        where = f"{name}: messages[{i}]"
        if type(message) is not list or not 4 <= len(message) <= 5:
            form = "[source host, target host, bytes, after], and any end"
            _fail(where, f"{show_value(message)} is not a message", f"give {form}")
        source, target, n_bytes, after = message[:4]
        for host in (source, target):
            if type(host) is not int or not 0 <= host < 2**31:
                _fail(where, f"{show_value(host)} is not a host", "give its number, from 0")
        if not _is_within(n_bytes, 0, _MAX_BYTES) or n_bytes == 0:
            shown, limit = show_value(n_bytes), f"more than 0 and at most {_MAX_BYTES}"
            _fail(where, f"{shown} is not a number of bytes", f"give {limit}")
        if type(after) is not list:
            shown = show_value(after)
            _fail(where, f"after is {shown}, not a list", "give one, as in []")
        for before in after:
            if type(before) is not int or not 0 <= before <= most:
                shown = f"after {show_value(before)}, which is not a message"
                _fail(where, shown, f"give 0 to {most}")


def _local_costs(local: Any, name: str) -> tuple[float, float]:
    """Return latency and bandwidth of messages inside a host."""
    where = f"{name}: local"
    if not isinstance(local, Mapping):
        problem = f"{show_value(local)} is not a mapping" if local is not None else "is missing"
        _fail(where, problem, "messages inside a host need latency_s and bandwidth_B_per_s")
    return _costs(local, where)


def _costs(link: Mapping[str, Any], where: str) -> tuple[float, float]:
    """Return latency and bandwidth of a link, or of messages inside a host."""
    latency_s: Any = link.get("latency_s")
    bandwidth: Any = link.get("bandwidth_B_per_s")
    if not _is_within(latency_s, 0, _MAX_LATENCY_S):
        shown = f"{show_value(latency_s)} is not a latency"
        _fail(f"{where}.latency_s", shown, f"give 0 to {_MAX_LATENCY_S:g} s")
    if not _is_within(bandwidth, *_RATES):
        least, most = _RATES
        shown, limit = f"{show_value(bandwidth)} is not a bandwidth", f"{least:g} to {most:g}"
        _fail(f"{where}.bandwidth_B_per_s", shown, f"give more than 0 ({limit})")
    return float(latency_s), float(bandwidth)


def _is_within(value: Any, least: float, most: float) -> bool:
    return type(value) in (int, float) and least <= value <= most


def parse_platform(document: Any, name: str) -> Platform:
    """Turn a mapping, as read from JSON, into a platform; errors name it as `name`.

    Raises
    ------
    GraphError
        If the mapping is not a valid platform.
    """
    if not isinstance(document, Mapping):
        problem = f"is {show_value(document)}, not a mapping"
        _fail(f"{name}: the platform", problem, "give hosts, links and routes")
    n_hosts, links = document.get("hosts"), document.get("links")
    if type(n_hosts) is not int or not 1 <= n_hosts < 2**31:
        _fail(f"{name}: hosts", f"{show_value(n_hosts)} is not a number of hosts", "give 1 or more")
    if type(links) is not list:
        _fail(f"{name}: links", f"{show_value(links)} is not a list", "list all links")
    costs = np.zeros((len(links), 2))
    for i, link in enumerate(links):
        if not isinstance(link, Mapping):
            shown = f"{show_value(link)} is not a mapping"
            _fail(f"{name}: links[{i}]", shown, "give latency_s and bandwidth_B_per_s")
        costs[i] = _costs(link, f"{name}: links[{i}]")
    rows: Any = document.get("routes")
    _check_rows(rows, n_hosts, f"{name}: routes")
    _check_routes(rows, len(links), f"{name}: routes")
    # Messages inside a host use no link.
    routes = [
        () if a == b or route is None else route
        for a, row in enumerate(rows)
        for b, route in enumerate(row)
    ]
    return Platform(
        name,
        n_hosts,
        costs[:, 1].copy(),
        costs[:, 0].copy(),
        csr.running_total(np.fromiter(map(len, routes), dtype=np.int64, count=len(routes))),
        np.fromiter(chain.from_iterable(routes), dtype=np.int64),
    )


def _check_rows(rows: Any, n_hosts: int, where: str) -> None:
    """Raise `GraphError` unless `rows` has a list per host, each with an entry per host."""
    if type(rows) is not list or len(rows) != n_hosts:
        given = f"{len(rows)} rows" if type(rows) is list else f"{show_value(rows)}, not a list"
        _fail(where, f"has {given}, of {n_hosts} hosts", "give a list of routes for every host")
    for a, row in enumerate(rows):
        if type(row) is not list or len(row) != n_hosts:
            given = f"{len(row)} routes" if type(row) is list else f"{show_value(row)}, not a list"
            _fail(f"{where}[{a}]", f"has {given}, to {n_hosts} hosts", "give one to every host")


def _check_routes(rows: Sequence[Sequence[Any]], n_links: int, where: str) -> None:
    """Raise `GraphError` if a route is neither null nor a list of different links."""
    for a, row in enumerate(rows):
        for b, route in enumerate(row):
            if route is None:
                continue
            here = f"{where}[{a}][{b}]"
            if type(route) is not list or (not route and a != b):
                problem = f"{show_value(route)} is not a route"
                _fail(here, problem, "list its links, or give null where there is none")
            for link in route:
                if type(link) is not int or not 0 <= link < n_links:
                    problem = f"{show_value(link)} is not a link"
                    _fail(here, problem, f"give 0 to {n_links - 1}")
            if len(set(route)) < len(route):
                twice = route[first_repeated(route)]
                _fail(here, f"has link {twice} twice", "give every link once")


def _fail(where: str, problem: str, way_out: str) -> NoReturn:
    separator = " " if problem.startswith(("has ", "is ", "waits ")) else ": "
    raise GraphError(f"{where}{separator}{problem}; {way_out}")
