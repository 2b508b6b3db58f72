"""Tuning of one collective, as programs call it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.api.sources import Source, spec_of
from collplan.select.sizes import Sizes, parse_sizes
from collplan.specs.syntax.calling import explains_calls, require_comm
from collplan.specs.syntax.numbers import MAX_COUNT

if TYPE_CHECKING:
    from collplan.tables.table import TuningTable


@explains_calls("tune")
def tune(
    source: Source,
    comm: Any,
    output: str | Path,
    sizes: Sizes | None = None,
    *,
    at_most: int | None = None,
    restart: bool = False,
) -> TuningTable:
    """Measure the candidates of a collective, and write a table of the fastest; collective.

    ``collplan tune`` measures several collectives, starts the ranks itself, and goes on where a
    candidate crashes.

    Parameters
    ----------
    source : PlanSpec, mapping, str, Path or Plan
        A spec with the collective, its fields, the path of its file, or a plan of it.
    comm : mpi4py.MPI.Intracomm
        Communicator of all ranks that measure.
    output : str or Path
        Table to write, ending in ``.yaml`` or ``.json``. Sweeps are added to an existing table.
    sizes : int, str or sequence of int or str, optional
        Sizes in bytes of the vector, or of one block, as ``"1KiB,1MiB"``; by default, that of
        the spec.
    at_most : int, optional
        Largest number of candidates to measure per size; no limit by default.
    restart : bool
        Whether to discard an unfinished run and replace an existing table.

    Returns
    -------
    TuningTable
        The table, on all ranks.

    Raises
    ------
    CollplanError
        If the source is no spec, a size does not fit, or files of earlier runs do not fit.
    """
    from collplan.tune.options import TuningJob
    from collplan.tune.tuner import tune as measure

    require_comm(comm)
    spec = spec_of(source)
    one = spec.collective
    wanted = [one.count * one.itemsize] if sizes is None and one.has_data else sizes or [0]
    found = parse_sizes(wanted, one.itemsize if one.has_data else 1, one.datatype, MAX_COUNT,
                        "sizes")  # fmt: skip
    machine = spec.machine
    job = TuningJob(
        collectives=(one,),
        sizes=tuple(found),
        at_most=at_most,
        network=machine.network,
        lanes=machine.n_lanes if "lanes" in machine.model_fields_set else None,
        numa_domains=machine.numa_domains,
    )
    return measure(comm, job, Path(output), restart=restart).table
