"""What every spec has in common: frozen, no unknown keys, changed only by checked copies."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class SpecModel(BaseModel):
    """The base of all specs: immutable, hashable, compared by value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields exchanged, checked like a new one.

        pydantic's own ``model_copy`` neither checks nor forgets cached properties.

        Raises
        ------
        pydantic.ValidationError
            If the changed spec is not valid.
        """
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(values | changes))
