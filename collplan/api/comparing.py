"""Comparison of all candidates of a collective, as programs call it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from collplan.api.sources import Source, spec_of
from collplan.specs.syntax.calling import ArgumentError, explains_calls, wrong_type

if TYPE_CHECKING:
    from collplan.select.compared import Comparison
    from collplan.select.sizes import Sizes


@explains_calls("compare")
def compare(
    source: Source,
    sizes: Sizes | None = None,
    *,
    candidates: str | Sequence[str] = (),
    seconds: float | None = 60.0,
    workers: Any = None,
) -> Comparison:
    """Find the best candidate of every size, and the sizes at which it changes.

    Parameters
    ----------
    source : PlanSpec, mapping, str, Path or Plan
        A spec, its fields, the path of its file, or a plan of it.
    sizes : int, str or sequence of int or str, optional
        Sizes in bytes of the vector, or of one block, as ``"1KiB,1MiB"`` or ``[1024, "1MiB"]``;
        by default, that of the spec.
    candidates : str or sequence of str
        Names or families, with wildcards, to which the spec's own candidate is added; all
        candidates, and the defaults of MPI libraries, if there are none.
    seconds : float, optional
        Approximate processor time of each worker in seconds; None for no limit. The candidates
        that remain are left out.
    workers : concurrent.futures.Executor or distributed.Client, optional
        Processes that simulate candidates; by default, this process does.

    Returns
    -------
    Comparison
        Its `best` has the winner by bytes; in notebooks, it is shown as a table.

    Raises
    ------
    CollplanError
        If the source is no spec, a size does not fit, or a name fits no candidate.
    PlanError
        If an algorithm of yours is wrong. The message is a counter-example.
    """
    from collplan.select.comparison import compare as compare_specs
    from collplan.select.sizes import counts_of

    if workers is not None and not hasattr(workers, "submit"):
        raise wrong_type("workers", workers, "an executor, as ProcessPoolExecutor(4)")
    if seconds is not None and seconds <= 0:
        raise ArgumentError(f"seconds: {seconds} is no time; give more than 0, or None")
    spec = spec_of(source)
    specs = [spec.with_count(count) for count in counts_of(sizes, spec, "sizes")]
    patterns = candidates.split(",") if isinstance(candidates, str) else list(candidates)
    return compare_specs(specs, workers, patterns=patterns, seconds=seconds)
