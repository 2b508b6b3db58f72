"""Ranks that only exist in memory, for tests of the reports of ranks that hang."""

from __future__ import annotations

import mmap
import os

from collplan.watch.area import INSIDE, RANK_BYTES, STARTED, UNKNOWN, WORLD, Area, WatchedRank
from collplan.watch.recorder import CallRecorder


class Crew:
    """Ranks of a node that record calls, all of them in this process.

    Parameters
    ----------
    n_ranks : int
        Number of ranks.
    pids : list of int, optional
        Process of each rank; by default this process for all of them, plus a large number.
    """

    def __init__(self, n_ranks: int, pids: list[int] | None = None) -> None:
        self.area = Area(mmap.mmap(-1, n_ranks * RANK_BYTES), n_ranks)
        self.recorders = [CallRecorder(self.area, rank, rank) for rank in range(n_ranks)]
        self.pids = pids or [10**7 + os.getpid() + rank for rank in range(n_ranks)]
        for rank, pid in enumerate(self.pids):
            base = rank * RANK_BYTES
            self.area.memory[base : base + 8] = pid.to_bytes(8, "little")
        self._latest: dict[int, int] = {}
        self.world = self.comm(WORLD, "")

    def comm(self, key: int, made_by: str, ranks: list[int] | None = None) -> dict[int, int]:
        """Make a communicator; return its place on each rank."""
        among = ranks or list(range(len(self.recorders)))
        places = {}
        for one in among:
            place = self.recorders[one].add_comm(key, len(among), among.index(one), made_by)
            assert place is not None
            places[one] = place
        return places

    def call(
        self,
        rank: int,
        name: str,
        *,
        comm: dict[int, int] | None = None,
        root: int = 0,
        n_bytes: int = UNKNOWN,
        element: str = "",
        op: str = "",
        returns: bool = False,
        starts: bool = False,
    ) -> None:
        """Let a rank call a collective, from which it returns or does not."""
        recorder, places = self.recorders[rank], comm or self.world
        at = recorder.enter(
            places[rank], name.encode(), root, n_bytes, element.encode(), op.encode(),
            STARTED if starts else INSIDE,
        )  # fmt: skip
        self._latest[rank] = at
        if returns:
            recorder.leave(at)

    def leave(self, rank: int) -> None:
        """Let a rank return from its latest call."""
        self.recorders[rank].leave(self._latest[rank])

    def all_call(self, name: str, **more: object) -> None:
        """Let all ranks call a collective and return from it."""
        for rank in range(len(self.recorders)):
            self.call(rank, name, returns=True, **more)  # type: ignore[arg-type]

    def ranks(self) -> list[WatchedRank]:
        """Return the states of the ranks."""
        return self.area.ranks()
