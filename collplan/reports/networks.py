"""Pictures of the links between nodes, with widths and colors that show their use by a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collplan.executors.cost.link_use import LinkUse
from collplan.planner.errors import PlanError
from collplan.planner.topology import Fabric
from collplan.reports.output import format_bytes, format_seconds
from collplan.reports.plots import new_figure
from collplan.specs.topology import FatTree, Torus

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_VERTICES: Final = 4_000
"""Largest number of hosts and switches in a picture."""
_SIZE_INCHES: Final = (9.0, 7.0)
_LABELLED: Final = 80
"""Largest number of hosts and switches that are labeled with their names."""
_WIDTHS: Final = (0.4, 5.0)
_COLORS: Final = "viridis_r"

Place = tuple[float, float]
Places = dict[str, Place]


def plot_network(path: Path, use: LinkUse, makespan_ns: float, title: str) -> None:
    """Draw the links that a plan uses between its nodes, with hosts and switches as points.

    The width and color of a line show the part of the makespan in which its link is busy, in
    the busier direction and lane.

    Parameters
    ----------
    path : Path
        SVG, PNG or PDF file to write.
    use : LinkUse
        Bytes that the plan sends over each link.
    makespan_ns : float
        Makespan of the plan in ns.
    title : str
        Title above the picture.

    Raises
    ------
    PlanError
        If there are no messages between nodes, the ends of links are unknown, or there are
        too many hosts and switches.
    """
    shares = _shares(use, makespan_ns)
    places = _places(use.routes.fabric, [end for pair in shares for end in pair])
    with new_figure(path, _SIZE_INCHES) as figure:
        axes: Axes = figure.add_subplot()
        axes.set_axis_off()
        axes.set_title(title)
        drawn = _draw_links(axes, shares, places)
        figure.colorbar(drawn, ax=axes, shrink=0.6, label="part of the makespan")
        _draw_vertices(axes, places)
        busiest = use.report(makespan_ns)["busiest"]
        axes.annotate(
            f"busiest: {busiest['link']}, {format_bytes(round(busiest['bytes']))} take "
            f"{format_seconds(busiest['busy_s'])} of {format_seconds(makespan_ns / 1e9)}",
            (0.5, 0.0),
            xycoords="axes fraction",
            ha="center",
            va="top",
        )


def _shares(use: LinkUse, makespan_ns: float) -> dict[tuple[str, str], float]:
    """Return the busy part of the makespan of each link that is used, by its two ends."""
    shares: dict[tuple[str, str], float] = {}
    fabric = use.routes.fabric
    for link in np.flatnonzero(use.n_bytes).tolist():
        ends = fabric.link_ends(link)
        if ends is None:
            raise PlanError(
                "draw: routes are given, so links have no ends; state source and target"
            )
        pair = (min(ends), max(ends))
        shares[pair] = max(shares.get(pair, 0.0), float(use.busy_ns[link]) / makespan_ns)
    if not shares:
        raise PlanError("draw: no message goes between nodes; draw --by rank instead")
    n = len({end for pair in shares for end in pair})
    if n > MOST_VERTICES:
        raise PlanError(
            f"draw: {n} hosts and switches; a picture has room for {MOST_VERTICES}, use fewer nodes"
        )
    return shares


def _number(name: str) -> tuple[int, ...]:
    """Return the numbers in a name, as a key to sort by."""
    return tuple(int(part) for part in name.replace(".", " ").split() if part.isdecimal())


def _places(fabric: Fabric, names: list[str]) -> Places:
    """Return the coordinates of hosts and switches in the picture."""
    topology = fabric.topology
    unique = sorted(dict.fromkeys(names), key=lambda name: (_number(name), name))
    if isinstance(topology, FatTree):
        return _on_levels(unique)
    if isinstance(topology, Torus):
        return {name: _in_grid(_number(name)[0], topology.dimensions) for name in unique}
    return _in_groups(fabric, unique)


def _on_levels(names: list[str]) -> Places:
    """Place hosts on the lowest line, and the switches of each level on a line above."""
    levels: dict[int, list[str]] = {}
    for name in names:
        levels.setdefault(0 if name.startswith("host") else _number(name)[0], []).append(name)
    return {
        name: ((i + 0.5) / len(members), float(level))
        for level, members in levels.items()
        for i, name in enumerate(members)
    }


def _in_grid(host: int, dimensions: tuple[int, ...]) -> Place:
    """Return the place of a host in a torus.

    The first, third, ... dimension goes across and the others go up. Later dimensions have
    larger distances.
    """
    place, scale = [0.0, 0.0], [1.0, 1.0]
    for i, size in enumerate(dimensions):
        host, here = divmod(host, size)
        place[i % 2] += here * scale[i % 2]
        scale[i % 2] *= size + 0.5
    return place[0], place[1]


def _in_groups(fabric: Fabric, names: list[str]) -> Places:
    """Place groups on a circle, and the members of each group on a small circle around it."""
    groups: dict[Any, list[str]] = {}
    hosts = fabric.topology.host_names
    for name in names:
        key: Any = name
        if name.startswith(("switch ", "spine ")):
            key = _number(name)[0]
        elif hosts is None:
            key = int(fabric.host_group[_number(name)[0]])
        elif name in hosts:
            key = int(fabric.host_group[hosts.index(name)])
        groups.setdefault(key, []).append(name)
    places = {}
    inner = 0.8 * math.sin(math.pi / max(2, len(groups)))
    for i, members in enumerate(groups.values()):
        x, y = _around(i, len(groups), 1.0)
        for j, name in enumerate(members):
            dx, dy = _around(j, len(members), inner) if len(members) > 1 else (0.0, 0.0)
            places[name] = (x + dx, y + dy)
    return places


def _around(i: int, n: int, radius: float) -> Place:
    angle = 2 * math.pi * i / n
    return radius * math.sin(angle), radius * math.cos(angle)


def _draw_links(axes: Axes, shares: Mapping[tuple[str, str], float], places: Places) -> Any:
    """Draw links, with busier ones on top; return the lines for the color bar."""
    from matplotlib.collections import LineCollection

    order = sorted(shares, key=lambda pair: shares[pair])
    parts = np.array([shares[pair] for pair in order])
    least, most = _WIDTHS
    lines = LineCollection(
        [[places[one], places[other]] for one, other in order],
        linewidths=least + (most - least) * parts / parts.max(),
        cmap=_COLORS,
        zorder=1,
    )
    lines.set_array(parts)
    lines.set_clim(0.0, float(parts.max()))
    axes.add_collection(lines)
    axes.autoscale_view()
    return lines


def _draw_vertices(axes: Axes, places: Places) -> None:
    """Draw hosts as dots and switches as squares, with names if there are not too many."""
    is_host = {name: not name.startswith(("switch ", "spine ")) for name in places}
    for kind, marker, color in ((True, "o", "#1f2933"), (False, "s", "#616e7c")):
        chosen = np.array([places[name] for name in places if is_host[name] == kind])
        if len(chosen):
            x, y = chosen.T
            axes.scatter(x, y, s=12, marker=marker, color=color, zorder=2)
    if len(places) <= _LABELLED:
        for name, place in places.items():
            axes.annotate(name, place, (2, 3), textcoords="offset points", fontsize=6)
