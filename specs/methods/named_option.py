"""Choices by name with options: algorithms, passes, and transports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_serializer

from collplan.specs.errors import show_value, suggest
from collplan.specs.methods.frozen_dict import FrozenDict
from collplan.specs.syntax.base import ShortModel, described

MAX_OPTION: Final = 2**62
"""Greatest absolute value of a numeric option, so that results computed with it fit 64 bits."""


def _freeze_option(value: Any) -> Any:
    """Turn lists into tuples, so that specs stay immutable and compare after a round trip."""
    if isinstance(value, list | tuple):
        return tuple(_freeze_option(entry) for entry in value)
    if value is None or isinstance(value, bool | str):
        return value
    if not isinstance(value, int | float):
        shown = show_value(value)
        raise ValueError(f"{shown} is not an option's value; give a number, a text or a list")
    if not abs(value) <= MAX_OPTION:
        raise ValueError(
            f"{show_value(value)} is too large for an option; give a number up to 2**62"
        )
    return value


Option = Annotated[Any, BeforeValidator(_freeze_option)]


def _choice_schema(_: object) -> dict[str, Any]:
    name = {"type": "string"}
    mapping = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    return {"anyOf": [name, mapping], "description": "A name, or {name: ..., option: value}."}


class NamedOption(ShortModel):
    """A name with options, written ``name`` or ``{name: ..., option: value}``.

    Values of options are kept as written. The algorithm or pass of that name
    interprets them.

    Parameters
    ----------
    name : str
        Name of the algorithm or pass.
    options : dict
        Options by name.

    Examples
    --------
    >>> NamedOption.model_validate({"name": "knomial", "radix": 4}).options
    {'radix': 4}
    """

    model_config = described(_choice_schema)
    text_is: ClassVar = "name"

    name: str
    options: Annotated[dict[str, Option], AfterValidator(FrozenDict)] = Field(
        default_factory=FrozenDict
    )

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the name, with all other keys as options."""
        if "name" not in fields:
            keys = show_value(", ".join(map(str, fields)), plain=True) or "nothing"
            raise ValueError(
                f"a mapping needs a name, got {keys}; give {{name: NAME, OPTION: VALUE}}"
            )
        options = fields.get("options", {})
        if not isinstance(options, Mapping):
            raise ValueError(
                f"options is {show_value(options)}; give a mapping of option names to values"
            )
        loose = {key: entry for key, entry in fields.items() if key not in ("name", "options")}
        return {"name": fields["name"], "options": {**options, **loose}}

    @model_serializer
    def _write_flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    def __hash__(self) -> int:
        return hash((type(self), self.name, tuple(sorted(self.options.items()))))

    def __str__(self) -> str:
        """Write the choice in one line, like ``knomial(radix=4)``."""
        options = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}({options})" if options else self.name


class AlgorithmChoice(NamedOption):
    """An algorithm by name, with its options.

    ``auto`` leaves the choice to the planner, ``native`` calls the collective of the MPI
    library, and ``mpich`` takes the algorithm that MPICH chooses by default.
    """


CHOICE_TAG: Final = "choice"
ROLES_TAG: Final = "roles"
_ROLE: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*(/[a-z_]+)?")


def _by_role(fields: Mapping[str, Any], role: re.Pattern[str], example: str) -> dict[str, Any]:
    for key in fields:
        if not isinstance(key, str) or not role.fullmatch(key):
            raise ValueError(f"{show_value(key)} is not a role; use node, lane, or as {example}")
    return {"roles": dict(fields)}


class AlgorithmsByRole(ShortModel):
    """An algorithm for every role in which a decomposition has components.

    A role is the place of a component in the decomposition, as ``node`` or ``lane``. The
    names of nested roles are joined by dots. ``node/allgather`` applies only to the
    components of role ``node`` that compute an allgather.

    Parameters
    ----------
    roles : dict
        Algorithm of each role; missing roles have ``auto``.

    Examples
    --------
    >>> AlgorithmsByRole.model_validate({"node": "ring", "lane": "auto"}).roles["node"].name
    'ring'
    """

    roles: Annotated[dict[str, AlgorithmChoice], AfterValidator(FrozenDict)]

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the roles."""
        if "name" in fields or "roles" in fields:
            return fields
        return _by_role(fields, _ROLE, "node/allgather")

    @model_serializer
    def _write_flat(self) -> dict[str, Any]:
        return {role: choice.model_dump(mode="json") for role, choice in self.roles.items()}

    def __hash__(self) -> int:
        return hash(tuple(sorted((role, hash(choice)) for role, choice in self.roles.items())))

    def __str__(self) -> str:
        """Write the choices in one line, like ``node: ring, lane: chain``."""
        return ", ".join(f"{role}: {choice}" for role, choice in self.roles.items())


class PassChoice(NamedOption):
    """A pass by name, with its options."""


def _tag_algorithms(value: Any) -> str:
    by_role = isinstance(value, AlgorithmsByRole)
    is_mapping = isinstance(value, Mapping) and "name" not in value
    return ROLES_TAG if by_role or is_mapping else CHOICE_TAG


Algorithms = Annotated[
    Annotated[AlgorithmsByRole, Tag(ROLES_TAG)] | Annotated[AlgorithmChoice, Tag(CHOICE_TAG)],
    Discriminator(_tag_algorithms),
]
"""One algorithm for all roles, or one per role."""


TRANSPORTS: Final = ("messages", "shared")
"""All transports by name."""
_PLACE: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")


def _transport_schema(_: object) -> dict[str, Any]:
    names = {"enum": list(TRANSPORTS)}
    mapping = {"type": "object", "additionalProperties": names}
    return {"anyOf": [names, mapping], "description": "A name, or {role: name}."}


class Transport(ShortModel):
    """A transport for all phases, or one per role; the name alone stands for all phases.

    Parameters
    ----------
    name : str
        Transport between ranks of one node: ``messages``, or ``shared`` memory.
    roles : dict
        Transport for the phases of each role, as ``{node: shared}``, instead of `name`.
        Phases of other roles use messages.

    Examples
    --------
    >>> Transport.model_validate("shared").model_dump()
    'shared'
    >>> Transport.model_validate({"node": "shared"}).shared_roles
    ('node',)
    """

    model_config = described(_transport_schema)
    text_is: ClassVar = "name"

    name: str = "messages"
    roles: Annotated[dict[str, str], AfterValidator(FrozenDict)] = Field(default_factory=FrozenDict)

    @classmethod
    def complete(cls, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the name of the transport, or the roles."""
        if "name" not in fields:  # no role is called so
            fields = _by_role(fields, _PLACE, "node.row")
        roles = fields.get("roles", {})
        if not isinstance(roles, Mapping):
            raise ValueError(f"roles is {show_value(roles)}; give {{role: transport}}")
        for name in (fields.get("name", "messages"), *roles.values()):
            if name not in TRANSPORTS:
                raise ValueError(
                    f"{show_value(name)} is not a transport; {suggest(name, TRANSPORTS)}use "
                    f"{' or '.join(TRANSPORTS)}"
                )
        return fields

    @property
    def shared_roles(self) -> tuple[str, ...] | None:
        """Return the roles whose phases share memory; None if all phases do."""
        if self.name == "shared":
            return None
        return tuple(role for role, name in self.roles.items() if name == "shared")

    @model_serializer
    def _write_short(self) -> Any:
        return dict(self.roles) if self.roles else self.name

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.roles.items()))))

    def __str__(self) -> str:
        """Write the transport in one line, like ``node: shared``."""
        if not self.roles:
            return self.name
        return ", ".join(f"{role}: {name}" for role, name in self.roles.items())
