"""Default algorithms of MPI libraries for a collective, as methods of plans, with prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product

import numpy as np

from collplan.libraries.decisions import (
    DECIDING,
    LibraryDecision,
    Nodes,
    RuleInputs,
    decide,
    title_of,
)
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.plan.assembly import RankPlaces
from collplan.select.candidates import Form, components_of, segmented
from collplan.select.compared import Comparison, Default
from collplan.select.entries import Entry, EstimateRequest, NotEstimated, bytes_of, estimate_all
from collplan.select.jobs import Jobs
from collplan.select.waves import MAX_TASKS
from collplan.specs import AlgorithmChoice, AlgorithmsByRole, Machine, Method, PlanSpec, Transport
from collplan.specs.request import AUTO, MESSAGES
from collplan.specs.syntax.documents import parse_yaml


def case_of(spec: PlanSpec) -> RuleInputs:
    """Return the properties of a spec that libraries' rules use."""
    machine, collective = spec.machine, spec.collective
    traits = type(collective)
    is_even = collective.regular is None and traits.has_blocks
    n_elements = collective.count * (machine.n_ranks if is_even else 1)
    if collective.is_pairwise and not is_even:
        n_elements //= machine.n_ranks
    return RuleInputs(
        kind=collective.kind,
        n_ranks=machine.n_ranks,
        nodes=_nodes(machine),
        n_elements=n_elements,
        itemsize=collective.itemsize,
        has_blocks=traits.has_blocks,
        commutes=collective.is_commutative,
        is_built_in=collective.op is None or collective.op.is_builtin,
        is_in_place=bool(collective.in_place),
        is_in_node_order=bool((np.diff(RankPlaces.of(machine).node) >= 0).all()),
        domain_size=max(1, min(machine.node_to_n_ranks) // machine.numa_domains),
    )


def _nodes(machine: Machine) -> Nodes:
    if max(machine.node_to_n_ranks) == 1:
        return "spread"
    return "one" if machine.nodes == 1 else "several"


def method_of(library: str, decision: LibraryDecision, spec: PlanSpec) -> Method | None:
    """Return the method whose plan does the same as a library's algorithm; None if there is none.

    Components of a decomposition run the library's algorithms for them.
    """
    row = decision.counterpart
    if row is None or row.none:
        return None
    said = parse_yaml(f"{{{row.plan}}}", "plan")
    assert isinstance(said, dict)
    said.pop("in_place", None)
    method = Method.model_validate(said)
    segment = decision.options.get("segment")
    if isinstance(segment, int) and bytes_of(spec) > segment:
        method = method.replace(passes=segmented(segment))
    if decision.ours is not None:
        return method.replace(algorithms=decision.ours)
    if method.algorithms != AUTO:
        return method
    algorithms, shared = _by_role(library, method, spec)
    if shared and method.transport == MESSAGES:
        method = method.replace(transport=Transport.model_validate(dict.fromkeys(shared, "shared")))
    return method.replace(algorithms=AlgorithmsByRole(roles=algorithms) if algorithms else AUTO)


def _by_role(
    library: str, method: Method, spec: PlanSpec
) -> tuple[dict[str, AlgorithmChoice], list[str]]:
    """Return the algorithms of a decomposition's components, and the roles in shared memory."""
    whole = case_of(spec)
    algorithms: dict[str, AlgorithmChoice] = {}
    shared = []
    for component in components_of(spec, method.decomposition):
        decision = decide(library, _case_of_component(component, whole, spec.machine))
        if decision is None or decision.ours is None or decision.counterpart is None:
            continue
        algorithms[f"{component.role}/{component.kind}"] = decision.ours
        if "transport: shared" in decision.counterpart.plan:
            shared.append(component.role)
    return algorithms, shared


def _case_of_component(component: Component, whole: RuleInputs, machine: Machine) -> RuleInputs:
    """Return the properties of a component's largest group that rules use."""
    groups = component.groups
    n_ranks = int(groups.sizes.max(initial=1))
    node = RankPlaces.of(machine).node[groups[int(groups.sizes.argmax())]]
    most = component.given.largest
    return RuleInputs(
        kind=component.kind,
        n_ranks=n_ranks,
        # Groups across nodes count as one rank per node, so that they are not divided again.
        nodes="one" if len(set(node.tolist())) == 1 else "spread",
        n_elements=most * (n_ranks if component.traits.has_blocks else 1),
        itemsize=whole.itemsize,
        has_blocks=component.traits.has_blocks,
        commutes=whole.commutes,
        is_built_in=whole.is_built_in,
        is_in_node_order=whole.is_in_node_order,
        domain_size=whole.domain_size,
    )


def installed() -> str | None:
    """Return the title of the MPI library whose wheel is installed; None if there is none."""
    for library in DECIDING:
        with suppress(PackageNotFoundError):
            if distribution(library).files is not None:
                return title_of(library)
    return None


def estimate_defaults(specs: Sequence[PlanSpec], jobs: Jobs, into: Comparison) -> list[Entry]:
    """Note the default of every library at every size; return an entry for each with a plan.

    Parameters
    ----------
    specs : sequence of PlanSpec
        One spec with several counts.
    jobs : Jobs
    into : Comparison
        Comparison that receives the defaults, without times.
    """
    questions, by_name = [], {}
    into.installed = installed()
    # The order in which a library combines operands is not known, and not asked for.
    for library, spec in product(DECIDING, [one.with_level("ranks") for one in specs]):
        decision = decide(library, case_of(spec))
        if decision is None:
            continue
        title, method = title_of(library), method_of(library, decision, spec)
        found = Default(str(decision), decision.remark, method)
        into.defaults.setdefault(title, {})[bytes_of(spec)] = found
        if method is not None:
            name = f"{title} at {bytes_of(spec)}"
            by_name[name] = found
            questions.append(EstimateRequest(Form(name, method), spec, ()))
    refused: dict[str, str] = {}
    entries = []
    for answer in estimate_all(questions, jobs.estimate, refused):
        if isinstance(answer, NotEstimated):
            refused[answer.question.form.name] = (
                f"its estimate takes more {answer.by} than there is"
            )
        else:
            entries.append(answer)
    for name, refusal in refused.items():
        by_name[name].refusal = refusal
    return entries


def price_defaults(
    entries: Sequence[Entry], by_size: Mapping[int, Sequence[Entry]], jobs: Jobs, into: Comparison
) -> None:
    """Price the defaults of libraries.

    Plans that were simulated as candidates are not simulated again. Large plans, and those for
    which no time is left, get their closed form.

    Parameters
    ----------
    entries : sequence of Entry
        Entries that `estimate_defaults` returned.
    by_size : mapping of int to sequence of Entry
        Candidates by bytes.
    jobs : Jobs
    into : Comparison
        Comparison whose defaults receive times.
    """
    known = {
        (size, entry.estimate.identity): into.makespans[entry.name, size]
        for size, candidates in by_size.items()
        for entry in candidates
        if (entry.name, size) in into.makespans
    }
    waiting: dict[tuple[int, str], list[Default]] = {}
    first: list[Entry] = []
    for entry in entries:
        size = entry.size
        title = entry.form.name.rpartition(" at ")[0]
        found, plan = into.defaults[title][size], (size, entry.estimate.identity)
        if plan in known:
            found.makespan_s = known[plan]
        elif entry.estimate.effort > MAX_TASKS or jobs.left_s <= 0:
            found.estimate_s = entry.estimate.price_s
        else:
            if plan not in waiting:
                first.append(entry)
            waiting.setdefault(plan, []).append(found)
    efforts = [entry.estimate.effort for entry in first]
    prices = jobs.price("defaults of libraries", [entry.spec for entry in first], efforts)
    for some, priced in zip(waiting.values(), prices, strict=True):
        for found in some:
            found.makespan_s, found.refusal = priced.makespan_s, priced.refusal
