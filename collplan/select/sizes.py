"""Message sizes that users ask for, in bytes, and the counts of elements that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

from collplan.specs import PlanSpec
from collplan.specs.errors import CollplanError, show_value
from collplan.specs.syntax.numbers import MAX_COUNT, parse_bytes

Sizes = int | str | Sequence[int | str]
"""Sizes with commas between them, as ``64KiB,1MiB``, a list of sizes, or one size in bytes."""


def parse_sizes(
    sizes: Sizes,
    itemsize: int = 1,
    datatype: str = "a byte",
    max_count: int | None = None,
    name: str = "--sizes",
) -> list[int]:
    """Return sizes in bytes, ascending and without repetitions.

    Parameters
    ----------
    sizes : int, str or sequence of int or str
        Sizes, such as ``64KiB,1MiB``.
    itemsize : int
        Size of an element in bytes, of which all sizes must be multiples.
    datatype : str
        Name of the elements in error messages.
    max_count : int, optional
        Largest number of elements; no limit by default.
    name : str
        Name of the option in error messages.

    Raises
    ------
    CollplanError
        If an item is not a size, is not a multiple of `itemsize`, or is too large; or if there
        are no sizes.

    Examples
    --------
    >>> parse_sizes("64KiB,4KiB,64KiB"), parse_sizes([1024, "1KiB"])
    ([4096, 65536], [1024])
    """
    sizes = sizes.tolist() if hasattr(sizes, "tolist") else sizes  # of numpy
    sizes = [sizes] if isinstance(sizes, int | float) and not isinstance(sizes, bool) else sizes
    if not isinstance(sizes, str | list | tuple | range) or not len(sizes):
        raise CollplanError(f"{name}: {show_value(sizes)} are no sizes; give some, as 64KiB,1MiB")
    found = set()
    for part in sizes.split(",") if isinstance(sizes, str) else sizes:
        shown = str(part).strip()
        try:
            size = parse_bytes(part)
        except ValueError as error:
            raise CollplanError(f"{name}: {error}") from None
        if size % itemsize:
            raise CollplanError(
                f"{name}: {shown} is not a multiple of the {itemsize} bytes of {datatype}; "
                f"give whole elements"
            )
        if max_count is not None and size // itemsize > max_count:
            raise CollplanError(
                f"{name}: {shown} is too large; give at most {max_count} times {itemsize} bytes"
            )
        found.add(size)
    return sorted(found)


def counts_of(sizes: Sizes | None, spec: PlanSpec, name: str = "--sizes") -> list[int]:
    """Return the counts of elements for sizes; by default, the spec's count.

    Raises
    ------
    CollplanError
        If an item is not a size, or counts that differ per rank cannot be scaled to a size.
    """
    collective = spec.collective
    if sizes is None or not collective.has_data:
        return [collective.count]
    itemsize = collective.itemsize
    found = parse_sizes(sizes, itemsize, collective.datatype, MAX_COUNT, name)
    counts = [size // itemsize for size in found]
    for count in counts if collective.regular else ():
        for problem in collective.with_count(count).misfits(spec.machine.n_ranks):
            raise CollplanError(
                f"{name}: {count * itemsize} bytes do not fit: {problem}; leave {name} out"
            )
    return counts
