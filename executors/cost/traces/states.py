"""States of every core over time: computation, communication, or idle.

States are coarser than tasks. A measured run knows the states of its cores without a record of
its tasks, and can be compared with a simulation in this form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import numpy as np

from collplan.executors.cost.simulator import Timeline
from collplan.executors.cost.traces import write_chunks
from collplan.executors.cost.traces.layers import simulated_layer, tracks_of
from collplan.executors.cost.traces.paje import event_definitions
from collplan.planner.arrays import Ints
from collplan.planner.plan.plan import Op
from collplan.specs import Network


class CoreState(IntEnum):
    """States of a core, in ascending order of precedence if several apply."""

    COMMUNICATION = 0
    COMPUTATION = 1

    @property
    def word(self) -> str:
        """Name of the state in traces."""
        return self.name.lower()


@dataclass(frozen=True, eq=False, slots=True)
class CoreStates:
    """Intervals in which the cores of a node are not idle, and their states.

    Parameters
    ----------
    label : str
        Name of the run, which is unique in a trace.
    cores : sequence of str, shape (n_cores,)
        Names of the cores.
    core, state : ndarray of int64, shape (n,)
        Core and `CoreState` of each interval.
    begin_ns, end_ns : ndarray of int64, shape (n,)
        Start and end of each interval, at least 0. If intervals of a core overlap, the greatest
        state is shown.
    """

    label: str
    cores: Sequence[str]
    core: Ints
    state: Ints
    begin_ns: Ints
    end_ns: Ints

    def slices(self, core: int) -> list[tuple[CoreState, int, int]]:
        """Return the intervals of a core in order of time, without overlaps.

        Returns
        -------
        list of (CoreState, int, int)
            State, start and end of each interval in ns. No interval is empty.
        """
        rows = np.flatnonzero((self.core == core) & (self.end_ns > self.begin_ns))
        times = np.unique(np.concatenate((self.begin_ns[rows], self.end_ns[rows])))
        found: list[tuple[CoreState, int, int]] = []
        for begin, end in zip(times[:-1].tolist(), times[1:].tolist(), strict=True):
            covers = (self.begin_ns[rows] <= begin) & (self.end_ns[rows] >= end)
            if not covers.any():
                continue
            state = CoreState(int(self.state[rows][covers].max()))
            if found and found[-1][0] == state and found[-1][2] == begin:
                begin = found.pop()[1]
            found.append((state, begin, end))
        return found


def simulated_states(timeline: Timeline, network: Network, label: str) -> CoreStates:
    """Return the states of the cores of a simulated node.

    Parameters
    ----------
    timeline : Timeline
        Simulation of a plan on one node.
    network : Network
        Network of the simulation.
    label : str
        Name of the run in the trace.
    """
    tracks = tracks_of(simulated_layer(timeline, network))
    on_core = np.flatnonzero(~np.array(tracks.is_lane, dtype=np.bool_)[tracks.track])
    computes = timeline.plan.op[tracks.row[on_core]] == Op.COMPUTE
    names = [
        name for name, is_lane in zip(tracks.names, tracks.is_lane, strict=True) if not is_lane
    ]
    return CoreStates(
        label,
        names,
        tracks.track[on_core],
        np.where(computes, CoreState.COMPUTATION, CoreState.COMMUNICATION).astype(np.int64),
        tracks.begin[on_core],
        tracks.end[on_core],
    )


def write_states(path: str | Path, layers: Sequence[CoreStates]) -> None:
    """Write the states of cores to a file, in the format of its extension.

    Parameters
    ----------
    path : str or Path
        Path that ends in ``.json`` for Perfetto or ``.paje`` for Pajé. An existing file is
        replaced atomically.
    layers : sequence of CoreStates
        Runs to show beside each other, each of which begins at 0.

    Raises
    ------
    TraceError
        If the extension is another one, or the file cannot be written.
    """
    write_chunks(path, layers, _WRITERS)


def _perfetto(layers: Sequence[CoreStates]) -> Iterator[str]:
    """Generate the JSON text of a trace with a process per run and a thread per core.

    Times are in µs.
    """
    separator = '{"displayTimeUnit":"ns","traceEvents":[\n'
    for pid, layer in enumerate(layers, start=1):
        for event in _perfetto_events(layer, pid):
            yield separator + json.dumps(event)
            separator = ",\n"
    yield f"{separator if not layers else ''}\n]}}\n"


def _perfetto_events(layer: CoreStates, pid: int) -> Iterator[dict[str, object]]:
    """Generate the events of a run."""

    def named(what: str, tid: int, **arguments: object) -> dict[str, object]:
        return {"ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": what, "args": arguments}

    yield named("process_name", 0, name=layer.label)
    yield named("process_sort_index", 0, sort_index=pid)
    for core, name in enumerate(layer.cores):
        yield named("thread_name", core + 1, name=name)
        yield named("thread_sort_index", core + 1, sort_index=core)
        for state, begin, end in layer.slices(core):
            yield {
                "ph": "X",
                "pid": pid,
                "tid": core + 1,
                "ts": begin / 1000,
                "dur": (end - begin) / 1000,
                "name": state.word,
                "cat": "state",
            }


_EVENTS: Final = (
    *("DefineContainerType", "DefineStateType", "DefineEntityValue"),
    *("CreateContainer", "DestroyContainer", "SetState"),
)
_NUMBER: Final = {name: number for number, name in enumerate(_EVENTS)}
_COLORS: Final = {CoreState.COMPUTATION: "0.2 0.4 0.8", CoreState.COMMUNICATION: "0.8 0.3 0.3"}


def _paje(layers: Sequence[CoreStates]) -> Iterator[str]:
    """Generate a Pajé trace; times are in seconds, and ascending over all runs."""
    yield from _paje_definitions()
    create, change = _NUMBER["CreateContainer"], _NUMBER["SetState"]
    changes: list[tuple[int, int, int, str]] = []
    for number, layer in enumerate(layers):
        yield f'{create} 0.000000000 "{layer.label}" L 0 l{number}\n'
        for core, name in enumerate(layer.cores):
            alias = f"l{number}c{core}"
            yield f'{create} 0.000000000 "{layer.label} {name}" C l{number} {alias}\n'
            yield f"{change} 0.000000000 S {alias} idle\n"
            slices = layer.slices(core)
            begins = {begin for _, begin, _ in slices}
            changes += [(begin, number, core, state.word) for state, begin, _ in slices]
            changes += [(end, number, core, "idle") for *_, end in slices if end not in begins]
    last = max((change[0] for change in changes), default=0)
    for ns, number, core, word in sorted(changes):
        yield f"{change} {ns / 1e9:.9f} S l{number}c{core} {word}\n"
    for number in range(len(layers)):
        yield f"{_NUMBER['DestroyContainer']} {last / 1e9:.9f} l{number} L\n"


def _paje_definitions() -> Iterator[str]:
    """Generate the header: events, then the types of containers, states and values."""
    yield from event_definitions(_NUMBER)
    container, value = _NUMBER["DefineContainerType"], _NUMBER["DefineEntityValue"]
    yield f"{container} Run 0 L\n{container} Core L C\n"
    yield f'{_NUMBER["DefineStateType"]} "Core state" C S\n'
    yield f'{value} "idle" S "1.0 1.0 1.0" idle\n'
    for state, color in _COLORS.items():
        yield f'{value} "{state.word}" S "{color}" {state.word}\n'


_WRITERS: Final = {".json": _perfetto, ".paje": _paje}
