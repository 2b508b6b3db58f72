"""Program specs: a machine, buffers, and steps that use them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ValidationError

from collplan.specs.collectives.collective_base import CollectiveModel
from collplan.specs.collectives.predefined import numpy_dtype
from collplan.specs.errors import first_repeated, show_value, suggest
from collplan.specs.machines.machine import Machine
from collplan.specs.methods.frozen_dict import FrozenDict
from collplan.specs.methods.named_option import PassChoice
from collplan.specs.programs.buffers import BufferName, NamedBuffer
from collplan.specs.programs.groups import Groups, StepGroup
from collplan.specs.programs.steps import ProgramStep, completed, overlap
from collplan.specs.syntax.base import ShortModel, raise_together
from collplan.specs.syntax.documents import write_json, write_yaml

MOST_STEPS: Final = 10_000
"""Greatest number of steps, those of repetitions counted each time."""
RAW: Final = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
"""Datatypes of elements that no operation combines, by their bytes."""


class ProgramSpec(ShortModel):
    """Collectives and computations on named buffers of a machine, which are planned together.

    The steps have the effect that they have one after another. Steps that use no element in common
    may overlap, unless one is to follow `after` the other. The computations of a rank follow one
    another, as they share its core.

    Parameters
    ----------
    machine : Machine
        The machine on which ranks run; by default one node with one rank.
    buffers : dict of str to NamedBuffer
        Buffers that every rank has, by name.
    steps : tuple of ProgramStep
        The steps. In files, ``{repeat: N, steps: [...]}`` stands for N times these steps. In their
        texts, ``{i}`` is the number of the repetition, counted from 0; ``index: j`` beside
        `repeat` names it ``{j}``, for repetitions in repetitions.
    passes : tuple of PassChoice
        Passes that place or order the tasks of the whole program, as ``place_progress`` does.

    Examples
    --------
    >>> program = ProgramSpec.model_validate({
    ...     "machine": {"ranks_per_node": 4},
    ...     "buffers": {"x": {"count": 8}},
    ...     "steps": [{"collective": "allreduce", "receive": "x"}],
    ... })
    >>> program.steps[0].name, program.steps[0].collective.count
    ('allreduce 1', 8)
    """

    machine: Machine = Machine()
    buffers: Annotated[dict[BufferName, NamedBuffer], AfterValidator(FrozenDict)]
    steps: tuple[ProgramStep, ...]
    passes: tuple[PassChoice, ...] = ()

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields with repetitions written out, and steps completed."""
        steps = fields.get("steps")
        if not isinstance(steps, list | tuple):
            return fields
        found = _unrolled(steps)
        try:
            machine = Machine.model_validate(fields.get("machine", {}))
            given = fields.get("buffers", {})
            buffers = {name: NamedBuffer.model_validate(one) for name, one in given.items()}
        except (ValidationError, AttributeError):
            return {**fields, "steps": found}  # the fields' own checks say why
        whole = (
            completed(one, number, buffers, _n_members(one, machine))
            if isinstance(one, Mapping)
            else one
            for number, one in enumerate(found, 1)
        )
        return {**fields, "steps": list(whole)}

    def __hash__(self) -> int:
        return hash((self.machine, tuple(self.buffers.items()), self.steps, self.passes))

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        """Yield a message for each contradiction between fields."""
        names = [step.name for step in self.steps]
        if not names:
            yield "steps is an empty list; give one step or more"
        if (place := first_repeated(names)) >= 0:
            yield f"steps: two steps have the name {names[place]}; give each its own"
            return
        problems = [line for step in self.steps for line in self._problems_of(step)]
        yield from problems
        if not problems and (cycle := self._cycle()):
            chain = " after ".join([*cycle, cycle[0]])
            yield f"steps: {chain} is a cycle; remove one of after, or change the order of steps"

        if not problems:
            yield from self._mixed()

    def _mixed(self) -> Iterator[str]:
        """Yield a message if elements are combined, or measured, in more than one way."""
        combining = [step for step in self.steps if step.collective and step.collective.has_op]
        for step in combining[1:]:
            one, other = combining[0].collective, step.collective
            assert one is not None
            assert other is not None
            if (one.op, one.datatype) != (other.op, other.datatype):
                yield (
                    f"step {step.name}: {_combination(other)}, but step {combining[0].name} has "
                    f"{_combination(one)}; a program combines elements in one way"
                )
                return
        for name, buffer in self.buffers.items():
            if combining and buffer.itemsize % self.itemsize:
                yield (
                    f"buffers.{name}: elements of {buffer.itemsize} bytes, but step "
                    f"{combining[0].name} combines elements of {self.itemsize}; give datatypes "
                    f"whose sizes are multiples of {self.itemsize} bytes"
                )
                return

    @cached_property
    def combining(self) -> CollectiveModel | None:
        """The first collective that combines elements, if there is one; all others do the same."""
        found = (step.collective for step in self.steps)
        return next((one for one in found if one is not None and one.has_op), None)

    @cached_property
    def datatype(self) -> str:
        """Datatype of the elements of the plan: the one that is combined, or one without meaning.

        The elements of each buffer are one or several of these elements.
        """
        if self.combining is not None:
            return self.combining.datatype
        size = math.gcd(16, *(buffer.itemsize for buffer in self.buffers.values()))
        return RAW[size]

    @property
    def itemsize(self) -> int:
        """Return the size of an element of the plan in bytes."""
        return numpy_dtype(self.datatype).itemsize

    def _problems_of(self, step: ProgramStep) -> Iterator[str]:
        yield from step.misfits(self.buffers, self.machine.n_ranks)
        names = [one.name for one in self.steps]
        for name in step.after:
            if name not in names:
                hint = suggest(name, names)
                yield f"step {step.name}: after names {show_value(name)}, which is no step; {hint}"
        try:
            groups = step.group.groups(self.machine)
        except ValueError as error:
            yield f"step {step.name}: group: {error}"
            return
        if step.collective is not None:
            for n_members in sorted({len(group) for group in groups}):
                for line in step.collective.misfits(n_members):
                    yield f"step {step.name}: {line}"

    @cached_property
    def groups(self) -> tuple[Groups, ...]:
        """Ranks of each group of every step."""
        return tuple(step.group.groups(self.machine) for step in self.steps)

    @cached_property
    def conflicts(self) -> tuple[tuple[int, int], ...]:
        """Pairs of steps that use common elements, of which one writes, in their order."""
        found, steps = [], self.steps
        touching: dict[str, list[int]] = {}
        for later, step in enumerate(steps):
            names = {one.buffer for one in (*step.read_ranges, *step.written_ranges)}
            earlier = sorted({i for name in names for i in touching.get(name, ())})
            found += [(i, later) for i in earlier if self._is_conflict(steps[i], step)]
            for name in names:
                touching.setdefault(name, []).append(later)
        return tuple(found)

    def _is_conflict(self, one: ProgramStep, other: ProgramStep) -> bool:
        sides = (
            (one.written_ranges, other.read_ranges + other.written_ranges),
            (one.read_ranges, other.written_ranges),
        )
        return any(
            overlap(left, right, self.buffers)
            for lefts, rights in sides
            for left in lefts
            for right in rights
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Numbers of the steps in an order that respects `after`, as close as can be to theirs."""
        before = self._predecessors()
        done: list[int] = []
        left = list(range(len(self.steps)))
        while left:
            ready = next((one for one in left if not before[one] - set(done)), None)
            assert ready is not None, "checked when the spec was made"
            done.append(ready)
            left.remove(ready)
        return tuple(done)

    def _predecessors(self) -> list[set[int]]:
        """Return the steps that each step must follow."""
        number = {step.name: i for i, step in enumerate(self.steps)}
        before: list[set[int]] = [{number[name] for name in step.after} for step in self.steps]
        for earlier, later in self.conflicts:
            before[later].add(earlier)
        return before

    def _cycle(self) -> list[str]:
        """Return the names of steps that wait for each other in a cycle; none if there is none."""
        before = self._predecessors()
        left = {i: set(found) for i, found in enumerate(before)}
        while ready := [i for i, waits in left.items() if not waits & left.keys()]:
            for i in ready:
                del left[i]
        if not left:
            return []
        path = [min(left)]
        while (following := min(left[path[-1]] & left.keys())) not in path:
            path.append(following)
        return [self.steps[i].name for i in path[path.index(following) :]]

    def to_json(self) -> str:
        """Return the spec as one line of JSON with sorted keys and all defaults."""
        return write_json(self.model_dump(mode="json"))

    def to_yaml(self) -> str:
        """Return the spec as YAML with all defaults."""
        return write_yaml(self.model_dump(mode="json"))


def _combination(collective: CollectiveModel) -> str:
    assert collective.op is not None
    return f"{collective.op.name} of {collective.datatype}"


def _n_members(step: Mapping[str, Any], machine: Machine) -> int:
    """Return the number of ranks of the largest group of a step; 1 if it has no valid groups."""
    try:
        groups = StepGroup.model_validate(step.get("group", "all")).groups(machine)
    except ValueError:
        return 1
    return max(map(len, groups), default=1)


def _unrolled(steps: Sequence[Any]) -> list[Any]:
    """Return steps with repetitions written out.

    Raises
    ------
    ValueError
        If a repetition is not valid, or there are too many steps.
    """
    found: list[Any] = []
    for step in steps:
        if not isinstance(step, Mapping) or "repeat" not in step:
            found.append(step)
            continue
        times, inner, index = step["repeat"], step.get("steps"), step.get("index", "i")
        if isinstance(times, bool) or not isinstance(times, int) or times < 0:
            raise ValueError(
                f"repeat: {show_value(times)} is not a number of times; give 0 or more"
            )
        is_known = set(step) <= {"repeat", "steps", "index"} and isinstance(index, str)
        if not isinstance(inner, list | tuple) or not is_known:
            raise ValueError("repeat: give the repeated steps, as {repeat: 3, steps: [...]}")
        for turn in range(times):
            found += _unrolled(_with_turn(inner, f"{{{index}}}", turn))
            if len(found) > MOST_STEPS:
                raise ValueError(f"repeat: more than {MOST_STEPS} steps in all; give fewer")
    return found


def _with_turn(value: Any, index: str, turn: int) -> Any:
    """Return a value in whose texts the number of a repetition replaces its index."""
    if isinstance(value, str):
        return value.replace(index, str(turn))
    if isinstance(value, Mapping):
        return {key: _with_turn(entry, index, turn) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_with_turn(entry, index, turn) for entry in value]
    return value
