"""Decompositions of a collective: by nodes and lanes, by a mesh, or into other collectives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field, model_serializer
from pydantic_core import to_jsonable_python

from collplan.specs.errors import show_value, suggest
from collplan.specs.machines.levels import Level, LevelName
from collplan.specs.syntax.base import ShortModel, described
from collplan.specs.syntax.numbers import NumberOfRanks

DECOMPOSITIONS: Final = (
    "flat",
    "auto",
    "hierarchical",
    "full_lane",
    "multi_leader",
    "mesh",
    "guideline",
)
"""All decompositions by name."""

MAX_DEPTH: Final = 6
"""Greatest depth of nested decompositions; a cluster has fewer levels to split by."""
MAX_DIMENSIONS: Final = 16
"""Most extents of a mesh: 16 extents of 2 give 2**16 ranks, the most that a plan has."""
_NESTING: Final = ("by", "node", "lane", "form")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "hierarchical": _NESTING,
    "full_lane": (*_NESTING, "shares"),
    "multi_leader": ("leaders", *_NESTING, "shares"),
    "mesh": ("shape", "by"),
    "guideline": ("form",),
}


def _check_extents(value: Any) -> Any:
    if isinstance(value, list | tuple) and any(isinstance(n, int) and n < 1 for n in value):
        raise ValueError(f"mesh of shape {show_value(value)}; every extent is 1 or more")
    return value


Shape = Annotated[
    tuple[NumberOfRanks, ...],
    Field(max_length=MAX_DIMENSIONS),
    BeforeValidator(_check_extents),
]


def _schema(fields: dict[str, Any]) -> dict[str, Any]:
    names = {"enum": list(DECOMPOSITIONS)}
    mapping = {
        "type": "object",
        "properties": {**fields["properties"], "name": names},
        "required": ["name"],
        "additionalProperties": False,
    }
    return {"anyOf": [names, mapping], "description": "A name, or {name: ..., option: value}."}


class Decomposition(ShortModel):
    """A decomposition by name, with its options; the name alone stands for the defaults.

    Parameters
    ----------
    name : str
        Name of the decomposition. ``flat`` runs one algorithm over all ranks.
        ``hierarchical`` communicates between nodes through one leader per node,
        ``multi_leader`` through `leaders` leaders per node, and ``full_lane`` through
        all ranks. ``mesh`` runs the collective along one dimension of `shape` after the
        other. ``guideline`` composes the collective of other collectives over all ranks.
        ``auto`` leaves the choice to the planner.
    leaders : int
        Number of leaders per node, for ``multi_leader``.
    shape : tuple of int
        Extents of the mesh; ranks along the last dimension are consecutive.
    by : str
        Level whose places the decomposition takes as nodes: ``node``, or ``numa`` for NUMA
        domains. If the network has a topology, also ``switch`` (or ``rack``) for all nodes
        of a switch, and ``group`` for all nodes of a group. For a mesh without a shape, the
        level whose places form the rows.
    node, lane : Decomposition
        Decomposition of the collectives inside nodes (`node`) and between nodes (`lane`).
    form : str
        For ``guideline``, the composition, as ``reduce+bcast``. For the others, the way in
        which leaders run the collective, if there are several ways.
    shares : str
        Share of the data per leader, for ``multi_leader`` and ``full_lane``. With ``equal``,
        leaders carry equal shares of a vector, or whole blocks. With ``balanced``, each
        carries a share in proportion to the rate of its lane, and blocks may be split.

    Examples
    --------
    >>> Decomposition.model_validate({"name": "mesh", "shape": [4, 2]}).shape
    (4, 2)
    >>> Decomposition.model_validate("full_lane").model_dump()
    'full_lane'
    """

    model_config = described(_schema)
    text_is: ClassVar = "name"

    name: str
    leaders: NumberOfRanks | None = None
    shape: Shape | None = None
    by: Level = "node"
    node: Decomposition | None = None
    lane: Decomposition | None = None
    form: str | None = None
    shares: Literal["equal", "balanced"] = "equal"

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the fields; raise `ValueError` if they nest too deeply or the name is unknown."""
        _require_depth(fields)
        name = fields.get("name")
        if name not in DECOMPOSITIONS:
            problem = f"{show_value(name)} is not a decomposition"
            if name is None:
                problem = "a decomposition needs a name"
            hint = suggest(name, DECOMPOSITIONS)
            raise ValueError(f"{problem}; {hint}valid: {', '.join(DECOMPOSITIONS)}")
        return fields

    def _check(self) -> None:
        allowed = _FIELDS.get(self.name, ())
        for field in sorted(self._given.keys() - {*allowed}):
            takes = f"takes {', '.join(allowed)}" if allowed else "takes no options"
            raise ValueError(f"{self.name} has no {field}; it {takes}")
        if self.name == "multi_leader" and self.leaders is None:
            raise ValueError("multi_leader needs leaders, as {name: multi_leader, leaders: 2}")
        self._check_mesh()
        for nested in (self.node, self.lane):
            if nested is not None and nested.name == "auto":
                raise ValueError("auto inside a decomposition; name it, or use auto for the whole")

    def _check_mesh(self) -> None:
        if self.name != "mesh":
            return
        if self.shape is None and "by" not in self.model_fields_set:
            raise ValueError(
                "mesh needs a shape of two or more, as {name: mesh, shape: [4, 2]}, or by, as "
                "{name: mesh, by: node}"
            )
        if self.shape is not None and len(self.shape) < 2:
            raise ValueError("mesh needs a shape of two or more, as {name: mesh, shape: [4, 2]}")
        if self.shape is not None and self.by != "node":
            raise ValueError(f"mesh has a shape, and by says {self.by}; leave one of them out")

    @property
    def levels(self) -> frozenset[LevelName]:
        """Return the levels taken as nodes here and in nested decompositions."""
        nested = (part.levels for part in (self.node, self.lane) if part is not None)
        return frozenset({self.by}).union(*nested)

    @property
    def _given(self) -> dict[str, Any]:
        """Options that differ from their defaults; also `by` for a mesh without a shape."""
        fields = type(self).model_fields
        values = {name: getattr(self, name) for name in fields if name != "name"}
        given = {name: one for name, one in values.items() if one != fields[name].default}
        return given | ({"by": self.by} if self.name == "mesh" and self.shape is None else {})

    @model_serializer
    def _write_short(self) -> Any:
        given = to_jsonable_python(self._given)
        return {"name": self.name, **given} if given else self.name

    def __str__(self) -> str:
        """Write the decomposition in one line, like ``mesh(shape=4x2)``."""
        shape = {"shape": "x".join(map(str, self.shape))} if self.shape else {}
        options = ", ".join(f"{name}={value}" for name, value in (self._given | shape).items())
        return f"{self.name}({options})" if options else self.name


def _require_depth(fields: Mapping[str, Any]) -> None:
    """Raise `ValueError` if decompositions nest too deeply, as each level doubles the work."""
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        level = [
            nested
            for outer in level
            for nested in (outer.get("node"), outer.get("lane"))
            if isinstance(nested, Mapping)
        ]
    if level:
        raise ValueError(
            f"decompositions nested more than {MAX_DEPTH} deep; leave out the innermost"
        )
