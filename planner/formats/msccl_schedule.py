"""Schedules of MSCCL: steps of thread blocks, and the order in which they can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple, NoReturn

import numpy as np

from collplan.planner.arrays import Ints
from collplan.planner.errors import DeadlockError
from collplan.planner.memory import require_memory

SENDS: Final = frozenset(("s", "rcs", "rrs", "rrcs"))
RECEIVES: Final = frozenset(("r", "rcs", "rrs", "rrc", "rrcs"))
FUSED: Final = frozenset(("rcs", "rrs", "rrc", "rrcs"))
REDUCES: Final = frozenset(("re", "rrs", "rrc", "rrcs"))
"""Types of steps that send, that receive, that do several things, and that reduce."""
_MOST_SHOWN: Final = 8

Place = tuple[str, int]
"""A buffer and a chunk."""
Fail = Callable[[int, str, str], NoReturn]
"""Raises an error of a line, of a problem, with a way out."""


class Step(NamedTuple):
    """A step of a thread block: what it does, and the other step that it waits for.

    Steps that collplan has written say their `order` in the plan; it is -1 in others.
    """

    kind: str
    source: Place
    dest: Place
    n_chunks: int
    dep_block: int
    dep_step: int
    order: int
    line: int


@dataclass(slots=True)
class Block:
    """A thread block: a program of one GPU, with at most one peer each way."""

    gpu: int
    number: int
    send: int
    recv: int
    channel: int
    line: int
    steps: list[Step] = field(default_factory=list)


class Order(NamedTuple):
    """An order in which the steps of a schedule run, and what happens before what.

    Parameters
    ----------
    steps : list of (int, int)
        Thread blocks and steps, by their places, in the order.
    depth : list of int
        Messages that must have arrived before each, along the longest chain.
    clocks : ndarray of int32, shape (n_steps, n_blocks)
        For each step in the order, and each thread block, the last step of the block that
        happens before it, or is it itself; -1 if there is none.
    """

    steps: list[tuple[int, int]]
    depth: list[int]
    clocks: Ints


@dataclass(slots=True)
class Schedule:
    """Contents of an MSCCL XML file.

    Parameters
    ----------
    name, collective, protocol : str
        As in the file.
    n_gpus, n_channels, n_chunks : int
        GPUs, channels, and chunks that the larger of input and output is divided into.
    min_bytes, max_bytes : int or None
        Sizes between which MSCCL uses the schedule; None if the file does not say.
    is_in_place : bool
        Whether the schedule runs in place only: input and output are one buffer.
    chunks : dict of int to dict of str to int
        Chunks of each GPU's buffers ``i``, ``o`` and ``s``.
    blocks : list of Block
    n_steps : int
    """

    name: str
    collective: str
    protocol: str
    n_gpus: int
    n_channels: int
    n_chunks: int
    min_bytes: int | None
    max_bytes: int | None
    is_in_place: bool
    chunks: dict[int, dict[str, int]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    n_steps: int = 0
    _awaited: set[tuple[int, int, int]] | None = None

    def check_connections(self, fail: Fail) -> None:
        """Fail where two thread blocks share an end of a connection, or a dependency leads nowhere.

        Messages of a pair of GPUs on one channel come in order, so that each end is one program.
        """
        ends: dict[tuple[int, int, int, bool], int] = {}
        sizes = {(block.gpu, block.number): len(block.steps) for block in self.blocks}
        for block in self.blocks:
            for peer, is_send in ((block.send, True), (block.recv, False)):
                key = (block.gpu, peer, block.channel, is_send)
                if peer >= 0 and ends.setdefault(key, block.number) != block.number:
                    way = "sends to" if is_send else "receives from"
                    fail(
                        block.line,
                        f"thread block {block.number} {way} gpu {peer} on channel "
                        f"{block.channel}, as block {ends[key]} does",
                        "give it another channel",
                    )
            for step in block.steps:
                if step.dep_block < 0 or step.dep_step < 0:
                    continue
                if step.dep_step >= sizes.get((block.gpu, step.dep_block), 0):
                    fail(
                        step.line,
                        f"depends on step {step.dep_step} of thread block {step.dep_block}, which "
                        f"gpu {block.gpu} does not have",
                        "name one that exists",
                    )

    def is_joined(self, place: int, number: int) -> bool:
        """Return whether a step copies what the next one reduces with something else.

        MSCCL has no reduction into a third place: a copy there comes before it. The two are one
        if nothing waits for the copy, and the reduction for nothing.
        """
        block = self.blocks[place]
        if number + 1 >= len(block.steps):
            return False
        step, after = block.steps[number : number + 2]
        ends = (step.source, after.source)
        apart = all(
            one[0] != step.dest[0]
            or one[1] + step.n_chunks <= step.dest[1]
            or step.dest[1] + step.n_chunks <= one[1]
            for one in ends
        )
        return (
            (step.kind, after.kind) == ("cpy", "re")
            and (step.dest, step.n_chunks) == (after.dest, after.n_chunks)
            and after.dep_block < 0
            and apart
            and (block.gpu, block.number, number) not in self.awaited
        )

    @property
    def awaited(self) -> set[tuple[int, int, int]]:
        """Return the steps that others wait for, as GPU, thread block and step."""
        if self._awaited is None:
            self._awaited = {
                (block.gpu, step.dep_block, step.dep_step)
                for block in self.blocks
                for step in block.steps
                if step.dep_block >= 0
            }
        return self._awaited

    def messages(self) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """Return the message that each receiving or sending step begins or ends with.

        Keys are thread block and step, of sends with the block's number negative minus one; a
        message is its source, its destination, its channel and its number there.
        """
        found = {}
        for place, block in enumerate(self.blocks):
            n_sent = n_received = 0
            for number, step in enumerate(block.steps):
                if step.kind in RECEIVES:
                    found[place, number] = (block.recv, block.gpu, block.channel, n_received)
                    n_received += 1
                if step.kind in SENDS:
                    found[-1 - place, number] = (block.gpu, block.send, block.channel, n_sent)
                    n_sent += 1
        return found

    def order(self) -> Order:
        """Return an order in which all steps run; a message is taken from the network in turn.

        Raises
        ------
        DeadlockError
            With steps that wait for each other.
        MemoryLimitError
            If the order does not fit into memory.
        """
        n_blocks = len(self.blocks)
        require_memory(
            self.n_steps * (4 * n_blocks + 1000), "the schedule", "read", "give a smaller one"
        )
        first = np.cumsum([0, *(len(block.steps) for block in self.blocks)])
        before = [list(one) for one in self._waits(first)]
        after: list[list[int]] = [[] for _ in before]
        for step, waits in enumerate(before):
            for other, _ in waits:
                after[other].append(step)
        waiting = [len(waits) for waits in before]
        block_of = np.repeat(np.arange(n_blocks), np.diff(first))
        depth = [0] * self.n_steps
        ready: list[tuple[int, int, int, int]] = []
        steps = [step for block in self.blocks for step in block.steps]
        is_said = all(step.order >= 0 or step.kind == "nop" for step in steps)
        place = np.full(self.n_steps, -1)

        def put(step: int) -> None:
            depth[step] = max((depth[other] + cost for other, cost in before[step]), default=0)
            if is_said:
                heappush(ready, (steps[step].order, 0, 0, step))
                return
            # Messages are received in the order of their sends, and blocks take turns.
            turn = [int(place[other]) for other, is_message in before[step] if is_message]
            turn = turn or [step - int(first[block_of[step]])]
            heappush(ready, (depth[step], _rank_of(steps[step].kind), turn[0], step))

        for step, n in enumerate(waiting):
            if n == 0:
                put(step)
        clocks = np.full((self.n_steps, n_blocks), -1, dtype=np.int32)
        order: list[int] = []
        while ready:
            *_, step = heappop(ready)
            own = clocks[len(order)]
            for other, _ in before[step]:
                np.maximum(own, clocks[place[other]], out=own)
            own[block_of[step]] = step - first[block_of[step]]
            place[step] = len(order)
            order.append(step)
            for other in after[step]:
                waiting[other] -= 1
                if waiting[other] == 0:
                    put(other)
        if len(order) < self.n_steps:
            self._raise_deadlock(before, waiting, block_of, first)
        places = [(int(block_of[step]), int(step - first[block_of[step]])) for step in order]
        return Order(places, [depth[step] for step in order], clocks)

    def _waits(self, first: Ints) -> Iterator[Iterator[tuple[int, int]]]:
        """Yield for each step the steps that it waits for, and 1 for the send of its message."""
        messages = self.messages()
        sender = {
            message: int(first[-1 - block]) + step
            for (block, step), message in messages.items()
            if block < 0
        }
        places = {(block.gpu, block.number): i for i, block in enumerate(self.blocks)}

        def of(place: int, number: int, step: Step) -> Iterator[tuple[int, int]]:
            if number:
                yield int(first[place]) + number - 1, 0
            if step.dep_block >= 0 and step.dep_step >= 0:
                other = places[self.blocks[place].gpu, step.dep_block]
                yield int(first[other]) + step.dep_step, 0
            message = messages.get((place, number))
            if message in sender:
                yield sender[message], 1

        for place, block in enumerate(self.blocks):
            for number, step in enumerate(block.steps):
                yield of(place, number, step)

    def _raise_deadlock(
        self,
        before: list[list[tuple[int, int]]],
        waiting: list[int],
        block_of: Ints,
        first: Ints,
    ) -> NoReturn:
        step = next(i for i, n in enumerate(waiting) if n > 0)
        seen: dict[int, int] = {}
        while step not in seen:
            seen[step] = len(seen)
            step = next(other for other, _ in before[step] if waiting[other] > 0)
        cycle = list(seen)[seen[step] :]
        words = []
        for one in cycle[:_MOST_SHOWN]:
            block = self.blocks[block_of[one]]
            number = one - int(first[block_of[one]])
            words.append(
                f"step {number} ({block.steps[number].kind}) of thread block {block.number} of gpu "
                f"{block.gpu}"
            )
        more = f", and {len(cycle) - _MOST_SHOWN} more" if len(cycle) > _MOST_SHOWN else ""
        raise DeadlockError(
            f"{len(cycle)} steps wait for each other: {' waits for '.join(words)}{more}"
        )


def _rank_of(kind: str) -> int:
    """Return which steps come first among those of one depth: sends, then receives, then others."""
    return 0 if kind == "s" else 1 if kind in RECEIVES else 2
