"""Origins of plans: the specs of collectives or programs that they were compiled from.

The execution of a plan needs no model of a spec.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from collplan.specs.collectives.predefined import NO_DATATYPE
from collplan.specs.syntax.documents import write_json

if TYPE_CHECKING:
    from collplan.specs.machines.machine import Machine
    from collplan.specs.programs.program import ProgramSpec
    from collplan.specs.request import PlanSpec


class Origin(ABC):
    """The spec that a plan was compiled from, as a document and as a model.

    Executing a plan takes what it needs from the document, which a plan file holds, too.
    The model of a plan in a file is made when it is first asked for: to import pydantic takes
    about as long as everything else that a rank does to load and bind a small plan.
    """

    @property
    @abstractmethod
    def document(self) -> Mapping[str, Any]:
        """Return the spec as ``model_dump(mode="json")`` of its model writes it."""

    @abstractmethod
    def spec_of(self, plan: Any) -> PlanSpec | None:
        """Return the spec of a `Plan` that has this origin, checked; None for a program's plan."""

    def program_of(self, plan: Any) -> ProgramSpec | None:
        """Return the program of a `Plan` that has this origin; None for a collective's plan."""
        return None

    def machine_of(self, plan: Any) -> Machine:
        """Return the machine of a `Plan` that has this origin."""
        spec = self.spec_of(plan) or self.program_of(plan)
        assert spec is not None
        return spec.machine

    @property
    def datatype(self) -> str:
        """Return the datatype's name, as the document says it."""
        name: str = self.document["collective"].get("datatype", NO_DATATYPE)
        return name

    @property
    def operation(self) -> str | None:
        """Return the name of the operation, None where nothing is combined."""
        op = self.document["collective"].get("op")
        return None if op is None else op["name"]

    @property
    def commutes(self) -> bool:
        """Return whether operands may be exchanged, True where nothing is combined."""
        op = self.document["collective"].get("op")
        return op is None or bool(op.get("commutative", True))

    def to_json(self) -> str:
        """Return the document as one line, which is the same for equal specs."""
        return write_json(self.document)


@dataclass(frozen=True)
class KnownSpec(Origin):
    """The origin of a plan that was compiled in this process, or in that of another rank.

    Parameters
    ----------
    spec : PlanSpec
    """

    spec: PlanSpec

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The spec as a document, made when it is first asked for."""
        return self.spec.model_dump(mode="json")

    def spec_of(self, plan: Any) -> PlanSpec:
        """Return the spec."""
        return self.spec


@dataclass(frozen=True)
class KnownProgram(Origin):
    """The origin of the plan of a program.

    Parameters
    ----------
    program : ProgramSpec
    """

    program: ProgramSpec

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The program as a document, made when it is first asked for."""
        return self.program.model_dump(mode="json")

    def spec_of(self, plan: Any) -> None:
        """Return None, as a program has several collectives."""
        return

    def program_of(self, plan: Any) -> ProgramSpec:
        """Return the program."""
        return self.program

    @property
    def datatype(self) -> str:
        """Return the name of the datatype of the plan's elements."""
        return self.program.datatype

    @property
    def operation(self) -> str | None:
        """Return the name of the operation that combines elements; None if nothing does."""
        combining = self.program.combining
        return None if combining is None or combining.op is None else combining.op.name

    @property
    def commutes(self) -> bool:
        """Return whether operands may be exchanged."""
        return self.program.combining is None or self.program.combining.is_commutative
