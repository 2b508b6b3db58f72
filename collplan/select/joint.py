"""Joint choice of the methods of a program's steps, on the whole program.

The best plan of a collective by itself need not be the best one beside others: it may use lanes
that another step needs, or finish its first elements late. The search therefore simulates the plan
of the whole program. It starts from the best method of each step, moves messages to free cores,
joins or cuts collectives that work element by element, and exchanges the method of one collective
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, partial
from time import perf_counter
from typing import Final

from pydantic import ValidationError

from collplan.executors.cost import simulate
from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.errors import AsymmetricError
from collplan.planner.lowering.select import priced_spec
from collplan.planner.plan.plan import Plan
from collplan.planner.programs.compile import compile_program
from collplan.planner.programs.groups import check_ranges, spec_of_group
from collplan.planner.rewrite.calls import has_calls
from collplan.select.auto import choose
from collplan.select.estimate import FEW_RANKS
from collplan.select.remembered import recall, remember
from collplan.select.rewrites import cut, fused
from collplan.select.search import search
from collplan.specs import AlgorithmChoice, Method, PassChoice, PlanSpec, SpecError
from collplan.specs.errors import CollplanError
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import METHOD, ProgramStep

EFFORT: Final = 1_500_000
"""Budget: number of tasks of programs that a search compiles and simulates."""
MOST_METHODS: Final = 5
"""Number of methods that are tried for each collective."""
FACTORS: Final = (2, 4, 8, 16, 32)
"""Numbers of collectives that are joined to one, or into which one is cut."""
GAIN: Final = 0.999
"""Ratio of makespans below which a change is kept."""
NATIVELY: Final = Method(algorithms=AlgorithmChoice(name="native"))
"""The method of native calls, which are priced by MPICH's algorithms."""


@dataclass(frozen=True)
class JointChoice:
    """A program with a method for every step.

    Parameters
    ----------
    program : ProgramSpec
        The program without ``auto``. Steps may be joined or cut.
    makespan_s : float
        Simulated time of the program in seconds.
    steps_best_s : float
        Sum of the makespans of all steps of the given program in seconds, each with the method
        that is best for it alone: the time of the steps one after another.
    n_simulated : int
        Number of programs that were simulated.
    search_s : float
        Duration of the search in seconds.
    is_remembered : bool
        Whether the choice is that of an earlier search.
    """

    program: ProgramSpec
    makespan_s: float
    steps_best_s: float
    n_simulated: int
    search_s: float
    is_remembered: bool = False

    @property
    def words(self) -> str:
        """Return a line about the choice and its search."""
        when = "an earlier search" if self.is_remembered else "a search"
        gain = self.steps_best_s / self.makespan_s if self.makespan_s else 1.0
        return (
            f"the program takes {1e3 * self.makespan_s:.4g} ms, its steps one after another "
            f"{1e3 * self.steps_best_s:.4g} ms by the best plan of each, {gain:.3g} times as long; "
            f"{self.n_simulated} programs simulated ({when} of {self.search_s:.2g} s)"
        )


@lru_cache(maxsize=16)
def choose_jointly(program: ProgramSpec) -> JointChoice:
    """Return the choice for a program, from an earlier search if there is one.

    Steps that name a decomposition keep their methods.

    Raises
    ------
    CollplanError
        As for `compile_program`.
    """
    known = recall(program)
    with suppress(ValidationError, SpecError, TypeError, KeyError):
        if known is not None:
            chosen = ProgramSpec.model_validate(known.pop("program"))
            return JointChoice(chosen, **known, is_remembered=True)
    begin_s = perf_counter()
    check_ranges(program)
    joint = _JointSearch(program)
    found, makespan_s = joint.best()
    apart_s = sum(_alone_s(joint.first, joint.compiled))
    search_s = perf_counter() - begin_s
    choice = JointChoice(found, makespan_s, apart_s, joint.n_simulated, search_s)
    remember(
        program,
        program=found.model_dump(mode="json"),
        makespan_s=makespan_s,
        steps_best_s=apart_s,
        n_simulated=choice.n_simulated,
        search_s=search_s,
    )
    return choice


def resolve_program(program: ProgramSpec) -> ProgramSpec:
    """Return a program with each ``auto`` replaced by the joint choice."""
    return choose_jointly(program).program if has_auto(program) else program


def steps_apart(program: ProgramSpec) -> ProgramSpec:
    """Return a program whose steps with ``auto`` have the method that is best for each alone."""
    return _JointSearch(program).first


def has_auto(program: ProgramSpec) -> bool:
    """Return whether a step of a program leaves its decomposition to the search."""
    return any(_is_auto(step) for step in program.steps)


def step_times(program: ProgramSpec, *, natively: bool = False) -> list[float]:
    """Return the makespan of each step of a program alone, in seconds.

    Parameters
    ----------
    program : ProgramSpec
        Program; if it has ``auto``, `natively` is True.
    natively : bool
        Whether all collectives are calls of the MPI library, priced by MPICH's algorithms.
    """
    if natively:
        program = _with_method(program, _collectives(program), NATIVELY)
    return _alone_s(program, _Compiled())


def _collectives(program: ProgramSpec) -> list[int]:
    return [i for i, step in enumerate(program.steps) if step.collective is not None]


def _alone_s(program: ProgramSpec, compiled: _Compiled) -> list[float]:
    """Return the makespan of each step alone, given the plans of some collectives."""
    known: dict[object, float] = {}
    times = []
    for step in program.steps:
        # Equal collectives on other ranges take the same time; random durations go by the name.
        key = step if step.collective is None else (step.collective, step.group, step.method)
        if key not in known:
            single = program.replace(steps=(step.replace(after=()),), passes=())
            known[key] = simulate(compiled.plan(single)).makespan_s
        times.append(known[key])
    return times


def priced_plan(plan: Plan) -> Plan:
    """Return a plan to simulate in place of a program's plan that calls MPI's own collectives.

    MPICH's algorithms replace the calls. Other plans are returned unchanged.
    """
    if plan.program is None or not has_calls(plan):
        return plan
    return _Compiled().plan(plan.program)


def folded_plan(program: ProgramSpec) -> Plan | None:
    """Return the folded plan of a large program, to be priced; None if it cannot be folded.

    Parameters
    ----------
    program : ProgramSpec
        Program without ``auto``.
    """
    return _Compiled().folded(program)


class _Compiled:
    """Plans of programs and of their collectives, to be priced; each spec is compiled once.

    Calls of MPI's own collectives, which cannot be simulated inside a program, are replaced by
    MPICH's algorithms.
    """

    def __init__(self) -> None:
        self._whole = cache(lambda spec: compile_plan(priced_spec(spec), is_proved=False))
        self._folded = cache(lambda spec: compile_folded(priced_spec(spec), is_proved=False))

    def plan(self, program: ProgramSpec) -> Plan:
        """Return the plan of a program without ``auto``, folded if it is large and can be."""
        found = self.folded(program)
        return found or compile_program(program, self._whole, is_proved=False)

    def folded(self, program: ProgramSpec) -> Plan | None:
        """Return the folded plan of a large program; None if it is small or cannot be folded."""
        machine = program.machine
        if machine.n_ranks <= FEW_RANKS or machine.network.joins_nodes:
            return None
        with suppress(AsymmetricError):
            return compile_program(program, self._folded, is_proved=False)
        return None


@dataclass
class _JointSearch:
    """Search for the methods of a program, within a budget of simulated tasks.

    Parameters
    ----------
    program : ProgramSpec
        Program with ``auto``.
    compiled : _Compiled
        Plans of all programs and collectives that were compiled.
    n_simulated, left : int
        Number of simulated programs, and number of tasks that are left of the budget.
    """

    program: ProgramSpec
    compiled: _Compiled = field(default_factory=_Compiled)
    n_simulated: int = 0
    left: int = EFFORT

    @cached_property
    def first(self) -> ProgramSpec:
        """The program whose steps have the methods that are best for each alone."""
        return self._with_best(self.program)

    def best(self) -> tuple[ProgramSpec, float]:
        """Return the best program that is found, and its makespan in seconds."""
        given, found, makespan_s = self.program, self.first, self._makespan_s(self.first)
        for change in _changes(given):
            changed = change(given)
            tried = change(found)
            time_s = self._makespan_s(tried) if changed != given else makespan_s
            if time_s < GAIN * makespan_s:
                given, found, makespan_s = changed, tried, time_s
        # Other sizes may have other best methods.
        renewed = self._with_best(given)
        time_s = self._makespan_s(renewed) if renewed != found else makespan_s
        if time_s < GAIN * makespan_s:
            found, makespan_s = renewed, time_s
        return self._descend(given, found, makespan_s)

    def _descend(
        self, given: ProgramSpec, found: ProgramSpec, makespan_s: float
    ) -> tuple[ProgramSpec, float]:
        """Exchange the method of one collective at a time, while the program gets faster."""
        specs = _auto_specs(given)
        is_better = True
        while is_better and self.left > 0:
            is_better = False
            for spec in dict.fromkeys(specs.values()):
                numbers = [i for i, one in specs.items() if one == spec]
                for method in _methods(spec):
                    tried = _with_method(found, numbers, method)
                    time_s = self._makespan_s(tried) if tried != found else makespan_s
                    if time_s < GAIN * makespan_s:
                        found, makespan_s, is_better = tried, time_s, True
        return found, makespan_s

    def _with_best(self, program: ProgramSpec) -> ProgramSpec:
        """Return a program whose steps have the methods that are best for each alone."""
        for number, spec in _auto_specs(program).items():
            program = _with_method(program, [number], choose(spec).spec.method)
        return program

    def _makespan_s(self, program: ProgramSpec) -> float:
        """Return the makespan of a program; infinity if it is refused or exceeds the budget.

        The plan of all ranks of a large machine is only made for the first program.
        """
        is_first, is_large = program == self.first, program.machine.n_ranks > FEW_RANKS
        if self.left <= 0:
            return float("inf")
        try:
            folded = self.compiled.folded(program)
            if folded is None and is_large and not is_first:
                return float("inf")
            plan = folded or self.compiled.plan(program)
        except CollplanError:
            if is_first:
                raise
            return float("inf")
        self.left -= plan.n_tasks
        self.n_simulated += 1
        return simulate(plan).makespan_s


def _changes(program: ProgramSpec) -> list[Callable[[ProgramSpec], ProgramSpec]]:
    """Return rewrites of a program, of which each may make it faster."""
    names = frozenset(step.name for step in program.steps if _is_auto(step))
    machine = program.machine
    placed = []
    if not program.passes and machine.cores_per_node > max(machine.node_to_n_ranks):
        placed = [lambda one: one.replace(passes=(PassChoice(name="place_progress"),))]
    joined = [partial(fused, factor=factor, names=names) for factor in FACTORS]
    parts = [partial(cut, factor=factor, names=names) for factor in FACTORS[:3]]
    return [*placed, *joined, *parts]


def _is_auto(step: ProgramStep) -> bool:
    return step.decomposition.name == "auto"


@lru_cache(maxsize=8)
def _auto_specs(program: ProgramSpec) -> dict[int, PlanSpec]:
    """Return the spec of the first group of each step with ``auto``, by the number of the step."""
    return {
        number: spec_of_group(program, step, program.groups[number][0])
        for number, step in enumerate(program.steps)
        if _is_auto(step)
    }


@lru_cache(maxsize=64)
def _methods(spec: PlanSpec) -> list[Method]:
    """Return the best methods for a collective alone, best first."""
    found = [one.spec.method for one in search(spec) if one.is_simulated]
    return list(dict.fromkeys(found))[:MOST_METHODS]


def _with_method(program: ProgramSpec, numbers: Sequence[int], method: Method) -> ProgramSpec:
    """Return a program whose steps with these numbers have a method."""
    changes = {name: getattr(method, name) for name in METHOD}
    steps = list(program.steps)
    for number in numbers:
        steps[number] = steps[number].replace(**changes)
    return program.replace(steps=tuple(steps))
