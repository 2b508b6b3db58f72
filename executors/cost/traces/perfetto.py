"""Chrome's trace event format for Perfetto: a process per node and a thread per core or lane."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from collplan.executors.cost.traces.layers import Layer, LinkTrace, Tracks, tracks_of
from collplan.planner.arrays import Ints
from collplan.planner.plan.plan import Op, Plan

_CHUNK: Final = 1 << 15
_WORDS: Final = {Op.SEND: "send to", Op.RECV: "recv from"}


def perfetto_chunks(layers: Sequence[Layer]) -> Iterator[str]:
    """Generate the JSON text of a trace; times are in µs."""
    yield '{"displayTimeUnit":"ns","traceEvents":['
    separator = len(",")
    for chunk in _events(layers):
        yield chunk[separator:]
        separator = 0
    yield "\n]}\n"


def _events(layers: Sequence[Layer]) -> Iterator[str]:
    """Generate the text of events, each with a comma before it."""
    pid, flow = 1, 0
    for layer in layers:
        tracks = tracks_of(layer)
        yield from _names(layer, tracks, pid)
        yield from _slices(layer.plan, tracks, pid, flow)
        yield from _in_flight(layer, tracks, pid)
        for link in layer.links:
            yield from _over_link(layer.label, link, pid)
        pid += layer.plan.n_nodes
        flow += len(tracks.sends)


def _names(layer: Layer, tracks: Tracks, pid: int) -> Iterator[str]:
    """Generate the events that name processes and threads."""

    def event(node: int, tid: int, what: str, **arguments: str | int) -> str:
        head = f'{{"ph":"M","pid":{pid + node},"tid":{tid},"ts":0,"name":"{what}"'
        return f',\n{head},"args":{json.dumps(arguments)}}}'

    for node in range(layer.plan.n_nodes):
        yield event(node, 0, "process_name", name=f"{layer.label} node {node}")
        yield event(node, 0, "process_sort_index", sort_index=pid + node)
    for i in np.unique(tracks.track).tolist():
        yield event(tracks.node[i], i + 1, "thread_name", name=tracks.names[i])
        yield event(tracks.node[i], i + 1, "thread_sort_index", sort_index=i)


def _titles(plan: Plan) -> tuple[list[str], list[int]]:
    """Return the JSON texts of names and categories, and the index of each task's text."""
    peer = np.where(plan.op <= Op.RECV, plan.peer, -1).astype(np.int64)
    phase = plan.phase.astype(np.int64)
    key = (phase * (plan.n_ranks + 1) + peer + 1) * len(Op) + plan.op
    found, title = np.unique(key, return_inverse=True)
    texts = []
    for value in found.tolist():
        rest, op = divmod(value, len(Op))
        of_phase, other = divmod(rest, plan.n_ranks + 1)
        name = f"{_WORDS[Op(op)]} {other - 1}" if op <= Op.RECV else Op(op).name.lower()
        category = plan.phases[of_phase].name or "task"
        texts.append(f'"name":{json.dumps(name)},"cat":{json.dumps(category)}')
    return texts, title.tolist()


def _slices(plan: Plan, tracks: Tracks, pid: int, flow: int) -> Iterator[str]:
    """Generate slices, each followed by the start or end of its message."""
    texts, title = _titles(plan)
    n_bytes = plan.elements * plan.itemsize
    pids = np.array(tracks.node, dtype=np.int64) + pid
    message = np.full(len(tracks.track), -1, dtype=np.int64)
    at = np.zeros(len(tracks.track), dtype=np.int64)
    message[tracks.sends] = message[tracks.recvs] = np.arange(len(tracks.sends))
    at[tracks.sends], at[tracks.recvs] = tracks.leaves, tracks.reaches
    for first in range(0, len(tracks.track), _CHUNK):
        part = slice(first, first + _CHUNK)
        row, track = tracks.row[part], tracks.track[part]
        lines = [
            f',\n{{"ph":"X","pid":{p},"tid":{t},"ts":{begin / 1000:.3f},"dur":{ns / 1000:.3f},'
            f'{texts[title[r]]},"args":{{"task":{r},"rank":{k},"round":{d},"bytes":{b}}}}}'
            + (
                ""
                if m < 0
                else f',\n{{"ph":"{"s" if o == Op.SEND else "f"}","bp":"e","id":{flow + m},'
                f'"pid":{p},"tid":{t},"ts":{a / 1000:.3f},"name":"message","cat":"message"}}'
            )
            for p, t, begin, ns, r, k, d, b, m, o, a in zip(
                pids[track].tolist(),
                (track + 1).tolist(),
                tracks.begin[part].tolist(),
                (tracks.end[part] - tracks.begin[part]).tolist(),
                row.tolist(),
                plan.rank[row].tolist(),
                plan.round[row].tolist(),
                n_bytes[row].tolist(),
                message[part].tolist(),
                plan.op[row].tolist(),
                at[part].tolist(),
                strict=True,
            )
        ]
        yield "".join(lines)


def _in_flight(layer: Layer, tracks: Tracks, pid: int) -> Iterator[str]:
    """Generate a counter of the bytes that have been sent and not yet received."""
    if not len(tracks.sends):
        return
    n_bytes = (layer.plan.elements * layer.plan.itemsize)[tracks.row[tracks.sends]]
    times = np.concatenate((tracks.leaves, tracks.reaches))
    changes = np.concatenate((n_bytes, -n_bytes))
    yield from _counter(f"{layer.label}: bytes in flight", "bytes", (times, changes), pid)


def _over_link(label: str, link: LinkTrace, pid: int) -> Iterator[str]:
    """Generate a counter of the messages in progress over a link between nodes."""
    times = np.rint(np.concatenate((link.begin_ns, link.end_ns))).astype(np.int64)
    one = np.ones(len(link.begin_ns), dtype=np.int64)
    changes = np.concatenate((one, -one))
    yield from _counter(f"{label}: messages, {link.name}", "messages", (times, changes), pid)


def _counter(title: str, unit: str, steps: tuple[Ints, Ints], pid: int) -> Iterator[str]:
    """Generate a counter, given the times in ns at which it changes and its changes."""
    times, changes = steps
    instants, which = np.unique(times, return_inverse=True)
    change = np.zeros(len(instants), dtype=np.int64)
    np.add.at(change, which, changes)
    head = f',\n{{"ph":"C","pid":{pid},"name":{json.dumps(title)}'
    for first in range(0, len(instants), _CHUNK):
        part = slice(first, first + _CHUNK)
        total = np.cumsum(change)[part].tolist()
        yield "".join(
            f'{head},"ts":{ns / 1000:.3f},"args":{{"{unit}":{n}}}}}'
            for ns, n in zip(instants[part].tolist(), total, strict=True)
        )
