"""A collective call as all ranks see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective as all ranks see it, whatever their buffers look like.

    Parameters
    ----------
    kind : str
    n_bytes : int
        Of MPI's count.
    root : int
        0 where there is none.
    op : str or None
        The operation's name in specs; None where there is none or no plan has it.
    element : str or None
        What is reduced.
    """

    kind: str
    n_bytes: int
    root: int = 0
    op: str | None = None
    element: str | None = None
