"""How ranks of one node pass each other data: by messages, or through memory they share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from collplan.specs.base import SpecModel
from collplan.specs.showing import show_value

TRANSPORTS: Final = ("messages", "shared")
"""All transports by name."""
_ROLE: Final = re.compile(r"[a-z_]+(\.[a-z_]+)*")


class Transport(SpecModel):
    """A transport for all phases, or one for each role; a name alone may stand for it.

    Parameters
    ----------
    name : str
        What ranks of one node use: ``messages``, or ``shared`` memory.
    roles : dict
        Instead, a transport for the phases of each role, as ``{node: shared}``;
        the others use messages.

    Examples
    --------
    >>> Transport.model_validate("shared").model_dump()
    'shared'
    >>> Transport.model_validate({"node": "shared"}).shared_roles
    ('node',)
    """

    name: str = "messages"
    roles: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_short(cls, value: Any) -> Any:
        fields: dict[str, Any]
        if isinstance(value, Mapping) and "name" in value:
            # By keyword: no role is called so.
            roles = value.get("roles", {})
            if not isinstance(roles, Mapping):
                raise ValueError(f"roles is {show_value(roles)}; give {{role: transport}}")
            names, fields = [value["name"], *roles.values()], dict(value)
        elif isinstance(value, str):
            names, fields = [value], {"name": value}
        elif isinstance(value, Mapping):
            for role in value:
                if not isinstance(role, str) or not _ROLE.fullmatch(role):
                    raise ValueError(
                        f"{show_value(role)} is no role; use node, lane, or as node.row"
                    )
            names, fields = list(value.values()), {"roles": dict(value)}
        else:
            return value
        for name in names:
            if name not in TRANSPORTS:
                raise ValueError(
                    f"{show_value(name)} is no transport; use {' or '.join(TRANSPORTS)}"
                )
        return fields

    @property
    def shared_roles(self) -> tuple[str, ...] | None:
        """Return the roles whose phases share memory; None for all phases."""
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

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        names = {"enum": list(TRANSPORTS)}
        mapping = {"type": "object", "additionalProperties": names}
        return {"anyOf": [names, mapping], "description": "A name, or {role: name}."}
