"""Times of all blocking calls of a program, which its ranks write to files when they end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collplan.executors.mpi.host.topology import numbers_in
from collplan.specs.errors import CollplanError
from collplan.watch.sites import Sites, mappings_in

TRACE: Final = "COLLPLAN_TRACE"
"""Environment variable with the folder into which ranks write the times of their calls."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A blocking call of one rank.

    Parameters
    ----------
    rank : int
        Rank in ``MPI_COMM_WORLD``.
    key, size, member : int
        Key of the communicator, its number of ranks, and this rank in it.
    order : int
        Number of the call on the communicator.
    name : str
        Name of the function, as in `SeenCall`.
    root, n_bytes : int
        Root and size in bytes; `UNKNOWN` if they may differ per rank.
    site : str
        Call site.
    enter_s, leave_s : float
        Times at which the rank entered and left the call, in seconds of one clock of the node.
    """

    rank: int
    key: int
    size: int
    member: int
    order: int
    name: str
    root: int
    n_bytes: int
    site: str
    enter_s: float
    leave_s: float

    @property
    def seconds(self) -> float:
        """Time in the call in seconds."""
        return self.leave_s - self.enter_s


@dataclass(frozen=True, slots=True)
class ProgramTrace:
    """Calls of all ranks.

    Parameters
    ----------
    ranks : tuple of tuple of TracedCall
        Calls of each rank, in their order.
    n_lost : int
        Number of calls that are lost.
    processors : tuple of frozenset of int
        Processors that each rank may use; empty if they are unknown.
    """

    ranks: tuple[tuple[TracedCall, ...], ...]
    n_lost: int
    processors: tuple[frozenset[int], ...] = ()


def read_trace(folder: Path, n_ranks: int) -> ProgramTrace:
    """Read the calls of all ranks.

    Parameters
    ----------
    folder : Path
        Folder into which the ranks have written.
    n_ranks : int
        Number of ranks.

    Raises
    ------
    CollplanError
        If the file of a rank is missing or cut, or if ranks ran on several hosts, as their clocks
        are not compared.
    """
    found, hosts, n_lost, processors = [], set(), 0, []
    for rank in range(n_ranks):
        path = folder / f"{rank}.calls"
        try:
            head, *lines = path.read_text(errors="replace").splitlines()
            host, n_calls, usable = head.split("\t")
            processors.append(frozenset(numbers_in(usable)))
            calls = tuple(_calls(rank, lines, _sites(folder / f"{rank}.maps")))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CollplanError(
                f"rank {rank} has written no times of calls ({reason}); it must run with "
                "collplan's library and end by MPI_Finalize"
            ) from None
        hosts.add(host)
        n_lost += int(n_calls) - len(calls)
        found.append(calls)
    if len(hosts) > 1:
        raise CollplanError(
            f"ranks ran on {len(hosts)} hosts, whose clocks are not compared; run on one host"
        )
    return ProgramTrace(tuple(found), n_lost, tuple(processors))


def _sites(path: Path) -> Sites:
    sites = Sites()
    if path.is_file():
        sites.add(0, mappings_in(path.read_text(errors="replace")))
    return sites


def _calls(rank: int, lines: Iterable[str], sites: Sites) -> Iterable[TracedCall]:
    for line in lines:
        key, size, member, order, name, root, n_bytes, site, enter, leave = line.split("\t")
        place = sites.name(0, int(site)) if site.isdecimal() else site
        yield TracedCall(
            rank, int(key), int(size), int(member), int(order), name, int(root), int(n_bytes),
            place, int(enter) * 1e-9, int(leave) * 1e-9,
        )  # fmt: skip
