"""Plans that differ only in the size of their elements: one plan serves many counts."""

from __future__ import annotations

from math import gcd, lcm

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.blueprint.locations import Home, scratch_begin
from collplan.planner.blueprint.regions import PairTable, Regions
from collplan.planner.lowering.program import ComponentProgram, Program
from collplan.planner.lowering.stated import Stated
from collplan.planner.passes.shared_memory.layout import aligned_elements
from collplan.planner.plan.plan import Buffer, Plan
from collplan.select.estimate import program_of_sample
from collplan.specs import AlgorithmChoice, AlgorithmsByRole, PlanSpec
from collplan.specs.methods.named_option import Algorithms


def shrink(spec: PlanSpec) -> tuple[PlanSpec, int]:
    """Return a spec with the smallest count whose plan is the same but for the size of elements.

    If all chunks of a vector are multiples of `factor` elements, each `factor` elements move
    together like one larger element. Therefore the plan of ``count / factor`` elements is the
    same, which is checked: all regions of all components are compared. In shared memory, chunks of
    the smaller count keep the alignment of larger ones.

    Parameters
    ----------
    spec : PlanSpec
        Spec with a named decomposition and without native algorithms.

    Returns
    -------
    spec : PlanSpec
        Spec of the smaller count, which names the same algorithms; the given one if there is none.
    factor : int
        Number of elements that one element stands for; see `stretch`.

    Raises
    ------
    AlgorithmError
        If an algorithm cannot serve, or the decomposition is refused.
    """
    # Passes may cut messages by their size.
    if spec.passes or spec.collective.regular is not None:
        return spec, 1
    program = program_of_sample(spec)
    factor, algorithms = _common_factor(program), _named(program)
    if spec.transport.shared_roles != ():
        aligned = aligned_elements(spec.collective.itemsize)
        factor = 1 if factor % aligned else factor // aligned
    if factor == 1 or algorithms is None:
        return spec, 1
    smaller = spec.with_count(spec.collective.count // factor).replace(algorithms=algorithms)
    return (smaller, factor) if _scales(program_of_sample(smaller), program, factor) else (spec, 1)


def stretch(plan: Plan, factor: int) -> Plan:
    """Return a plan whose elements are `factor` times as large."""
    return plan.replace(itemsize=plan.itemsize * factor)


def _common_factor(program: Program) -> int:
    """Return the greatest number of elements of which all chunks are multiples."""
    if not isinstance(program, ComponentProgram):
        return 1
    factor = int(program.blueprint.spec.collective.count)
    for part in program.parts:
        given = part.component.given
        if isinstance(given, PairTable):
            return 1
        n_parts = 1
        if not part.component.is_local:
            n_parts = lcm(*map(part.n_parts, np.unique(part.component.groups.sizes).tolist()))
        if (given.totals % n_parts).any():
            return 1
        factor = gcd(factor, int(np.gcd.reduce(given.totals // n_parts, initial=0)))
    return max(1, factor)


def _named(program: Program) -> Algorithms | None:
    """Return the algorithms of a program by name; None if one name would stand for two."""
    roles: dict[str, AlgorithmChoice] = {}
    for part in program.parts:
        if part.component.is_local:
            continue
        choice = AlgorithmChoice(name=part.algorithm.name, options=dict(part.options))
        if roles.setdefault(f"{part.component.role}/{part.component.kind}", choice) != choice:
            return None
    if not roles:
        return None
    is_flat = program.blueprint.decomposition.name == "flat"
    return next(iter(roles.values())) if is_flat else AlgorithmsByRole(roles=roles)


def _scales(program: Program, larger: Program, factor: int) -> bool:
    """Return whether a program becomes a larger one if its elements are `factor` times as large."""
    return len(program.parts) == len(larger.parts) and all(
        _is_alike(one, other, factor)
        for one, other in zip(program.parts, larger.parts, strict=True)
    )


def _is_alike(part: Stated, larger: Stated, factor: int) -> bool:
    one, other = part.component, larger.component
    return (
        (part.algorithm, part.options) == (larger.algorithm, larger.options)
        and (one.kind, one.role) == (other.kind, other.role)
        and _equal(one.groups.indptr, other.groups.indptr)
        and _equal(one.groups.ranks, other.groups.ranks)
        and _equal(one.root, other.root)
        and _has_scaled_homes(one.input, other.input, factor)
        and _has_scaled_homes(one.output, other.output, factor)
        and _has_scaled_regions(one.given, other.given, factor)
        and _has_scaled_regions(one.received, other.received, factor)
    )


def _equal(one: Ints, other: Ints) -> bool:
    return bool(np.array_equal(one, other))


def _has_scaled_homes(home: Home, larger: Home, factor: int) -> bool:
    # Scratch spaces do not move, but homes may be shifted in them.
    space = np.where(home.buffer == Buffer.SCRATCH, scratch_begin(home.base), 0)
    base = space + (home.base - space) * factor
    return _equal(home.buffer, larger.buffer) and _equal(base, larger.base)


def _has_scaled_regions(given: Regions | None, larger: Regions | None, factor: int) -> bool:
    if given is None or larger is None:
        return given is larger
    (stride, repeat), (larger_stride, larger_repeat) = given.pattern, larger.pattern
    return (
        _equal(given.indptr, larger.indptr)
        and _equal(given.low * factor, larger.low)
        and _equal(given.count * factor, larger.count)
        and _equal(stride * factor, larger_stride)
        and _equal(repeat, larger_repeat)
    )
