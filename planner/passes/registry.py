"""Registry of passes, and execution of the passes of a spec."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from typing import Any, Final, Literal, TypeVar, cast, get_args, get_type_hints
from weakref import WeakSet

from pydantic import ConfigDict, TypeAdapter, ValidationError

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.errors import AlgorithmError, OwnCodeError, PlanError, mended
from collplan.planner.plan.plan import Plan
from collplan.specs import PassChoice
from collplan.specs.errors import show_value, suggest
from collplan.specs.explaining import explain, number_lines
from collplan.specs.syntax.calling import explains_calls

Level = Literal["blueprint", "plan"]
Locality = Literal["rank", "node", "global"]
Rewrite = TypeVar("Rewrite", bound=Callable[..., Any])
Rewritten = TypeVar("Rewritten", Plan, Blueprint)

_OURS: Final = "collplan."
"""Beginning of the names of modules of passes that are not of the user's own."""
NEEDS: Final = "something to change"
"""Default for passes that do not state what they need."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A registered pass.

    Parameters
    ----------
    name : str
        Its name in specs.
    rewrite : callable
        ``rewrite(plan, **options) -> plan``. It does not change its argument, and returns it if
        there is nothing to rewrite.
    level : str
        The object that it rewrites: "blueprint" or "plan". Blueprint passes run first.
    locality : str
        The part of a plan that it needs to rewrite a rank's rows. With "rank", it rewrites one
        rank's program exactly like that rank's part of the whole plan.
    global_with : mapping
        Options with which it needs all ranks, whatever its `locality`.
    takes_folded : bool
        Whether it can rewrite a folded plan, which represents all ranks.
    takes_calls : bool
        Whether it can rewrite a plan that calls MPI's own collectives.
    comes_first : bool
        Whether other passes of its level must run later, because it would undo their changes.
    needs : str
        The property that a plan must have so that the pass changes it.
    cuts : bool
        Whether its options are sizes of segments, or other cuts of a vector, which must change no
        result that is reproducible between runs.
    early : callable, optional
        ``early(blueprint, **options)`` returns a blueprint of the rewritten plan, or None if only
        the plan itself can be rewritten.
    """

    name: str
    rewrite: Callable[..., Any]
    level: Level
    locality: Locality
    global_with: Mapping[str, Any] = field(default_factory=dict)
    takes_folded: bool = False
    takes_calls: bool = False
    comes_first: bool = False
    needs: str = NEEDS
    early: Callable[..., Blueprint | None] | None = None
    cuts: bool = False

    def locality_of(self, choice: PassChoice) -> Locality:
        """Return the part of a plan that it needs with the options of `choice`."""
        options = choice.options
        is_global = any(options.get(name) == value for name, value in self.global_with.items())
        return "global" if is_global else self.locality

    @property
    def options(self) -> tuple[str, ...]:
        """Return the names of the options."""
        return _parameters(self.rewrite)[1:]

    @property
    def summary(self) -> str:
        """Return the first line of its docstring."""
        return (inspect.getdoc(self.rewrite) or "").partition("\n")[0]

    @property
    def idle(self) -> str:
        """Return a line that says that the pass changed nothing, and which plans it changes."""
        return f"passes.{self.name}: it changes nothing in this plan; it needs {self.needs}"


@cache
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


pass_registry: dict[str, Pass] = {}
"""All passes by name."""


@explains_calls("register_pass", checks_types=False)
def register_pass(
    name: str,
    *,
    level: Level,
    locality: Locality,
    takes_folded: bool = False,
    takes_calls: bool = False,
    comes_first: bool = False,
    needs: str = NEEDS,
    early: Callable[..., Blueprint | None] | None = None,
    cuts: bool = False,
    **global_with: Any,
) -> Callable[[Rewrite], Rewrite]:
    """Register the decorated function as pass `name`.

    The parameters are fields of `Pass`. A pass that orders tasks writes the column `priority`: of
    the tasks of a rank that are ready, the one with the least priority starts first, and of equal
    ones the one that comes first in the plan.

    Raises
    ------
    AlgorithmError
        If there is a pass of this name already, a parameter has a wrong value, or what is decorated
        is no function.
    """

    def register(rewrite: Rewrite) -> Rewrite:
        for problem in _misstated(name, rewrite, level, locality, global_with):
            raise AlgorithmError(f"passes.{show_value(name, plain=True)}: {problem}")
        checked = check_options(name, rewrite)
        flags = takes_folded, takes_calls, comes_first
        pass_registry[name] = Pass(
            name, checked, level, locality, global_with, *flags, needs, early, cuts
        )
        return checked

    return register


def _misstated(
    name: str, rewrite: object, level: str, locality: str, global_with: Mapping[str, Any]
) -> Iterator[str]:
    """Generate what is wrong with the registration of a pass."""
    if not isinstance(name, str) or not name:
        yield "is no name; give a text"
    elif name in pass_registry:
        yield "is there already; give yours another name"
    for what, value, valid in (
        ("level", level, get_args(Level)),
        ("locality", locality, get_args(Locality)),
    ):
        if value not in valid:
            yield f"{what} is {show_value(value)}; use {' or '.join(valid)}"
    if not callable(rewrite):
        yield f"{show_value(rewrite)} is no function; decorate one that returns a plan"
        return
    parameters = list(inspect.signature(rewrite).parameters)
    if not parameters:
        yield "the function takes no plan; let its first parameter be the plan"
    known = [*inspect.signature(register_pass).parameters, *parameters[1:]]
    for option in global_with:
        if option not in parameters[1:]:
            hint = suggest(option, known).strip() or "leave it out"
            yield f"{option} is no parameter of register_pass, and no option of the pass; {hint}"


def is_number(value: Any, least: int) -> bool:
    """Return whether an option is an integer of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_options(name: str, rewrite: Rewrite) -> Rewrite:
    """Return a function that validates and converts the options of `rewrite`, and calls it.

    Annotations of options define their types and limits. Numbers and texts are not converted into
    each other. A text in an annotation, as in ``Annotated[int, Field(ge=2), "{} is not at least 2;
    give more"]``, is the message for an invalid value.

    Raises
    ------
    AlgorithmError
        If an option is invalid. The returned function raises it, with pass, option and value.
    """
    signature = inspect.signature(rewrite)

    @cache
    def types_of_options() -> dict[str, tuple[TypeAdapter[Any], str | None]]:
        found, hints = {}, get_type_hints(rewrite, include_extras=True)
        for option in list(signature.parameters)[1:]:
            of = hints.get(option, Any)
            text = next((one for one in get_args(of)[1:] if isinstance(one, str)), None)
            found[option] = TypeAdapter(of, config=ConfigDict(strict=True)), text
        return found

    @wraps(rewrite)
    def checked(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        given.apply_defaults()
        for option, (adapter, text) in types_of_options().items():
            value = given.arguments[option]
            try:
                given.arguments[option] = adapter.validate_python(value)
            except ValidationError as error:
                where = f"passes.{name}.{option}: "
                if text is None or error.errors()[0]["type"] == "value_error":
                    raise AlgorithmError(explain(error, before=where)) from None
                raise AlgorithmError(where + text.format(show_value(value))) from None
        return rewrite(*given.args, **given.kwargs)

    return cast(Rewrite, checked)


VERIFY_LIMIT = 100_000
"""Largest number of tasks of a plan that the compiler verifies; larger ones on demand."""
_proved: WeakSet[Plan] = WeakSet()


def prove(plan: Plan) -> bool:
    """Verify a plan of all ranks, once, if it has up to `VERIFY_LIMIT` tasks.

    Parameters
    ----------
    plan : Plan
        Any plan.

    Returns
    -------
    bool
        Whether the plan is proved.

    Raises
    ------
    PlanError
        If the plan is wrong.
    """
    if plan.only_rank is not None or plan.n_tasks > VERIFY_LIMIT:
        return False
    if plan not in _proved:
        from collplan.planner.verify import verify

        verify(plan)
        _proved.add(plan)
    return True


def run_passes(
    plan: Plan,
    choices: Iterable[PassChoice],
    *,
    is_proved: bool = True,
    idle: list[PassChoice] | None = None,
) -> Plan:
    """Return `plan` rewritten by the chosen passes, in order.

    A plan that a pass has changed is verified, if it has up to `VERIFY_LIMIT` tasks. One rank's
    program cannot be verified alone.

    Parameters
    ----------
    plan : Plan
    choices : iterable of PassChoice
    is_proved : bool
        Whether to verify changed plans. False if another rank verifies the same plan.
    idle : list of PassChoice, optional
        List to which passes are appended that change nothing.

    Raises
    ------
    AlgorithmError
        If a pass or an option is unknown, or a pass refuses the plan.
    PlanError
        If a pass turned a legal plan into an illegal one.
    """
    for choice in choices:
        check_choices([choice])
        chosen = pass_registry[choice.name]
        if not chosen.takes_calls and any(phase.is_native for phase in plan.phases):
            raise AlgorithmError(
                f"passes.{choice.name}: it cannot rewrite calls of MPI's own collectives; leave it "
                "out, or use another algorithm than native"
            )
        rewritten = _rewritten(chosen, plan, choice)
        if idle is not None and rewritten is plan:
            idle.append(choice)
        if is_proved and rewritten is not plan:
            _prove_rewritten(choice.name, plan, rewritten)
        plan = rewritten
    return plan


def _rewritten(chosen: Pass, given: Rewritten, choice: PassChoice) -> Rewritten:
    """Return what a pass makes of a plan or blueprint; mistakes of a user's pass are one line."""
    if inspect.unwrap(chosen.rewrite).__module__.startswith(_OURS):
        rewritten: Rewritten = chosen.rewrite(given, **choice.options)
        return rewritten
    before = f"passes.{chosen.name}: "
    with mended(before):
        found = chosen.rewrite(given, **choice.options)
    if not isinstance(found, type(given)):
        what = type(given).__name__.lower()
        raise OwnCodeError(f"{before}returns {show_value(found)}; let it return a {what}")
    for name in ("n_ranks", "only_rank", "origin") if isinstance(given, Plan) else ("spec",):
        if getattr(found, name) != getattr(given, name):
            what = f"a {type(given).__name__.lower()} whose {name} is another one"
            raise OwnCodeError(f"{before}returns {what}; change the given one by replace")
    return found


def _prove_rewritten(name: str, plan: Plan, rewritten: Plan) -> None:
    """Prove a plan that a pass has made; an error names the pass, unless `plan` was wrong."""
    try:
        prove(rewritten)
    except PlanError as error:
        prove(plan)
        raise type(error)(f"passes.{name} makes the plan wrong: {error}") from None


def find_pass(name: str) -> Pass:
    """Return pass `name`.

    Raises
    ------
    AlgorithmError
        If it does not exist. The message lists all passes.
    """
    if name not in pass_registry:
        raise AlgorithmError(_no_pass(name))
    return pass_registry[name]


def _no_pass(name: str) -> str:
    hint = suggest(name, pass_registry)
    return f"passes: there is no {show_value(name)}; {hint}use one of {', '.join(pass_registry)}"


def check_choices(choices: Iterable[PassChoice]) -> None:
    """Raise `AlgorithmError` if passes or options do not exist, with one line for each."""
    problems = list(_unknown(choices))
    if problems:
        raise AlgorithmError(number_lines(problems))


def _unknown(choices: Iterable[PassChoice]) -> Iterator[str]:
    for choice in choices:
        if choice.name not in pass_registry:
            yield _no_pass(choice.name)
            continue
        there = pass_registry[choice.name].options
        way_out = f"use {', '.join(there)}" if there else "it has none, leave it out"
        for name in choice.options:
            if name not in there:
                hint = suggest(name, there)
                yield f"passes.{choice.name}.{name}: no such option; {hint}{way_out}"


def run_blueprint_passes(
    blueprint: Blueprint, choices: Sequence[PassChoice], idle: list[PassChoice] | None = None
) -> tuple[Blueprint, tuple[PassChoice, ...]]:
    """Run the passes of the blueprint level; return the blueprint and the remaining passes.

    The first pass of the plan level also runs if a blueprint can describe its result. Passes that
    change nothing are appended to `idle`, if it is given.

    Raises
    ------
    AlgorithmError
        If a pass or an option is unknown, a pass refuses, or a pass of this
        level comes after one of the plan level.
    """
    check_choices(choices)
    levels = [find_pass(choice.name).level for choice in choices]
    n_first = levels.index("plan") if "plan" in levels else len(levels)
    for choice, level in zip(choices[n_first:], levels[n_first:], strict=True):
        if level == "blueprint":
            raise AlgorithmError(
                f"passes.{choice.name}: rewrites the blueprint, but {choices[n_first].name} before "
                "it needs tasks already; put it first"
            )
    for number, choice in enumerate(choices[:n_first]):
        if number and find_pass(choice.name).comes_first:
            raise AlgorithmError(
                f"passes.{choice.name}: it would not keep what {choices[0].name} before it "
                "changes; put it first"
            )
        rewritten = _rewrite_blueprint(blueprint, choice)
        if idle is not None and rewritten is blueprint:
            idle.append(choice)
        blueprint = rewritten
    remaining = tuple(choices[n_first:])
    early = find_pass(remaining[0].name).early if remaining else None
    made = None if early is None else early(blueprint, **remaining[0].options)
    return (blueprint, remaining) if made is None else (made, remaining[1:])


def _rewrite_blueprint(blueprint: Blueprint, choice: PassChoice) -> Blueprint:
    """Return a blueprint and its slices as rewritten by a pass, or itself if nothing changes."""
    chosen = find_pass(choice.name)
    rewritten = _rewritten(chosen, blueprint, choice)
    made = {one: _rewritten(chosen, one, choice) for one in dict.fromkeys(blueprint.slices)}
    if not made or (rewritten is blueprint and all(new is old for old, new in made.items())):
        return rewritten
    return replace(rewritten, slices=tuple(made[one] for one in blueprint.slices))
