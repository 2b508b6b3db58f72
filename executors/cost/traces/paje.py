"""The Pajé trace format, version 1.3 (Schnorr and others 2014)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from collplan.executors.cost.traces.layers import Layer, Tracks, tracks_of
from collplan.planner.arrays import Ints
from collplan.planner.plan.plan import Op

_CHUNK: Final = 1 << 15
_FIELDS: Final = {
    "DefineContainerType": "Name string, Type string, Alias string",
    "DefineStateType": "Name string, Type string, Alias string",
    "DefineLinkType": "Name string, Type string, StartContainerType string, "
    "EndContainerType string, Alias string",
    "DefineEntityValue": "Name string, Type string, Color color, Alias string",
    "CreateContainer": "Time date, Name string, Type string, Container string, Alias string",
    "DestroyContainer": "Time date, Name string, Type string",
    "SetState": "Time date, Type string, Container string, Value string",
    "StartLink": "Time date, Type string, Container string, Value string, "
    "StartContainer string, Key string",
    "EndLink": "Time date, Type string, Container string, Value string, "
    "EndContainer string, Key string",
}
_NUMBER: Final = {name: number for number, name in enumerate(_FIELDS)}
"""Events of the format and their numbers."""
_COLORS: Final = {
    Op.SEND: "0.2 0.4 0.8",
    Op.RECV: "0.2 0.7 0.4",
    Op.COPY: "0.9 0.7 0.2",
    Op.REDUCE: "0.8 0.3 0.3",
    Op.COMPUTE: "0.5 0.5 0.5",
    Op.CALL: "0.2 0.1 0.5",
}
_START, _STATE, _END = 0, 1, 2
"""Order of events at the same time: links start before states change, and end after."""


def paje_chunks(layers: Sequence[Layer]) -> Iterator[str]:
    """Generate the text of a Pajé trace; times are in seconds, and ascending over all layers."""
    yield "".join(_definitions())
    parts = [tracks_of(layer) for layer in layers]
    used = [np.unique(tracks.track).tolist() for tracks in parts]
    first_track = np.cumsum([0, *(len(tracks.names) for tracks in parts)])
    create = _NUMBER["CreateContainer"]
    for i, (layer, tracks) in enumerate(zip(layers, parts, strict=True)):
        yield f'{create} 0.000000000 "{layer.label}" L 0 l{i}\n'
        for node in range(layer.plan.n_nodes):
            yield f'{create} 0.000000000 "{layer.label} node {node}" N l{i} l{i}n{node}\n'
        for track in used[i]:
            name = f"{layer.label} node {tracks.node[track]} {tracks.names[track]}"
            kind, alias = "K" if tracks.is_lane[track] else "C", f"t{first_track[i] + track}"
            yield f'{create} 0.000000000 "{name}" {kind} l{i}n{tracks.node[track]} {alias}\n'
            yield f"{_NUMBER['SetState']} 0.000000000 S{kind} {alias} {kind}idle\n"
    yield from _events(layers, parts, first_track)
    last = max((int(tracks.end.max(initial=0)) for tracks in parts), default=0)
    for i in range(len(layers)):
        yield f"{_NUMBER['DestroyContainer']} {last / 1e9:.9f} l{i} L\n"


def event_definitions(numbers: Mapping[str, int]) -> Iterator[str]:
    """Generate the definitions of events, given their numbers in a file by name."""
    for name, number in numbers.items():
        yield f"%EventDef Paje{name} {number}\n"
        yield from (f"% {field}\n" for field in _FIELDS[name].split(", "))
        yield "%EndEventDef\n"


def _definitions() -> Iterator[str]:
    """Generate the header: events, then the types of containers, states, links and values."""
    yield from event_definitions(_NUMBER)
    container, state = _NUMBER["DefineContainerType"], _NUMBER["DefineStateType"]
    yield f"{container} Layer 0 L\n{container} Node L N\n"
    yield f"{container} Core N C\n{container} Lane N K\n"
    yield f'{state} "Core state" C SC\n{state} "Lane state" K SK\n'
    yield f"{_NUMBER['DefineLinkType']} Message L C C M\n"
    value = _NUMBER["DefineEntityValue"]
    for kind, what in (("C", "core"), ("K", "lane")):
        yield f'{value} "{what} idle" S{kind} "1.0 1.0 1.0" {kind}idle\n'
        for op, color in _COLORS.items():
            yield f'{value} "{what} {op.name.lower()}" S{kind} "{color}" {kind}{op:d}\n'
    yield f'{value} "a message" M "0.1 0.1 0.1" m\n'


def _events(layers: Sequence[Layer], parts: Sequence[Tracks], first_track: Ints) -> Iterator[str]:
    """Generate the states and links of all layers in order of time."""
    tables: list[Ints] = []
    first_key = 0
    for i, (layer, tracks) in enumerate(zip(layers, parts, strict=True)):
        track = tracks.track + first_track[i]
        op = layer.plan.op[tracks.row].astype(np.int64)
        idle = np.ones(len(track), dtype=np.bool_)
        idle[:-1] = (track[1:] != track[:-1]) | (tracks.begin[1:] > tracks.end[:-1])
        lane = np.array(tracks.is_lane, dtype=np.int64)[tracks.track]
        order = 2 * np.arange(len(track))
        keys = first_key + np.arange(len(tracks.sends))
        first_key += len(keys)
        # rows: time, class, order within the class, track, operation or layer, lane or key
        for columns in (
            (tracks.begin, _STATE, order, track, op, lane),
            (tracks.end[idle], _STATE, order[idle] + 1, track[idle], -1, lane[idle]),
            (tracks.leaves, _START, keys, track[tracks.sends], i, keys),
            (tracks.reaches, _END, keys, track[tracks.recvs], i, keys),
        ):
            tables.append(np.vstack(np.broadcast_arrays(*columns)))
    if not tables:
        return
    table = np.hstack(tables)
    ranked = np.lexsort((table[2], table[1], table[0]))
    values = [*(f"{op:d}" for op in Op), "idle"]
    state, start, end = (_NUMBER[name] for name in ("SetState", "StartLink", "EndLink"))
    for first in range(0, len(ranked), _CHUNK):
        chosen = ranked[first : first + _CHUNK]
        lines = []
        for ns, kind, _, track, what, key in table[:, chosen].T.tolist():
            if kind == _STATE:
                container = "K" if key else "C"
                lines.append(
                    f"{state} {ns / 1e9:.9f} S{container} t{track} {container}{values[what]}\n"
                )
            else:
                number = start if kind == _START else end
                lines.append(f"{number} {ns / 1e9:.9f} M l{what} m t{track} {key}\n")
        yield "".join(lines)
