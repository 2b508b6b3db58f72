"""Union of all registered collectives, in which `kind` selects the model."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema
from pydantic_core.core_schema import no_info_plain_validator_function

from collplan.specs.collectives import regular as regular  # registers its kinds, in this order
from collplan.specs.collectives import vectors as vectors  # isort: split

from collplan.specs.collectives import neighbors as neighbors
from collplan.specs.collectives.collective_base import COLLECTIVES as COLLECTIVES
from collplan.specs.collectives.collective_base import CollectiveModel


def traits_of(kind: str) -> type[CollectiveModel]:
    """Return the model of a kind; the base class for kinds of local work, such as a copy."""
    return COLLECTIVES.get(kind, CollectiveModel)


def _union() -> Any:
    return Annotated[reduce(or_, COLLECTIVES.values()), Field(discriminator="kind")]


@cache
def _adapter(n_kinds: int) -> TypeAdapter[CollectiveModel]:
    """Return the validator of collectives; the number of kinds keys the cache."""
    return TypeAdapter(_union())


def validate_collective(fields: Any) -> CollectiveModel:
    """Return the collective that a mapping of fields, including `kind`, describes.

    Raises
    ------
    pydantic.ValidationError
        If the kind does not exist, or its fields are not valid.
    """
    return _adapter(len(COLLECTIVES)).validate_python(fields)


class _Registered:
    """Validation by all models registered so far, and a JSON Schema of the models of `specs`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return no_info_plain_validator_function(
            validate_collective, json_schema_input_schema=handler.generate_schema(_union())
        )


Collective = Annotated[CollectiveModel, _Registered]
"""Any collective; `kind` selects its model."""
