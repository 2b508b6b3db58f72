"""What may be tried for a collective: all that is known of decompositions, topologies, segments.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006, sections 2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from collplan.planner.algorithms import registry
from collplan.planner.decompose import draft, guideline
from collplan.planner.errors import AlgorithmError
from collplan.select.alltoall_designs import DESIGNS
from collplan.select.candidates import PIPELINE, Form, all_forms, name_of
from collplan.specs import AlgorithmChoice, AlgorithmsByRole, Decomposition, PlanSpec, Transport
from collplan.specs.request import AUTO

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
DESIGN: Final = "design"
"""The family of alltoall's designs."""
_SHARED: Final = Transport(name="shared")


def all_variants(spec: PlanSpec) -> tuple[Form, ...]:
    """Return every way to compute a spec's collective on its machine, flat ones first.

    Flat algorithms, through leaders of nodes (one, several, all), every mesh of two
    and three dimensions, compositions of other collectives, the designs of
    alltoall, and what ranks of a node can share memory for. One may be
    refused all the same, by what its algorithms or this order of ranks do not allow.

    Parameters
    ----------
    spec : PlanSpec
        Its machine and collective count.
    """
    found = [form for form in all_forms(spec) if form.decomposition.name != "mesh"]
    size = spec.machine.n_ranks
    if spec.collective.kind not in guideline.FORMS or size == 1:
        return tuple(found)
    for dimensions in DIMENSIONS:
        for shape in mesh_shapes(size, dimensions):
            found += _meshes(spec, shape)
    found += _sharing(spec, found)
    if spec.collective.is_pairwise:
        found += _designs(spec, {form.name for form in found})
    return tuple(found)


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


def family_of(form: Form) -> str:
    """Return what a form is one of: ``flat``, a decomposition, or ``design``."""
    own = form.decomposition.name
    is_design = form.name in DESIGNS and form.name != own and own != "flat"
    return DESIGN if is_design or form.name.endswith(DESIGN) else own


def topology_of(form: Form) -> str | None:
    """Return the virtual topology of a flat algorithm, None for all others.

    Examples
    --------
    >>> flat = Decomposition(name="flat")
    >>> topology_of(Form("binomial", flat, AlgorithmChoice(name="binomial"), True))
    'tree'
    """
    choice = form.algorithms
    if form.decomposition.name != "flat" or not isinstance(choice, AlgorithmChoice):
        return None
    return TOPOLOGIES.get(choice.name)


def _meshes(spec: PlanSpec, shape: tuple[int, ...]) -> Iterator[Form]:
    chosen = Decomposition(name="mesh", shape=shape)
    name = name_of(chosen)
    yield Form(name, chosen, AUTO, False)
    roles = _pipelined_roles(spec, chosen)
    if roles is not None:
        yield Form(f"{name} {PIPELINE}", chosen, roles, True)


def _pipelined_roles(spec: PlanSpec, chosen: Decomposition) -> AlgorithmsByRole | None:
    """Return algorithms whose segments follow each other closely, None where nothing is to do."""
    try:
        components = draft(spec.replace(decomposition=chosen, algorithms=AUTO)).components
    except AlgorithmError:
        return None
    roles = {
        f"{c.role}/{c.kind}": AlgorithmChoice(
            name=registry.pipelining(
                c.kind, "across" if c.role.rpartition(".")[2] == "column" else "inside"
            )
        )
        for c in components
        if not c.is_local
    }
    return AlgorithmsByRole(roles=roles) if roles else None


def _sharing(spec: PlanSpec, others: Sequence[Form]) -> list[Form]:
    """Return what is worth a try where ranks of a node share memory."""
    machine = spec.machine
    if max(machine.node_to_n_ranks) == 1:
        return []
    if machine.nodes == 1:
        flat = Decomposition(name="flat")
        return [Form("flat shared", flat, AUTO, False, transport=_SHARED)]
    through_leaders = ("hierarchical", "full_lane", "multi_leader")
    return [
        Form(f"{form.name} shared", form.decomposition, AUTO, False, transport=_SHARED)
        for form in others
        if form.decomposition.name in through_leaders
        and (form.algorithms, form.passes, form.transport) == (AUTO, (), None)
        and form.decomposition.by == "node"
    ]


def _designs(spec: PlanSpec, taken: set[str]) -> Iterator[Form]:
    """Yield the designs that need nodes of several ranks, and are not there yet."""
    machine = spec.machine
    if machine.nodes == 1 or max(machine.node_to_n_ranks) == 1:
        return
    for name, design in DESIGNS.items():
        one = design.of(spec)
        if one.decomposition.name == "flat" or (name in taken and name != one.decomposition.name):
            continue
        called = f"{name} {DESIGN}" if name in taken else name
        yield Form(called, one.decomposition, one.algorithms, False, one.passes, one.transport)
