"""Rewrites of programs: collectives that work element by element are joined, or cut into parts.

Such a collective does with each element what it does with the element alone. So one collective on
neighboring ranges has the effect of one on each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from collplan.specs.programs.buffers import BufferRange
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import ProgramStep

ELEMENTWISE: Final = ("allreduce", "bcast", "reduce", "scan", "exscan")
"""Kinds that work element by element."""
LEAST_ELEMENTS: Final = 1024
"""Smallest number of elements of a part into which a collective is cut."""


def fused(program: ProgramSpec, factor: int, names: Collection[str]) -> ProgramSpec:
    """Return a program in which up to `factor` neighboring collectives are one.

    They are of the same kind, on the same groups, and their ranges are neighbors. The one that
    replaces them has the place of the last of them, so no step between them may use their ranges.

    Parameters
    ----------
    program : ProgramSpec
    factor : int
        Largest number of steps that become one.
    names : collection of str
        Names of the steps that may be joined.

    Returns
    -------
    ProgramSpec
        The same program if it has no such steps.
    """
    joined: dict[int, ProgramStep] = {}
    dropped: dict[str, str] = {}
    for run in _runs(program, names):
        for place in range(0, len(run), factor):
            part = run[place : place + factor]
            if len(part) < 2 or not _may_wait(program, part):
                continue
            step = _join([program.steps[i] for i in part], program)
            joined[part[-1]] = step
            dropped |= {program.steps[i].name: step.name for i in part}
    if not joined:
        return program
    steps = [
        joined.get(i, step)
        for i, step in enumerate(program.steps)
        if i in joined or step.name not in dropped
    ]
    return program.replace(steps=tuple(_renamed(step, dropped) for step in steps))


def cut(program: ProgramSpec, factor: int, names: Collection[str]) -> ProgramSpec:
    """Return a program in which large collectives are cut into parts.

    Parameters
    ----------
    program : ProgramSpec
    factor : int
        Number of parts of each collective.
    names : collection of str
        Names of the steps that may be cut.

    Returns
    -------
    ProgramSpec
        The same program if it has no such collective.
    """
    steps: list[ProgramStep] = []
    parts: dict[str, tuple[str, ...]] = {}
    for step in program.steps:
        is_cut = step.name in names and _is_elementwise(step)
        if not is_cut or _count(step) < factor * LEAST_ELEMENTS:
            steps.append(step)
            continue
        found = [_part(step, program, i, factor) for i in range(factor)]
        parts[step.name] = tuple(one.name for one in found)
        steps += found
    if not parts:
        return program
    return program.replace(
        steps=tuple(
            step.replace(after=tuple(n for name in step.after for n in parts.get(name, (name,))))
            for step in steps
        )
    )


def _is_elementwise(step: ProgramStep) -> bool:
    return step.collective is not None and step.collective.kind in ELEMENTWISE


def _count(step: ProgramStep) -> int:
    return 0 if step.collective is None else step.collective.count


def _runs(program: ProgramSpec, names: Collection[str]) -> list[list[int]]:
    """Return the numbers of steps that continue each other's ranges, in ascending order."""
    runs: list[list[int]] = []
    for i, step in enumerate(program.steps):
        if step.name not in names or not _is_elementwise(step):
            continue
        for run in runs:
            if _continues(program, program.steps[run[-1]], step):
                run.append(i)
                break
        else:
            runs.append([i])
    return [run for run in runs if len(run) > 1]


def _continues(program: ProgramSpec, one: ProgramStep, other: ProgramStep) -> bool:
    """Return whether a step does the same as another one, on the elements behind its own."""
    assert one.collective is not None
    assert other.collective is not None
    is_same = other.collective.with_count(_count(one)) == one.collective
    is_same &= (one.group, one.method) == (other.group, other.method)
    return is_same and all(
        _meets(program, left, right)
        for left, right in ((one.send, other.send), (one.receive, other.receive))
    )


def _meets(program: ProgramSpec, left: BufferRange | None, right: BufferRange | None) -> bool:
    if left is None or right is None:
        return left is right
    count = program.buffers[left.buffer].count
    return left.buffer == right.buffer and left.bounds(count)[1] == right.bounds(count)[0]


def _may_wait(program: ProgramSpec, part: Sequence[int]) -> bool:
    """Return whether all steps of a part may take place when the last of them does."""
    inside = set(part)
    names = {program.steps[i].name for i in part}
    for earlier, later in program.conflicts:
        if earlier in inside and later not in inside and later < part[-1]:
            return False
    between = program.steps[part[0] : part[-1] + 1]
    return not any(names & set(step.after) for step in between)


def _join(steps: Sequence[ProgramStep], program: ProgramSpec) -> ProgramStep:
    """Return the step that replaces steps which continue each other."""
    first, last = steps[0], steps[-1]
    assert last.collective is not None
    after = tuple(dict.fromkeys(name for step in steps for name in step.after))
    count = sum(map(_count, steps))
    return last.replace(
        name=f"{first.name} to {last.name}",
        collective=last.collective.with_count(count),
        send=_span(first.send, last.send, program),
        receive=_span(first.receive, last.receive, program),
        after=after,
    )


def _span(
    first: BufferRange | None, last: BufferRange | None, program: ProgramSpec
) -> BufferRange | None:
    if first is None or last is None:
        return None
    count = program.buffers[first.buffer].count
    return BufferRange(buffer=first.buffer, first=first.bounds(count)[0], end=last.bounds(count)[1])


def _part(step: ProgramStep, program: ProgramSpec, part: int, parts: int) -> ProgramStep:
    """Return one of the parts into which a step is cut."""
    assert step.collective is not None
    count = _count(step)
    low, high = (turn * count // parts for turn in (part, part + 1))

    def cut_range(one: BufferRange | None) -> BufferRange | None:
        if one is None:
            return None
        first = one.bounds(program.buffers[one.buffer].count)[0]
        return BufferRange(buffer=one.buffer, first=first + low, end=first + high)

    return step.replace(
        name=f"{step.name} part {part + 1}",
        collective=step.collective.with_count(high - low),
        send=cut_range(step.send),
        receive=cut_range(step.receive),
    )


def _renamed(step: ProgramStep, names: dict[str, str]) -> ProgramStep:
    return step.replace(after=tuple(dict.fromkeys(names.get(name, name) for name in step.after)))
