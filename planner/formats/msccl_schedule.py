"""Schedules of MSCCL: steps of thread blocks, and an order in which they can run."""

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
"""Types of steps that send, that receive, and that combine several actions."""
_MOST_SHOWN: Final = 8

Place = tuple[str, int]
"""Buffer, and number of a chunk in it."""
Fail = Callable[[int, str, str], NoReturn]
"""Function that raises an error, given line, problem, and remedy."""


class Step(NamedTuple):
    """A step of a thread block: its type and chunks, and the step of another block it waits for.

    In files that collplan has written, `order` is the row of the task in the plan. Otherwise it
    is -1.
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
class ThreadBlock:
    """A thread block: a program of one GPU that sends to and receives from at most one peer."""

    gpu: int
    number: int
    send: int
    recv: int
    channel: int
    line: int
    steps: list[Step] = field(default_factory=list)


class Order(NamedTuple):
    """An order in which the steps of a schedule can run, and the happens-before relation.

    Parameters
    ----------
    steps : list of (int, int)
        Index of the thread block, and number of the step, of all steps in this order.
    depth : list of int
        Number of messages along the longest chain that a step waits for, per step.
    clocks : ndarray of int32, shape (n_steps, n_blocks)
        Last step of each thread block that happens before a step or is the step itself, for
        each step in this order; -1 if there is none.
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
        Name, collective and protocol as in the file.
    n_gpus, n_channels, n_chunks : int
        Number of GPUs, of channels, and of chunks of the larger one of input and output.
    min_bytes, max_bytes : int or None
        Smallest and largest size for which MSCCL uses the schedule; None if the file does not
        state it.
    is_in_place : bool
        Whether the schedule runs only in place, with one buffer for input and output.
    chunks : dict of int to dict of str to int
        Number of chunks of the buffers ``i``, ``o`` and ``s`` of each GPU.
    blocks : list of ThreadBlock
        Thread blocks of all GPUs.
    n_steps : int
        Number of steps of all thread blocks.
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
    blocks: list[ThreadBlock] = field(default_factory=list)
    n_steps: int = 0
    _awaited: set[tuple[int, int, int]] | None = None

    def check_connections(self, fail: Fail) -> None:
        """Call `fail` if two thread blocks share an end of a connection, or a step is missing.

        Messages of a pair of GPUs on a channel arrive in order. Therefore each end of the
        connection must belong to a single thread block. A missing step is one that another step
        depends on.
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
        """Return whether a step copies the left operand of the reduction in the next step.

        MSCCL has no reduction with a separate result. Instead, one operand is copied to the place
        of the result first. Both steps are one reduction if the result overlaps no operand, no
        step waits for the copy, and the reduction waits for no step of another block.
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
        """Return the steps for which other steps wait, as GPU, thread block and step."""
        if self._awaited is None:
            self._awaited = {
                (block.gpu, step.dep_block, step.dep_step)
                for block in self.blocks
                for step in block.steps
                if step.dep_block >= 0
            }
        return self._awaited

    def messages(self) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """Return the message that each step receives, and the message that it sends.

        Keys are the index of the thread block and the number of the step: ``(block, step)`` for
        received messages, ``(-1 - block, step)`` for sent messages. A message is a tuple of
        source, destination, channel, and number among the messages of this connection.
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
        """Return an order in which all steps can run, and messages are received in sending order.

        Raises
        ------
        DeadlockError
            If steps wait for each other. The message names them.
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
            # Messages are received in the order of their sends, and thread blocks take turns.
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
        """Yield, per step, the steps that it waits for, each with 1 if it sends its message."""
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
    """Return the order among steps of equal depth: 0 for sends, 1 for receives, 2 for others."""
    return 0 if kind == "s" else 1 if kind in RECEIVES else 2
