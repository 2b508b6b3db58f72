"""The collectives of a step: a spec for each group of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collplan.planner.collective.buffers import buffer_sizes
from collplan.specs import Machine, PlanSpec, SpecError
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import place_ranks
from collplan.specs.machines.placement import Placement
from collplan.specs.programs.program import ProgramSpec
from collplan.specs.programs.steps import METHOD, ProgramStep


def machine_of_group(machine: Machine, ranks: Sequence[int]) -> Machine:
    """Return the machine on which only some ranks of a machine run.

    Parameters
    ----------
    machine : Machine
        Machine of all ranks.
    ranks : sequence of int
        Ranks of the group, in the order of their positions, which are the ranks of the result.

    Returns
    -------
    Machine
        The nodes on which the group has ranks, with all of their cores and lanes.
    """
    if tuple(ranks) == tuple(range(machine.n_ranks)):
        return machine
    nodes = [machine.rank_to_node[rank] for rank in ranks]
    used = sorted(set(nodes))
    number = {node: place for place, node in enumerate(used)}
    room, order = place_ranks(tuple(number[node] for node in nodes))
    hosts, placement = machine.node_to_host, None
    if hosts is not None:
        placement = Placement(hosts=tuple(hosts[node] for node in used))
    return machine.replace(
        nodes=len(used),
        ranks_per_node=room[0] if len(set(room)) == 1 else room,
        rank_order=order,
        cores=machine.cores_per_node,
        placement=placement,
    )


def spec_of_group(program: ProgramSpec, step: ProgramStep, ranks: Sequence[int]) -> PlanSpec:
    """Return the spec of a step's collective on one group.

    Raises
    ------
    SpecError
        If the collective does not fit the group or the buffers.
    """
    machine = machine_of_group(program.machine, ranks)
    method = {name: getattr(step, name) for name in METHOD}
    with explaining(before=f"step {step.name}: "):
        return PlanSpec(machine=machine, collective=step.collective, **method)


def check_ranges(program: ProgramSpec) -> None:
    """Check that the ranges of each step have the elements that its collectives use.

    Raises
    ------
    SpecError
        If a range is missing, or has another number of elements than the largest group uses.
    """
    for step, groups in zip(program.steps, program.groups, strict=True):
        if step.collective is None or not step.collective.has_data:
            continue
        largest = max(map(len, groups))
        sizes = buffer_sizes(step.collective, largest)
        for name, used in zip(("send", "receive"), sizes, strict=True):
            _check_range(program, step, name, int(np.max(used)), largest)


def _check_range(
    program: ProgramSpec, step: ProgramStep, name: str, n_used: int, n_members: int
) -> None:
    """Raise `SpecError` if a range does not fit what a collective uses."""
    given, collective = getattr(step, name), step.collective
    assert collective is not None
    what = f"{collective.kind} of {collective.count} elements on {n_members} ranks"
    if given is None:
        if n_used:
            raise SpecError(
                f"step {step.name}: {name} is missing: {what} uses {n_used} elements; give a range"
            )
        return
    buffer = program.buffers[given.buffer]
    if buffer.datatype != collective.datatype:
        raise SpecError(
            f"step {step.name}: {name} has elements of {buffer.datatype}, collective.datatype is "
            f"{collective.datatype}; give a buffer of that datatype"
        )
    if name == "send" and not n_used and step.is_one_range:
        return
    first, end = given.bounds(buffer.count)
    if end - first != n_used:
        raise SpecError(
            f"step {step.name}: {given} has {end - first} elements, {what} uses {n_used} of "
            f"{name}; give a range of {n_used}, or another count"
        )
