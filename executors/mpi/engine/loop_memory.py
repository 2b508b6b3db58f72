"""The memory of one bound program that the compiled loop reads and writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from ctypes import c_int32
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from collplan.executors.mpi.engine.node_memory import LINE_BYTES, NodeMemory
from collplan.executors.mpi.engine.progress_thread import Background, semaphore
from collplan.executors.mpi.loop.entries import address_of
from collplan.executors.mpi.loop.records import CURSOR, IDLING, N_CURSORS, STATE, TASK
from collplan.executors.mpi.program.local_tasks import LEFT_STAGE, N_BASES, RIGHT_STAGE, local_tasks
from collplan.executors.mpi.program.messages import HANDLE_BYTES, STATUS_BYTES
from collplan.executors.mpi.program.program import Program, left_to_caller
from collplan.planner.arrays import Array, Longs, csr
from collplan.planner.plan.plan import Stage

TURN_NS: Final = 50_000_000
"""Maximum time in the loop before Python handles signals, in ns."""
THREAD_TURN_NS: Final = 10_000_000
"""Maximum time before a progress thread checks whether it must stop, in ns."""
SPINS: Final = 100
"""Number of consecutive polls before an idle rank yields its core between polls."""
FEW_SPINS: Final = 20
"""Number of such polls if ranks share cores, as the awaited rank may need this core."""
YIELDS: Final = 300
"""Number of yields before a rank sleeps, if ranks share cores."""
VAIN_YIELDS: Final = 5
"""Number of such yields if the system does not give a yielded core to other ranks."""
SLEEP_STEPS: Final = 16
"""Number of consecutive sleeps until they have their maximum length."""
_BY_TASK: Final = ("before", "messages", "local", "held", "waiting", "next_wait")
_SYSTEM: Final = ("clock_gettime", "nanosleep", "sched_yield", "sem_timedwait")
_THREADING: Final = ("sem_wait", "sem_trywait", "sem_post", "sched_setaffinity")


class Recorder:
    """Times of the tasks of one rank in the last start, as an argument of `bind`.

    A message starts when it is passed to MPI and ends when its completion is detected. A local
    task starts directly before its work and ends directly after it.
    """

    def __init__(self) -> None:
        self._times: Longs = np.zeros((2, 0), dtype=np.int64)
        self._by_row: Longs = np.zeros(0, dtype=np.int64)

    def prepare(self, program: Program) -> Longs:
        """Return arrays for the starts and ends of a program's tasks, in program order."""
        self._times = np.zeros((2, program.n_tasks), dtype=np.int64)
        self._by_row = np.argsort(program.row)
        return self._times

    def times(self) -> Longs:
        """Return starts and ends in ns of the monotonic clock.

        Returns
        -------
        ndarray of int64, shape (2, n_tasks)
            Start and end of each task, in the order of rows in the plan.
        """
        return self._times[:, self._by_row]


class SharedRecord:
    """A record of numbers that compiled code and Python share, with the arrays it refers to.

    Parameters
    ----------
    dtype : dtype
        Structured dtype of the record, with fields of 64 bits.

    Attributes
    ----------
    address : int
        Address of the record.
    words : memoryview
        Fields of the record, for fast access from Python.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._row = np.zeros(1, dtype=dtype)
        self._kept: list[Array] = []
        self.address: int = self._row.ctypes.data
        self.words: memoryview[int] = self._row.view(np.int64).data

    def set(self, **values: int) -> None:
        """Set fields."""
        for name, value in values.items():
            self._row[name] = value

    def get(self, name: str) -> int:
        """Return a field."""
        return int(self._row[name][0])

    def address_in(self, field: str) -> int:
        """Return the address of a field."""
        fields: Any = self._row.dtype.fields
        return int(self.address + fields[field][1])

    def place(self, **arrays: Array) -> None:
        """Set fields to the addresses of arrays, and keep the arrays alive."""
        self._kept.extend(arrays.values())
        self.set(**{name: array.ctypes.data for name, array in arrays.items()})

    def point(self, **fields: str) -> None:
        """Set fields to the addresses of other fields."""
        self.set(**{name: self.address_in(field) for name, field in fields.items()})

    def find(self, *functions: str, library: str | None = None) -> None:
        """Set fields to the addresses of the C functions with their names."""
        self.set(**{name: address_of(name, library) for name in functions})

    def image(self, *fields: str) -> Image:
        """Return a copy of the record and its arrays that another process can use.

        Parameters
        ----------
        *fields : str
            Names of fields that contain addresses in the record or its arrays.
        """
        arrays = [self._row, *self._kept]
        starts = csr.running_total([-(-one.nbytes // LINE_BYTES) * LINE_BYTES for one in arrays])
        everything = np.zeros(int(starts[-1]), dtype=np.uint8)
        places: dict[int, int] = {}
        for array, start in zip(arrays, starts[:-1].tolist(), strict=True):
            flat = np.ascontiguousarray(array.reshape(-1)).view(np.uint8)
            everything[start : start + array.nbytes] = flat
            places.setdefault(array.ctypes.data, start)
        inside = range(self.address, self.address + self._row.nbytes)
        places |= {address: address - self.address for address in inside}
        found = [(self.address_in(name), self.get(name)) for name in fields if self.get(name)]
        relocations = [(place - self.address, places[target]) for place, target in found]
        return Image(everything, places, np.array(relocations, dtype=np.int64).reshape(-1, 2))


@dataclass(frozen=True, eq=False, slots=True)
class Image:
    """A record and its arrays in one block of memory that can be used at any address.

    Parameters
    ----------
    memory : ndarray of uint8
        The record and then the arrays, each in separate cache lines.
    places : mapping of int to int
        Offsets in `memory` of former addresses.
    relocations : ndarray of int64, shape (n, 2)
        Offsets in `memory` of an address, and of the data that it must refer to.
    """

    memory: Array
    places: dict[int, int]
    relocations: Longs


class LoopMemory(SharedRecord):
    """The state of the loop, with the arrays whose addresses it contains.

    Parameters
    ----------
    program : Program
        The rank's tasks and their successors.
    reduce : int
        Address of the compiled reduction; 0 if there is none.
    background : Background, optional
        Processors for background tasks, if a thread runs these.

    Attributes
    ----------
    bases : memoryview
        Addresses of buffers, by number.
    tasks : ndarray of TASK, shape (n_tasks + 1,)
        The tasks. The fields of messages are filled in later.
    statuses : ndarray of uint8
        Statuses of completed messages.
    """

    def __init__(
        self, program: Program, reduce: int = 0, background: Background | None = None
    ) -> None:
        super().__init__(STATE)
        beside_ns = 0
        if background is not None:
            program, beside_ns = left_to_caller(program, background.processor >= 0)
        self.tasks = np.zeros(program.n_tasks + 1, dtype=TASK)
        # A probe needs one, even if there are no messages.
        n_statuses = max(1, int(program.is_requested.sum()))
        self.statuses = np.zeros(n_statuses * STATUS_BYTES, np.uint8)
        bases = np.zeros(N_BASES, dtype=np.int64)
        self.bases: memoryview[int] = bases.data
        self.place(tasks=self.tasks, statuses=self.statuses, bases=bases)
        self.set(n_tasks=program.n_tasks, computing=-1, turn_ns=TURN_NS, beside_ns=beside_ns)
        self.set(handle_bytes=HANDLE_BYTES, element_bytes=program.itemsize, reduce=reduce)
        self._fill_tasks(program)
        self._fill_queues(program, has_thread=background is not None)
        self.point(now="now_s", sleep="sleep_s", deadline="deadline_s", probed="n_probed")
        self.point(hold_until="hold_until_ns")
        self.set(monotonic=time.CLOCK_MONOTONIC, realtime=time.CLOCK_REALTIME)
        self.find(*_SYSTEM)
        self._idling = caller, thread = np.zeros((2, 1), dtype=IDLING)
        self.place(idling=caller, caller_idling=caller, thread_idling=thread)
        self.set_idling(0.0)
        self.tasks["processor"] = -1
        if background is not None:
            self._fill_thread(background)

    def set_idling(
        self, longest_sleep_s: float, yields_help: bool = True, *, of_thread: bool = False
    ) -> None:
        """Set the polls and sleeps of an idle rank.

        Parameters
        ----------
        longest_sleep_s : float
            Maximum sleep between polls; 0 if the rank has its own core.
        yields_help : bool
            Whether a yielded core is given to another rank.
        of_thread : bool
            Whether this applies to the progress thread instead of the caller.
        """
        longest_ns = round(longest_sleep_s * 1e9)
        spins = FEW_SPINS if longest_ns and not yields_help else SPINS
        yields = YIELDS if yields_help else VAIN_YIELDS
        self._idling[int(of_thread)] = spins, yields, longest_ns // SLEEP_STEPS, longest_ns

    def numbers(self, name: str, n: int) -> npt.NDArray[np.int32]:
        """Return a copy of the first entries of an array of the loop."""
        return np.array((c_int32 * n).from_address(self.get(name)), dtype=np.int32)

    def use(self, buffers: Sequence[Array]) -> None:
        """Use the given send, receive, scratch and shared buffers."""
        for i, buffer in enumerate(buffers):
            self.bases[i] = buffer.ctypes.data

    def share(self, node: NodeMemory) -> None:
        """Exchange progress with other ranks of the node through their shared memory."""
        self.place(waits=node.waits)
        self.set(
            n_sharing=node.n_ranks,
            counters=node.counters,
            own_counter=node.own_counter,
            own_flags=node.own_flags,
        )

    def call(self, calls: Array) -> None:
        """Set the arguments of the program's calls of MPI's collectives."""
        self.place(calls=calls)

    def record(self, recorder: Recorder, program: Program) -> None:
        """Let the loop record when tasks start and end."""
        start_ns, end_ns = recorder.prepare(program)
        self.place(start_ns=start_ns, end_ns=end_ns)
        self.set(is_recorded=1)

    def _fill_tasks(self, program: Program) -> None:
        tasks = self.tasks
        tasks["kind"][:-1], tasks["local"][:-1], tables = local_tasks(program)
        tasks["stage"][:-1] = program.stage
        sharing = program.sharing
        tasks["waits"][:-1], tasks["is_gated"][:-1] = sharing.waits, sharing.is_gated
        tasks["flag"][:-1], tasks["first_wait"] = sharing.own_flag, sharing.indptr
        tasks["first_on_start"] = program.on_start.indptr
        tasks["first_on_completion"] = program.on_completion.indptr
        self.place(**tables, cursors=np.zeros(N_CURSORS, dtype=CURSOR))
        for number in (LEFT_STAGE, RIGHT_STAGE):
            stage = np.empty(tables["stage_extents"]["run"][0], np.uint8)
            self._kept.append(stage)
            self.bases[number] = stage.ctypes.data

    def _fill_queues(self, program: Program, *, has_thread: bool) -> None:
        # A thread, if there is one, runs all tasks outside of the START stage.
        is_held = program.stage > (Stage.START if has_thread else Stage.BACKGROUND)
        waits, is_message = program.sharing.waits, program.is_requested
        is_root = program.n_before == 0
        is_free = is_root & ~is_held & ~waits
        for name, chosen in (
            ("first_held", is_root & is_held),
            ("first_waiting", is_root & ~is_held & waits),
            ("first_messages", is_free & is_message),
            ("first_local", is_free & ~is_message),
        ):
            places = np.flatnonzero(chosen).astype(np.int32)
            self.place(**{name: places})
            self.set(**{f"n_{name}": len(places)})
        self.place(
            n_before=program.n_before.astype(np.int32),
            on_start=program.on_start.task.astype(np.int32),
            on_completion=program.on_completion.task.astype(np.int32),
        )
        self.set(
            n_in_start=int((program.stage == Stage.START).sum()),
            n_held_in_all=int((program.stage == Stage.WAIT).sum()),
            n_messages_in_all=int(is_message.sum()),
        )
        n, n_messages = program.n_tasks, int(is_message.sum())
        self.place(**{name: np.zeros(n, np.int32) for name in _BY_TASK})
        self.place(
            active=np.zeros(n_messages, np.int32),
            finished=np.zeros(n_messages + 1, np.int32),
            requests=np.zeros(n_messages * HANDLE_BYTES, np.uint8),
        )

    def _fill_thread(self, background: Background) -> None:
        self.tasks["processor"][:-1] = background.processor
        masks = background.masks()
        self.place(masks=masks, handed=semaphore(), over=semaphore())
        self.set(has_thread=1, thread_turn_ns=THREAD_TURN_NS, mask_bytes=masks[0].nbytes)
        self.set(processor=-1)
        self.point(stopping="is_stopping")
        self.find(*_THREADING)
