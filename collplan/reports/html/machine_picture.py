"""Picture of a machine: nodes, cores by NUMA domain, lanes, and the network between nodes."""

from __future__ import annotations

from typing import Final

from collplan.planner.draw import style
from collplan.planner.draw.sheet import TITLE_SIZE, Box, Sheet
from collplan.specs import Machine

_MOST_NODES: Final = 3
_MOST_CORES: Final = 64
"""Largest number of cores of a domain that are drawn."""
_MOST_LANES: Final = 8
_MOST_DOMAINS: Final = 8
_COLUMNS: Final = 8
_CELL: Final = 28.0
_GAP: Final = 14.0
_TOP: Final = 8.0
_LANE_WIDTH: Final = 64.0
_LEAST_WIDTH: Final = 110.0


def picture_of(machine: Machine) -> str:
    """Return a picture of a machine as dot source: up to three nodes, and the number of others."""
    sheet = Sheet()
    shown = list(range(min(machine.nodes, _MOST_NODES)))
    x = bottom = right = 0.0
    lanes: list[tuple[str, Box, int]] = []
    for node in shown:
        area, own = _draw_node(sheet, machine, node, x)
        lanes += own
        right, bottom = area.right, max(bottom, area.bottom)
        x = area.right + 2 * _GAP
    if machine.nodes > len(shown):
        sheet.text("more", (x, bottom / 2), f"and {machine.nodes - len(shown):,} more nodes")
        right = x + 110
    if machine.nodes > 1:
        y = bottom + 46
        network = Box(right / 2, y, right, 24)
        text = f"network: {_rate(machine)} per lane and direction"
        sheet.box("network", network, [text], fillcolor=style.NODE_FILL, color=style.NODE_LINE)
        for name, box, lane in lanes:
            color = style.lane_color(lane)
            sheet.line(name, "network", (box.x, box.bottom), (box.x, y - 12), color=color)
    return sheet.source()


def describe(machine: Machine) -> str:
    """Return a description of a machine in words.

    Examples
    --------
    >>> describe(Machine(nodes=2, ranks_per_node=4, lanes=2))
    '2 nodes of 4 ranks; 4 cores in 1 NUMA domain and 2 lanes per node'
    """
    each = sorted(set(machine.node_to_n_ranks))
    ranks = style.format_count(each[-1], "rank")
    if len(each) > 1:
        ranks = f"{each[0]} to {ranks}"
    text = f"{style.format_count(machine.nodes, 'node')} of {ranks}; "
    text += f"{style.format_count(machine.cores_per_node, 'core')} in "
    text += style.format_count(machine.numa_domains, "NUMA domain")
    if machine.nodes > 1:
        text += f" and {style.format_count(machine.n_lanes, 'lane')} per node"
    else:
        text += "; all ranks share the memory of one node, no lane is used"
    return text


def _rate(machine: Machine) -> str:
    ns_per_byte = machine.network.network.G_ns_per_byte
    if not ns_per_byte:
        return "unlimited rate"
    rates = {rate / max(machine.lane_rates) / ns_per_byte * 8 for rate in machine.lane_rates}
    ends = [f"{rate:.4g}" for rate in (min(rates), max(rates))]
    return f"{' to '.join(dict.fromkeys(ends))} Gbit/s"


def _draw_node(
    sheet: Sheet, machine: Machine, node: int, left: float
) -> tuple[Box, list[tuple[str, Box, int]]]:
    """Draw a node with its left edge at `left`; return its area, and the boxes of its lanes."""
    per_domain = -(-machine.cores_per_node // machine.numa_domains)
    columns = min(per_domain, _COLUMNS)
    n_lanes = min(machine.n_lanes, _MOST_LANES) if machine.nodes > 1 else 0
    n_domains = min(machine.numa_domains, _MOST_DOMAINS)
    width = columns * _CELL + _GAP
    n_rows = -(-min(per_domain, _MOST_CORES) // columns)
    right = (
        left + _GAP + max(n_domains * (width + 8) - 8, n_lanes * (_LANE_WIDTH + 8), _LEAST_WIDTH)
    )
    top, bottom = _TOP + 26, _TOP + 26 + 30 + n_rows * _CELL
    frame, height = f"n{node}", bottom + (44 if n_lanes else 8)
    n_ranks = machine.node_to_n_ranks[node]
    title = f"node {node}, {style.format_count(n_ranks, 'rank')}"
    sheet.titled_frame(frame, (left, _TOP, right + _GAP, height), title, drop=12)
    for domain in range(n_domains):
        x = left + _GAP + domain * (width + 8)
        _draw_domain(sheet, machine, (node, domain), (x, top, x + width, bottom), columns)
    lanes = []
    for lane in range(n_lanes):
        at = left + _GAP + (right - left - _GAP) * (lane + 0.5) / n_lanes
        box = Box(at, bottom + 22, _LANE_WIDTH, 20)
        look = {"fillcolor": style.RANK_FILL, "color": style.lane_color(lane), "penwidth": "2"}
        sheet.box(f"{frame}l{lane}", box, [f"lane {lane}"], inside=frame, **look)
        lanes.append((f"{frame}l{lane}", box, lane))
    area = Box((left + right + _GAP) / 2, height / 2, right + _GAP - left, height)
    return area, lanes


def _draw_domain(
    sheet: Sheet,
    machine: Machine,
    place: tuple[int, int],
    corners: tuple[float, float, float, float],
    columns: int,
) -> None:
    """Draw the cores of a NUMA domain of a node, each with the rank that runs on it."""
    node, domain = place
    n_cores, n_domains = machine.cores_per_node, machine.numa_domains
    cores = [core for core in range(n_cores) if core * n_domains // n_cores == domain]
    rank_of = {
        machine.rank_to_core[rank]: rank
        for rank, home in enumerate(machine.rank_to_node)
        if home == node
    }
    left, top, right, _ = corners
    name, text = f"n{node}d{domain}", f"NUMA {domain}"
    long = f"NUMA domain {domain}, {style.format_count(len(cores), 'core')}"
    if right - left > style.text_width([long], TITLE_SIZE):
        text = long
    look = {"fillcolor": style.RANK_FILL, "color": style.RANK_LINE}
    middle = (left + right) / 2
    sheet.frame(name, corners, text, (middle, top + 11), inside=f"n{node}", **look)
    for i, core in enumerate(cores[:_MOST_CORES]):
        x = left + _GAP / 2 + (i % columns + 0.5) * _CELL
        y = top + 24 + (i // columns + 0.5) * _CELL
        rank = rank_of.get(core)
        label = " " if rank is None else str(rank)
        tip = f"core {core}: " + ("no rank" if rank is None else f"rank {rank}")
        box = Box(x, y, _CELL - 2, _CELL - 6)
        sheet.box(f"{name}c{core}", box, [label], tooltip=tip, inside=name, **style.PLAIN_LOOK)
