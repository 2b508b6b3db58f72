"""Refusals of components whose association of operands contradicts the collective's level.

A plan that may pass the proof of its level should be found without a search among plans that may
not. So each rule is cheap, and refuses what the proof would refuse; the proof decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from collplan.planner.algorithms.registry import BLOCKS, Algorithm, registry
from collplan.planner.blueprint.blueprint import REDUCE
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.stated import Stated
from collplan.specs import AlgorithmChoice, AlgorithmsByRole, Decomposition, Method, PlanSpec
from collplan.specs.collectives.collective_base import Reproducible

_OUT: Final = "or ask for collective.reproducible: ranks"


def one_block(
    algorithm: Algorithm, options: Mapping[str, Any], level: Reproducible | None
) -> str | None:
    """Return why an algorithm may not cut a vector into several blocks; None if it may.

    Parameters
    ----------
    algorithm : Algorithm
    options : mapping
        Its options, with a number of blocks if it has that option.
    level : str or None
        Level of the collective.
    """
    is_free = level in (None, "ranks") or not algorithm.combines or algorithm.has_one_tree
    if is_free or options.get(BLOCKS, 1) == 1:
        return None
    return (
        f"algorithms.blocks: {options[BLOCKS]} blocks are combined in other orders than one, and "
        f"collective.reproducible is {level}; use blocks: 1, {_OUT}"
    )


def require_uncut(spec: PlanSpec, whole: Sequence[Stated], sliced: Sequence[Stated]) -> None:
    """Raise `AlgorithmError` if slices of a vector may be combined in other orders than the vector.

    Parameters
    ----------
    spec : PlanSpec
    whole, sliced : sequence of Stated
        Components of the vector, and of one of its slices.
    """
    if spec.collective.level != "runs":
        return
    names = [[one.algorithm for one in parts] for parts in (whole, sliced)]
    combining = [
        one for one in whole if one.component.traits.has_op or one.component.kind == REDUCE
    ]
    if names[0] != names[1] or not all(_has_whole_tree(one, spec) for one in combining):
        raise AlgorithmError(
            "passes.slice_vector: slices are combined in other orders than the vector, and "
            f"collective.reproducible is runs; use segment, {_OUT}"
        )


def _has_whole_tree(part: Stated, spec: PlanSpec) -> bool:
    """Return whether a component combines all elements of a vector in the same tree."""
    is_whole = bool((part.component.given.totals == spec.collective.count).all())
    return is_whole and part.algorithm.has_one_tree


def without_blocks(method: Method) -> Method:
    """Return a method in which no algorithm cuts vectors into blocks, and all shares are equal."""
    algorithms = method.algorithms
    if isinstance(algorithms, AlgorithmsByRole):
        roles = {role: _in_one_block(choice) for role, choice in algorithms.roles.items()}
        algorithms = AlgorithmsByRole(roles=roles)
    else:
        algorithms = _in_one_block(algorithms)
    equal = _with_equal_shares(method.decomposition)
    return method.replace(algorithms=algorithms, decomposition=equal)


def _in_one_block(choice: AlgorithmChoice) -> AlgorithmChoice:
    """Return a choice with one block, if the algorithms of its name can cut vectors."""
    combining = [one for kind in registry.kinds() for one in registry.of(kind) if one.combines]
    named = [one for one in combining if one.name == choice.name]
    are_cut = any((one.options or {}).get(BLOCKS, 1) != 1 for one in named)
    if BLOCKS not in choice.options and not are_cut:
        return choice
    return choice.replace(options={**choice.options, BLOCKS: 1})


def _with_equal_shares(chosen: Decomposition) -> Decomposition:
    """Return a decomposition whose leaders have equal shares, at all depths."""
    nested = {
        key: _with_equal_shares(one)
        for key, one in (("node", chosen.node), ("lane", chosen.lane))
        if one is not None
    }
    equal = {} if chosen.shares == "equal" else {"shares": "equal"}
    return chosen.replace(**equal, **nested) if equal or nested else chosen
