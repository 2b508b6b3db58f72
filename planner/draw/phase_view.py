"""The coarsest view: phases side by side, their rounds as a chain of totals.

Rounds in a row that do the same amount of work share a box, so a ring of any
size is two boxes; where too many are left, neighbours are put together. Phases
in a row of one name, as the steps of a local reduction, share a column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from collplan.planner.draw import style
from collplan.planner.draw.sheet import TITLE_SIZE, Box, Sheet
from collplan.planner.plan.plan import Op, Plan

_MAX_BOXES: Final = 40
_MIN_WIDTH: Final = 190.0
_HEIGHT: Final = 44.0
_MARGIN: Final = 12.0
_GAP: Final = 26.0
_COLUMN_GAP: Final = 70.0
_ARC: Final = 16.0


@dataclass(slots=True)
class _Step:
    """Consecutive rounds of a phase; totals are of all of them."""

    first: int
    last: int
    n_tasks: dict[Op, int]
    n_bytes: int
    n_rounds: int = 1
    is_uniform: bool = True


@dataclass(frozen=True, slots=True)
class _Column:
    """Phases in a row of one name: their chain of rounds, and its first box."""

    phase: int
    title: str
    chain: list[_Step]
    first: Box


def draw_phases(sheet: Sheet, plan: Plan, top: float) -> Box:
    """Draw the rounds of every phase below `top`; return the box all of it takes."""
    leads = _first_of_name(plan)
    dependencies = _count_phase_dependencies(plan, leads)
    steps = _steps(plan, leads)
    place = {phase: i for i, phase in enumerate(steps)}
    furthest = max((abs(place[b] - place[a]) for a, b in dependencies), default=0)
    frames_top = top + (_ARC * furthest if furthest > 1 else 0)
    columns = _columns(plan, steps, leads, frames_top + 52)
    bottom = top
    for column in columns:
        bottom = max(bottom, _draw_chain(sheet, column))
    for (before, phase), n in dependencies.items():
        ends = columns[place[before]], columns[place[phase]]
        n_between = abs(place[phase] - place[before]) - 1
        _draw_phase_dependency(sheet, ends, n_between, frames_top, f"{n:,} deps")
    right = columns[-1].first.right + _MARGIN if columns else 0.0
    return Box.below(top, right, bottom)


def _first_of_name(plan: Plan) -> list[int]:
    """Return, for every phase, the first of those before it in a row that share its name."""
    leads: list[int] = []
    for number, phase in enumerate(plan.phases):
        is_same = number > 0 and phase.name == plan.phases[number - 1].name
        leads.append(leads[-1] if is_same else number)
    return leads


def _columns(
    plan: Plan, steps: dict[int, list[_Step]], leads: list[int], y: float
) -> list[_Column]:
    """Place the phases side by side, each as wide as its title."""
    columns, x = [], 0.0
    for phase, chain in steps.items():
        last = max(i for i, lead in enumerate(leads) if lead == phase)
        title = f"phase {phase}" if last == phase else f"phases {phase}–{last}"
        title += f": {plan.phases[phase]}" if plan.phases[phase].name else ""
        width = max(_MIN_WIDTH, style.text_width([title], TITLE_SIZE) - _MARGIN)
        columns.append(
            _Column(phase, title, chain, Box(x + _MARGIN + width / 2, y, width, _HEIGHT))
        )
        x += width + 2 * _MARGIN + _COLUMN_GAP
    return columns


def _draw_chain(sheet: Sheet, column: _Column) -> float:
    """Draw a phase's frame and its rounds from the first down; return where the frame ends."""
    first, frame = column.first, f"phase_{column.phase}"
    top = first.top - 30
    bottom = first.top + len(column.chain) * (_HEIGHT + _GAP) - _GAP + _MARGIN
    corners = first.left - _MARGIN, top, first.right + _MARGIN, bottom
    sheet.titled_frame(frame, corners, column.title, drop=14)
    for i, step in enumerate(column.chain):
        box = replace(first, y=first.y + i * (_HEIGHT + _GAP))
        sheet.box(
            f"{frame}_{i}",
            box,
            _label(step),
            inside=frame,
            fillcolor=style.RANK_FILL,
            color=style.LOCAL_COLOR,
        )
        if i:
            _draw_step(sheet, frame, i, box, column.chain[i - 1])
    return bottom


def _steps(plan: Plan, leads: list[int]) -> dict[int, list[_Step]]:
    """Return the chain of every phase that has tasks, under the first phase of its column."""
    if not plan.n_tasks:
        return {}
    phases = np.array(leads)[plan.phase]
    keys, band = np.unique(np.stack((phases, plan.round)), axis=1, return_inverse=True)
    band = band.ravel()
    n_bands = keys.shape[1]
    counts = {op: np.bincount(band[plan.op == op], minlength=n_bands) for op in Op}
    n_bytes = np.zeros(n_bands, dtype=np.int64)
    # A plan of one rank has receives whose sends are elsewhere; any other counts sends.
    is_send = plan.op <= (Op.SEND if plan.only_rank is None else Op.RECV)
    np.add.at(n_bytes, band[is_send], plan.elements[is_send] * plan.itemsize)
    steps: dict[int, list[_Step]] = {}
    for i, (phase, rnd) in enumerate(keys.T.tolist()):
        own = {op: int(counts[op][i]) for op in Op if counts[op][i]}
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
    for op, count in step.n_tasks.items():
        before.n_tasks[op] = before.n_tasks.get(op, 0) + count


def _merge(chain: list[_Step]) -> list[_Step]:
    """Put neighbours together until at most `_MAX_BOXES` are left."""
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
    messages = step.n_tasks.get(Op.SEND, 0)
    lines = [f"{style.format_count(messages, 'message')}, {style.format_bytes(step.n_bytes)}"]
    work = [
        style.format_count(count, op.name.lower() if op is not Op.COPY else "copy")
        for op, count in step.n_tasks.items()
        if op > Op.RECV
    ]
    return [title, *lines, ", ".join(work).replace("copys", "copies")][: 2 + bool(work)]


def _draw_step(sheet: Sheet, frame: str, i: int, box: Box, before: _Step) -> None:
    start, end = (box.x, box.top - _GAP), (box.x, box.top)
    sheet.arrow(
        f"{frame}_{i - 1}",
        f"{frame}_{i}",
        [start, start, end, end],
        color=style.LOCAL_COLOR,
        penwidth=f"{style.line_width(before.n_bytes):g}",
        tooltip=f"{style.format_bytes(before.n_bytes)} before",
    )


def _count_phase_dependencies(plan: Plan, leads: list[int]) -> dict[tuple[int, int], int]:
    """Return how many tasks of a column wait for tasks of another, by (before, after)."""
    after = plan.deps.owner()
    first = np.array(leads)
    pairs = np.stack((first[plan.phase[plan.deps.task]], first[plan.phase[after]]))
    pairs = pairs[:, pairs[0] != pairs[1]]
    if not pairs.size:
        return {}
    unique, counts = np.unique(pairs, axis=1, return_counts=True)
    keys = (tuple(pair) for pair in unique.T.tolist())
    return dict(zip(keys, counts.tolist(), strict=True))


def _draw_phase_dependency(
    sheet: Sheet, columns: tuple[_Column, _Column], n_between: int, top: float, label: str
) -> None:
    """Draw an arrow between first boxes of phases, over the phases between them."""
    before, after = columns
    start, end = (before.first.right, before.first.y), (after.first.left, after.first.y)
    peak = top + 2 - _ARC * n_between if n_between else start[1]
    # A cubic rises to three quarters of its control points' height.
    height = start[1] - (start[1] - peak) / 0.75
    sheet.arrow(
        f"phase_{before.phase}_{len(before.chain) - 1}",
        f"phase_{after.phase}_0",
        [start, (start[0] + 24, height), (end[0] - 24, height), end],
        label=label,
        label_at=((start[0] + end[0]) / 2, peak - 7),
        color=style.DEPENDENCY_COLOR,
        penwidth="1.4",
    )
