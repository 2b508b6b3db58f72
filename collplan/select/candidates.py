"""Candidates for a collective on a machine: decompositions, algorithms, segment sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.algorithms.registry import Where, registry
from collplan.planner.blueprint.blueprint import Component
from collplan.planner.decompose import draft, guideline, transpose
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.select import ANYWHERE, NATIVELY
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.phases import NATIVE
from collplan.planner.rewrite.calls import CALLED
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.estimate import known_draft
from collplan.select.shapes import (
    MANY_RANKS,
    balanced_shapes,
    leader_numbers,
    leaders_on_all_lanes,
    mesh_shapes,
    network_shapes,
    through_leaders,
)
from collplan.specs import (
    AlgorithmChoice,
    AlgorithmsByRole,
    Decomposition,
    Method,
    PassChoice,
    PlanSpec,
    Transport,
)
from collplan.specs.named_option import Algorithms
from collplan.specs.request import AUTO, MESSAGES

SEGMENTS: Final = tuple(1 << bits for bits in range(12, 19))
"""Sizes of segments to try, in bytes: 4 KiB to 256 KiB."""
_PLACES: Final[tuple[tuple[str, Where], ...]] = (("node", "inside"), ("lane", "across"))
MOST_SEGMENTS: Final = 1 << 18
"""Largest number of segments of an alltoall for which the cost of planning is worthwhile."""
MANY_HOPS: Final = 4096
"""Number of ranks or nodes from which chains and linear algorithms are not tried for vectors."""
MANY_NODES: Final = 64
"""Number of nodes from which algorithms with few rounds are tried for vectors of any length."""
WINDOWS: Final = (PassChoice(name="prioritize"), PassChoice(name="limit_requests"))
"""Passes that segments need: an order, and few requests in flight."""
MAP_RANKS: Final = PassChoice(name="map_ranks")
MAPPED: Final = "mapped"
"""Word for the pass ``map_ranks`` in names of candidates."""
FAMILIES: Final = ("flat", "hierarchical", "multi_leader", "full_lane", "mesh", "guideline")
"""Families of candidates, which are names of decompositions."""
PIPELINE: Final = "pipelined"
"""Word for pipelining algorithms in names of candidates."""
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
    """

    name: str
    method: Method
    has_segments: bool = False

    @property
    def is_native(self) -> bool:
        """Return whether the form calls the MPI library's own collectives."""
        return self.method.algorithms == NATIVELY

    def of(self, spec: PlanSpec, segment: int | None = None) -> PlanSpec:
        """Return a spec in this form, cut into segments if a size is given."""
        changes: dict[str, Any] = {}
        if segment is not None:
            changes["passes"] = (*self.method.passes, *segmented(segment))
        if self.method.transport == MESSAGES and not self.is_native:
            changes["transport"] = spec.transport
        return spec.with_method(self.method.replace(**changes))

    def name_with(self, segment: int | None) -> str:
        """Return the name in tables, with the size of segments if any."""
        return self.name if segment is None else f"{self.name} {segment // 1024}KiB"


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


def likely_forms(spec: PlanSpec) -> Iterator[tuple[Decomposition, Algorithms]]:
    """Yield the decompositions and algorithms that `auto` tries, simple ones first."""
    machine, kind = spec.machine, spec.collective.planned_kind
    yield Decomposition(name="flat"), AUTO
    if kind not in guideline.FORMS or machine.n_ranks == 1:
        return
    inside, across = registry.pipelining(kind, "inside"), registry.pipelining(kind, "across")
    is_small = machine.n_ranks <= MANY_RANKS
    has_few_messages = inside == "chain" or spec.collective.is_rooted
    if is_small or (has_few_messages and machine.n_ranks <= MANY_HOPS):
        for name in dict.fromkeys((across, inside)):
            yield Decomposition(name="flat"), AlgorithmChoice(name=name)
    fullest, size = max(machine.node_to_n_ranks), machine.n_ranks
    shapes = network_shapes(machine)
    if machine.nodes > 1 and fullest > 1:
        shapes += [{"name": "hierarchical"}, {"name": "full_lane"}]
        shapes += leaders_on_all_lanes(machine) + balanced_shapes(spec)
    if kind in transpose.FORMS:
        shapes += [one | {"form": "transpose"} for one in shapes if _may_transpose(one)]
    for shape in shapes:
        yield from _likely_algorithms(spec, Decomposition.model_validate(shape))
    for length in {machine.nodes, fullest}:
        if size % length == 0 and 1 < length < size:
            yield Decomposition(name="mesh", shape=(size // length, length)), AUTO


def _may_transpose(shape: dict[str, Any]) -> bool:
    """Return whether all ranks of a node are leaders, or their shares are balanced among lanes.

    In estimates, transposed scans were never faster with fewer leaders.
    """
    return shape["name"] == "full_lane" or "shares" in shape


def _hops(component: Component) -> bool:
    """Return whether a component's pipeline passes the vector from node to node."""
    return _is_across(component) and registry.pipelining(component.kind, "across") == "chain"


def cut_alltoalls(spec: PlanSpec) -> Iterator[tuple[Decomposition, Algorithms]]:
    """Yield forms of an alltoall whose messages can be cut into segments, unlike its designs.

    Leaders are on all lanes, and their shares are in proportion to the rates of lanes. If all
    rates are equal, segments pay only if messages take turns on a lane and are not too many.
    """
    machine, collective = spec.machine, spec.collective
    shapes, kind = balanced_shapes(spec), collective.planned_kind
    n_segments = machine.n_ranks**2 * collective.count * collective.itemsize // SEGMENTS[0]
    if machine.nodes > 1 and machine.network.turn_bytes and n_segments <= MOST_SEGMENTS:
        yield Decomposition(name="flat"), AlgorithmChoice(name=registry.pipelining(kind, "across"))
        shapes = shapes or [{"name": "full_lane"}, *leaders_on_all_lanes(machine)]
    for shape in shapes:
        yield from _likely_algorithms(spec, Decomposition.model_validate(shape))


def _likely_algorithms(
    spec: PlanSpec, chosen: Decomposition
) -> Iterator[tuple[Decomposition, Algorithms]]:
    """Yield a decomposition with the planner's algorithms, and with pipelining ones."""
    by_role = AlgorithmsByRole.model_validate(
        {
            f"{role}/{kind}": registry.pipelining(kind, where)
            for role, where in _PLACES
            for kind in registry.kinds()
            if any(one.pipelines for one in registry.of(kind))
        }
    )
    yield chosen, AUTO
    parts = components_of(spec, chosen)
    if spec.machine.nodes <= MANY_HOPS or not any(map(_hops, parts)):
        yield chosen, _pipelining(parts) if parts else by_role
    vectors = [c for c in parts if _is_across(c) and not c.traits.has_blocks]
    if vectors and spec.machine.nodes >= MANY_NODES:
        quick = {f"{c.role}/{c.kind}": registry.quick(c.kind) for c in vectors}
        yield chosen, AlgorithmsByRole.model_validate(quick)


def call_of(kind: str) -> str:
    """Return the name of MPI's non-blocking call, which plans with native components make.

    Examples
    --------
    >>> call_of("allreduce")
    'MPI_Iallreduce'
    """
    return f"MPI_I{kind}"


def all_forms(spec: PlanSpec) -> tuple[Form, ...]:
    """Return all forms of a spec's collective on its machine, simple ones first.

    These are flat algorithms; decompositions through leaders (one, several, or all ranks of a
    node) with the planner's algorithms and with pipelining ones, and the main decompositions with
    each algorithm inside nodes or across them; meshes of two and three dimensions; designs of
    alltoall through shared memory; and compositions of other collectives. A form may still be
    refused because of its algorithms or the order of ranks.
    """
    kind = spec.collective.planned_kind
    forms = [
        Form(one.name, Method(algorithms=AlgorithmChoice(name=one.name)), one.streams)
        for one in registry.tried(kind, "flat")
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
    for shape in mesh_shapes(spec):
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
        Form(f"{form.name} {MAPPED}", form.method.replace(passes=(MAP_RANKS,)), form.has_segments)
        for form in forms
        if not form.is_native and (form.method.decomposition.name == "flat" or _is_plain(form))
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
    if spec.transport != MESSAGES or not spec.collective.has_data:
        return []
    if max(spec.machine.node_to_n_ranks) == 1:
        return []
    return [
        Form(f"{form.name} shared", form.method.replace(transport=SHARED), form.has_segments)
        for form in forms
        if form.method.transport == MESSAGES and not form.is_native
    ]


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
    known = known_draft(spec.replace(decomposition=chosen, algorithms=AUTO))
    if known is None:
        spec, chosen = _on_few_nodes(spec, chosen)
        try:
            # The groups of the first node have all roles and kinds.
            node = RankPlaces.of(spec.machine).node
            first = np.flatnonzero(node == node[0])
            spec = spec.replace(decomposition=chosen, algorithms=AUTO)
            known = draft(spec, only_ranks=first, is_rough=True)
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
    few = machine.replace(nodes=2 ** len(shape), ranks_per_node=1, numa_domains=1, cores=None)
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
        kinds = [c.kind for c in components if c.role == role]
        tried = (one.name for kind in kinds for one in registry.tried(kind, "part"))
        for one in dict.fromkeys(tried):
            roles = AlgorithmsByRole(roles={role: AlgorithmChoice(name=one)})
            forms.append(Form(f"{name} {role}={one}", method.replace(algorithms=roles)))
    if components:
        forms.append(Form(f"{name} {NATIVE}", method.replace(algorithms=NATIVELY)))
    return forms


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
