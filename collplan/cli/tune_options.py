"""What the options of ``collplan tune`` say, checked and turned into a request."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from collplan.cli.bench.options import parse_sizes
from collplan.specs.errors import CollplanError

if TYPE_CHECKING:
    from collplan.specs import Collective, Machine, PlanSpec
    from collplan.tune.options import Request

_FLAGS: Final = {"restart": "--restart", "again": "--again", "as_json": "--json"}
_OPTIONS: Final = {
    "output": "-o",
    "start": "-n",
    "keep_within": "--keep-within",
    "at_most": "--at-most",
    "give_up": "--give-up",
}
_ALL: Final = "all"
_SOME: Final = 1 << 16
"""Elements of a collective whose size is not said yet."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What was said on the command line; see ``collplan tune --help``."""

    source: Path | None
    output: Path | None
    start: int | None
    collectives: str | None
    ranks: str | None
    sizes: str
    datatype: str | None
    op: str | None
    machine: str | None
    keep_within: float
    at_most: int | None
    tight: str
    least: int
    most: int
    seconds: float
    give_up: float
    again: bool
    restart: bool
    plot: Path | None
    as_json: bool

    def arguments(self) -> list[str]:
        """Return the arguments that say the same again, to ranks."""
        said = [] if self.source is None else [str(self.source)]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "source" or value is None or value is False:
                continue
            if field.name in _FLAGS:
                said.append(_FLAGS[field.name])
            else:
                said += [_OPTIONS.get(field.name, f"--{field.name}"), str(value)]
        return said

    def ranks_to_start(self) -> int | None:
        """Return how many ranks there must be, None where any number will do."""
        spec = self._spec()
        if self.start is not None or spec is None or "machine" not in spec.model_fields_set:
            return self.start
        return spec.machine.n_ranks

    def request(self) -> Request:
        """Return what to tune.

        Raises
        ------
        CollplanError
            If options don't make sense, alone or together.
        """
        from collplan.specs import Machine
        from collplan.tune.options import Request
        from collplan.tune.racing import Rules

        self._check_files()
        if self.again and self.restart:
            raise CollplanError("--again: --restart measures all anew anyway; give one of the two")
        if self.most < self.least:
            raise CollplanError(f"--most: {self.most} is less than --least {self.least}; raise it")
        collectives = tuple(self._collectives())
        machine = self._machine() or Machine()
        return Request(
            collectives=collectives,
            sizes=self._sizes(collectives[0]),
            ranks=self._ranks(),
            rules=Rules(_parse_percent(self.tight), self.least, self.most, self.seconds),
            keep_within=self.keep_within,
            at_most=self.at_most,
            network=machine.network,
            lanes=machine.lanes if "lanes" in machine.model_fields_set else None,
            numa_domains=machine.numa_domains,
            again=self.again,
            give_up_s=self.give_up,
        )

    def specs_to_list(self) -> list[PlanSpec]:
        """Return a spec of each collective on the machine, to list candidates of."""
        from collplan.cli.run import resize
        from collplan.specs import Machine, PlanSpec

        machine = self._machine() or Machine()
        return [
            resize(PlanSpec(machine=machine, collective=collective), self.start)
            for collective in self._collectives()
        ]

    def _check_files(self) -> None:
        from collplan.reports.plots import check_plot_path

        if self.output is None:
            raise CollplanError("-o: is missing; say where to write the table, as -o table.yaml")
        if self.output.is_dir():
            raise CollplanError(f"-o: {self.output} is a folder; give a file in it")
        if self.output.exists() and not self.output.is_file():
            raise CollplanError(
                f"-o: {self.output} is no regular file, and a table is read again to add to it; "
                f"give another file"
            )
        if not self.output.parent.is_dir():
            raise CollplanError(f"-o: there is no folder {self.output.parent}; make it first")
        if self.plot is not None:
            check_plot_path(self.plot)

    def _spec(self) -> PlanSpec | None:
        from collplan.cli.inputs import open_spec
        from collplan.select.candidates import require_known_algorithms

        if self.source is None:
            return None
        spec = open_spec(self.source)
        require_known_algorithms(spec)
        return spec

    def _machine(self) -> Machine | None:
        """Return the machine to predict for; None where none is known."""
        from collplan.specs.loading import load_machine, machine_at_hand

        if self.machine is not None:
            return load_machine(self.machine)
        spec = self._spec()
        if spec is not None and "machine" in spec.model_fields_set:
            return spec.machine
        return machine_at_hand()

    def _collectives(self) -> Iterator[Collective]:
        """Yield each collective once, with datatype and operation."""
        from collplan.specs.collective import COLLECTIVES

        spec = self._spec()
        own = None if spec is None else spec.collective
        if self.collectives is not None:
            names = [name.strip() for name in self.collectives.split(",")]
        else:
            names = [_ALL] if own is None else [own.kind]
        if names == [_ALL]:
            names = list(COLLECTIVES)
        for name in dict.fromkeys(names):
            if name not in COLLECTIVES:
                raise CollplanError(
                    f"--collectives: {name!r} is no collective; valid: {', '.join(COLLECTIVES)}"
                )
            yield self._collective(name, own)

    def _collective(self, kind: str, own: Collective | None) -> Collective:
        """Return a collective of a few elements, like the spec's as far as that goes."""
        from pydantic import ValidationError

        from collplan.specs.collective import COLLECTIVES, validate_collective
        from collplan.specs.explaining import explain

        known = COLLECTIVES[kind].model_fields
        given: dict[str, Any] = {} if own is None else own.model_dump(exclude={"kind"})
        given |= {"datatype": self.datatype} if self.datatype is not None else {}
        given |= {"op": self.op} if self.op is not None else {}
        given = {name: value for name, value in given.items() if name in known}
        given |= {"kind": kind} | ({"count": _SOME} if "count" in known else {})
        try:
            return validate_collective(given)
        except ValidationError as error:
            raise CollplanError(explain(error)) from None

    def _sizes(self, collective: Collective) -> tuple[int, ...]:
        from collplan.specs.collective import MAX_COUNT

        if not collective.has_data:
            return tuple(parse_sizes(self.sizes))
        datatype = str(collective.datatype)
        return tuple(parse_sizes(self.sizes, collective.itemsize, datatype, MAX_COUNT))

    def _ranks(self) -> tuple[int, ...]:
        if self.ranks is None or self.ranks == _ALL:
            return ()
        words = [word.strip() for word in self.ranks.split(",")]
        if not all(word.isdecimal() and int(word) > 0 for word in words):
            raise CollplanError(
                f"--ranks: {self.ranks!r} is no list of numbers of ranks; give it as 4,8, or all"
            )
        return tuple(sorted({int(word) for word in words}))


def _parse_percent(text: str) -> float:
    """Return what part of the whole is meant.

    Examples
    --------
    >>> _parse_percent("5%"), _parse_percent("0.05")
    (0.05, 0.05)
    """
    word = text.strip()
    try:
        part = float(word.removesuffix("%")) / (100 if word.endswith("%") else 1)
    except ValueError:
        part = 0.0
    if not 0 < part < 1:
        raise CollplanError(f"--tight: {text!r} is no part of a time; give it as 5%")
    return part
