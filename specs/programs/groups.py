"""Groups of ranks that execute a step of a program at the same time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, model_serializer

from collplan.specs.errors import first_repeated, show_value
from collplan.specs.machines.machine import Machine
from collplan.specs.syntax.base import ShortModel, described
from collplan.specs.syntax.numbers import Positive, Rank

_FORMS: Final = (
    "give all, node, lane, {rows: [ROWS, COLUMNS]}, {columns: [ROWS, COLUMNS]}, {every: STEP}, "
    "or {ranks: [...]}"
)
Shape = tuple[Positive, Positive]
Groups = tuple[tuple[int, ...], ...]


def _read_ranks(value: Any) -> Any:
    """Return lists of ranks; one list of numbers is one group."""
    if isinstance(value, list | tuple) and value and not isinstance(value[0], list | tuple):
        return (value,)
    return value


def _group_schema(fields: dict[str, Any]) -> dict[str, Any]:
    about = "The groups of ranks that take part."
    return {"anyOf": [{"enum": ["all", "node", "lane"]}, fields], "description": about}


class StepGroup(ShortModel):
    """The groups of ranks on which a step runs, all at the same time.

    Exactly one of the fields is given. A name alone stands for `name`.

    Parameters
    ----------
    name : str
        ``all`` ranks together; the ranks of each ``node``; or the ranks with the same number
        within their nodes, which form one ``lane`` across all nodes.
    rows, columns : tuple of int
        Number of rows and columns of a grid that has all ranks in row-major order: each row is a
        group, or each column.
    every : int
        Ranks whose numbers differ by multiples of this number form a group.
    ranks : tuple of tuple of int
        Ranks of each group, in the order of their positions; one list is one group. Other ranks
        take no part.

    Examples
    --------
    >>> StepGroup.model_validate({"columns": [2, 3]}).groups(Machine(ranks_per_node=6))
    ((0, 3), (1, 4), (2, 5))
    """

    model_config = described(_group_schema)
    text_is: ClassVar = "name"

    name: Literal["all", "node", "lane"] | None = None
    rows: Shape | None = None
    columns: Shape | None = None
    every: Positive | None = None
    ranks: Annotated[tuple[tuple[Rank, ...], ...], BeforeValidator(_read_ranks)] | None = None

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields; raise `ValueError` unless exactly one of them is given."""
        given = [name for name in cls.model_fields if fields.get(name) is not None]
        if len(given) != 1 and not set(fields) - set(cls.model_fields):
            names = " and ".join(given)
            raise ValueError(f"names {names or 'no ranks'}; {_FORMS}")
        return fields

    def _check(self) -> None:
        members = [rank for group in self.ranks or () for rank in group]
        if self.ranks is not None and not all(self.ranks):
            raise ValueError(f"ranks has a group without ranks; {_FORMS}")
        if (place := first_repeated(members)) >= 0:
            raise ValueError(
                f"ranks has rank {members[place]} twice; groups that run together are disjoint"
            )

    def groups(self, machine: Machine) -> Groups:
        """Return the ranks of each group, in the order of their positions.

        Raises
        ------
        ValueError
            If the groups do not fit the machine.
        """
        n_ranks = machine.n_ranks
        if self.ranks is not None:
            for rank in (rank for group in self.ranks for rank in group):
                if rank >= n_ranks:
                    raise ValueError(
                        f"ranks has rank {rank}, machine has {n_ranks}; use 0 to {n_ranks - 1}"
                    )
            return self.ranks
        if self.name == "all":
            return (tuple(range(n_ranks)),)
        if self.name is not None:
            places = machine.rank_to_node if self.name == "node" else machine.rank_to_local
            return _alike(places)
        if self.every is not None:
            return _alike(tuple(rank % self.every for rank in range(n_ranks)))
        shape = self.rows or self.columns
        assert shape is not None
        if math.prod(shape) != n_ranks:
            raise ValueError(
                f"a grid of {shape[0]} x {shape[1]} has {math.prod(shape)} ranks, machine has "
                f"{n_ranks}; use extents whose product is {n_ranks}"
            )
        divide = int.__floordiv__ if self.rows is not None else int.__mod__
        return _alike(tuple(divide(rank, shape[1]) for rank in range(n_ranks)))

    @model_serializer
    def _write_given(self) -> Any:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        given = {name: value for name, value in fields.items() if value is not None}
        return given.get("name", given)

    def __str__(self) -> str:
        """Write the groups in one line."""
        written = self._write_given()
        if isinstance(written, str):
            return written
        return " ".join(f"{name} {show_value(value)}" for name, value in written.items())


def _alike(keys: tuple[int, ...]) -> Groups:
    """Return the ranks of each key, in the order of the keys."""
    found: dict[int, list[int]] = {}
    for rank, key in enumerate(keys):
        found.setdefault(key, []).append(rank)
    return tuple(tuple(found[key]) for key in sorted(found))
