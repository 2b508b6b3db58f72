"""Candidates for a collective on a machine: decompositions, algorithms, segment sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from collplan.planner.algorithms.registry import registry
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.decompose import guideline
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.select import ANYWHERE, NATIVELY
from collplan.planner.plan.phases import NATIVE
from collplan.planner.rewrite.calls import CALLED
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.cuts import Cut, Slices
from collplan.select.estimate import FEW_RANKS, draft_of_sample
from collplan.select.shapes import every_mesh, leader_numbers, mesh_shapes, through_leaders
from collplan.specs import (
    AlgorithmChoice,
    AlgorithmsByRole,
    Decomposition,
    Method,
    PassChoice,
    PlanSpec,
    Transport,
)
from collplan.specs.request import AUTO, MESSAGES

SEGMENTS: Final = tuple(1 << bits for bits in range(12, 19))
"""Sizes of segments to try, in bytes: 4 KiB to 256 KiB."""
WINDOWS: Final = (PassChoice(name="prioritize"), PassChoice(name="limit_requests"))
"""Passes that segments need: an order, and few requests in flight."""
MAP_RANKS: Final = PassChoice(name="map_ranks")
MAPPED: Final = "mapped"
"""Word for the pass ``map_ranks`` in names of candidates."""
DIMENSIONS: Final = (2, 3)
"""Numbers of mesh dimensions that are tried; more dimensions were never faster."""
FAMILIES: Final = ("flat", "hierarchical", "multi_leader", "full_lane", "mesh", "guideline")
"""Families of candidates, which are names of decompositions."""
PIPELINE: Final = "pipelined"
"""Word for pipelining algorithms in names of candidates."""
PACKED: Final = AlgorithmChoice(name="packed")
"""Algorithms that are packed into the links of a topology."""
MOST_PACKED: Final = 256
MOST_PACKED_PAIRS: Final = 64
"""Greatest numbers of nodes for which packed algorithms are tried, the second for alltoall."""
_ALL_BLOCKS: Final = ("allgather", "reduce_scatter")
"""Collectives in which every rank sends or receives the blocks of all ranks."""
SHARED: Final = Transport(name="shared")
"""Transport through the shared memory of nodes."""


@dataclass(frozen=True)
class Form:
    """A method with its name in tables, for any size.

    Parameters
    ----------
    name : str
        Name in tables.
    method : Method
        Method of the plan. If its transport is messages, and it is not native, the transport of
        the spec replaces that of the method.
    has_segments : bool
        Whether segments can make the plan faster.
    is_variant : bool
        Whether the form is a variant of a decomposition, which a search with a small budget tries
        only if simpler forms of this decomposition are near the best.
    """

    name: str
    method: Method
    has_segments: bool = False
    is_variant: bool = False

    @property
    def is_native(self) -> bool:
        """Return whether the form calls the MPI library's own collectives."""
        return self.method.algorithms == NATIVELY

    def of(self, spec: PlanSpec, cut: Cut = None) -> PlanSpec:
        """Return a spec in this form, with cut messages if a cut is given."""
        changes: dict[str, Any] = {}
        if isinstance(cut, Slices):
            limit = spec.machine.network.eager_limit_bytes
            first, *later = sliced(cut.number, are_eager=cut.crossing_bytes <= limit)
            changes["passes"] = (first, *self.method.passes, *later)
        elif cut is not None:
            changes["passes"] = (*self.method.passes, *segmented(cut))
        if self.method.transport == MESSAGES and not self.is_native:
            changes["transport"] = spec.transport
        return spec.with_method(self.method.replace(**changes))

    def name_with(self, cut: Cut) -> str:
        """Return the name in tables, with the size of segments or the number of slices if any."""
        if isinstance(cut, Slices):
            return f"{self.name} {cut}"
        return self.name if cut is None else f"{self.name} {cut // 1024}KiB"


EAGER_LIMITS: Final = {"remote": 0, "local": 8}
"""Limits of requests for eager messages. A send to another node completes before its receiver is
ready, so that it needs no limit. In simulations of 42 plans in eager slices these limits gave 0.10
to 1.13 times the makespan of the default ones; for chains of ranks, 0.10 to 0.56."""


def sliced(n_slices: int, *, are_eager: bool) -> tuple[PassChoice, ...]:
    """Return the passes that slice a vector and limit requests, each rank by its own program.

    Parameters
    ----------
    n_slices : int
        Number of slices.
    are_eager : bool
        Whether messages of a slice between nodes are not longer than the eager limit.
    """
    limits = {"order": "rows"} | (EAGER_LIMITS if are_eager else {})
    return (
        PassChoice(name="slice_vector", options={"slices": n_slices}),
        PassChoice(name="limit_requests", options=limits),
    )


def segmented(max_bytes: int) -> tuple[PassChoice, ...]:
    """Return the passes that cut a plan into segments and order them."""
    return (PassChoice(name="segment", options={"max_bytes": max_bytes}), *WINDOWS)


def call_of(kind: str) -> str:
    """Return the name of MPI's non-blocking call, which plans with native components make.

    Examples
    --------
    >>> call_of("allreduce")
    'MPI_Iallreduce'
    """
    return f"MPI_I{kind}"


def all_forms(spec: PlanSpec, *, all_meshes: bool = False) -> tuple[Form, ...]:
    """Return all forms of a spec's collective on its machine, simple ones first.

    These are flat algorithms; decompositions through leaders (one, several, or all ranks of a
    node) with the planner's algorithms and with pipelining ones, and the main decompositions with
    each algorithm inside nodes or across them; meshes of two and three dimensions; designs of
    alltoall through shared memory; and compositions of other collectives. A form may still be
    refused because of its algorithms or the order of ranks.

    Parameters
    ----------
    spec : PlanSpec
        Only its machine and its collective are used.
    all_meshes : bool
        Whether to return all meshes, instead of those along nodes and those nearly square.
    """
    kind = spec.collective.planned_kind
    forms = [
        Form(one.name, Method(algorithms=AlgorithmChoice(name=one.name)), one.streams)
        for one in registry.tried(kind, "flat", spec.collective.level)
        if not one.is_packed or packs_links(spec, max(spec.machine.node_to_n_ranks))
    ]
    if kind in CALLED:
        forms.append(Form(call_of(kind), Method(algorithms=NATIVELY)))
    if kind not in guideline.FORMS or spec.machine.n_ranks == 1:
        return (*forms, *mapped_forms(spec, forms))
    machine = spec.machine
    for chosen in through_leaders(spec):
        # Variants of the main decompositions are only tried with the planner's algorithms.
        by_domain = chosen.by == "numa" and machine.nodes > 1
        is_main = chosen.leaders is None and chosen.shares == "equal"
        is_thorough = is_main and not by_domain
        forms += with_algorithms(spec, chosen, is_thorough=is_thorough)
    shapes = mesh_shapes(spec)
    if all_meshes:
        shapes = [shape for n in DIMENSIONS for shape in every_mesh(machine.n_ranks, n)]
    for shape in shapes:
        chosen = Decomposition(name="mesh", shape=shape)
        forms += with_algorithms(spec, chosen, is_thorough=False)
    forms += mapped_forms(spec, forms)
    forms += _designs(spec)
    for form in guideline.FORMS[kind]:
        chosen = Decomposition(name="guideline", form=form)
        name, method = name_of(chosen), Method(decomposition=chosen)
        forms.append(Form(name, method))
        forms.append(Form(f"{name} {NATIVE}", method.replace(algorithms=NATIVELY)))
    return tuple(forms)


def mapped_forms(spec: PlanSpec, forms: Sequence[Form]) -> list[Form]:
    """Return the simple forms with ranks mapped to the network's topology, if there is one.

    Simple forms are flat ones, and those through leaders with the planner's algorithms.
    """
    if spec.machine.network.topology is None:
        return []
    return [
        replace(form, name=f"{form.name} {MAPPED}", method=form.method.replace(passes=(MAP_RANKS,)))
        for form in forms
        if not form.is_native
        and form.method.algorithms != PACKED
        and (form.method.decomposition.name == "flat" or _is_plain(form))
    ]


def _is_plain(form: Form) -> bool:
    chosen = form.method.decomposition
    is_by_node = chosen.name in ("hierarchical", "full_lane", "multi_leader")
    is_by_node &= chosen.by == "node" and chosen.shares == "equal"
    return is_by_node and form.method.algorithms == AUTO


def shared_forms(spec: PlanSpec, forms: Sequence[Form]) -> list[Form]:
    """Return the same forms through shared memory, if several ranks share a node.

    There are none if the spec itself names a transport.
    """
    if spec.transport != MESSAGES:
        return []
    if max(spec.machine.node_to_n_ranks) == 1:
        return []
    return [
        replace(form, name=f"{form.name} shared", method=form.method.replace(transport=SHARED))
        for form in forms
        if form.method.transport == MESSAGES and not form.is_native
    ]


def searched_forms(spec: PlanSpec) -> list[Form]:
    """Return the forms that a spec with ``decomposition: auto`` leaves to choose from.

    The times of forms that call the MPI library's own collectives depend on the library, so these
    are left out. The passes and the transport that the spec names replace those of the forms. A
    form by messages is a variant of the same form through shared memory, if there is one.
    """
    found: dict[Method, Form] = {}
    forms = list(all_forms(spec))
    shared = shared_forms(spec, forms)
    twins = {form.method.replace(transport=MESSAGES) for form in shared}
    for form in (*forms, *shared):
        if form.is_native or _is_slow_to_plan(spec, form):
            continue
        if form.method in twins:
            form = replace(form, is_variant=True)
        if spec.passes:
            method = form.method.replace(passes=spec.passes)
            form = replace(form, method=method, has_segments=False)
        if spec.transport != MESSAGES:
            form = replace(form, method=form.method.replace(transport=spec.transport))
        found.setdefault(form.method, form)
    return list(found.values())


def _is_slow_to_plan(spec: PlanSpec, form: Form) -> bool:
    """Return whether the plan of a form is known to take seconds on a large machine.

    These are the plans of meshes whose rows are not the nodes, which rarely fold, and of algorithms
    whose messages gather blocks of many ranks, or of many pairs of ranks.
    """
    machine, kind = spec.machine, spec.collective.planned_kind
    choice, chosen = form.method.algorithms, form.method.decomposition
    if machine.n_ranks <= FEW_RANKS:
        return False
    if chosen.shape is not None:
        return chosen.shape[1:] != (max(machine.node_to_n_ranks),)
    if chosen.name == "guideline":
        return spec.collective.is_pairwise or any(one in str(chosen.form) for one in _ALL_BLOCKS)
    if spec.collective.is_pairwise:
        names = {name for _, name in form.method.named_algorithms(kind)}
        return any(one.name in names and one.per_pair == 0 for one in registry.of(kind))
    if chosen.name != "flat" or not isinstance(choice, AlgorithmChoice):
        return False
    one = registry.find(kind, choice.name)
    gathers = kind.removesuffix("_block") in _ALL_BLOCKS
    return not one.forwards and (gathers or one.parts == "size")


def own_form(spec: PlanSpec) -> Form | None:
    """Return the form that a spec names; None if it leaves everything to the planner."""
    chosen, algorithms, passes = spec.decomposition, spec.algorithms, spec.passes
    if chosen.name == "flat" and algorithms == AUTO and not passes:
        return None
    words = [] if chosen.name == "flat" and algorithms != AUTO else [name_of(chosen)]
    if isinstance(algorithms, AlgorithmsByRole):
        words += [f"{role}={choice}" for role, choice in algorithms.roles.items()]
    elif algorithms != AUTO:
        words.append(str(algorithms))
    words += [str(choice) for choice in passes]
    return Form(" ".join(words), spec.method)


def require_known_algorithms(spec: PlanSpec) -> None:
    """Raise `AlgorithmError` if a spec names an algorithm that no collective has.

    Other candidates that cannot be compiled are listed with the reason. A misspelled name is an
    error of the user, which a list would hide.
    """
    kind = spec.collective.planned_kind
    known = {one.name for each in registry.kinds() for one in registry.of(each)}
    for of, name in spec.method.named_algorithms(kind):
        if name not in ANYWHERE and (of or name not in known):
            registry.find(of or kind, name)


def name_of(chosen: Decomposition) -> str:
    """Return a decomposition's name in tables.

    Examples
    --------
    >>> name_of(Decomposition(name="mesh", shape=(4, 8)))
    'mesh 4x8'
    >>> name_of(Decomposition(name="multi_leader", leaders=2, form="transpose"))
    'multi_leader 2 transpose'
    """
    shape = chosen.shape and "x".join(map(str, chosen.shape))
    by = None if chosen.by == "node" else chosen.by
    shares = None if chosen.shares == "equal" else chosen.shares
    words = [chosen.name, chosen.leaders, shape, by, chosen.form, shares]
    words += [f"{key}={name_of(part)}" for key, part in _nested(chosen)]
    return " ".join(str(word) for word in words if word is not None)


def _nested(chosen: Decomposition) -> list[tuple[str, Decomposition]]:
    parts = (("node", chosen.node), ("lane", chosen.lane))
    return [(key, part) for key, part in parts if part is not None]


def components_of(spec: PlanSpec, chosen: Decomposition) -> list[Component]:
    """Return a component of every role and kind of a decomposition; none if it is refused."""
    few, chosen = _on_few_nodes(spec, chosen)
    try:
        known = draft_of_sample(few.replace(decomposition=chosen, algorithms=AUTO))
    except AlgorithmError:
        return []
    by_key = {(c.role, c.kind): c for c in known.components if not c.is_local}
    return list(by_key.values())


def _on_few_nodes(spec: PlanSpec, chosen: Decomposition) -> tuple[PlanSpec, Decomposition]:
    """Return an alltoall and a decomposition with the same roles and kinds on fewer ranks.

    Other collectives, and machines whose nodes or rank order are listed, are returned unchanged.
    """
    machine = spec.machine
    is_regular = isinstance(machine.ranks_per_node, int) and isinstance(machine.rank_order, str)
    if not spec.collective.is_pairwise or not is_regular or machine.nodes < 2:
        return spec, chosen
    if spec.collective.regular is not None:
        return spec, chosen
    if chosen.shape is None:
        return spec.replace(machine=machine.replace(nodes=2)), chosen
    shape = (2,) * len(chosen.shape)
    few = machine.replace(
        nodes=2 ** len(shape),
        ranks_per_node=1,
        numa_domains=1,
        cores=None,
        # A topology may have fewer hosts, and no role or kind depends on it.
        network=machine.network.replace(topology=None),
    )
    return spec.replace(machine=few), chosen.replace(shape=shape)


def with_algorithms(spec: PlanSpec, chosen: Decomposition, *, is_thorough: bool) -> list[Form]:
    """Return forms of a decomposition with different algorithms."""
    name, components = name_of(chosen), components_of(spec, chosen)
    method = Method(decomposition=chosen)
    forms = [Form(name, method)]
    if components:
        roles = _pipelining(components)
        forms.append(Form(f"{name} {PIPELINE}", method.replace(algorithms=roles), True))
    for role in dict.fromkeys(c.role for c in components if is_thorough):
        parts, level = [c for c in components if c.role == role], spec.collective.level
        packs = all(map(_is_across, parts)) and packs_links(spec, 1)
        tried = (
            one.name
            for part in parts
            for one in registry.tried(part.kind, "part", level)
            if packs or not one.is_packed
        )
        for one in dict.fromkeys(tried):
            roles = AlgorithmsByRole(roles={role: AlgorithmChoice(name=one)})
            whole = f"{name} {role}={one}"
            forms.append(Form(whole, method.replace(algorithms=roles), is_variant=True))
    if components and all(c.kind in CALLED for c in components):
        forms.append(Form(f"{name} {NATIVE}", method.replace(algorithms=NATIVELY)))
    return forms


def packs_links(spec: PlanSpec, n_together: int) -> bool:
    """Return whether the candidates include algorithms that are packed into the topology's links.

    Parameters
    ----------
    spec : PlanSpec
    n_together : int
        Greatest number of ranks of a group on one node.
    """
    most = MOST_PACKED_PAIRS if spec.collective.is_pairwise else MOST_PACKED
    has_links = spec.machine.network.topology is not None
    return has_links and n_together == 1 and 1 < spec.machine.nodes <= most


def _pipelining(components: Sequence[Component]) -> AlgorithmsByRole:
    """Return the algorithms of components that forward one segment while they receive the next."""
    return AlgorithmsByRole(
        roles={
            f"{c.role}/{c.kind}": AlgorithmChoice(
                name=registry.pipelining(c.kind, "across" if _is_across(c) else "inside")
            )
            for c in components
        }
    )


def alltoall_forms(spec: PlanSpec) -> list[Form]:
    """Return the useful designs of alltoall on a machine, flat ones first.

    The leaders are all ranks of a node, one rank, or another number of ranks. On a single node
    there are no leaders, and shared memory replaces messages.
    """
    machine = spec.machine
    made = {name: design.of(spec).method for name, design in DESIGNS.items()}
    forms = [Form(name, method) for name, method in made.items()]
    flat = [form for form in forms if form.method.decomposition.name == "flat"]
    fullest = max(machine.node_to_n_ranks)
    if fullest == 1:
        return flat
    if machine.nodes == 1:
        return [*flat, *(form for form in forms if form.name == "ohio_v1")]
    forms = [*flat, *(form for form in forms if form.method.decomposition.name != "flat")]
    for name in ("node_aware", "khorassani"):
        form = made[name].decomposition.form
        for leaders in leader_numbers(machine.n_lanes, fullest):
            chosen = Decomposition(name="multi_leader", leaders=leaders, form=form)
            method = made[name].replace(decomposition=chosen, algorithms=AUTO)
            forms.append(Form(name_of(chosen), method))
    return forms


def _designs(spec: PlanSpec) -> list[Form]:
    """Return the designs of alltoall through the shared memory of nodes."""
    if not spec.collective.is_pairwise:
        return []
    return [form for form in alltoall_forms(spec) if form.method.transport == SHARED]


def _is_across(component: Component) -> bool:
    """Return whether a component runs along lanes or columns."""
    return component.role.rpartition(".")[2] in ("lane", "column")
