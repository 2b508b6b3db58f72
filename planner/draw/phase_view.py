"""The coarsest view: phases side by side, their rounds as a chain of totals.

Rounds in a row that do the same amount of work share a box, so a ring of any
size is two boxes; where too many are left, neighbours are put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from planner.draw.sheet import Box, Sheet
from planner.draw.style import (
    DEPENDENCY_COLOR,
    LOCAL_COLOR,
    NODE_FILL,
    NODE_LINE,
    RANK_FILL,
    format_bytes,
    format_count,
    line_width,
)
from planner.plan import Op

if TYPE_CHECKING:
    from planner.plan import Plan

_MAX_BOXES: Final = 40
_WIDTH: Final = 190.0
_HEIGHT: Final = 44.0
_GAP: Final = 26.0
_COLUMN_GAP: Final = 70.0


@dataclass(slots=True)
class _Step:
    """Consecutive rounds of a phase; totals are of all of them."""

    first: int
    last: int
    n_tasks: dict[Op, int]
    n_bytes: int
    is_uniform: bool = True

    @property
    def n_rounds(self) -> int:
        return self.last - self.first + 1


def draw_phases(sheet: Sheet, plan: Plan, top: float) -> Box:
    """Draw the rounds of every phase below `top`; return the box all of it takes."""
    steps = _steps(plan)
    phases = sorted(steps)
    column = {phase: i for i, phase in enumerate(phases)}
    bottom = top
    for phase, chain in steps.items():
        left = column[phase] * (_WIDTH + 24 + _COLUMN_GAP)
        x, y = left + 12 + _WIDTH / 2, top + 30
        end = y + len(chain) * (_HEIGHT + _GAP) - _GAP + 12
        bottom = max(bottom, end)
        name = plan.phases[phase]
        sheet.frame(
            f"phase_{phase}",
            (left, top, left + _WIDTH + 24, end),
            label=f"phase {phase}: {name}" if name else f"phase {phase}",
            label_at=(x, top + 14),
            fontsize="11",
            fillcolor=NODE_FILL,
            color=NODE_LINE,
        )
        for i, step in enumerate(chain):
            box = Box(x, y + i * (_HEIGHT + _GAP) + _HEIGHT / 2, _WIDTH, _HEIGHT)
            sheet.box(
                f"phase_{phase}_{i}",
                box,
                _label(step),
                inside=f"phase_{phase}",
                fillcolor=RANK_FILL,
                color=LOCAL_COLOR,
            )
            if i:
                _draw_step(sheet, phase, i, box, chain[i - 1])
    _draw_phase_dependencies(sheet, plan, steps, column, top)
    right = len(phases) * (_WIDTH + 24 + _COLUMN_GAP) - _COLUMN_GAP
    return Box(right / 2, (top + bottom) / 2, right, bottom - top)


def _steps(plan: Plan) -> dict[int, list[_Step]]:
    """Return the chain of every phase that has tasks."""
    if not plan.n_tasks:
        return {}
    keys, band = np.unique(np.stack((plan.phase, plan.round)), axis=1, return_inverse=True)
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
    lines = [f"{format_count(messages, 'message')}, {format_bytes(step.n_bytes)}"]
    work = [
        format_count(count, op.name.lower() if op is not Op.COPY else "copy")
        for op, count in step.n_tasks.items()
        if op > Op.RECV
    ]
    return [title, *lines, ", ".join(work).replace("copys", "copies")][: 2 + bool(work)]


def _draw_step(sheet: Sheet, phase: int, i: int, box: Box, before: _Step) -> None:
    start, end = (box.x, box.top - _GAP), (box.x, box.top)
    sheet.arrow(
        f"phase_{phase}_{i - 1}",
        f"phase_{phase}_{i}",
        [start, start, end, end],
        color=LOCAL_COLOR,
        penwidth=f"{line_width(before.n_bytes):g}",
        tooltip=f"{format_bytes(before.n_bytes)} before",
    )


def _draw_phase_dependencies(
    sheet: Sheet, plan: Plan, steps: dict[int, list[_Step]], column: dict[int, int], top: float
) -> None:
    """Draw how many tasks of a phase wait for tasks of another."""
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    pairs = np.stack((plan.phase[plan.deps.task], plan.phase[after]))
    pairs = pairs[:, pairs[0] != pairs[1]]
    if not pairs.size:
        return
    unique, counts = np.unique(pairs, axis=1, return_counts=True)
    for (before, phase), n in zip(unique.T.tolist(), counts.tolist(), strict=True):
        height = top + 30 + _HEIGHT / 2
        step = _WIDTH + 24 + _COLUMN_GAP
        start = (column[before] * step + 12 + _WIDTH, height)
        end = (column[phase] * step + 12, height)
        lift = 34.0 * (column[phase] - column[before] - 1)
        curve = [start, (start[0] + 24, height - lift), (end[0] - 24, height - lift), end]
        sheet.arrow(
            f"phase_{before}_{len(steps[before]) - 1}",
            f"phase_{phase}_0",
            curve,
            label=f"{n:,} deps",
            label_at=((start[0] + end[0]) / 2, height - 8 - lift * 0.75),
            color=DEPENDENCY_COLOR,
            penwidth="1.4",
        )
