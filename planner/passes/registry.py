"""Where passes are registered and run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.errors import AlgorithmError
from planner.plan import Plan
from specs import PassChoice

Level = Literal["blueprint", "plan"]
Locality = Literal["rank", "node", "global"]


@dataclass(frozen=True, slots=True)
class Pass:
    """A registered pass.

    Parameters
    ----------
    name : str
        Its name in specs.
    rewrite : callable
        ``rewrite(plan, **options) -> plan``; leaves its input untouched and
        returns it where it changes nothing.
    level : str
        What it rewrites; blueprint passes come before plan passes.
    locality : str
        What it must see to rewrite a rank's rows: with "rank", one rank's
        program is rewritten exactly as the whole plan's restriction to it.
    global_with : mapping
        Options with which it must see all ranks, whatever `locality` says.
    """

    name: str
    rewrite: Callable[..., Any]
    level: Level
    locality: Locality
    global_with: Mapping[str, Any] = field(default_factory=dict)

    def locality_of(self, choice: PassChoice) -> Locality:
        """Return what it must see with the options of `choice`."""
        options = choice.options
        is_global = any(options.get(name) == value for name, value in self.global_with.items())
        return "global" if is_global else self.locality

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of its options."""
        return tuple(inspect.signature(self.rewrite).parameters)[1:]

    @property
    def summary(self) -> str:
        """Return the first line of its docstring."""
        return (inspect.getdoc(self.rewrite) or "").partition("\n")[0]


pass_registry: dict[str, Pass] = {}
"""All passes by name."""


def register_pass(
    name: str, *, level: Level, locality: Locality, **global_with: Any
) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Register the decorated function as pass `name`."""

    def register(rewrite: Callable[..., Plan]) -> Callable[..., Plan]:
        assert name not in pass_registry, f"pass {name} registered twice"
        pass_registry[name] = Pass(name, rewrite, level, locality, global_with)
        return rewrite

    return register


VERIFY_LIMIT = 100_000
"""Plans of up to so many tasks are verified after every pass; greater ones on demand."""


def run_passes(plan: Plan, choices: Iterable[PassChoice], *, is_proved: bool = True) -> Plan:
    """Return `plan` rewritten by the chosen passes, in order.

    What a pass changed is verified, up to `VERIFY_LIMIT` tasks; one rank's
    program has no proof of its own.

    Parameters
    ----------
    plan : Plan
    choices : iterable of PassChoice
    is_proved : bool
        False leaves that to another rank, which compiles the same plan.

    Raises
    ------
    AlgorithmError
        If a pass or an option is unknown, or a pass refuses the plan.
    PlanError
        If a pass made an illegal plan of a legal one.
    """
    for choice in choices:
        rewritten = run_pass(plan, choice)
        is_whole = is_proved and plan.only_rank is None
        if rewritten is not plan and is_whole and rewritten.n_tasks <= VERIFY_LIMIT:
            rewritten.verify()
        plan = rewritten
    return plan


def run_pass(plan: Plan, choice: PassChoice) -> Plan:
    """Return `plan` rewritten by one pass."""
    chosen = find_pass(choice.name)
    check_options(chosen, choice)
    rewritten: Plan = chosen.rewrite(plan, **choice.options)
    return rewritten


def find_pass(name: str) -> Pass:
    """Return pass `name`.

    Raises
    ------
    AlgorithmError
        Naming the passes there are.
    """
    if name not in pass_registry:
        raise AlgorithmError(f"passes: there is no {name!r}; use one of {', '.join(pass_registry)}")
    return pass_registry[name]


def check_options(chosen: Pass, choice: PassChoice) -> None:
    """Raise `AlgorithmError` where a choice has options its pass does not know."""
    for name in choice.options:
        if name not in chosen.options:
            raise AlgorithmError(
                f"passes.{choice.name}.{name}: no such option; use {', '.join(chosen.options)}"
            )
