"""Passes over blueprints, which run before there are messages."""

from __future__ import annotations

from collections.abc import Sequence

from collplan.planner.blueprint.blueprint import Blueprint
from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.registry import check_choices, find_pass
from collplan.specs import PassChoice


def run_blueprint_passes(
    blueprint: Blueprint, choices: Sequence[PassChoice], idle: list[PassChoice] | None = None
) -> tuple[Blueprint, tuple[PassChoice, ...]]:
    """Run the passes of this level; return the blueprint and the passes that remain.

    The first pass of the plan level runs early if the blueprint can state its result.
    Passes that change nothing are appended to `idle`, if that is given.

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
    for choice in choices[:n_first]:
        chosen = find_pass(choice.name)
        rewritten = chosen.rewrite(blueprint, **choice.options)
        if idle is not None and rewritten is blueprint:
            idle.append(choice)
        blueprint = rewritten
    remaining = tuple(choices[n_first:])
    early = find_pass(remaining[0].name).early if remaining else None
    made = None if early is None else early(blueprint, **remaining[0].options)
    return (blueprint, remaining) if made is None else (made, remaining[1:])
