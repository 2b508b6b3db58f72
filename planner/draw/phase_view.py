"""The coarsest view: phases side by side, each with a chain of boxes for its rounds.

Consecutive rounds with the same amount of work share a box, so that a ring of any
size has two boxes. If there are still too many, neighbors are merged. Consecutive
phases of the same name, such as the steps of a local reduction, share a column.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from collplan.planner.draw import style
from collplan.planner.draw.sheet import TITLE_SIZE, Box, Point, Sheet
from collplan.planner.plan.plan import Op, Plan

_MAX_BOXES: Final = 40
_MIN_WIDTH: Final = 190.0
_HEIGHT: Final = 44.0
_MARGIN: Final = 12.0
_GAP: Final = 26.0
_COLUMN_GAP: Final = 70.0
_ARC_HEIGHT: Final = 16.0


@dataclass(slots=True)
class _Step:
    """Consecutive rounds of a phase, with the totals of all of them."""

    first: int
    last: int
    n_tasks: Counter[Op]
    n_bytes: int
    n_rounds: int = 1
    is_uniform: bool = True


def draw_phases(sheet: Sheet, plan: Plan, top: float) -> Box:
    """Draw the rounds of every phase below `top`, and return the area of the view."""
    leads = _first_of_name(plan)
    dependencies = _count_phase_dependencies(plan, leads)
    steps = _steps(plan, leads)
    place = {phase: i for i, phase in enumerate(steps)}
    furthest = max((abs(place[b] - place[a]) for a, b in dependencies), default=0)
    frames_top = top + (_ARC_HEIGHT * furthest if furthest > 1 else 0)
    firsts: dict[int, Box] = {}
    x, right, bottom = 0.0, 0.0, top
    for phase, chain in steps.items():
        title = _title(plan, phase, leads)
        # Phases are drawn side by side, each at least as wide as its title.
        width = max(_MIN_WIDTH, style.text_width([title], TITLE_SIZE) - _MARGIN)
        first = firsts[phase] = Box(x + _MARGIN + width / 2, frames_top + 52, width, _HEIGHT)
        bottom = max(bottom, _draw_chain(sheet, f"phase_{phase}", title, chain, first))
        right = first.right + _MARGIN
        x += width + 2 * _MARGIN + _COLUMN_GAP
    for (before, phase), n in dependencies.items():
        n_between = abs(place[phase] - place[before]) - 1
        curve, label_at = _arc(firsts[before], firsts[phase], n_between, frames_top)
        sheet.arrow(
            f"phase_{before}_{len(steps[before]) - 1}",
            f"phase_{phase}_0",
            curve,
            label=f"{n:,} deps",
            label_at=label_at,
            color=style.DEPENDENCY_COLOR,
            penwidth="1.4",
        )
    return Box.below(top, right, bottom)


def _first_of_name(plan: Plan) -> list[int]:
    """Return, per phase, the first phase of the run of phases with the same name."""
    leads: list[int] = []
    for number, phase in enumerate(plan.phases):
        is_same = number > 0 and phase.name == plan.phases[number - 1].name
        leads.append(leads[-1] if is_same else number)
    return leads


def _title(plan: Plan, lead: int, leads: list[int]) -> str:
    last = lead + leads.count(lead) - 1
    title = f"phase {lead}" if last == lead else f"phases {lead}–{last}"
    return title + (f": {plan.phases[lead]}" if plan.phases[lead].name else "")


def _draw_chain(sheet: Sheet, frame: str, title: str, chain: list[_Step], first: Box) -> float:
    """Draw the frame of a phase and the boxes of its rounds; return the bottom of the frame."""
    bottom = first.top + len(chain) * (_HEIGHT + _GAP) - _GAP + _MARGIN
    corners = first.left - _MARGIN, first.top - 30, first.right + _MARGIN, bottom
    sheet.titled_frame(frame, corners, title, drop=14)
    for i, step in enumerate(chain):
        box = replace(first, y=first.y + i * (_HEIGHT + _GAP))
        sheet.box(f"{frame}_{i}", box, _label(step), inside=frame, **style.PLAIN_LOOK)
        if i:
            start, end, n_bytes = (box.x, box.top - _GAP), (box.x, box.top), chain[i - 1].n_bytes
            sheet.arrow(
                f"{frame}_{i - 1}",
                f"{frame}_{i}",
                [start, start, end, end],
                color=style.LOCAL_COLOR,
                penwidth=f"{style.line_width(n_bytes):g}",
                tooltip=f"{style.format_bytes(n_bytes)} before",
            )
    return bottom


def _steps(plan: Plan, leads: list[int]) -> dict[int, list[_Step]]:
    """Return the chain of every column with tasks, by the first phase of the column."""
    if not plan.n_tasks:
        return {}
    phases = np.array(leads)[plan.phase]
    keys, band = np.unique(np.stack((phases, plan.round)), axis=1, return_inverse=True)
    band = band.ravel()
    n_bands = keys.shape[1]
    counts = {op: np.bincount(band[plan.op == op], minlength=n_bands) for op in Op}
    n_bytes = np.zeros(n_bands, dtype=np.int64)
    # Bytes are counted by sends. A plan of one rank also counts receives, as it lacks their sends.
    is_send = plan.op <= (Op.SEND if plan.only_rank is None else Op.RECV)
    np.add.at(n_bytes, band[is_send], plan.elements[is_send] * plan.itemsize)
    steps: dict[int, list[_Step]] = {}
    for i, (phase, rnd) in enumerate(keys.T.tolist()):
        own = Counter({op: int(counts[op][i]) for op in Op if counts[op][i]})
        chain = steps.setdefault(phase, [])
        step = _Step(rnd, rnd, own, int(n_bytes[i]))
        if chain and _same_work(chain[-1], step):
            _append(chain[-1], step)
        else:
            chain.append(step)
    return {phase: _merge(chain) for phase, chain in steps.items()}


def _same_work(before: _Step, step: _Step) -> bool:
    n = before.n_rounds
    scaled = {op: count * n for op, count in step.n_tasks.items()}
    return before.n_tasks == scaled and before.n_bytes == step.n_bytes * n


def _append(before: _Step, step: _Step) -> None:
    before.last = step.last
    before.n_rounds += step.n_rounds
    before.n_bytes += step.n_bytes
    before.n_tasks.update(step.n_tasks)


def _merge(chain: list[_Step]) -> list[_Step]:
    """Merge neighbors so that at most `_MAX_BOXES` boxes are left."""
    together = -(-len(chain) // _MAX_BOXES)
    merged = []
    for start in range(0, len(chain), together):
        first, *others = chain[start : start + together]
        for step in others:
            _append(first, step)
            first.is_uniform = False
        merged.append(first)
    return merged


def _label(step: _Step) -> list[str]:
    title = f"round {step.first}"
    if step.n_rounds > 1:
        title = f"rounds {step.first}–{step.last}" + (", all alike" if step.is_uniform else "")
    messages = style.format_count(step.n_tasks[Op.SEND], "message")
    work = ", ".join(
        style.format_count(count, op.name.lower())
        for op, count in step.n_tasks.items()
        if op > Op.RECV
    )
    lines = [title, f"{messages}, {style.format_bytes(step.n_bytes)}"]
    return [*lines, work.replace("copys", "copies")] if work else lines


def _count_phase_dependencies(plan: Plan, leads: list[int]) -> dict[tuple[int, int], int]:
    """Return the number of dependencies between columns, by (earlier phase, later phase)."""
    lead = np.array(leads)[plan.phase]
    pairs = np.stack((lead[plan.deps.task], lead[plan.deps.owner()]))
    pairs = pairs[:, pairs[0] != pairs[1]]
    if not pairs.size:
        return {}
    unique, counts = np.unique(pairs, axis=1, return_counts=True)
    keys = (tuple(pair) for pair in unique.T.tolist())
    return dict(zip(keys, counts.tolist(), strict=True))


def _arc(before: Box, after: Box, n_between: int, top: float) -> tuple[list[Point], Point]:
    """Return a curve between first boxes, above the phases between, and the label's position."""
    start, end = (before.right, before.y), (after.left, after.y)
    peak = top + 2 - _ARC_HEIGHT * n_between if n_between else start[1]
    # A cubic curve rises to three quarters of the height of its control points.
    height = start[1] - (start[1] - peak) / 0.75
    curve = [start, (start[0] + 24, height), (end[0] - 24, height), end]
    return curve, ((start[0] + end[0]) / 2, peak - 7)
