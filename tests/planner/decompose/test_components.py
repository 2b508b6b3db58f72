"""Every algorithm as a component: on many groups at once, from and to the same memory."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.decompose import draft, second_forms
from collplan.planner.decompose.guideline import FORMS
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.select import is_regular
from collplan.planner.verify import verify
from collplan.specs import Machine
from collplan.specs.collectives.collective import COLLECTIVES
from looping import looped, naming
from oracle import REGULAR, check_result, make_spec
from structures import flavours

KINDS = [kind for kind in REGULAR if kind != "barrier"]
MACHINES = {
    "2x3": {"nodes": 2, "ranks_per_node": 3, "lanes": 2},
    "1,3,2": {"nodes": 3, "ranks_per_node": [1, 3, 2], "lanes": 2},
    "2x4": {"nodes": 2, "ranks_per_node": 4, "lanes": 2},
}
DECOMPOSITIONS = ("hierarchical", "full_lane", "multi_leader", "mesh", "guideline")


def decompositions(name, kind, n_ranks):
    if name == "multi_leader":
        return [{"name": name, "leaders": 2, "form": f} for f in (None, *second_forms(kind))]
    if name == "mesh":
        return [{"name": name, "shape": [2, n_ranks // 2]}]
    if name == "guideline":
        return [{"name": name, "form": form} for form in FORMS[kind]]
    return [name, *({"name": name, "form": form} for form in second_forms(kind))]


def specs(kind, machine, decomposition, commutative):
    """Yield a spec of every kind of call."""
    n_ranks = Machine.model_validate(machine).n_ranks
    long = 2 * n_ranks + 1
    for root, count, in_place in ((0, long, False), (n_ranks - 2, long, True), (1, 3, True)):
        yield make_spec(
            kind, "auto", 0, machine, decomposition=decomposition, root=root,
            count=count, in_place=in_place, **next(flavours(kind, commutative)),
        )  # fmt: skip


def algorithms_of(spec, commutative):
    """Return, by role and kind of a spec's components, names that serve and names that don't."""
    serving, others = {}, {}
    for component in draft(spec).components:
        if component.is_local:
            continue
        key = f"{component.role}/{component.kind}"
        sizes, regular = np.unique(component.groups.sizes), is_regular(component)
        for algorithm in registry.of(component.kind):
            refused = any(algorithm.refusal(int(n), commutative, regular) for n in sizes)
            (others if refused else serving).setdefault(key, []).append(algorithm.name)
    for key, names in others.items():
        serving[key] = [name for name in serving[key] if name not in names]
    return serving, others


# One of the three machines, in turns.
@pytest.mark.many
@pytest.mark.parametrize("name", DECOMPOSITIONS)
@looped("kind", KINDS)
@pytest.mark.long
def test_components_compute_by_any_algorithm(name, kind):
    turn = DECOMPOSITIONS.index(name) + KINDS.index(kind)
    machine = list(MACHINES.values())[turn % len(MACHINES)]
    n_ranks = Machine.model_validate(machine).n_ranks
    for decomposition in decompositions(name, kind, n_ranks):
        for commutative in (True, False) if COLLECTIVES[kind].has_op else (True,):
            for number, spec in enumerate(specs(kind, machine, decomposition, commutative)):
                check_components(spec, commutative, number + turn)


def check_components(spec, commutative, turn):
    """Prove and run every third choice of algorithms, from a turn on, and refuse others."""
    serving, others = algorithms_of(spec, commutative)
    for i in range(turn % 3, max(len(names) for names in serving.values()), 3):
        chosen = {role: names[i % len(names)] for role, names in serving.items()}
        with naming(spec.decomposition, chosen, commutative):
            plan = compile_plan(spec.replace(algorithms=chosen), is_proved=False)
            labels = {phase.algorithm for phase in plan.phases}
            assert labels >= set(chosen.values())
            verify(plan)
            check_result(plan)
    for role, names in others.items():
        with pytest.raises(AlgorithmError, match=rf"/{names[0]}: .*; use '"):
            compile_plan(spec.replace(algorithms={role: names[0]}))
