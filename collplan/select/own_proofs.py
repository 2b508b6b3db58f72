"""Proofs of algorithms of the user's own before their plans are compared."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from collplan.planner.algorithms.registry import registry
from collplan.planner.compiler.compile import compile_plan, prove_spec
from collplan.planner.errors import AlgorithmError, OwnCodeError, PlanError
from collplan.select.candidates import Form
from collplan.specs import Machine, PlanSpec
from collplan.specs.request import FLAT

FEW: Final = (12, 8)
"""Numbers of ranks on which an algorithm is proved if the plan on the machine is too large."""
WRONG: Final = "is wrong"
"""Beginning of the reason why a wrong algorithm is left out."""


def uses_own(form: Form, kind: str) -> bool:
    """Return whether a form names an algorithm of the user's own."""
    return any(
        registry.is_own(of, name)
        for part, name in form.method.named_algorithms(kind)
        for of in ([part] if part else registry.kinds())
    )


@lru_cache(maxsize=256)
def prove_own(spec: PlanSpec) -> None:
    """Prove the plan of a spec with an algorithm of the user's own, or a smaller plan of it.

    If the plan would have more than 100,000 tasks, its flat algorithm is proved on `FEW` ranks.

    Raises
    ------
    PlanError
        If the plan is wrong.
    AlgorithmError
        If the algorithm does not support these ranks, or its steps are no steps.
    """
    prove_spec(spec)
    if spec.decomposition != FLAT or spec.collective.regular:
        return
    for size in FEW:
        if size >= spec.machine.n_ranks or (spec.collective.root or 0) >= size:
            continue
        few = spec.replace(machine=Machine(ranks_per_node=size), passes=())
        try:
            compile_plan(few)
        except AlgorithmError:
            continue  # not for this number of ranks


def without_wrong(
    spec: PlanSpec, forms: Iterable[Form], named: Form | None, refused: dict[str, str]
) -> list[Form]:
    """Return forms without those whose algorithms of the user's own are wrong.

    Parameters
    ----------
    spec : PlanSpec
        A spec of the comparison.
    forms : iterable of Form
        All forms.
    named : Form or None
        The form that the spec itself names.
    refused : dict of str to str
        Takes the reasons for other forms, by name.

    Raises
    ------
    PlanError or OwnCodeError
        If the form that the spec names is wrong.
    """
    kept = []
    for form in forms:
        try:
            if uses_own(form, spec.collective.planned_kind):
                prove_own(form.of(spec))
        except (PlanError, OwnCodeError) as error:
            if named is not None and form.method.algorithms == named.method.algorithms:
                raise type(error)(f"{form.name}: {error}") from None
            refused[form.name] = f"{WRONG}: {error}"
            continue
        except AlgorithmError:
            pass  # the estimate says why
        kept.append(form)
    return kept
