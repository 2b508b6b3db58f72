"""Settings with which MPI libraries run one of their own algorithms in a program."""

from __future__ import annotations

from typing import Final

from collplan.libraries.counterparts import Counterpart

_OPENMPI: Final = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_{kind}_algorithm {number}"
_OTHERS_FIRST: Final = " --mca coll ^han"
"""Option without which Open MPI prefers another component on several nodes."""
_DEVICE_FIRST: Final = "MPIR_CVAR_{kind}_DEVICE_COLLECTIVE=0 "
"""Variable without which MPICH prefers the collectives of its device on several nodes."""


def setting_of(library: str, row: Counterpart, *, spans_nodes: bool) -> str | None:
    """Return the beginning of a command whose program runs an algorithm in all calls.

    Parameters
    ----------
    library : str
        Name of the library in commands.
    row : Counterpart
        Algorithm of this library, whose messages are whole.
    spans_nodes : bool
        Whether ranks are on several nodes.

    Returns
    -------
    str or None
        ``mpiexec`` with variables of the environment before it or options after it. None if the
        library has no setting for the algorithm, or if the algorithm has parameters.

    Examples
    --------
    >>> from collplan.libraries.counterparts import algorithms_of
    >>> ring = next(row for row in algorithms_of("mpich").of("allreduce") if row.name == "ring")
    >>> setting_of("mpich", ring, spans_nodes=False)
    'MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM=ring mpiexec'
    """
    if row.options or row.setting:
        return None
    if library == "mpich":
        kind = row.collective.upper()
        before = _DEVICE_FIRST.format(kind=kind) if spans_nodes else ""
        return f"{before}MPIR_CVAR_{kind}_INTRA_ALGORITHM={row.name} mpiexec"
    if library == "openmpi" and row.number is not None:
        options = _OPENMPI.format(kind=row.collective, number=row.number)
        return f"mpiexec {options}{_OTHERS_FIRST if spans_nodes else ''}"
    return None
