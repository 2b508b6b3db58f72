"""Selection of each component's algorithm: from the spec, or by message size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from collplan.planner.algorithms import Algorithm, registry
from collplan.planner.algorithms.closed_forms import Traffic, best_blocks
from collplan.planner.algorithms.registry import BLOCKS, LOCAL, PER_NODE, Use
from collplan.planner.algorithms.rounds import require_at_least
from collplan.planner.arrays import csr
from collplan.planner.blueprint.blueprint import Blueprint, Component
from collplan.planner.blueprint.regions import PairTable
from collplan.planner.errors import AlgorithmError
from collplan.planner.lowering.mpich_rules import mpich_algorithm
from collplan.planner.lowering.reproducible import one_block
from collplan.planner.lowering.stated import Stated
from collplan.planner.lowering.traffic import has_unlike_blocks, is_uneven, traffic_of
from collplan.planner.packing.schedule import Demand, pack
from collplan.planner.plan.assembly import RankPlaces
from collplan.planner.plan.phases import NATIVE, is_inside
from collplan.specs import AlgorithmChoice, AlgorithmsByRole, PlanSpec
from collplan.specs.collectives.collective import traits_of
from collplan.specs.errors import suggest

LONG_BYTES = 64 * 1024
"""Number of bytes from which a vector (or block) is long."""

HOP_BYTES = 1024
"""Number of bytes per rank from which a vector's parts justify separate rounds."""

MOST_PIECES = 1 << 20
"""Maximum number of parts that all ranks of an allgather receive, as more are slow to compile."""

AUTO = AlgorithmChoice(name="auto")
NATIVELY = AlgorithmChoice(name=NATIVE)
"""The MPI library's own collectives, in all roles."""
MPICH = AlgorithmChoice(name="mpich")
LIBRARIES = {MPICH.name: mpich_algorithm}
"""Names of the default choices of MPI libraries."""
ANYWHERE = (AUTO.name, NATIVE, *LIBRARIES)
"""Names that every collective and role accepts, besides those of its algorithms."""


def state(blueprint: Blueprint) -> list[Stated]:
    """Return every component of a blueprint with its algorithm.

    Raises
    ------
    AlgorithmError
        If the spec names an algorithm that is unknown, unsuitable, or that no component can
        use.
    """
    choices = _Choices(blueprint)
    stated = [choices.state(component) for component in blueprint.components]
    choices.require_all_used()
    return stated


def priced_spec(spec: PlanSpec) -> PlanSpec:
    """Return a spec in which MPICH's default algorithms replace MPI's own collectives.

    Parameters
    ----------
    spec : PlanSpec

    Returns
    -------
    PlanSpec
        `spec` itself if it names no native algorithm.

    Raises
    ------
    AlgorithmError
        If these would combine operands in an order of their own, which the level of the collective
        does not allow.
    """
    algorithms = spec.algorithms
    if spec.collective.level not in (None, "ranks"):
        _refuse_native(spec)
    if isinstance(algorithms, AlgorithmChoice):
        is_native = algorithms.name == NATIVE
        return spec.replace(algorithms=MPICH) if is_native else spec
    if all(choice.name != NATIVE for choice in algorithms.roles.values()):
        return spec
    roles = {
        role: MPICH if choice.name == NATIVE else choice
        for role, choice in algorithms.roles.items()
    }
    return spec.replace(algorithms=AlgorithmsByRole(roles=roles))


def _refuse_native(spec: PlanSpec) -> None:
    """Raise `AlgorithmError` if a spec may have the MPI library combine operands."""
    for kind, name in spec.method.named_algorithms(spec.collective.planned_kind):
        if name == NATIVE and (kind is None or traits_of(kind).has_op):
            raise AlgorithmError(
                f"algorithms: native: collective.reproducible is {spec.collective.level}, and the "
                "MPI library decides in which order it combines operands; use auto"
            )


def is_regular(component: Component) -> bool:
    """Return whether the blocks of an alltoall have the same size in every group."""
    if not component.traits.is_pairwise or isinstance(component.given, PairTable):
        return True
    totals, start = component.given.totals, 0
    for size in component.groups.sizes:
        pairs = totals[start : start + size * size]
        start += size * size
        if (pairs != pairs[0]).any():
            return False
    return True


class _Choices:
    """The algorithms that a spec names, and a record of those that were used."""

    def __init__(self, blueprint: Blueprint) -> None:
        spec = blueprint.spec
        self.blueprint = blueprint
        self.commutative = spec.collective.may_reorder
        self.level = spec.collective.level
        self.itemsize = spec.collective.itemsize
        self.by_role: Mapping[str, AlgorithmChoice] = {}
        self.single = AUTO
        self.kinds: dict[str, set[str]] = {}
        for component in blueprint.components:
            if not component.is_local:
                self.kinds.setdefault(component.role, set()).add(component.kind)
        self.used: set[str] = set()
        if isinstance(spec.algorithms, AlgorithmsByRole):
            self.by_role = spec.algorithms.roles
        else:
            self.single = spec.algorithms
            self._require_single()

    def _require_single(self) -> None:
        """Raise if the single named algorithm does not exist, is unsuitable, or is ambiguous."""
        spec, name = self.blueprint.spec, self.single.name
        is_flat = self.blueprint.decomposition.name == "flat"
        if name in ("auto", *LIBRARIES) or (name == NATIVE and not is_flat):
            return
        if is_flat:
            kind, size = spec.collective.planned_kind, spec.machine.n_ranks
            algorithm = registry.find(kind, name)
            is_regular = spec.collective.regular is None
            options = _options(algorithm, self.single)
            limits = size, self.commutative, is_regular
            registry.require(algorithm, *limits, **self._limits(options))
            return
        first = next(iter(self.kinds), "node")
        raise AlgorithmError(
            f"algorithms: {name} is one algorithm, {self.blueprint.decomposition} takes one per "
            f"role; write {{{first}: {name}}} or auto"
        )

    def state(self, component: Component) -> Stated:
        """Return a component with its algorithm."""
        if component.is_local:
            return Stated(component, LOCAL[component.kind])
        choice, key, is_required = self._find(component)
        if choice.name in LIBRARIES:
            self.used.add(key)
            algorithm = LIBRARIES[choice.name](component, self.itemsize, self.commutative)
            self._require(algorithm, component, algorithm.options)
            return self._stated(component, algorithm, dict(algorithm.options or {}))
        names = {NATIVE, *(algorithm.name for algorithm in registry.of(component.kind))}
        if choice.name == "auto" or (choice.name not in names and not is_required):
            algorithm = self._preferred(component)
            return self._stated(component, algorithm, dict(algorithm.options or {}))
        algorithm = registry.find(component.kind, choice.name)
        self.used.add(key)
        options = _options(algorithm, choice)
        self._require(algorithm, component, options)
        return self._stated(component, algorithm, options)

    def _require(
        self, algorithm: Algorithm, component: Component, options: Mapping[str, Any] | None
    ) -> None:
        """Raise `AlgorithmError` if an algorithm does not work for a component."""
        for size in np.unique(component.groups.sizes).tolist():
            limits = size, self.commutative, is_regular(component)
            registry.require(algorithm, *limits, **self._limits(options))

    def _limits(self, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what else decides whether an algorithm works."""
        has_topology = self.blueprint.spec.machine.network.topology is not None
        return {"level": self.level, "options": options, "has_topology": has_topology}

    def _stated(
        self, component: Component, algorithm: Algorithm, options: dict[str, Any]
    ) -> Stated:
        """Return a component with its algorithm, and the options that depend on the component."""
        if options.get(PER_NODE) == AUTO.name:
            options[PER_NODE] = self._ranks_per_node(component)
        if algorithm.is_packed:
            return self._packed(component, algorithm, options)
        if algorithm.parts in ("blocks", "size") and BLOCKS in options:
            most = max(1, component.given.largest)
            n_blocks = options[BLOCKS]
            if n_blocks == AUTO.name:
                n_blocks = self._best_blocks(component, algorithm)
                if one_block(algorithm, {BLOCKS: n_blocks}, self.level) is not None:
                    n_blocks = 1
            require_at_least(n_blocks, BLOCKS, 1)
            options[BLOCKS] = min(n_blocks, most)
            if (why := one_block(algorithm, options, self.level)) is not None:
                raise AlgorithmError(why)
        return Stated(component, algorithm, options)

    def _packed(
        self, component: Component, algorithm: Algorithm, options: dict[str, Any]
    ) -> Stated:
        """Return a component whose messages are packed into the links of the topology."""
        groups, given, most = component.groups, options.get(BLOCKS), component.given.largest
        n_parts = None
        if given not in (None, AUTO.name):
            n_parts = min(require_at_least(given, BLOCKS, 1), max(1, most))
        demand = Demand(
            component.kind, groups.ranks, groups.indptr, component.root, most * self.itemsize
        )
        packing = pack(self.blueprint.spec.machine, demand, n_parts)
        if BLOCKS in options:
            options[BLOCKS] = packing.n_parts
        return Stated(component, algorithm, options, packing)

    def _find(self, component: Component) -> tuple[AlgorithmChoice, str, bool]:
        """Return the algorithm named for a component, its key, and whether it is required."""
        role = component.role
        for key in _keys(role, component.kind):
            if key in self.by_role:
                self.used.add(key)
                return self.by_role[key], key, True
        if role in self.by_role:
            return self.by_role[role], role, False
        # A single name applies to the one component of a flat plan.
        return self.single, role, True

    def _preferred(self, component: Component) -> Algorithm:
        """Return the default algorithm: few rounds below `LONG_BYTES`, few bytes otherwise.

        Long vectors with short parts per rank use no algorithm of p rounds. If blocks differ in
        size, the smallest closed form decides, if the algorithms have any. Otherwise algorithms
        for such blocks are preferred from `UNEVEN` times the mean on.
        """
        kind = component.kind
        n_bytes = component.given.largest * self.itemsize
        is_long = n_bytes >= LONG_BYTES
        uses: list[Use] = ["long", "short"] if is_long else ["short"]
        if is_uneven(component):
            uses.insert(0, "uneven")
        if self._shares_memory(component):
            # All ranks read the staged data of all others. Other algorithms would distribute work
            # that does not exist in this case, and would make ranks wait more often.
            uses.insert(0, "shared")
        limits = self.commutative, is_regular(component)
        sizes = np.unique(component.groups.sizes).tolist()
        found = [
            algorithm
            for use in uses
            for algorithm in registry.preferred(kind, use)
            if all(algorithm.refusal(size, *limits, level=self.level) is None for size in sizes)
        ]
        is_vector = uses[0] == "long" and not component.traits.has_blocks
        if is_vector and n_bytes < HOP_BYTES * max(sizes):
            found = [algorithm for algorithm in found if not algorithm.per_pair] or found
        if uses[0] != "shared" and has_unlike_blocks(component):
            found = self._quickest(component) or found
        return found[0]

    def _quickest(self, component: Component) -> list[Algorithm]:
        """Return the algorithm with the smallest closed form for blocks of different sizes."""
        sizes = np.unique(component.groups.sizes).tolist()
        limits = self.commutative, is_regular(component)
        stated = [
            one
            for one in registry.of(component.kind)
            if one.unlike_ns
            if all(one.refusal(size, *limits, level=self.level) is None for size in sizes)
        ]
        if not stated:
            return []
        traffic = self._traffic(component)
        return [min(stated, key=lambda one: one.unlike_ns(traffic) if one.unlike_ns else math.inf)]

    def _best_blocks(self, component: Component, algorithm: Algorithm) -> int:
        """Return the number of blocks into which vectors, or the blocks of ranks, are divided.

        It is 1 if all ranks have equal parts, as then the fewest rounds have the fewest bytes.
        """
        has_parts = component.traits.has_blocks or algorithm.parts == "size"
        if has_parts and not has_unlike_blocks(component):
            return 1
        traffic = self._traffic(component)
        n_blocks = best_blocks(traffic, algorithm.filling_rounds(traffic.size))
        if not component.traits.has_blocks:
            return n_blocks
        # Each part that a rank receives is a piece of memory.
        sizes = component.groups.sizes.astype(np.int64)
        n_filled = np.add.reduceat(component.given.totals > 0, component.groups.indptr[:-1])
        return max(1, min(n_blocks, MOST_PIECES // max(1, int((n_filled * sizes).sum()))))

    def _ranks_per_node(self, component: Component) -> int:
        """Return the largest number of ranks into which groups divide without crossing nodes."""
        groups = component.groups
        node = RankPlaces.of(self.blueprint.spec.machine).node[groups.ranks]
        position = np.arange(len(node)) - np.repeat(groups.indptr[:-1], groups.sizes)
        changes = position[1:][node[1:] != node[:-1]]
        return math.gcd(*changes.tolist(), *np.unique(groups.sizes).tolist())

    def _traffic(self, component: Component) -> Traffic:
        return traffic_of(component, self.blueprint.spec.machine, self.itemsize)

    def _shares_memory(self, component: Component) -> bool:
        """Return whether all messages of a component become copies in shared memory."""
        spec, groups = self.blueprint.spec, component.groups
        roles = spec.transport.shared_roles
        if roles is not None and not any(is_inside(component.role, role) for role in roles):
            return False
        node = RankPlaces.of(spec.machine).node[groups.ranks]
        group = csr.row_numbers(groups.indptr)
        same = (node[1:] == node[:-1]) | (group[1:] != group[:-1])
        return bool(same.all())

    def require_all_used(self) -> None:
        """Raise if the spec names a role, or an algorithm for a role, that is not used."""
        if not self.kinds:
            return  # There is one rank, or no data to move, so no algorithm is chosen.
        for key, choice in self.by_role.items():
            if key in self.used or (choice.name == "auto" and key in self.kinds):
                continue
            role, _, kind = key.partition("/")
            raise AlgorithmError(f"algorithms.{key}: {self._misfit(role, kind, choice.name)}")

    def _misfit(self, role: str, kind: str, name: str) -> str:
        """Return the reason why an entry is not used, and an entry to write instead."""
        if role not in self.kinds:
            return f"this plan has no such role; its roles are {', '.join(self.kinds)}"
        there = sorted(self.kinds[role])
        if kind:
            keys = " or ".join(f"{role}/{other}" for other in there)
            return f"{role} has no {kind} in this plan; use {keys}"
        left = [other for other in there if not self.by_role.keys() & set(_keys(role, other))]
        if not left:
            return f"each collective of {role} has its own algorithm already; leave {role} out"
        has_topology = self.blueprint.spec.machine.network.topology is not None
        found = [algorithm for other in left for algorithm in registry.of(other)]
        names = sorted({one.name for one in found if has_topology or not one.is_packed})
        return f"{name} fits none of {', '.join(left)}; use one of {', '.join(names)} or auto"


def _keys(role: str, kind: str) -> tuple[str, str]:
    """Return the keys under which specs may name a kind of component of a role."""
    return f"{role}/{kind}", f"{role}/{kind.removesuffix('_block')}"


def _options(algorithm: Algorithm, choice: AlgorithmChoice) -> dict[str, Any]:
    known = dict(algorithm.options or {})
    for name in choice.options:
        if name not in known:
            valid = f"its options are {', '.join(known)}" if known else "it has none"
            hint = suggest(name, known)
            raise AlgorithmError(
                f"algorithms.{name}: {algorithm.kind}/{algorithm.name} has no such option; "
                f"{hint}{valid}"
            )
    return known | dict(choice.options)
