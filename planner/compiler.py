"""From a spec to a plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.algorithms import Algorithm, registry
from planner.builder import Placement, build
from planner.chunks import Own, Packed
from planner.errors import AlgorithmError
from planner.lowering import collect, lower
from planner.passes import run_passes
from planner.plan import Buffer, Plan
from planner.rounds import Copy, Group, Round, Rounds, at
from planner.spaces import Binding, Space, bind_collective
from specs import AlgorithmChoice, PlanSpec

PREFERRED = {
    "bcast": ("binomial",),
    "gather": ("binomial",),
    "scatter": ("binomial",),
    "reduce": ("binomial",),
    "allgather": ("bruck",),
    "allreduce": ("recursive_doubling",),
    "reduce_scatter_block": ("circulant", "pairwise"),
    "scan": ("recursive_doubling",),
    "exscan": ("recursive_doubling",),
    "alltoall": ("bruck", "pairwise"),
    "barrier": ("dissemination",),
}
"""What `auto` takes for short vectors: the fewest rounds."""
PREFERRED_LONG = {
    "bcast": ("scatter_allgather",),
    "reduce": ("rabenseifner",),
    "allgather": ("ring",),
    "allreduce": ("ring", "rabenseifner"),
    "reduce_scatter_block": ("ring", "pairwise"),
    "alltoall": ("pairwise",),
}
"""What `auto` takes for long vectors: the fewest bytes."""
LONG_BYTES = 64 * 1024
"""From how many bytes on a vector (or block) is long."""


def compile_plan(spec: PlanSpec, *, rank: int | None = None) -> Plan:
    """Compile a spec into the task graph it describes.

    Parameters
    ----------
    spec : PlanSpec
        Machine, collective, algorithm and passes.
    rank : int, optional
        Compile this rank's program only: the rows the whole plan has for it,
        in the same order, without ever holding the whole plan in memory.

    Returns
    -------
    Plan
        The same bytes for the same spec, on any machine.

    Raises
    ------
    AlgorithmError
        If the algorithm is unknown or cannot serve these ranks or operation,
        or a pass refuses; the message names alternatives.

    Examples
    --------
    >>> from specs import AlgorithmChoice, PlanSpec
    >>> spec = PlanSpec.model_validate({
    ...     "machine": {"ranks_per_node": 4},
    ...     "collective": {"kind": "allreduce", "count": 8},
    ...     "algorithms": "ring",
    ... })
    >>> plan = compile_plan(spec)
    >>> plan.n_tasks, compile_plan(spec, rank=2).n_tasks
    (60, 15)
    """
    size = spec.machine.n_ranks
    if rank is not None and not 0 <= rank < size:
        raise AlgorithmError(f"rank: {rank} is not one of the machine's {size} ranks")
    algorithm = choose_algorithm(spec)
    binding = bind_collective(spec.collective, size, algorithm.n_parts(size))
    group = Group(
        size=size,
        root=getattr(spec.collective, "root", 0),
        commutative=is_commutative(spec),
        chunk_counts=binding.chunk_counts,
        options=_options(algorithm, spec),
    )
    # Algorithms declare scratch as they begin, so the rounds come before the spaces.
    collected = collect(_staged(algorithm.rounds(group), binding, group), only=rank)
    messages, steps, scratch_sizes = lower(collected, _spaces(binding, group))
    del collected
    plan = build(
        messages,
        steps,
        Placement.of(spec.machine),
        np.column_stack((binding.send_sizes, binding.recv_sizes, scratch_sizes)),
        spec,
        phase=f"{algorithm.kind}/{algorithm.name}",
        only_rank=rank,
    )
    return run_passes(plan, spec.passes)


def is_commutative(spec: PlanSpec) -> bool:
    """Return whether operands may be exchanged; True where nothing is combined."""
    op = getattr(spec.collective, "op", None)
    return op is None or bool(op.commutative)


def choose_algorithm(spec: PlanSpec) -> Algorithm:
    """Return the algorithm a spec names, or what `auto` means for it.

    `auto` takes few rounds below `LONG_BYTES` and few bytes from there on.

    Raises
    ------
    AlgorithmError
        If the named algorithm is unknown or cannot serve.
    """
    kind, size = spec.collective.kind, spec.machine.n_ranks
    commutative = is_commutative(spec)
    is_regular = spec.collective.pair_counts(size) is None
    name = _single(spec).name
    if name != "auto":
        algorithm = registry.find(kind, name)
        registry.require(algorithm, size, commutative, is_regular)
        return algorithm
    is_long = spec.collective.count * spec.collective.itemsize >= LONG_BYTES
    names = PREFERRED_LONG.get(kind, ()) if is_long else ()
    legal = {a.name: a for a in registry.legal(kind, size, commutative, is_regular)}
    return next(legal[n] for n in names + PREFERRED[kind] if n in legal)


def _single(spec: PlanSpec) -> AlgorithmChoice:
    assert isinstance(spec.algorithms, AlgorithmChoice)
    return spec.algorithms


def _options(algorithm: Algorithm, spec: PlanSpec) -> dict[str, object]:
    known = dict(algorithm.options or {})
    choice = _single(spec)
    given = dict(choice.options) if choice.name != "auto" else {}
    for name in given:
        if name not in known:
            valid = f"its options are {', '.join(known)}" if known else "it has none"
            raise AlgorithmError(
                f"algorithms.{name}: {algorithm.kind}/{algorithm.name} has no such option; {valid}"
            )
    return known | given


def _staged(rounds: Rounds, binding: Binding, group: Group) -> Iterator[Round]:
    """Wrap an algorithm in the copies its in-place form needs."""
    me = group.positions
    caller = group.add_scratch(Packed(binding.chunk_counts)) if binding.staged_input else None
    result = group.add_scratch(Own(binding.chunk_counts)) if binding.staged_output else None
    if caller is not None:
        yield Round(Copy(me, group.whole(caller), group.whole(group.input)))
    yield from rounds
    if result is not None:
        yield Round(Copy(me, at(group.output, me), at(result, me)))


def _spaces(binding: Binding, group: Group) -> list[Space]:
    """Return the spaces by number: input, output, then declared ones."""
    none = np.zeros(group.size, dtype=np.int64)
    scratch = np.full(group.size, Buffer.SCRATCH, dtype=np.int8)
    recv = np.full(group.size, Buffer.RECV, dtype=np.int8)
    spaces = [binding.input, binding.output]
    spaces += [Space(layout, scratch, none) for layout in group.scratch]
    if binding.staged_input or binding.staged_output:
        # The first declared space stands for the caller's receive buffer.
        spaces[2] = Space(group.scratch[0], recv, none)
    return spaces
