"""How far ranks of a node are in a start, for the engine in Python: it says and looks here."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from collplan.executors.mpi.engine.node_memory import LINE_BYTES, WORD_BYTES
from collplan.executors.mpi.loop.atomics import read_word, write_word

if TYPE_CHECKING:
    from mpi4py import MPI

    from collplan.executors.mpi.engine.node_memory import NodeMemory
    from collplan.executors.mpi.program.program import Program


class NodeProgress:
    """What tasks of one rank say to others of its node, and wait for.

    Parameters
    ----------
    program : Program
        The rank's tasks.
    node : NodeMemory
        Where words lie.
    comm : MPI.Intracomm
        For the program's messages.

    Attributes
    ----------
    epoch : int
        How many times the program was started.
    ends_together : bool
        Whether a start ends only when all ranks of the node have completed it.
    """

    def __init__(self, program: Program, node: NodeMemory, comm: MPI.Intracomm) -> None:
        sharing = program.sharing
        bounds, waits = sharing.indptr.tolist(), node.waits.tolist()
        self._waits = [waits[low:high] for low, high in pairwise(bounds)]
        self._is_gated: list[bool] = sharing.is_gated.tolist()
        self._flag = [
            node.own_flags + flag * WORD_BYTES if flag >= 0 else 0
            for flag in sharing.own_flag.tolist()
        ]
        self._counters = [node.counters + rank * LINE_BYTES for rank in range(node.n_ranks)]
        self._own_counter = node.own_counter
        self._comm = comm
        self.waits: list[bool] = sharing.waits.tolist()
        self.epoch = 0
        self.ends_together = False

    def begin(self) -> None:
        """Begin the next start."""
        self.epoch += 1

    def is_free(self, task: int) -> bool:
        """Return whether a task need not wait for other ranks any more."""
        if self._is_gated[task] and not self.have_completed(self.epoch - 1):
            return False
        return all(read_word(flag) >= self.epoch for flag in self._waits[task])

    def have_completed(self, epoch: int) -> bool:
        """Return whether all ranks of the node have completed a start."""
        return all(read_word(counter) >= epoch for counter in self._counters)

    def say_completed(self, task: int) -> None:
        """Tell others that a task has completed."""
        if self._flag[task]:
            write_word(self._flag[task], self.epoch)

    def say_all_completed(self) -> None:
        """Tell others that this rank has completed the start."""
        write_word(self._own_counter, self.epoch)

    def push_on(self) -> None:
        """Let MPI push on what this rank has sent, for which it asks no more."""
        self._comm.Iprobe()
