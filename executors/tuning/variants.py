"""What may be tried for a collective: all that is known of decompositions, topologies, segments.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006, sections 2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from planner.alltoall_designs import DESIGNS
from planner.candidates import PIPELINE, PIPELINED, SEGMENTS, all_forms, name_of, segmented
from planner.decompose import draft
from planner.errors import AlgorithmError
from specs import AlgorithmChoice, AlgorithmsByRole, Decomposition, PassChoice, PlanSpec, Transport
from specs.choice import Algorithms
from specs.request import AUTO, MESSAGES

SHARED: Final = Transport(name="shared")
DIMENSIONS: Final = (2, 3)
"""Of meshes: more of them have not been seen to pay."""
TOPOLOGIES: Final = {
    "linear": "star",
    "binomial": "tree",
    "recursive_doubling": "hypercube",
    "recursive_halving": "hypercube",
    "ring": "ring",
    "chain": "ring",
}
"""The virtual topologies that flat algorithms are known as, too."""


@dataclass(frozen=True)
class Variant:
    """A way to compute a collective, whatever the message size.

    Parameters
    ----------
    name : str
        What tables call it.
    family : str
        What it is one of: ``flat``, a decomposition, or ``design``.
    decomposition : Decomposition
    algorithms : AlgorithmChoice or AlgorithmsByRole
    transport : Transport
    passes : tuple of PassChoice
        Of its own; with segments, those that cut come in their place.
    has_segments : bool
        Whether it is worth segments.
    """

    name: str
    family: str
    decomposition: Decomposition
    algorithms: Algorithms = AUTO
    transport: Transport = MESSAGES
    passes: tuple[PassChoice, ...] = ()
    has_segments: bool = False

    @property
    def segments(self) -> tuple[int, ...]:
        """Return the sizes of segments worth a try, in bytes."""
        return SEGMENTS if self.has_segments else ()

    def of(self, spec: PlanSpec, segment: int | None = None) -> PlanSpec:
        """Return a spec's collective computed so, in segments of so many bytes if any."""
        return spec.replace(
            decomposition=self.decomposition,
            algorithms=self.algorithms,
            transport=self.transport,
            passes=self.passes if segment is None else segmented(segment),
        )

    def name_with(self, segment: int | None) -> str:
        """Return what tables call it in segments of so many bytes."""
        return self.name if segment is None else f"{self.name} {segment // 1024}KiB"


def mesh_shapes(n_ranks: int, dimensions: int) -> Iterator[tuple[int, ...]]:
    """Yield every mesh of so many ranks, extents of 2 and more, the first one ascending.

    Examples
    --------
    >>> [f"{rows}x{columns}" for rows, columns in mesh_shapes(12, 2)]
    ['2x6', '3x4', '4x3', '6x2']
    >>> list(mesh_shapes(12, 3))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if dimensions == 1:
        if n_ranks > 1:
            yield (n_ranks,)
        return
    for first in range(2, n_ranks // 2 + 1):
        if n_ranks % first == 0:
            for others in mesh_shapes(n_ranks // first, dimensions - 1):
                yield (first, *others)


def all_variants(spec: PlanSpec) -> tuple[Variant, ...]:
    """Return every variant of a spec's collective on its machine, flat ones first.

    Flat algorithms, through leaders of nodes (one, several, all), every mesh of two
    and three dimensions, compositions of other collectives, the designs of
    alltoall, and what ranks of a node can share memory for. A variant may be
    refused all the same, by what its algorithms or this order of ranks do not allow.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    """
    found = [
        Variant(
            form.name,
            form.decomposition.name,
            form.decomposition,
            form.algorithms,
            passes=form.passes,
            has_segments=form.has_segments,
        )
        for form in all_forms(spec)
        if form.decomposition.name != "mesh"
    ]
    kind, size = spec.collective.kind, spec.machine.n_ranks
    if kind != "barrier" and size > 1:
        for dimensions in DIMENSIONS:
            for shape in mesh_shapes(size, dimensions):
                found += _meshes(spec, shape)
        found += _sharing(spec, found)
    if kind == "alltoall" and size > 1:
        found += _designs(spec, {variant.name for variant in found})
    return tuple(found)


def _meshes(spec: PlanSpec, shape: tuple[int, ...]) -> Iterator[Variant]:
    chosen = Decomposition(name="mesh", shape=shape)
    name = name_of(chosen)
    yield Variant(name, "mesh", chosen)
    roles = _pipelined_roles(spec, chosen)
    if roles is not None:
        yield Variant(f"{name} {PIPELINE}", "mesh", chosen, roles, has_segments=True)


def _pipelined_roles(spec: PlanSpec, chosen: Decomposition) -> AlgorithmsByRole | None:
    """Return algorithms whose segments follow each other closely, None where nothing is to do."""
    try:
        components = draft(spec.replace(decomposition=chosen, algorithms=AUTO)).components
    except AlgorithmError:
        return None
    roles = {
        f"{c.role}/{c.kind}": AlgorithmChoice(
            name=PIPELINED[c.kind][c.role.rpartition(".")[2] == "column"]
        )
        for c in components
        if not c.is_local
    }
    return AlgorithmsByRole(roles=roles) if roles else None


def _sharing(spec: PlanSpec, others: list[Variant]) -> list[Variant]:
    """Return the variants whose ranks share their node's memory, where nodes have several."""
    machine = spec.machine
    if max(machine.node_to_n_ranks) == 1:
        return []
    if machine.nodes == 1:
        chosen = Decomposition(name="flat")
        return [Variant("flat shared", "flat", chosen, transport=SHARED)]
    return [
        Variant(f"{v.name} shared", v.family, v.decomposition, transport=SHARED)
        for v in others
        if v.family in ("hierarchical", "full_lane", "multi_leader")
        and v.algorithms == AUTO
        and v.decomposition.by == "node"
    ]


def _designs(spec: PlanSpec, taken: set[str]) -> Iterator[Variant]:
    for design in DESIGNS.values():
        made = design.of(spec)
        yield Variant(
            f"{design.name} design" if design.name in taken else design.name,
            "design",
            made.decomposition,
            made.algorithms,
            made.transport,
            made.passes,
        )
