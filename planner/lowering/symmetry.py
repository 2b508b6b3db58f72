"""The symmetry of a program: motions by whole nodes that map it onto itself.

The symmetry is derived from the parts of the program. A motion must map the machine onto itself,
and the groups of every component with their data (`component_symmetry`). All components that move
elements of the vector must move them in the same way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from collplan.planner.arrays import Ints, csr
from collplan.planner.arrays.motion import Motion
from collplan.planner.arrays.recent import Recent
from collplan.planner.errors import AsymmetricError
from collplan.planner.lowering.component_symmetry import ComponentSymmetry
from collplan.planner.lowering.program import Program, SlicedProgram
from collplan.planner.lowering.stated import Stated
from collplan.planner.plan.folding import Folding
from collplan.specs import Machine, PlanSpec

MOST_KNOWN: Final = 512
"""Number of checks of components that are remembered."""


def folding_of(program: Program) -> Folding:
    """Return the folding of a program by a motion of ranks by whole nodes.

    Parameters
    ----------
    program : Program

    Returns
    -------
    Folding
        A folding by a shift if there is one, otherwise by an exclusive or.

    Raises
    ------
    AsymmetricError
        If nodes differ. The message names the difference.
    """
    refused: AsymmetricError | None = None
    if _calls_mpi(program):
        raise AsymmetricError("fold: calls of MPI's own collectives (native) are not folded")
    if program.blueprint.exchange is not None:
        raise AsymmetricError("fold: an alltoall through shared memory is not folded")
    for motion in _motions(program.blueprint.spec.machine):
        try:
            return _folding(program, motion)
        except AsymmetricError as error:
            refused = refused or error
    raise refused or AsymmetricError("fold: a plan on one node has nothing to repeat")


def _calls_mpi(program: Program) -> bool:
    return any(part.algorithm.is_native for part in program.parts)


class Symmetries:
    """Checks whether programs fold, with a cache of components that several programs share."""

    def __init__(self) -> None:
        self._known: Recent[tuple[Any, ...], ComponentSymmetry | None] = Recent(MOST_KNOWN)

    def forget(self) -> None:
        """Forget all components."""
        self._known.clear()

    def may_fold(self, program: Program, block: int) -> bool:
        """Return whether a motion may map a program onto itself, by a check of two nodes.

        If this is False, the program does not fold. `folding_of` may refuse other programs, too.

        Parameters
        ----------
        program : Program
            Drafted for the ranks of node 0 and of node `block`, at least.
        block : int
            Node to which node 0 is moved.
        """
        spec = program.blueprint.spec
        if program.blueprint.exchange is not None or spec.machine.nodes == 1 or _calls_mpi(program):
            return False
        try:
            found = _motions(spec.machine)
        except AsymmetricError:
            return False
        # The cheapest check, which refuses most programs, comes first.
        return any(
            all(
                self._symmetry(checks, part, motion, spec, block)
                for checks in ("first groups", "all")
                for part in program.parts
            )
            for motion in found
        )

    def divides_what_moves(self, program: Program, block: int) -> bool:
        """Return whether a phase divides a vector whose chunks move in another phase.

        Tasks between such phases wait for different predecessors on every node, namely those that
        deliver the parts with the node's own chunk. So the plan does not fold, even if two nodes
        agree.

        Parameters
        ----------
        program : Program
            One that `may_fold`, drafted for the same ranks.
        block : int
            Node to which node 0 is moved, as in `may_fold`.
        """
        spec = program.blueprint.spec
        for motion in _motions(spec.machine):
            found = (self._symmetry("block", one, motion, spec, block) for one in program.parts)
            checks = [one for one in found if one is not None]
            if len(checks) < len(program.parts):
                continue
            if any(one.cuts_blocks for one in checks) and any(one.moved for one in checks):
                return True
            moving = [span for one in checks for span in one.moving_spans()]
            edges = np.concatenate([one.fixed_edges(block) for one in checks])
            return any(((edges > low) & (edges < high)).any() for low, high in moving)
        return False

    def _symmetry(
        self, checks: str, part: Stated, motion: Motion, spec: PlanSpec, block: int
    ) -> ComponentSymmetry | None:
        """Return the symmetry of a part, or None if it fails the checks.

        `checks` are those of ``"first groups"``, ``"all"``, which include the first groups, or
        ``"block"``, the motion to a block alone.
        """
        options = str(sorted(part.options.items()))
        key = checks, part.component, part.algorithm.name, options, motion.kind, block
        return self._known.find(key, lambda: self._checked(checks, part, motion, spec, block))

    def _checked(
        self, checks: str, part: Stated, motion: Motion, spec: PlanSpec, block: int
    ) -> ComponentSymmetry | None:
        try:
            if checks == "all":
                known = self._symmetry("first groups", part, motion, spec, block)
                if known is not None:
                    known.check([block])
                    known.check_blocks()
                return known
            one = ComponentSymmetry(part, motion, spec, "")
            if checks == "block":
                one.check([block])
            else:
                one.check_first_groups()
        except AsymmetricError:
            return None
        return one


@lru_cache(maxsize=4)
def _motions(machine: Machine) -> tuple[Motion, ...]:
    """Return the motions of the machine's ranks by whole nodes; raise if there are none."""
    n_ranks, per_node = machine.n_ranks, machine.node_to_n_ranks[0]
    if set(machine.node_to_n_ranks) != {per_node}:
        raise AsymmetricError("fold: machine.ranks_per_node differs between nodes")
    if machine.rank_to_node != tuple(np.repeat(np.arange(machine.nodes), per_node).tolist()):
        raise AsymmetricError("fold: machine.rank_order does not fill node after node")
    if machine.nodes == 1:
        return ()
    is_power_of_two = n_ranks & (n_ranks - 1) == 0
    kinds: tuple[Literal["shift", "xor"], ...] = ("shift", "xor") if is_power_of_two else ("shift",)
    return tuple(Motion(kind, n_ranks, per_node) for kind in kinds)


def _folding(program: Program, motion: Motion) -> Folding:
    """Return the folding by a motion; raise `AsymmetricError` if there is none."""
    if isinstance(program, SlicedProgram):
        return Folding(motion, _turns_of_slices(program, motion))
    binding, collective = program.blueprint.binding, program.blueprint.spec.collective
    if collective.has_edges:
        raise AsymmetricError(
            f"fold: the neighbors of {collective.kind} may differ from node to node"
        )
    for sizes in (binding.send_sizes, binding.recv_sizes):
        if (sizes.reshape(-1, motion.step) != sizes[: motion.step]).any():
            raise AsymmetricError("fold: ranks have buffers of other sizes on other nodes")
    checks = [
        ComponentSymmetry(part, motion, program.blueprint.spec, f"phase {number}")
        for number, part in enumerate(program.parts)
    ]
    for one in checks:
        one.check(motion.generators)
        one.check_blocks()
    if collective.has_blocks:
        return Folding(motion, _turns_of_blocks(program))
    return Folding(motion, _turns_of_vector(checks))


def _turns_of_slices(program: SlicedProgram, motion: Motion) -> Ints:
    """Return the turns of a sliced vector, which are those of all slices."""
    made = {one: _folding(one, motion).turns for one in dict.fromkeys(program.slices)}
    lengths = [one.blueprint.spec.collective.count for one in program.slices]
    first = csr.running_total(lengths)[:-1]
    moved = zip(program.slices, first.tolist(), strict=True)
    return np.concatenate([made[one] + np.array([begin, 0, 0]) for one, begin in moved])


def _turns_of_blocks(program: Program) -> Ints:
    """Return the turns of contributions with a block per rank."""
    binding, collective = program.blueprint.binding, program.blueprint.spec.collective
    if not collective.sends_blocks:
        return np.zeros((0, 3), dtype=np.int64)
    # In place, contributions are in the place of results.
    n_elements = int(binding.send_sizes[0] or binding.recv_sizes[0])
    return np.array([[0, n_elements, n_elements // program.blueprint.spec.machine.nodes]])


def _turns_of_vector(checks: list[ComponentSymmetry]) -> Ints:
    """Return the turns of a vector that components divide into chunks or blocks."""
    found: set[tuple[int, int, int]] = set()
    for one in checks:
        found |= one.turns()
    turns = np.array(sorted(found), dtype=np.int64).reshape(-1, 3)
    if (turns[:-1, 0] + turns[:-1, 1] > turns[1:, 0]).any():
        raise AsymmetricError("fold: phases move the same elements in different ways")
    for one in checks:
        if len(turns) and one.moved and one.is_whole:
            raise one.refusal("it moves whole vectors, of which other phases move parts")
    return turns
