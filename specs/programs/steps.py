"""Steps of a program: a collective on groups of ranks, or a computation of each rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from collplan.specs.collectives.collective import COLLECTIVES, Collective
from collplan.specs.collectives.collective_base import CollectiveModel
from collplan.specs.methods.decomposition import Decomposition
from collplan.specs.methods.named_option import Algorithms, PassChoice, Transport
from collplan.specs.programs.buffers import BufferRange, NamedBuffer
from collplan.specs.programs.computation import StepComputation
from collplan.specs.programs.groups import StepGroup
from collplan.specs.request import AUTO, FLAT, MESSAGES, Method
from collplan.specs.syntax.base import ShortModel, described, raise_together

METHOD: Final = tuple(Method.model_fields)
"""Fields of a step that say how its collective is computed."""
Buffers = Mapping[str, NamedBuffer]


def _read_list(value: Any) -> Any:
    return (value,) if isinstance(value, str | Mapping | BufferRange) else value


_ONE_OR_MORE: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
}
Ranges = Annotated[
    tuple[BufferRange, ...], BeforeValidator(_read_list), WithJsonSchema(_ONE_OR_MORE)
]
Names = Annotated[tuple[str, ...], BeforeValidator(_read_list), WithJsonSchema(_ONE_OR_MORE)]


def _step_schema(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a step as users write it, or of steps that are repeated."""
    kinds = {"enum": list(COLLECTIVES)}
    given = {"type": "object", "properties": {"kind": kinds}, "required": ["kind"]}
    collective = {"anyOf": [kinds, given], "description": "The collective, or its kind."}
    properties = {**fields["properties"], "collective": collective}
    repeated = {
        "type": "object",
        "properties": {
            "repeat": {"type": "integer", "minimum": 0, "description": "Number of times."},
            "index": {"type": "string", "description": "Name of the number, by default i."},
            "steps": {"type": "array", "description": "Steps, in which {i} is the number."},
        },
        "required": ["repeat", "steps"],
        "additionalProperties": False,
    }
    one = {key: entry for key, entry in fields.items() if key != "required"}
    return {"anyOf": [{**one, "properties": properties}, repeated]}


class ProgramStep(ShortModel):
    """A collective on groups of ranks, or a computation of each rank.

    Parameters
    ----------
    name : str
        Name of the step; by default its kind and its number.
    collective : Collective or None
        The collective. Its count and datatype follow from the buffers.
    send, receive : BufferRange or None
        Send buffer and receive buffer of the collective. Without `send`, it is in place: the
        contribution of each rank lies in `receive`.
    compute : StepComputation or None
        The computation, in a step without a collective.
    reads, writes : tuple of BufferRange
        Elements that a computation reads and writes.
    group : StepGroup
        Groups of ranks that take part, by default all ranks.
    after : tuple of str
        Names of steps that have ended on a rank before this one starts there, in addition to
        those that use the same elements.
    decomposition, algorithms, transport, passes
        As in `PlanSpec`. The decomposition ``auto`` is chosen for the whole program.
    """

    model_config = described(_step_schema)

    name: str
    collective: Collective | None = None
    send: BufferRange | None = None
    receive: BufferRange | None = None
    compute: StepComputation | None = None
    reads: Ranges = ()
    writes: Ranges = ()
    group: StepGroup = StepGroup(name="all")
    after: Names = ()
    decomposition: Decomposition = FLAT
    algorithms: Algorithms = AUTO
    transport: Transport = MESSAGES
    passes: tuple[PassChoice, ...] = ()

    def _check(self) -> None:
        raise_together(self._problems())

    def _problems(self) -> Iterator[str]:
        """Yield a message for each field that does not belong to this kind of step."""
        if (self.collective is None) == (self.compute is None):
            has = "has both collective and compute" if self.compute else "does nothing"
            yield f"step {self.name}: {has}; give a collective or compute"
            return
        foreign = ("send", "receive", *METHOD)
        kind, other = "computations", "reads and writes"
        if self.collective is not None:
            kind, other, foreign = "collectives", "send and receive", ("reads", "writes")
        for name in foreign:
            if getattr(self, name) != type(self).model_fields[name].default:
                yield f"step {self.name}: {name} is for {_other(kind)}, {kind} have {other}"

    @property
    def method(self) -> Method:
        """Return the method of the collective."""
        return Method(**{name: getattr(self, name) for name in METHOD})

    @property
    def read_ranges(self) -> tuple[BufferRange, ...]:
        """Return the ranges of which elements may be read."""
        if self.collective is None:
            return self.reads
        return tuple(one for one in (self.send, self.receive) if one is not None)

    @property
    def written_ranges(self) -> tuple[BufferRange, ...]:
        """Return the ranges of which elements may be written."""
        if self.collective is None:
            return self.writes
        return () if self.receive is None else (self.receive,)

    def misfits(self, buffers: Buffers, n_ranks: int) -> Iterator[str]:
        """Yield a line for each range that does not fit the buffers."""
        known = True
        for one in (*self.read_ranges, *self.written_ranges):
            if one.buffer not in buffers:
                names = ", ".join(buffers) or "none"
                yield f"step {self.name}: there is no buffer {one.buffer}; the buffers are {names}"
                known = False
            elif one.bounds(buffers[one.buffer].count)[1] > buffers[one.buffer].count:
                n = buffers[one.buffer].count
                yield f"step {self.name}: {one} ends behind {one.buffer}, which has {n} elements"
                known = False
        if self.compute is not None:
            yield from (f"step {self.name}: {line}" for line in self.compute.misfits(n_ranks))
        if known:
            yield from self._overlaps(buffers)

    def _overlaps(self, buffers: Buffers) -> Iterator[str]:
        """Yield a line for each two ranges that must be apart and are not."""
        pairs = [*combinations(self.written_ranges, 2)]
        if self.send is not None and self.receive is not None and not self.is_one_range:
            pairs.append((self.send, self.receive))
        for one, other in pairs:
            if overlap(one, other, buffers):
                yield (
                    f"step {self.name}: {one} and {other} overlap; give ranges that are apart, "
                    "or leave out send for a collective in place"
                )

    @property
    def is_one_range(self) -> bool:
        """Return whether the contributions lie in the receive buffer."""
        return self.collective is not None and self.send == self.receive


def overlap(one: BufferRange, other: BufferRange, buffers: Buffers) -> bool:
    """Return whether two ranges of known buffers have elements in common."""
    if one.buffer != other.buffer:
        return False
    count = buffers[one.buffer].count
    (first, end), (low, high) = one.bounds(count), other.bounds(count)
    return max(first, low) < min(end, high)


def _other(kind: str) -> str:
    return "computations" if kind == "collectives" else "collectives"


def completed(
    fields: Mapping[str, Any], number: int, buffers: Buffers, n_members: int
) -> Mapping[str, Any]:
    """Return the fields of a step with those that follow from the others.

    These are the name of the step, the count and the datatype of its collective, and whether it is
    in place.

    Parameters
    ----------
    fields : mapping
        Fields of a step, as users write them. What is not valid stays as it is.
    number : int
        Number of the step.
    buffers : mapping of str to NamedBuffer
    n_members : int
        Number of ranks of the largest group.
    """
    given = fields.get("collective")
    given = {"kind": given} if isinstance(given, str) else given
    kind = given.get("kind") if isinstance(given, Mapping) else "compute"
    fields = {"name": f"{kind} {number}", **fields}
    if not isinstance(given, Mapping):
        return fields
    model = COLLECTIVES.get(kind) if isinstance(kind, str) else None
    if model is None or not model.has_data:
        return {**fields, "collective": given}
    try:
        send, receive = (_range_of(fields.get(name)) for name in ("send", "receive"))
        known = [buffers[one.buffer] for one in (send, receive) if one is not None]
    except (ValueError, KeyError):
        return {**fields, "collective": {"count": 0, **given}}
    found = dict(given)
    if known:
        found.setdefault("datatype", known[0].datatype)
    if send is None and "in_place" in model.model_fields:
        found.setdefault("in_place", True)
        if model.receiver == "root" and not model.receives_blocks:
            # Only the root's input is in place for MPI: that of other ranks has the same range.
            fields = {**fields, "send": fields.get("receive")}
    if "count" in model.model_fields and "count" not in found and not model.has_edges:
        found["count"] = _count_of(model, send, receive, buffers, n_members)
    return {**fields, "collective": found}


def _range_of(value: Any) -> BufferRange | None:
    return None if value is None else BufferRange.model_validate(value)


def _count_of(
    model: type[CollectiveModel],
    send: BufferRange | None,
    receive: BufferRange | None,
    buffers: Buffers,
    n_members: int,
) -> int:
    """Return the count that fits a range: a share of it if it has a block for each rank."""
    is_sent = send is not None and not model.has_one_buffer
    one, has_blocks = (send, model.sends_blocks) if is_sent else (receive, model.receives_blocks)
    if not is_sent and send is None:
        # In place, contributions and results lie in the same range.
        has_blocks = model.sends_blocks or model.receives_blocks
    if one is None:
        return 0
    first, end = one.bounds(buffers[one.buffer].count)
    return (end - first) // (n_members if has_blocks else 1)
