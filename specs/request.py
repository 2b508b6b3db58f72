"""The request: everything a plan is compiled from."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from specs.base import SpecModel
from specs.choice import AlgorithmChoice, PassChoice
from specs.collective import Collective
from specs.machine import Machine

DECOMPOSITIONS: Final = ("flat", "auto")
"""Valid decompositions; ``auto`` means flat."""

AUTO: Final = AlgorithmChoice(name="auto")


def _check_decomposition(value: Any) -> Any:
    if value not in DECOMPOSITIONS:
        raise ValueError(f"{value!r} is no decomposition; valid: {', '.join(DECOMPOSITIONS)}")
    return value


Decomposition = Annotated[
    str, BeforeValidator(_check_decomposition), WithJsonSchema({"enum": list(DECOMPOSITIONS)})
]


class PlanSpec(SpecModel):
    """A machine, a collective on it, and how to plan it.

    Parameters
    ----------
    machine : Machine
        Where the ranks live; one rank on one node unless said otherwise.
    collective : Collective
        What to compute.
    decomposition : str
        How to split the collective over the machine: one of `DECOMPOSITIONS`.
    algorithms : AlgorithmChoice
        Which algorithm, with options; ``auto`` leaves it to the planner.
    passes : tuple of PassChoice
        Rewrites of the plan, in order.

    Examples
    --------
    >>> spec = PlanSpec.model_validate(
    ...     {"machine": {"ranks_per_node": 4}, "collective": {"kind": "bcast", "count": 8}}
    ... )
    >>> spec.machine.n_ranks, spec.collective.kind, spec.algorithms.name
    (4, 'bcast', 'auto')
    >>> PlanSpec.model_validate_json(spec.to_json()) == spec
    True
    """

    machine: Machine = Machine()
    collective: Collective
    decomposition: Decomposition = "flat"
    algorithms: AlgorithmChoice = AUTO
    passes: tuple[PassChoice, ...] = ()

    @model_validator(mode="after")
    def _check_root(self) -> Self:
        root = getattr(self.collective, "root", 0)
        n_ranks = self.machine.n_ranks
        if root >= n_ranks:
            raise ValueError(
                f"collective.root: {root} is not a rank of this machine; "
                f"its {n_ranks} ranks are 0 to {n_ranks - 1}"
            )
        return self

    def to_json(self) -> str:
        """Return the spec as one line of JSON: keys sorted, defaults included.

        Equal specs give equal text, on any machine.
        """
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def to_yaml(self) -> str:
        """Return the spec as YAML, defaults included."""
        import yaml

        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
